"""Relayouts: copies that layout assignment inserts, and the quantities that their time depends on.

Two views of the same copies: *every* place where an operand is wanted in another layout than its producer writes,
and *chains* of constraints, transposes and reshapes between a producer and a consumer. A chain that composes to the
order in which the producer writes vanishes; GPUs and TPUs simplify such chains, CPUs do not.

Quantities are whole numbers, so that sums do not depend on their order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xlarank.features.layout.hardware import Hardware
from xlarank.features.layout.layout_assignment import Assignment, Mask, Slot
from xlarank.features.layout.layout_mapping import (
    Layout,
    element_order,
    minor_dimension,
    padded_bytes,
    permuted,
    row_major,
    stride,
)
from xlarank.features.layout.layout_program import LayoutProgram, Passing
from xlarank.features.program.slots import DOT_ROLES
from xlarank.features.program.tensors import Floats

#: Quantities -> meaning and unit.
QUANTITIES: Final = {
    "transposed": "bytes read and written by copies in chains that change the minor-most dimension",
    "straight": "bytes read and written by copies in chains that keep the minor-most dimension",
    "transposes": "copies in chains that change the minor-most dimension",
    "copies": "copies in chains",
    "padded": "bytes read and written by copies in chains, as padded to the hardware's tiles",
    "every_transposed": "bytes read and written by all copies from a stride above 1",
    "every_straight": "bytes read and written by all other copies",
    "every_copies": "all copies",
    "strided": "bytes copied, times log2(1 + stride of the reads)",
    "every_padded": "bytes read and written by all copies, as padded to the hardware's tiles",
    "constrained_turned": "bytes of tensors set to a layout other than row-major",
    "constrained_padded": "bytes of tensors with a set layout, as padded to the hardware's tiles",
    "strided_dots": "operations of dots that read neither operand along its contracted dimension",
    "half_strided_dots": "operations of dots that read an operand along another than its contracted dimension",
    "turned": "bytes written by elementwise operations in another order than row-major",
    "column_reduced": "bytes read by reductions that keep the minor-most dimension",
}
_NUMBER: Final = {name: at for at, name in enumerate(QUANTITIES)}
#: Opcodes between a producer and a consumer that only rename dimensions.
_CHAINED: Final = frozenset("constraint transpose reshape bitcast copy".split())
#: Opcodes that write any layout at no cost.
_MADE_ANYHOW: Final = frozenset("broadcast constant iota".split())
_CONTRACTED: Final = DOT_ROLES.index("contracted")


class Relayout(NamedTuple):
    """A copy of a tensor (the output of an instruction) from one layout to another; None if unknown."""

    instruction: int
    before: Layout | None
    after: Layout


class Relayouts:
    """Relayouts under every configuration of a batch.

    Attributes:
        every: all copies, each with its configurations.
        chained: copies in chains that do not vanish, each with its configurations.
    """

    def __init__(self, assignment: Assignment, hardware: Hardware) -> None:
        self.assignment, self.program, self.hardware = assignment, assignment.program, hardware
        self.every: dict[Relayout, Mask] = defaultdict(int)
        self.chained: dict[Relayout, Mask] = defaultdict(int)
        self._every()
        self._chained()

    # ---- copies

    def _every(self) -> None:
        assignment = self.assignment
        for slot, source, wanted, mask in self._reads():
            if assignment.opcode(slot[0]) == "tuple":
                continue
            for written, part in assignment.written[source].items():
                if written != wanted and part & mask:
                    self.every[Relayout(source, written, wanted)] |= part & mask
        for instruction, mask in assignment.results:
            if len(assignment.dims(instruction)) > 1:
                wanted = row_major(len(assignment.dims(instruction)))
                for written, part in assignment.written[instruction].items():
                    if written != wanted and part & mask:
                        self.every[Relayout(instruction, written, wanted)] |= part & mask
        for node, passing in enumerate(self.program.passing):
            if passing is Passing.RESHAPES and self.program.dims[node]:
                for wanted, mask in assignment.wanted[node, 0].items():
                    for written, part in assignment.written[node].items():
                        if part & mask and not self._same(self.program.to_output(node, wanted), written, node):
                            self.every[Relayout(node, None, written)] |= part & mask

    def _reads(self) -> Iterator[tuple[Slot, int, Layout, Mask]]:
        """Yield each read of a tensor of two or more dimensions: slot, source, layout, configurations."""
        for slot, sources in self.assignment.sources.items():
            for source, part in sources:
                if len(self.assignment.dims(source)) > 1:
                    for layout, mask in self.assignment.wanted[slot].items():
                        if mask & part:
                            yield slot, source, layout, mask & part

    def _same(self, left: Layout | None, right: Layout | None, instruction: int) -> bool:
        if left is None or right is None:
            return False
        dims = self.assignment.dims(instruction)
        return element_order(left, dims) == element_order(right, dims)

    # ---- chains

    def _chained(self) -> None:
        """Follow each tensor that is read back to its producer."""
        assignment = self.assignment
        ends: dict[tuple[int, Layout], Mask] = defaultdict(int)
        for slot, source, layout, mask in self._reads():
            if assignment.opcode(slot[0]) not in _CHAINED | {"tuple", "broadcast"}:
                ends[source, layout] |= mask
        for instruction, mask in assignment.results:
            if len(assignment.dims(instruction)) > 1:
                ends[instruction, row_major(len(assignment.dims(instruction)))] |= mask
        for (instruction, layout), mask in ends.items():
            self._follow(instruction, layout, layout, mask, ())

    def _follow(
        self, instruction: int, wanted: Layout, composed: Layout | None, mask: Mask, steps: tuple[Relayout, ...]
    ) -> None:
        """Follow a chain from an output that is wanted in a layout towards its producer.

        ``composed`` is the layout of this output that needs no move up to the consumer, None if there is none.
        """
        assignment = self.assignment
        for written, part in assignment.written[instruction].items():
            part &= mask
            if not part:
                continue
            here = steps
            if not self._same(written, wanted, instruction) and not self._swapped(instruction, written, wanted):
                here = (*steps, Relayout(instruction, written, wanted))
            if self._is_chained(instruction):
                self._follow_operand(instruction, written, composed, part, here)
            elif here and assignment.opcode(instruction) not in _MADE_ANYHOW:
                if composed is None or not self._same(written, composed, instruction):
                    self._add(here, part)

    def _is_chained(self, instruction: int) -> bool:
        if self.assignment.opcode(instruction) not in _CHAINED:
            return False
        return (instruction, 0) in self.assignment.sources

    def _follow_operand(
        self, instruction: int, written: Layout, composed: Layout | None, mask: Mask, steps: tuple[Relayout, ...]
    ) -> None:
        assignment, program = self.assignment, self.program
        renames = instruction in program.permutation or self._reshapes(instruction)
        if composed is not None and renames:
            composed = program.to_operand(instruction, composed)
        for source, part in assignment.sources[instruction, 0]:
            if not part & mask:
                continue
            if len(assignment.dims(source)) < 1:
                self._end(instruction, steps, part & mask)
                continue
            for read, reading in assignment.wanted[instruction, 0].items():
                common = reading & part & mask
                if common:
                    inside = self._inside(instruction, source, read, written)
                    self._follow(source, read, composed, common, (*steps, *inside))

    def _end(self, instruction: int, steps: tuple[Relayout, ...], mask: Mask) -> None:
        if steps:
            self._add(steps, mask)

    def _reshapes(self, instruction: int) -> bool:
        return instruction < len(self.program.passing) and self.program.passing[instruction] is Passing.RESHAPES

    def _inside(self, instruction: int, source: int, read: Layout, written: Layout) -> list[Relayout]:
        """Return the move that a transpose or reshape itself makes between the layouts of operand and output."""
        program = self.program
        if instruction in program.permutation:
            unmoved = permuted(written, program.permutation[instruction])
            return [] if self._same(unmoved, read, source) else [Relayout(source, read, unmoved)]
        if self._reshapes(instruction):
            unmoved_output = program.to_output(instruction, read)
            if not self._same(unmoved_output, written, instruction):
                return [Relayout(instruction, None, written)]
        return []

    def _swapped(self, instruction: int, written: Layout, wanted: Layout) -> bool:
        """Return whether a batched dot writes the wanted layout by exchanging its operands."""
        rank = len(written)
        if not self.hardware.backend.swaps_outputs or self.assignment.opcode(instruction) != "dot" or rank < 3:
            return False
        return {*wanted[:2]} == {rank - 1, rank - 2} and wanted[2:] == written[2:]

    def _add(self, steps: tuple[Relayout, ...], mask: Mask) -> None:
        for step in steps:
            self.chained[step] |= mask

    # ---- quantities

    def quantities(self, configs: int) -> Floats:
        """Return `QUANTITIES` of each configuration, ``(configs, quantities)``."""
        masks: dict[Mask, Floats] = {}
        for name, amount, mask in self._amounts():
            masks.setdefault(mask, np.zeros(len(QUANTITIES)))[_NUMBER[name]] += amount
        return unpacked([*masks], configs) @ np.array([*masks.values()]).reshape(-1, len(QUANTITIES))

    def _amounts(self) -> Iterator[tuple[str, int, Mask]]:
        """Yield quantity, amount and configurations."""
        for relayout, mask in self.chained.items():
            size = self.bytes(relayout.instruction)
            transposes = self.transposes(relayout)
            yield "transposed" if transposes else "straight", 2 * size, mask
            yield "copies", 1, mask
            yield "padded", self.padded(relayout), mask
            if transposes:
                yield "transposes", 1, mask
        for relayout, mask in self.every.items():
            size = self.bytes(relayout.instruction)
            step = self.stride(relayout)
            yield "every_transposed" if step > 1 else "every_straight", 2 * size, mask
            yield "every_copies", 1, mask
            yield "every_padded", self.padded(relayout), mask
            yield "strided", round(size * math.log2(1 + step)), mask
        yield from self._constrained()
        yield from self._operations()

    def _constrained(self) -> Iterator[tuple[str, int, Mask]]:
        for instruction, constraint in self.assignment.constraint.items():
            for layout, mask in constraint.layouts.items():
                yield "constrained_padded", self._padded(instruction, layout), mask
                if layout != row_major(len(layout)):
                    yield "constrained_turned", self.bytes(instruction), mask

    def _operations(self) -> Iterator[tuple[str, int, Mask]]:
        """Yield amounts of dots, reductions and elementwise operations."""
        assignment, program = self.assignment, self.program
        for node, passing in enumerate(program.passing):
            if program.opcode[node] == "dot" and len(program.operands[node]) == 2:
                left, right = (self._strided_reads(node, number) for number in (0, 1))
                flops = round(program.flops[node])
                yield "strided_dots", flops, left & right
                yield "half_strided_dots", flops, left | right
            elif node in program.reduced:
                tensor = program.operands[node][0]
                for layout, mask in assignment.wanted[node, 0].items():
                    if len(layout) > 1 and minor_dimension(layout, program.dims[tensor]) not in program.reduced[node]:
                        yield "column_reduced", self.bytes(tensor), mask
            elif passing is Passing.KEEPS and len(program.dims[node]) > 1:
                for layout, mask in assignment.written[node].items():
                    if layout != row_major(len(layout)):
                        yield "turned", self.bytes(node), mask

    def _strided_reads(self, node: int, number: int) -> Mask:
        """Return the configurations in which a dot's operand is not read along its contracted dimension."""
        dims = self.program.dims[self.program.operands[node][number]]
        roles = self.program.roles[node][number + 1]
        strided = 0
        for layout, mask in self.assignment.wanted[node, number].items():
            minor = minor_dimension(layout, dims)
            if minor >= 0 and roles[minor] != _CONTRACTED:
                strided |= mask
        return strided

    # ---- a single relayout

    def bytes(self, instruction: int) -> int:
        """Return the bytes of an instruction's output, without padding."""
        node = self.assignment.tensor[instruction]
        return math.prod(self.program.dims[node]) * self.program.element_bytes[node]

    def padded(self, relayout: Relayout) -> int:
        """Return the bytes that a relayout reads and writes, with padding."""
        before = relayout.after if relayout.before is None else relayout.before
        return self._padded(relayout.instruction, before) + self._padded(relayout.instruction, relayout.after)

    def _padded(self, instruction: int, layout: Layout) -> int:
        node = self.assignment.tensor[instruction]
        hardware = self.hardware
        tile = hardware.lanes, hardware.sublanes, hardware.word
        return padded_bytes(layout, self.program.dims[node], self.program.element_bytes[node], *tile)

    def stride(self, relayout: Relayout) -> int:
        """Return the elements between reads of neighbours in the new layout; 2 if the old one is unknown."""
        if relayout.before is None:
            return 2
        dims = self.assignment.dims(relayout.instruction)
        minor = minor_dimension(relayout.after, dims)
        return stride(relayout.before, dims, minor) if minor >= 0 else 1

    def transposes(self, relayout: Relayout) -> bool:
        """Return whether a relayout changes the minor-most dimension, or moves every element."""
        if relayout.before is None:
            return True
        dims = self.assignment.dims(relayout.instruction)
        return minor_dimension(relayout.before, dims) != minor_dimension(relayout.after, dims)


def unpacked(masks: list[Mask], configs: int) -> Floats:
    """Return masks as flags, ``(configs, masks)``.

    >>> unpacked([5, 2], 3).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    width = (configs + 7) // 8
    packed = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in masks), np.uint8)
    flags: NDArray[np.uint8] = np.unpackbits(packed.reshape(-1, width), axis=1, count=configs, bitorder="little")
    return flags.T.astype(np.float64)


def relayout_quantities(
    program: LayoutProgram, hardware: Hardware, types: NDArray[np.integer]
) -> Floats:
    """Return `QUANTITIES` of configurations, ``(configs, quantities)``; ``types`` ``(configs, K)`` of rows."""
    configs = len(types)
    assignment = Assignment(program, hardware.backend, types, configs)
    return Relayouts(assignment, hardware).quantities(configs)
