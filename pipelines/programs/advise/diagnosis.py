"""Inputs and outputs of a program, its cycles by operation, and code that changes its layouts."""

from __future__ import annotations

import linecache
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xlarank.data.errors import counted
from xlarank.data.hlo.encoding import shape_text
from xlarank.data.hlo.messages import Message, instructions
from xlarank.pipelines.programs.compiler.constrain import Order, entry_shapes
from xlarank.pipelines.programs.compiler.cycles import FREE, Operation, read_operations
from xlarank.pipelines.programs.sources import source_line

_PLURALS: Final = {
    "weight": "of weights",
    "input": "of inputs",
    "output": "of outputs",
    "between": "between two operations",
}
#: Opcodes that pass a weight on to the operation that uses it.
_RESHAPING: Final = frozenset(
    "convert copy reshape transpose bitcast reverse broadcast slice".split()
)
#: Opcodes that may lie between a copy and the operations that it connects.
_PASSING: Final = FREE | {"copy", "convert", "reshape", "copy-start", "copy-done"}
_WEIGHT_NAME: Final = re.compile(r"weight|param|kernel|embed|\bbias", re.IGNORECASE)
#: Code that sets entry layouts after ``step, arguments = function()``.
_CODE: Final = """\
from jax.experimental.layout import Format, Layout

def formats(tree, orders):  # arrays not in orders are left as they are
    def format_of(path, x):
        order = orders.get(jax.tree_util.keystr(path))
        return sharding if order is None else Format(Layout(major_to_minor=order), sharding)

    return jax.tree_util.tree_map_with_path(format_of, tree)

def put(x, to):  # shapes are left as they are
    return x if isinstance(x, jax.ShapeDtypeStruct) else jax.device_put(x, to)

sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
inputs = {}
outputs = {}
in_formats = formats(arguments, inputs)
out_formats = formats(jax.eval_shape(step, *arguments), outputs)
step = jax.jit(step, in_shardings=in_formats, out_shardings=out_formats)
arguments = jax.tree_util.tree_map(put, arguments, in_formats)  # weights once, then each batch"""


@dataclass(frozen=True)
class Leaf:
    """An input, weight or output, and its new layout, if any.

    Attributes:
        path: its `jax.tree_util.keystr`, empty if not traced from a function.
        looped: whether a loop passes it from one step to the next.
    """

    kind: str
    name: str
    path: str
    shape: str
    before: Order = ()
    minor_to_major: Order = ()
    looped: bool = False


def leaves_of(module: Message, paths: Sequence[Sequence[str]]) -> tuple[list[Leaf], list[Leaf]]:
    """Return inputs and outputs of a module; with ``paths`` if a function was traced."""
    entry = next(part for part in module.computations if part.id == module.entry_computation_id)
    input_paths, output_paths = paths
    parameters = [node for node in entry.instructions if node.opcode == "parameter"]
    parameters.sort(key=lambda parameter: parameter.parameter_number)
    inputs = []
    for at, parameter in enumerate(parameters):
        name = parameter.metadata.op_name or parameter.name
        is_weight = _WEIGHT_NAME.search(name) or _used_as_weight(entry, parameter.id)
        path = input_paths[at] if input_paths else ""
        kind = "weight" if is_weight else "input"
        inputs.append(Leaf(kind, name, path, shape_text(parameter.shape)))
    outputs = []
    for at, shape in enumerate(map(shape_text, entry_shapes(module)[1])):
        path = output_paths[at] if output_paths else ""
        name = f"result{path}" if output_paths else f"output {at}"
        outputs.append(Leaf("output", name, path, shape))
    return inputs, outputs


