"""Relayouts: the copies that layout assignment inserts.

Two views of the same copies: *every* place where an operand is wanted in another layout than its
producer writes, and *chains* of constraints, transposes and reshapes from a producer to a reader.
Of a chain one copy remains, or none if it composes to the order in which the producer writes.
GPUs and TPUs simplify chains, CPUs do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from xlarank.features.layout.configuration_masks import Mask
from xlarank.features.layout.layout_assignment import CONSTRAINT, Assignment, Slot
from xlarank.features.layout.layout_mapping import Layout, element_order, minor_dimension, stride
from xlarank.features.layout.layout_program import RESHAPES, Passing

#: Opcodes between a producer and a reader that only rename dimensions, and all that only move.
_RENAMING: Final = RESHAPES | {"transpose"}
_CHAINED: Final = _RENAMING | {CONSTRAINT, "copy"}
#: Opcodes that read no elements, or those of a small tensor.
_UNREAD: Final = frozenset({"tuple", "broadcast"})
#: Opcodes that write any layout at the same cost.
_INDIFFERENT: Final = frozenset({"broadcast", "constant", "iota"})


class Relayout(NamedTuple):
    """A copy of an instruction's output from one layout to another.

    A chain counts at its producer: ``after`` is the layout from which no element would move up to
    the reader. If there is none, the chain counts at its last output, and ``before`` is None.
    """

    instruction: int
    before: Layout | None
    after: Layout


class _Link(NamedTuple):
    """An instruction of a chain, and what lies between its output and the reader.

    Attributes:
        unmoved: layout of the output from which no element moves up to the reader, if any.
        mask: configurations.
        moved: those in which elements move between a reshape and the reader.
    """

    instruction: int
    unmoved: Layout | None
    mask: Mask
    moved: Mask = 0


class Relayouts:
    """Relayouts under every configuration of a batch.

    Attributes:
        every: all copies, each with its configurations.
        chained: the copies that remain of chains, each with its configurations.
        last: instruction at the end of the chain of each of these.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.program = assignment.program
        self.every: dict[Relayout, Mask] = defaultdict(int)
        self.chained: dict[Relayout, Mask] = defaultdict(int)
        self.last: dict[Relayout, int] = {}
        self._find_every()
        self._find_chained()

    def bytes(self, relayout: Relayout) -> int:
        """Return the bytes of the tensor that is copied, without padding."""
        return self.program.bytes(self.assignment.tensor[relayout.instruction])

    def padded_bytes(self, relayout: Relayout) -> int:
        """Return the bytes that a relayout reads and writes, in the hardware's tiles."""
        node = self.assignment.tensor[relayout.instruction]
        layouts = relayout.before or relayout.after, relayout.after
        return sum(self.program.padded_bytes(node, layout) for layout in layouts)

    def stride(self, relayout: Relayout) -> int:
        """Return the elements between reads of neighbours; 2 if there is no single stride."""
        if relayout.before is None:
            return 2
        dims = self.assignment.dims[relayout.instruction]
        minor = minor_dimension(relayout.after, dims)
        return stride(relayout.before, dims, minor) if minor >= 0 else 1

    def transposes(self, relayout: Relayout) -> bool:
        """Return whether a relayout changes the minor-most dimension, or all there is."""
        if relayout.before is None:
            return True
        dims = self.assignment.dims[relayout.instruction]
        return minor_dimension(relayout.before, dims) != minor_dimension(relayout.after, dims)

    def _reads(self) -> Iterator[tuple[Slot, int, Layout, Mask]]:
        """Yield reads of tensors of several dimensions: operand, source, layout, configurations."""
        for slot, sources in self.assignment.sources.items():
            for source, part in sources:
                if len(self.assignment.dims[source]) > 1:
                    for layout, mask in self.assignment.wanted[slot].items():
                        if mask & part:
                            yield slot, source, layout, mask & part

    def _returned(self) -> Iterator[tuple[int, Layout, Mask]]:
        """Yield results of several dimensions: instruction, layout, configurations."""
        for instruction, mask in self.assignment.results:
            if len(self.assignment.dims[instruction]) > 1:
                yield instruction, self.assignment.result_layout(instruction), mask

    def _same(self, left: Layout | None, right: Layout | None, instruction: int) -> bool:
        """Return whether two layouts are one order of elements; None is like no other."""
        if left is None or right is None:
            return False
        dims = self.assignment.dims[instruction]
        return element_order(left, dims) == element_order(right, dims)

    # ---- every copy

    def _find_every(self) -> None:
        for slot, source, wanted, mask in self._reads():
            if self.assignment.opcode[slot[0]] != "tuple":
                self._copy(source, wanted, mask)
        for instruction, wanted, mask in self._returned():
            self._copy(instruction, wanted, mask)
        for node, passing in enumerate(self.program.passing):
            if passing is Passing.RESHAPES and self.program.dims[node]:
                self._copy_in_reshape(node)

    def _copy(self, instruction: int, wanted: Layout, mask: Mask) -> None:
        for written, part in self.assignment.written[instruction].items():
            if written != wanted and part & mask:
                self.every[Relayout(instruction, written, wanted)] |= part & mask

    def _copy_in_reshape(self, node: int) -> None:
        for wanted, mask in self.assignment.wanted[node, 0].items():
            unmoved = self.program.to_output(node, wanted)
            for written, part in self.assignment.written[node].items():
                if part & mask and not self._same(unmoved, written, node):
                    self.every[Relayout(node, None, written)] |= part & mask

    # ---- chains

    def _find_chained(self) -> None:
        """Follow each tensor that is read outside chains, or returned, back to its producer."""
        opcode = self.assignment.opcode
        ends: dict[tuple[int, Layout], Mask] = defaultdict(int)
        for slot, source, layout, mask in self._reads():
            if opcode[slot[0]] not in _CHAINED | _UNREAD:
                ends[source, layout] |= mask
        for instruction, layout, mask in self._returned():
            ends[instruction, layout] |= mask
        for (last, wanted), mask in ends.items():
            unknown = Relayout(last, None, wanted)
            links = [_Link(last, wanted, mask)]
            while links:
                link = links.pop()
                if opcode[link.instruction] in _CHAINED and self._source(link.instruction):
                    links += self._follow(link)
                else:
                    self._end(link, unknown)

    def _source(self, instruction: int) -> list[tuple[int, Mask]]:
        """Return what an instruction in a chain reads."""
        return self.assignment.sources.get((instruction, 0), [])

    def _follow(self, link: _Link) -> Iterator[_Link]:
        """Yield the next links of a chain, towards its producer."""
        assignment = self.assignment
        instruction, unmoved, mask, moved = link
        if assignment.opcode[instruction] in RESHAPES:
            for written, part in assignment.written[instruction].items():
                if not self._same(written, unmoved, instruction):
                    moved |= part & mask
        if unmoved is not None and assignment.opcode[instruction] in _RENAMING:
            unmoved = self.program.to_operand(instruction, unmoved)
        for source, part in self._source(instruction):
            rank = len(assignment.dims[source])
            if part & mask and rank > 1:
                fits = unmoved is not None and len(unmoved) == rank
                yield _Link(source, unmoved if fits else None, part & mask, moved)

    def _end(self, link: _Link, unknown: Relayout) -> None:
        """Add the copy that remains of a chain: ``unknown`` if no layout makes it a bitcast.

        Compilers do not see that moves on both sides of a reshape cancel.
        """
        producer, unmoved, mask, moved = link
        if self.assignment.opcode[producer] in _INDIFFERENT:
            return
        for written, part in self.assignment.written[producer].items():
            remaining = part & mask
            if self._same(written, unmoved, producer) or self._swapped(producer, written, unmoved):
                remaining &= moved
            if remaining:
                relayout = unknown
                if unmoved is not None:
                    relayout = Relayout(producer, written, unmoved)
                self.chained[relayout] |= remaining
                self.last[relayout] = unknown.instruction

    def _swapped(self, instruction: int, written: Layout, unmoved: Layout | None) -> bool:
        """Return whether a batched dot writes this layout by exchanging its operands."""
        rank = len(written)
        if self.assignment.opcode[instruction] != "dot" or rank < 3 or unmoved is None:
            return False
        return {*unmoved[:2]} == {rank - 1, rank - 2} and unmoved[2:] == written[2:]
