"""Inputs and outputs of a program, and its cycles by operation, including those of forced relayouts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from xlarank.data.hlo.compiler.constrain import Order, entry_shapes
from xlarank.data.hlo.compiler.cycles import FREE, Operation, read_operations
from xlarank.data.hlo.encoding import ELEMENT_TYPES
from xlarank.data.hlo.messages import Message

_WIDTH, _LEFT, _ROW, _MOST = 900, 360, 22, 24
_PLURALS: Final = {
    "weight": "of weights", "input": "of inputs", "output": "of outputs", "between": "between two operations"
}  # fmt: skip
#: Opcodes that pass a weight on to the operation that uses it.
_SAME: Final = frozenset({"convert", "copy", "reshape", "transpose", "bitcast", "reverse", "broadcast", "slice"})
_NAMED: Final = re.compile(r"weight|param|kernel|embed|\bbias", re.IGNORECASE)


@dataclass(frozen=True)
class Leaf:
    """An input or output array of a program.

    Attributes:
        kind: ``input``, ``output`` or ``weight``. Weights are inputs with a typical name, or used as the second
            operand of a convolution or dot, or as the table of a gather.
        name: such as ``weights['w1']``.
        path: `jax.tree_util.keystr` in the arguments or the result; empty if not traced from a function.
        shape: such as ``f32[8,128]``.
    """

    kind: str
    name: str
    path: str
    shape: str


def shape_text(shape: Message) -> str:
    """Return a shape as XLA writes it, such as ``f32[8,128]``."""
    name = ELEMENT_TYPES.get(shape.element_type, f"type{shape.element_type}")
    return f"{name}[{','.join(map(str, shape.dimensions))}]"


def leaves_of(module: Message, paths: Sequence[Sequence[str]]) -> tuple[list[Leaf], list[Leaf]]:
    """Return inputs and outputs of a module; ``paths`` are a function's leaves, empty for other modules."""
    entry = next(part for part in module.computations if part.id == module.entry_computation_id)
    parameters = [instruction for instruction in entry.instructions if instruction.opcode == "parameter"]
    inputs = []
    for at, parameter in enumerate(sorted(parameters, key=lambda parameter: parameter.parameter_number)):
        name = parameter.metadata.op_name or parameter.name
        kind = "weight" if _NAMED.search(name) or _multiplies(entry, parameter.id) else "input"
        inputs.append(Leaf(kind, name, paths[0][at] if paths[0] else "", shape_text(parameter.shape)))
    shapes = enumerate(map(shape_text, entry_shapes(module)[1]))
    if not paths[1]:
        return inputs, [Leaf("output", f"output {at}", "", shape) for at, shape in shapes]
    return inputs, [Leaf("output", f"result{paths[1][at]}", paths[1][at], shape) for at, shape in shapes]


