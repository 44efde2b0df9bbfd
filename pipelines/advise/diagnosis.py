"""Inputs and outputs of a program, and where its cycles go: which of them only move data between layouts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from xlarank.data.hlo.compiler.constrain import entry_shapes
from xlarank.data.hlo.compiler.operations import FREE, Operation, read_operations
from xlarank.data.hlo.encoding import ELEMENT_TYPES
from xlarank.data.hlo.messages import Message

_WIDTH, _LEFT, _ROW, _MOST = 900, 360, 22, 24
_PLURALS: Final = {"weight": "weights", "input": "inputs", "output": "outputs", "between": "between two operations"}
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
    entry = next((one for one in module.computations if one.id == module.entry_computation_id), None)
    parameters = {
        one.parameter_number: one for one in (entry.instructions if entry else ()) if one.opcode == "parameter"
    }
    shapes, results = entry_shapes(module)
    inputs = []
    for at, shape in enumerate(shapes):
        one = parameters.get(at)
        name = (one.metadata.op_name or one.name) if one is not None else f"parameter {at}"
        weight = one is not None and (_NAMED.search(name) or _multiplies(entry, one.id))
        path = paths[0][at] if at < len(paths[0]) else ""
        inputs.append(Leaf("weight" if weight else "input", name, path, shape_text(shape)))
    outputs = []
    for at, shape in enumerate(results):
        path = paths[1][at] if at < len(paths[1]) else ""
        name = f"result{path}" if paths[1] else f"output {at}"
        outputs.append(Leaf("output", name, path, shape_text(shape)))
    return inputs, outputs


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
class Relayout:
    """A copy or transpose because layouts disagree: of a ``weight``, an ``input``, an ``output`` or ``between`` two
    operations, whose names ``tensor`` holds.
    """

    operation: Operation
    kind: str
    tensor: str


@dataclass(frozen=True)
class Diagnosis:
    """Operations of a compiled program with their cycles, the costliest first; ``cycles`` is its estimate."""

    cycles: int
    operations: list[Operation]
    relayouts: list[Relayout]

    @property
    def moved(self) -> int:
        """Cycles of all relayouts."""
        return sum(one.operation.total for one in self.relayouts)

    @property
    def summary(self) -> str:
        """One sentence.

        >>> Diagnosis(9, [], []).summary
        'no copy or transpose is forced by layouts'
        """
        if not self.relayouts:
            return "no copy or transpose is forced by layouts"
        kinds = Counter(one.kind for one in self.relayouts)
        parts = ", ".join(f"{kinds[kind]} of {_PLURALS[kind]}" for kind in _PLURALS if kinds[kind])
        number = "1 copy" if len(self.relayouts) == 1 else f"{len(self.relayouts)} copies"
        verb = "is" if len(self.relayouts) == 1 else "are"
        share = self.moved / max(1, self.cycles)
        return f"{share:.0%} of the estimate {verb} {number} forced by layouts: {parts}".replace(
            "of between", "between"
        )

    def share(self, one: Operation) -> float:
        """Share of an operation in the estimate."""
        return one.total / max(1, self.cycles)

    def as_json(self) -> dict[str, Any]:
        def plain(one: Operation) -> dict[str, Any]:
            words = {key: getattr(one, key) for key in ("name", "opcode", "shape", "origin", "source")}
            return words | {"cycles": one.total, "share": self.share(one)}

        relayouts = [
            plain(one.operation)
            | {
                "before": one.operation.before,
                "after": one.operation.layout,
                "kind": one.kind,
                "tensor": one.tensor,
            }
            for one in self.relayouts
        ]
        operations = list(map(plain, self.operations))
        numbers = {"cycles": self.cycles, "moved_cycles": self.moved, "summary": self.summary}
        return numbers | {"operations": operations, "relayouts": relayouts}


def diagnose(text: str, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> Diagnosis:
    """Return costs and relayouts of a compiled program's text, with inputs and outputs named."""
    operations = read_operations(text)
    costly = sorted((one for one in operations if one.total), key=lambda one: -one.total)
    entry = next(one.computation for one in operations)  # what runs first stands first
    by_name = {(one.computation, one.name): one for one in operations}
    users: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for one in operations:
        for operand in one.operands:
            users[one.computation, operand].append(one)

    relayouts = [
        Relayout(one, *_belonging(one, by_name, users, inputs, outputs, entry)) for one in costly if one.relayout
    ]
    return Diagnosis(sum(one.total for one in operations), costly, relayouts)


def _belonging(
    one: Operation,
    by_name: Mapping[tuple[str, str], Operation],
    users: Mapping[tuple[str, str], list[Operation]],
    inputs: Sequence[Leaf],
    outputs: Sequence[Leaf],
    entry: str,
) -> tuple[str, str]:
    """What a relayout belongs to: kind and name."""
    producer = one
    while _passes(producer) or producer is one:
        above = by_name.get((one.computation, producer.operands[0])) if producer.operands else None
        if above is None:
            break
        producer = above
    if producer.number >= 0 and one.computation == entry and producer.number < len(inputs):
        leaf = inputs[producer.number]
        return leaf.kind, leaf.name
    value, consumer = one, one
    while not value.root and (_passes(value) or value is one) and users[one.computation, value.name]:
        consumer, value = value, users[one.computation, value.name][0]
    if value.root and one.computation == entry and (value is one or _passes(value)):
        at = value.operands.index(consumer.name) if value.opcode == "tuple" else 0
        return ("output", outputs[at].name) if at < len(outputs) else ("output", "result")
    return "between", f"{producer.origin or producer.name} -> {value.origin or value.name}"


def _passes(one: Operation) -> bool:
    """Whether a value is only handed on or moved."""
    return (
        one.relayout
        or one.opcode in FREE
        or one.opcode in ("copy", "convert", "reshape", "copy-start", "copy-done")
    )


def picture(diagnosis: Diagnosis, title: str) -> str:
    """Return the costliest operations as bars, relayouts in another colour, as SVG."""
    moved = {one.operation.name: one for one in diagnosis.relayouts}
    shown = diagnosis.operations[:_MOST]
    most = max(map(diagnosis.share, shown), default=1.0)
    high = _ROW * (len(shown) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {high}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDTH}" height="{high}" fill="#fff"/>',
        f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>',
        f'<text x="8" y="36">{escape(diagnosis.summary)}</text>',
    ]
    for at, one in enumerate(shown):
        top = _ROW * (at + 2)
        wide = (_WIDTH - _LEFT - 180) * diagnosis.share(one) / most
        note = f"{diagnosis.share(one):.1%}" + (f", {moved[one.name].kind}" if one.name in moved else "")
        label = f"{one.origin.rpartition('/')[2] or one.name} {one.shape}"
        parts += [
            f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{escape(label[:56])}</text>',
            f'<rect x="{_LEFT}" y="{top + 3}" width="{wide:.1f}" height="{_ROW - 6}" '
            f'fill="{"#d9822b" if one.name in moved else "#2f6db5"}"/>',
            f'<text x="{_LEFT + wide + 6:.1f}" y="{top + 15}">{escape(note)}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])
