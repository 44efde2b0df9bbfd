"""Copies that layout assignment inserts.

Two views of the same copies: *every* place where an operand is wanted in another layout than its
producer writes, and *chains* of constraints, transposes and reshapes from a producer to a reader.
If a chain as a whole keeps the order of the elements, no copy remains. Otherwise one remains, and
another for each reshape through which the reader's layout cannot be followed back. GPUs and TPUs
simplify chains, CPUs do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from xlarank.features.layout.configuration_masks import Choices, Mask
from xlarank.features.layout.layout_assignment import CONSTRAINT, Assignment, Operand
from xlarank.features.layout.layout_mapping import Layout, element_order, row_major
from xlarank.features.layout.layout_program import RESHAPES

#: Opcodes between a producer and a reader that only rename dimensions, and all that only move.
_CHAINED: Final = RESHAPES | {"transpose", CONSTRAINT, "copy"}
#: Opcodes that write any layout at the same cost.
_INDIFFERENT: Final = frozenset({"broadcast", "constant", "iota"})
#: An instruction of a chain; the layout of its output from which no element moves up to the reader,
#: or up to a copy behind a reshape; the instruction that the reader or this copy reads; and the
#: configurations.
Link = tuple[int, Layout, int, Mask]


class Copy(NamedTuple):
    """A copy of an instruction's output from one layout to another.

    The copy of a chain counts at its producer, or at a reshape: ``after`` is the layout from which
    no element would move up to the reader, or to the next copy. ``before`` is None if a reshape
    moves elements in another way.
    """

    instruction: int
    before: Layout | None
    after: Layout


class Copies:
    """Copies under every configuration of a batch.

    Attributes:
        every: all copies, each with its configurations.
        chained: the copies that remain of chains, each with its configurations.
        last: instruction at the end of the chain of each of these.
        written, wanted: layouts between which the copies of chains remain, as in `Assignment`.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.program = assignment.program
        self.written, self.wanted = sink_copies(assignment)
        self.every: dict[Copy, Mask] = defaultdict(int)
        self.chained: dict[Copy, Mask] = defaultdict(int)
        self.last: dict[Copy, int] = {}
        self._find_every()
        self._find_chained()

    def _reads(
        self, wanted: Mapping[Operand, Mapping[Layout, Mask]]
    ) -> Iterator[tuple[str, int, Layout, Mask]]:
        """Yield reads and results of several dimensions; tuples want no layout.

        Each has the opcode of the reader (empty for results), source, layout and configurations.
        """
        dims = self.assignment.dims
        for operand, sources in self.assignment.sources.items():
            opcode = self.assignment.opcode[operand[0]]
            for source, part in sources:
                for layout, mask in wanted[operand].items() if len(dims[source]) > 1 else ():
                    if mask & part:
                        yield opcode, source, layout, mask & part
        for instruction, mask in self.assignment.results:
            if len(dims[instruction]) > 1:
                yield "", instruction, self.assignment.result_layout(instruction), mask

    def _same(self, left: Layout | None, right: Layout | None, instruction: int) -> bool:
        """Return whether two layouts are one order of elements; None is like no other."""
        if left is None or right is None:
            return False
        dims = self.assignment.dims[instruction]
        return element_order(left, dims) == element_order(right, dims)

    # ---- every copy

    def _find_every(self) -> None:
        outputs = self.assignment.written
        for _, source, wanted, mask in self._reads(self.assignment.wanted):
            for written, part in outputs[source].items():
                if written != wanted and part & mask:
                    self.every[Copy(source, written, wanted)] |= part & mask
        for node in sorted(self.program.reshapes):
            for wanted, mask in self.assignment.wanted[node, 0].items():
                unmoved = self.program.to_output(node, wanted)
                for written, part in outputs[node].items():
                    if part & mask and not self._same(unmoved, written, node):
                        self.every[Copy(node, None, written)] |= part & mask

    # ---- chains

    def _find_chained(self) -> None:
        """Follow each tensor that is read outside chains, or returned, back to its producer."""
        opcode = self.assignment.opcode
        ends: dict[tuple[int, Layout], Mask] = defaultdict(int)
        for reader, source, layout, mask in self._reads(self.wanted):
            if reader not in _CHAINED:
                ends[source, layout] |= mask
        links = [(last, wanted, last, mask) for (last, wanted), mask in ends.items()]
        while links:
            instruction, unmoved, last, mask = links.pop()
            reads = self.assignment.sources.get((instruction, 0))
            if opcode[instruction] not in _CHAINED or not reads:
                self._end(instruction, unmoved, last, mask)
            elif opcode[instruction] in RESHAPES:
                links += self._through_reshape(instruction, unmoved, last, mask)
            else:
                if opcode[instruction] == "transpose":
                    unmoved = self.program.to_operand(instruction, unmoved) or unmoved
                links += self._before(instruction, unmoved, last, mask)

    def _before(self, instruction: int, unmoved: Layout, last: int, mask: Mask) -> Iterator[Link]:
        """Yield the links before an instruction."""
        for source, part in self.assignment.sources[instruction, 0]:
            if part & mask and len(self.assignment.dims[source]) == len(unmoved) > 1:
                yield source, unmoved, last, part & mask

    def _through_reshape(self, node: int, unmoved: Layout, last: int, mask: Mask) -> Iterator[Link]:
        """Yield the links before a reshape, and add a copy behind it if it takes two.

        One copy suffices if the layout behind the reshape has one before it that moves nothing.
        Otherwise the reshape becomes a bitcast of the layout that it reads or writes, or of
        row-major ones, between two copies (XLA's ``ReshapeDecomposer``).
        """
        source = self.program.to_operand(node, unmoved)
        if source is not None:
            yield from self._before(node, source, last, mask)
            return
        dims = self.program.dims
        for written, writing in self.assignment.written[node].items():
            for wanted, reading in self.assignment.wanted[node, 0].items():
                part = mask & writing & reading
                if not part:
                    continue
                before = self.program.to_operand(node, written)
                after: Layout | None = written
                if before is None:
                    before = wanted
                    after = self.program.to_output(node, wanted)
                if after is None:
                    before = row_major(len(dims[self.program.operands[node][0]]))
                    after = row_major(len(dims[node]))
                if not self._same(after, unmoved, node):
                    self._add(Copy(node, after, unmoved), last, part)
                yield from self._before(node, before, node, part)

    def _end(self, producer: int, unmoved: Layout, last: int, mask: Mask) -> None:
        """Add the copy between a producer and the first instruction of its chain, if any."""
        if self.assignment.opcode[producer] in _INDIFFERENT:
            return
        for written, part in self.written[producer].items():
            if self._same(written, unmoved, producer) or self._swapped(producer, written, unmoved):
                continue
            if part & mask:
                self._add(Copy(producer, written, unmoved), last, part & mask)

    def _add(self, copy: Copy, last: int, mask: Mask) -> None:
        self.chained[copy] |= mask
        self.last[copy] = last

    def _swapped(self, instruction: int, written: Layout, unmoved: Layout) -> bool:
        """Return whether a row-major dot writes this layout by exchanging its operands."""
        rank = len(written)
        if self.assignment.opcode[instruction] != "dot" or instruction in self.program.merged:
            return False
        if written != row_major(rank) or rank < self.program.hardware.swapped_rank:
            return False
        return {*unmoved[:2]} == {*written[:2]} and unmoved[2:] == written[2:]