def ties_of(module: Message, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> dict[int, int]:
    """Return positions of inputs that a loop takes from outputs of its previous step, input -> output.

    Both are aliased (donated), or have the same shape and path: the full path, else the path without the argument's
    index, so ``[0]['w']`` matches ``[1]['w']`` or ``['w']``.
    """
    aliases = module.input_output_alias.entries
    ties = {int(alias.parameter_number): int(sum(alias.output_shape_index)) for alias in aliases}
    for start in (0, 1):
        free: dict[tuple[str, str], int] = {}
        for at, leaf in enumerate(outputs):
            if at not in ties.values():
                paths = [leaf.path, leaf.path.partition("]")[2]][: start + 1]
                free = {(leaf.shape, path): at for path in paths if path} | free
        for at, leaf in enumerate(inputs):
            key = leaf.shape, [leaf.path, leaf.path.partition("]")[2]][start]
            if at not in ties and free.get(key, -1) not in (-1, *ties.values()):
                ties[at] = free[key]
    return ties


def _multiplies(entry: Message, parameter: int) -> bool:
    """Return whether a parameter is the second operand of a convolution or dot, or the table of a gather."""
    users = defaultdict[int, list[Message]](list)
    for instruction in entry.instructions:
        for operand in set(instruction.operand_ids):
            users[operand].append(instruction)
    waiting, seen = [parameter], set[int]()
    while waiting:
        value = waiting.pop(0)
        for user in users[value]:
            if user.opcode in ("convolution", "dot", "gather"):
                return bool((user.operand_ids[0] == value) == (user.opcode == "gather"))
            if user.opcode in _SAME and user.id not in seen:
                seen.add(user.id)
                waiting.append(user.id)
    return False


@dataclass(frozen=True)
class Cost:
    """An `Operation` with the cycles of all its runs and their share of the estimate."""

    name: str
    opcode: str
    shape: str
    origin: str
    source: str
    cycles: int
    share: float


@dataclass(frozen=True)
class Relayout(Cost):
    """A copy or transpose forced by disagreeing layouts.

    Attributes:
        before, after: layouts, minor to major.
        kind: ``weight``, ``input``, ``output`` or ``between`` (two operations).
        tensor: name of the array, or of both operations.
    """

    before: Order
    after: Order
    kind: str
    tensor: str


@dataclass(frozen=True)
class Diagnosis:
    """Operations with their cycles, the costliest first; ``moved_cycles`` are those of relayouts."""

    cycles: int
    moved_cycles: int
    summary: str
    operations: list[Cost]
    relayouts: list[Relayout]


def diagnose(text: str, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> Diagnosis:
    """Return costs and relayouts of a compiled program, with names of inputs and outputs."""
    operations = read_operations(text)
    cycles = sum(op.total for op in operations)
    values = {(op.computation, op.name): op for op in operations}
    users = defaultdict[tuple[str, str], list[Operation]](list)
    for op in operations:
        for operand in op.operands:
            users[op.computation, operand].append(op)
    costs, relayouts = [], []
    for op in sorted((op for op in operations if op.total), key=lambda op: -op.total):
        cost = Cost(op.name, op.opcode, op.shape, op.origin, op.source, op.total, op.total / cycles)
        costs.append(cost)
        if op.relayout:
            # the entry computation comes first
            leaves = (inputs, outputs) if op.computation == operations[0].computation else ((), ())
            kind, tensor = _belonging(op, values, users, *leaves)
            relayouts.append(Relayout(**vars(cost), before=op.before, after=op.layout, kind=kind, tensor=tensor))
    moved = sum(copy.cycles for copy in relayouts)
    summary = _summary(relayouts, moved / cycles) if cycles else "the compiler estimates no cycles of this program"
    return Diagnosis(cycles, moved, summary, costs, relayouts)


def _summary(relayouts: Sequence[Relayout], share: float) -> str:
    if not relayouts:
        return "no copy or transpose is forced by layouts"
    kinds = Counter(copy.kind for copy in relayouts)
    parts = ", ".join(f"{kinds[kind]} {words}" for kind, words in _PLURALS.items() if kinds[kind])
    number = "is 1 copy" if len(relayouts) == 1 else f"are {len(relayouts)} copies"
    return f"{share:.0%} of the estimate {number} forced by layouts: {parts}"


def _belonging(
    one: Operation, values: Mapping[tuple[str, str], Operation], users: Mapping[tuple[str, str], list[Operation]],
    inputs: Sequence[Leaf], outputs: Sequence[Leaf],
) -> tuple[str, str]:  # fmt: skip
    """Return ``kind`` and ``tensor`` of a relayout; only the entry computation has inputs and outputs."""
    producer = one
    while (producer is one or _passes(producer)) and producer.operands:
        producer = values[one.computation, producer.operands[0]]
    if 0 <= producer.number < len(inputs):
        return inputs[producer.number].kind, inputs[producer.number].name
    value, consumer = one, one
    while not value.root and (value is one or _passes(value)) and users[one.computation, value.name]:
        consumer, value = value, users[one.computation, value.name][0]
    if value.root and outputs and (value is one or _passes(value)):
        return "output", outputs[value.operands.index(consumer.name) if value.opcode == "tuple" else 0].name
    return "between", f"{producer.origin or producer.name} -> {value.origin or value.name}"


def _passes(one: Operation) -> bool:
    return one.relayout or one.opcode in FREE | {"copy", "convert", "reshape", "copy-start", "copy-done"}


def picture(diagnosis: Diagnosis, title: str) -> str:
    """Draw the costliest operations as an SVG bar chart, with relayouts highlighted."""
    moved = {one.name: one.kind for one in diagnosis.relayouts}
    shown = diagnosis.operations[:_MOST]
    high = _ROW * (len(shown) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {high}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDTH}" height="{high}" fill="#fff"/>',
        f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>',
        f'<text x="8" y="36">{escape(diagnosis.summary)}</text>',
    ]
    for at, one in enumerate(shown):
        top = _ROW * (at + 2)
        wide = (_WIDTH - _LEFT - 180) * one.share / shown[0].share
        note = f"{one.share:.1%}" + (f", {moved[one.name]}" if one.name in moved else "")
        label = f"{one.origin.rpartition('/')[2] or one.name} {one.shape}"
        parts += [
            f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{escape(label[:56])}</text>',
            f'<rect x="{_LEFT}" y="{top + 3}" width="{wide:.1f}" height="{_ROW - 6}" '
            f'fill="{"#d9822b" if one.name in moved else "#2f6db5"}"/>',
            f'<text x="{_LEFT + wide + 6:.1f}" y="{top + 15}">{escape(note)}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])