def ties_of(module: Message, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> dict[int, int]:
    """Return which inputs a loop takes from outputs of its previous step, input -> output.

    Pairs are aliased (donated), or agree in shape and path. Full paths are compared first, then
    paths without the index of the argument: ``[0]['w']`` matches ``[1]['w']`` or ``['w']``.
    """
    aliases = module.input_output_alias.entries
    ties = {int(alias.parameter_number): int(sum(alias.output_shape_index)) for alias in aliases}
    for attempt in (0, 1):
        free: dict[tuple[str, str], int] = {}
        for at, leaf in enumerate(outputs):
            if at not in ties.values():
                paths = [leaf.path, leaf.path.partition("]")[2]][: attempt + 1]
                free = {(leaf.shape, path): at for path in paths if path} | free
        for at, leaf in enumerate(inputs):
            key = leaf.shape, [leaf.path, leaf.path.partition("]")[2]][attempt]
            if at not in ties and free.get(key, -1) not in (-1, *ties.values()):
                ties[at] = free[key]
    return ties


def _used_as_weight(entry: Message, parameter: int) -> bool:
    """Return whether a parameter is a product's second operand or the table of a gather."""
    users = defaultdict[int, list[Message]](list)
    for instruction in entry.instructions:
        for operand in set(instruction.operand_ids):
            users[operand].append(instruction)
    values = [parameter]
    for value in values:  # extended by results of operations that only change the form of a value
        for user in users[value]:
            if user.opcode in ("convolution", "dot", "gather"):
                return bool((user.operand_ids[0] == value) == (user.opcode == "gather"))
            if user.opcode in _RESHAPING and user.id not in values:
                values.append(user.id)
    return False


@dataclass(frozen=True)
class Diagnosis:
    """Estimated cycles of a compiled program; all records begin with the costliest.

    Attributes:
        moved_cycles: sum over ``relayouts``.
        operations: name, opcode, shape, origin, source and cycles of all runs.
        relayouts: copies and transposes forced by layouts: also the layouts ``before`` and
            ``after``, the ``kind`` and name of the ``tensor`` as of a `Leaf`, or ``between`` two
            operations.
    """

    cycles: int
    moved_cycles: int
    summary: str
    operations: list[dict[str, Any]]
    relayouts: list[dict[str, Any]]


def diagnose(text: str, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> Diagnosis:
    """Return costs and relayouts of a compiled program, with names of inputs and outputs."""
    operations = read_operations(text)
    costs = []
    relayouts = []
    entry = next((op.computation for op in operations), "")  # its operations come first
    for op in sorted((op for op in operations if op.total), key=lambda op: -op.total):
        cost: dict[str, Any] = {
            "name": op.name,
            "opcode": op.opcode,
            "shape": op.shape,
            "origin": op.origin,
            "source": op.source,
            "cycles": op.total,
        }
        costs.append(cost)
        if op.relayout:
            leaves = (inputs, outputs) if op.computation == entry else ((), ())
            kind, tensor = _tensor_of(op, *leaves)
            layouts = {"before": op.before, "after": op.layout}
            relayouts.append(cost | layouts | {"kind": kind, "tensor": tensor})
    cycles = sum(op.total for op in operations)
    moved = sum(op.total for op in operations if op.relayout)
    summary = _summary(Counter(copy["kind"] for copy in relayouts), moved, cycles)
    return Diagnosis(cycles, moved, summary, costs, relayouts)


def _summary(kinds: Counter[str], moved: int, cycles: int) -> str:
    if not cycles:
        return "nothing is estimated for this target; a TPU shows the copies that layouts force"
    if not kinds:
        return "no copy or transpose is forced by layouts"
    parts = [f"{kinds[kind]} {phrase}" for kind, phrase in _PLURALS.items() if kinds[kind]]
    number = "is 1 copy" if kinds.total() == 1 else f"are {kinds.total()} copies"
    return f"{moved / cycles:.0%} of the estimate {number} forced by layouts: {', '.join(parts)}"


def _tensor_of(copy: Operation, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> tuple[str, str]:
    """Return a relayout's ``kind`` and ``tensor``; inputs and outputs are of the entry alone."""

    def passes(op: Operation) -> bool:
        return op is copy or op.relayout or op.opcode in _PASSING

    producer = user = last = copy
    while passes(producer) and producer.inputs:
        producer = producer.inputs[0]
    if 0 <= producer.number < len(inputs):
        return inputs[producer.number].kind, inputs[producer.number].name
    while not user.root and passes(user) and user.users:
        last = user
        user = user.users[0]
    if user.root and outputs and passes(user):
        position = user.inputs.index(last) if user.opcode == "tuple" else 0
        return "output", outputs[position].name
    return "between", f"{producer.origin or producer.name} -> {user.origin or user.name}"


def changes_of(module: Message, layouts: Mapping[int, Order]) -> list[dict[str, Any]]:
    """Return a record for each node in ``layouts``; ``source``: its name in the JAX program."""
    nodes = [instruction for _, instruction in instructions(module)]
    changes = []
    for at, order in layouts.items():
        node = nodes[at]
        file, line = source_line(module, node)
        change = {
            "node": at,
            "name": node.name,
            "opcode": node.opcode,
            "shape": shape_text(node.shape),
            "source": node.metadata.op_name,
            "file": file,
            "line": line,
            "minor_to_major": order,
        }
        changes.append(change)
    return changes


def operation_lines(changes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return comments with the source line of each operation and the call that sets its layout."""
    lines = []
    if changes:
        lines.append("# from jax.experimental.layout import Layout, with_layout_constraint")
    gradients = 0
    for change in changes:
        if "transpose(" in change["source"]:
            gradients += 1
            continue
        location = f"{change['file']}:{change['line']}" if change["file"] else ""
        value = f"{change['opcode']} {change['shape']}"
        lines.append(_comment(", ".join(filter(None, (location, value, change["source"])))))
        if code := linecache.getline(change["file"], change["line"]).strip():
            lines.append(_comment(f"  {code}"))
        order = f"Layout(major_to_minor={change['minor_to_major'][::-1]})"
        lines.append(f"#   with_layout_constraint(value of the {change['opcode']}, {order})")
    if gradients:
        operations = counted(gradients, "operation")
        why = "JAX gives the gradient of a constrained value the same layout"
        lines.append(f"# {operations} of gradients, which have no value in the source: {why}")
    return lines


def _comment(text: str) -> str:
    """Return the text as a one-line comment; names in a module may contain line breaks."""
    return "# " + "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def entry_lines(inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> list[str]:
    """Return code that sets entry layouts after ``step, arguments = function()``, if any."""
    code = _CODE if inputs or outputs else ""
    for title, leaves in (("inputs", inputs), ("outputs", outputs)):
        rows = ""
        for leaf in leaves:
            comment = _comment(f"{leaf.kind} {leaf.name}, {leaf.shape}")
            rows += f"\n    {leaf.path!r}: {leaf.minor_to_major[::-1]},  {comment}"
        if rows:
            code = code.replace(f"{title} = {{}}", f"{title} = {{{rows}\n}}")
    return code.splitlines()