#: Operations that a copy moves behind if it is between all their operands and one layout.
_SINKING: Final = frozenset(
    "abs add and atan2 cbrt ceil compare complex concatenate convert cosine count-leading-zeros "
    "divide dynamic-slice exponential exponential-minus-one floor imag is-finite log log-plus-one "
    "logistic maximum minimum multiply negate not or pad popcnt power real reduce-window remainder "
    "reverse round-nearest-afz round-nearest-even rsqrt shift-left shift-right-arithmetic "
    "shift-right-logical sign sine slice sqrt subtract tan tanh xor".split()
)


def sink_copies(assignment: Assignment) -> tuple[list[Choices], dict[Operand, Choices]]:
    """Return `Assignment.written` and ``wanted`` after the back end moved copies, if it does so."""
    written = [*assignment.written]
    wanted = {**assignment.wanted}

    def copied(operand: Operand) -> dict[Layout, Mask]:
        """Return the layouts that copies before an operand read."""
        layouts: dict[Layout, Mask] = {}
        for source, part in assignment.sources[operand]:
            for layout, mask in written[source].items():
                elsewhere = mask & part & ~wanted[operand].get(layout, 0)
                layouts[layout] = layouts.get(layout, 0) | elsewhere
        return layouts

    program = assignment.program
    for node in assignment.order if program.hardware.sinks_copies else ():
        if node in program.reduced:  # reads and writes any layout
            wanted[node, 0] = wanted[node, 0].replaced(copied((node, 0)))
        elif assignment.opcode[node] in _SINKING:
            rank = len(assignment.dims[node])
            inputs = [len(assignment.dims[tensor]) for tensor in program.operands[node]]
            operands = [(node, at) for at, other in enumerate(inputs) if other == rank > 1]
            moved = copied(operands[0]) if operands else {}
            for layouts in map(copied, operands[1:]):
                moved = {layout: mask & layouts.get(layout, 0) for layout, mask in moved.items()}
            if any(moved.values()):
                written[node] = written[node].replaced(moved)
                wanted |= {operand: wanted[operand].replaced(moved) for operand in operands}
    return written, wanted
