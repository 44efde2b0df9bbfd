"""Cycles of a compiled program by operation, and code that changes its layouts."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from xlarank.data.errors import counted
from xlarank.data.hlo.encoding import shape_text
from xlarank.data.hlo.messages import Message, instructions
from xlarank.pipelines.programs.compiler.constrain import Order
from xlarank.pipelines.programs.compiler.cycles import Operation, read_operations
from xlarank.pipelines.programs.leaves import Leaf
from xlarank.pipelines.programs.sources import source_line

#: Opcodes that may lie between a copy and the operations that it connects.
_PASSING: Final = frozenset(
    "bitcast convert copy copy-done copy-start get-tuple-element opt-barrier reshape tuple "
    "while".split()
)
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
class Diagnosis:
    """Estimated cycles of a compiled program; all records begin with the costliest.

    Attributes:
        moved_cycles: sum over ``copies``.
        operations: name, opcode, shape, origin, source and cycles of all runs.
        copies: copies and transposes forced by layouts: also the layouts ``before`` and
            ``after``, the ``kind`` and name of the ``tensor`` as of a `Leaf`, or ``between`` two
            operations.
    """

    cycles: int
    moved_cycles: int
    summary: str
    operations: list[dict[str, Any]]
    copies: list[dict[str, Any]]


def diagnose(text: str, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> Diagnosis:
    """Return costs and copies of a compiled program, with names of inputs and outputs."""
    operations = read_operations(text)
    costs = []
    copies = []
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
        if op.is_copy:
            leaves = (inputs, outputs) if op.computation == entry else ((), ())
            kind, tensor = _tensor_of(op, *leaves)
            layouts = {"before": op.before, "after": op.layout}
            copies.append(cost | layouts | {"kind": kind, "tensor": tensor})
    cycles = sum(op.total for op in operations)
    moved = sum(op.total for op in operations if op.is_copy)
    summary = _summary(Counter(copy["kind"] for copy in copies), moved, cycles)
    return Diagnosis(cycles, moved, summary, costs, copies)


def _summary(kinds: Counter[str], moved: int, cycles: int) -> str:
    if not cycles:
        return "nothing is estimated for this target; a TPU shows the copies that layouts force"
    if not kinds:
        return "no copy or transpose is forced by layouts"
    parts = [f"{kinds[kind]} of {kind}s" for kind in ("weight", "input", "output") if kinds[kind]]
    if kinds["between"]:
        parts.append(f"{kinds['between']} between two operations")
    number = "is 1 copy" if kinds.total() == 1 else f"are {kinds.total()} copies"
    return f"{moved / cycles:.0%} of the estimate {number} forced by layouts: {', '.join(parts)}"


def _tensor_of(copy: Operation, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> tuple[str, str]:
    """Return a copy's ``kind`` and ``tensor``; inputs and outputs are of the entry alone."""

    def passes(op: Operation) -> bool:
        return op is copy or op.is_copy or op.opcode in _PASSING

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
    own = [change for change in changes if "transpose(" not in change["source"]]
    for change in own:
        location = f"{change['file']}:{change['line']}" if change["file"] else change["name"]
        value = f"{change['opcode']} {change['shape']}"
        lines.append(_comment(", ".join(filter(None, (location, value, change["source"])))))
        if code := linecache.getline(change["file"], change["line"]).strip():
            lines.append(_comment(f"  {code}"))
        order = f"Layout(major_to_minor={change['minor_to_major'][::-1]})"
        lines.append(f"#   with_layout_constraint(value of the {change['opcode']}, {order})")
    if gradients := len(changes) - len(own):
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
