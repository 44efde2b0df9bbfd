"""Inputs and outputs of a program, and where its cycles go: which of them only move data between layouts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from xlarank.data.hlo.compiler.constrain import Order, entry_shapes
from xlarank.data.hlo.compiler.operations import FREE, Operation, read_operations
from xlarank.data.hlo.encoding import ELEMENT_TYPES
from xlarank.data.hlo.messages import Message

_WIDTH, _LEFT, _ROW, _MOST = 900, 360, 22, 24
_PLURALS: Final = {
    "weight": "of weights", "input": "of inputs", "output": "of outputs", "between": "between two operations"
}  # fmt: skip
#: What hands the values of a weight on to the operation that multiplies by them.
_SAME: Final = frozenset({"convert", "copy", "reshape", "transpose", "bitcast", "reverse", "broadcast", "slice"})
_NAMED: Final = re.compile(r"weight|param|kernel|embed|\bbias", re.IGNORECASE)


@dataclass(frozen=True)
class Leaf:
    """An array that goes into a program or comes out of it.

    Attributes:
        kind: ``weight`` (an input that is one by its name, or by its use as second operand of a convolution or
            product or as a table), ``input`` or ``output``.
        name: for people, ``weights['w1']``.
        path: in the tuple of arguments, or in the result, as `jax.tree_util.keystr` has it; empty for a module that
            no function made.
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
    """Return inputs and outputs of a module; ``paths`` are those of a function, empty for a module."""
    entry = next(one for one in module.computations if one.id == module.entry_computation_id)
    parameters = [one for one in entry.instructions if one.opcode == "parameter"]
    inputs = []
    for at, one in enumerate(sorted(parameters, key=lambda one: one.parameter_number)):
        name = one.metadata.op_name or one.name
        kind = "weight" if _NAMED.search(name) or _multiplies(entry, one.id) else "input"
        inputs.append(Leaf(kind, name, paths[0][at] if paths[0] else "", shape_text(one.shape)))
    shapes = enumerate(map(shape_text, entry_shapes(module)[1]))
    if not paths[1]:
        return inputs, [Leaf("output", f"output {at}", "", shape) for at, shape in shapes]
    return inputs, [Leaf("output", f"result{paths[1][at]}", paths[1][at], shape) for at, shape in shapes]


def ties_of(module: Message, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> dict[int, int]:
    """Return inputs that a loop takes from outputs of its last step, as positions: input -> output.

    Those are aliased (donated), or have the same shape and path, at first the whole path, then below the argument:
    ``[0]['w']`` becomes ``[1]['w']`` or ``['w']``.
    """
    ties = {
        int(one.parameter_number): int(sum(one.output_shape_index)) for one in module.input_output_alias.entries
    }
    for start in (0, 1):
        free: dict[tuple[str, str], int] = {}
        for at, one in enumerate(outputs):
            if at not in ties.values():
                paths = [one.path, one.path.partition("]")[2]][: start + 1]
                free = {(one.shape, path): at for path in paths if path} | free
        for at, one in enumerate(inputs):
            key = one.shape, [one.path, one.path.partition("]")[2]][start]
            if at not in ties and free.get(key, -1) not in (-1, *ties.values()):
                ties[at] = free[key]
    return ties


def _multiplies(entry: Message, parameter: int) -> bool:
    """Whether a parameter comes to a convolution or product as second operand, or is a table to gather from."""
    users: dict[int, list[Message]] = defaultdict(list)
    for one in entry.instructions:
        for operand in set(one.operand_ids):
            users[operand].append(one)
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
    """An operation of a compiled program with the cycles of all its runs and their share in the estimate.

    Attributes:
        origin, source: the operation's name in the program as it was written, and ``file:line``, where known.
    """

    name: str
    opcode: str
    shape: str
    origin: str
    source: str
    cycles: int
    share: float


@dataclass(frozen=True)
class Relayout(Cost):
    """A copy or transpose because layouts disagree: of a ``weight``, an ``input``, an ``output`` or ``between`` two
    operations, whose names ``tensor`` holds. ``before`` and ``after`` are layouts, minor to major.
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
    """Return costs and relayouts of a compiled program's text, with inputs and outputs named."""
    operations = read_operations(text)
    cycles = sum(one.total for one in operations)
    values = {(one.computation, one.name): one for one in operations}
    users: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for one in operations:
        for operand in one.operands:
            users[one.computation, operand].append(one)
    costs, relayouts = [], []
    for one in sorted((one for one in operations if one.total), key=lambda one: -one.total):
        cost = Cost(one.name, one.opcode, one.shape, one.origin, one.source, one.total, one.total / cycles)
        costs.append(cost)
        if one.relayout:
            # what runs first stands first
            leaves = (inputs, outputs) if one.computation == operations[0].computation else ((), ())
            of = _belonging(one, values, users, *leaves)
            relayouts.append(Relayout(**vars(cost), before=one.before, after=one.layout, kind=of[0], tensor=of[1]))
    moved = sum(one.cycles for one in relayouts)
    summary = _summary(relayouts, moved / cycles) if cycles else "the compiler estimates no cycles of this program"
    return Diagnosis(cycles, moved, summary, costs, relayouts)


def _summary(relayouts: Sequence[Relayout], share: float) -> str:
    if not relayouts:
        return "no copy or transpose is forced by layouts"
    kinds = Counter(one.kind for one in relayouts)
    parts = ", ".join(f"{kinds[kind]} {words}" for kind, words in _PLURALS.items() if kinds[kind])
    number = "is 1 copy" if len(relayouts) == 1 else f"are {len(relayouts)} copies"
    return f"{share:.0%} of the estimate {number} forced by layouts: {parts}"


def _belonging(
    one: Operation,
    values: Mapping[tuple[str, str], Operation],
    users: Mapping[tuple[str, str], list[Operation]],
    inputs: Sequence[Leaf],
    outputs: Sequence[Leaf],
) -> tuple[str, str]:
    """Return what a relayout belongs to: kind and name. Computations but the entry have no leaves."""
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
    """Return the costliest operations as bars, relayouts in another colour, as SVG."""
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
