"""Where the estimated cycles of one compiled program go, and which of them only move data between layouts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Final

from xlarank.data.hlo.compiler.operations import FREE, Operation, read_operations
from xlarank.pipelines.programs.leaves import Leaf

_WIDTH, _LEFT, _ROW, _MOST = 900, 360, 22, 24
_PLURALS: Final = {"weight": "weights", "input": "inputs", "output": "outputs", "between": "between two operations"}


@dataclass(frozen=True)
class Cost:
    """One operation with its cycles.

    Attributes:
        name, opcode, shape: as the compiler has it.
        cycles: of all its runs.
        share: of the program's estimate.
        origin, source: the operation that its author wrote, and ``file:line``, as far as the module says.
    """

    name: str
    opcode: str
    shape: str
    cycles: int
    share: float
    origin: str
    source: str


@dataclass(frozen=True)
class Relayout(Cost):
    """A copy or transpose because layouts disagree.

    Attributes:
        before, after: layouts minor to major, of the value and of its copy.
        kind: ``weight``, ``input``, ``output`` or ``between``.
        tensor: name of the input or output; between two operations, the names of both.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    kind: str
    tensor: str


@dataclass(frozen=True)
class Diagnosis:
    """Costs of a compiled program, highest first; ``cycles`` is its estimate."""

    cycles: int
    operations: list[Cost]
    relayouts: list[Relayout]

    @property
    def moved(self) -> int:
        """Cycles of all relayouts."""
        return sum(one.cycles for one in self.relayouts)

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

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"moved_cycles": self.moved, "summary": self.summary}


def diagnose(text: str, inputs: Sequence[Leaf], outputs: Sequence[Leaf]) -> Diagnosis:
    """Return costs and relayouts of a compiled program's text, with inputs and outputs named."""
    operations = read_operations(text)
    total = sum(one.total for one in operations)
    costly = sorted((one for one in operations if one.total), key=lambda one: -one.total)
    entry = next(one.computation for one in operations)  # what runs first stands first
    by_name = {(one.computation, one.name): one for one in operations}
    users: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for one in operations:
        for operand in one.operands:
            users[one.computation, operand].append(one)

    def cost(one: Operation) -> dict[str, Any]:
        return {
            "name": one.name, "opcode": one.opcode, "shape": one.shape, "cycles": one.total,
            "share": one.total / total, "origin": one.origin, "source": one.source,
        }  # fmt: skip

    relayouts = []
    for one in costly:
        if one.relayout:
            kind, tensor = _belonging(one, by_name, users, inputs, outputs, entry)
            relayouts.append(Relayout(**cost(one), before=one.before, after=one.layout, kind=kind, tensor=tensor))
    return Diagnosis(total, [Cost(**cost(one)) for one in costly], relayouts)


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
    moved = {one.name: one for one in diagnosis.relayouts}
    shown = diagnosis.operations[:_MOST]
    most = max((one.share for one in shown), default=1.0)
    high = _ROW * (len(shown) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {high}" font-family="sans-serif" '
        f'font-size="12"><rect width="{_WIDTH}" height="{high}" fill="#fff"/>',
        f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>',
        f'<text x="8" y="36">{escape(diagnosis.summary)}</text>',
    ]
    for at, one in enumerate(shown):
        top = _ROW * (at + 2)
        wide = (_WIDTH - _LEFT - 180) * one.share / most
        note = f"{one.share:.1%}" + (f", {moved[one.name].kind}" if one.name in moved else "")
        label = f"{one.origin.rpartition('/')[2] or one.name} {one.shape}"
        parts += [
            f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">{escape(label[:56])}</text>',
            f'<rect x="{_LEFT}" y="{top + 3}" width="{wide:.1f}" height="{_ROW - 6}" '
            f'fill="{"#d9822b" if one.name in moved else "#2f6db5"}"/>',
            f'<text x="{_LEFT + wide + 6:.1f}" y="{top + 15}">{escape(note)}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])
