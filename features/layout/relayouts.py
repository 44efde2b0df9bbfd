"""Relayouts: copies that layout assignment inserts, and the quantities that their time depends on.

Two views of the same copies: *every* place where an operand is wanted in another layout than its producer writes,
and *chains* of constraints, transposes and reshapes between a producer and a reader, of which one copy remains, or
none if they compose to the order in which the producer writes. GPUs and TPUs simplify chains, CPUs do not.

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
from xlarank.features.layout.layout_assignment import CONSTRAINT, Assignment, Mask, Slot
from xlarank.features.layout.layout_mapping import (
    Layout,
    element_order,
    minor_dimension,
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
#: Opcodes between a producer and a reader that only rename dimensions, and all that compute nothing.
_RENAMING: Final = frozenset({"transpose", "reshape", "bitcast"})
_CHAINED: Final = _RENAMING | {CONSTRAINT, "copy"}
#: Opcodes that read no elements, or those of a smaller tensor.
_UNREAD: Final = frozenset({"tuple", "broadcast"})
#: Opcodes that write any layout at no cost.
_MADE_ANYHOW: Final = frozenset("broadcast constant iota".split())
_CONTRACTED: Final = DOT_ROLES.index("contracted")


class Relayout(NamedTuple):
    """A copy of an instruction's output from one layout to another.

    Attributes:
        before: layout that is read; None if elements come in no order that a layout describes.
        after: layout that is written. A chain is priced at its producer: ``after`` is the layout of the producer
            from which no element would move; if there is none, the copy is that of the chain's last output.
    """

    instruction: int
    before: Layout | None
    after: Layout


class Relayouts:
    """Relayouts under every configuration of a batch.

    Attributes:
        every: all copies, each with its configurations.
        chained: copies that remain of chains, one for each, with their configurations.
    """

    def __init__(self, assignment: Assignment, hardware: Hardware) -> None:
        self.assignment, self.program, self.hardware = assignment, assignment.program, hardware
        self.every: dict[Relayout, Mask] = defaultdict(int)
        self.chained: dict[Relayout, Mask] = defaultdict(int)
        self._find_every()
        self._find_chains()

    # ---- copies

    def _find_every(self) -> None:
        assignment = self.assignment
        for slot, source, wanted, mask in self._reads():
            if assignment.opcode[slot[0]] != "tuple":
                self._copy(source, wanted, mask)
        for instruction, wanted, mask in self._returned():
            self._copy(instruction, wanted, mask)
        for node, passing in enumerate(self.program.passing):
            if passing is not Passing.RESHAPES or not self.program.dims[node]:
                continue
            for read, mask in assignment.wanted[node, 0].items():
                for written, part in assignment.written[node].items():
                    if part & mask and not self._same(
                        self.program.to_output(node, read), written, node
                    ):
                        self.every[Relayout(node, None, written)] |= part & mask

    def _copy(self, instruction: int, wanted: Layout, mask: Mask) -> None:
        for written, part in self.assignment.written[instruction].items():
            if written != wanted and part & mask:
                self.every[Relayout(instruction, written, wanted)] |= part & mask

    def _reads(self) -> Iterator[tuple[Slot, int, Layout, Mask]]:
        """Yield each read of a tensor of two or more dimensions: slot, source, layout, configurations."""
        for slot, sources in self.assignment.sources.items():
            for source, part in sources:
                if len(self.assignment.dims[source]) > 1:
                    for layout, mask in self.assignment.wanted[slot].items():
                        if mask & part:
                            yield slot, source, layout, mask & part

    def _returned(self) -> Iterator[tuple[int, Layout, Mask]]:
        """Yield each result of two or more dimensions: instruction, layout, configurations."""
        for instruction, mask in self.assignment.results:
            rank = len(self.assignment.dims[instruction])
            if rank > 1:
                yield instruction, self.assignment.result_layout(instruction), mask

    def _same(self, left: Layout | None, right: Layout | None, instruction: int) -> bool:
        if left is None or right is None:
            return False
        dims = self.assignment.dims[instruction]
        return element_order(left, dims) == element_order(right, dims)

    # ---- chains

    def _find_chains(self) -> None:
        """Follow each tensor that an operation outside chains reads, or that is returned, back to its producer."""
        opcode = self.assignment.opcode
        ends: dict[tuple[int, Layout], Mask] = defaultdict(int)
        for slot, source, layout, mask in self._reads():
            if opcode[slot[0]] not in _CHAINED and opcode[slot[0]] not in _UNREAD:
                ends[source, layout] |= mask
        for instruction, layout, mask in self._returned():
            ends[instruction, layout] |= mask
        for (reader, wanted), mask in ends.items():
            self._follow(reader, wanted, mask, reader, wanted)

    def _follow(
        self, instruction: int, unmoved: Layout | None, mask: Mask, reader: int, wanted: Layout
    ) -> None:
        """Follow a chain from ``instruction`` towards the producer.

        ``unmoved`` is the layout of its output from which no element moves on the way to the ``reader``.
        """
        assignment, program = self.assignment, self.program
        if (
            assignment.opcode[instruction] not in _CHAINED
            or (instruction, 0) not in assignment.sources
        ):
            self._end(instruction, unmoved, mask, reader, wanted)
            return
        if unmoved is not None and assignment.opcode[instruction] in _RENAMING:
            unmoved = program.to_operand(instruction, unmoved)
        for source, part in assignment.sources[instruction, 0]:
            if part & mask and len(assignment.dims[source]) > 1:
                self._follow(source, unmoved, part & mask, reader, wanted)

    def _end(
        self, producer: int, unmoved: Layout | None, mask: Mask, reader: int, wanted: Layout
    ) -> None:
        if self.assignment.opcode[producer] in _MADE_ANYHOW:
            return
        for written, part in self.assignment.written[producer].items():
            part &= mask
            if (
                not part
                or self._same(written, unmoved, producer)
                or self._swapped(producer, written, unmoved)
            ):
                continue
            if unmoved is None:
                self.chained[Relayout(reader, None, wanted)] |= part
            else:
                self.chained[Relayout(producer, written, unmoved)] |= part

    def _swapped(self, instruction: int, written: Layout, unmoved: Layout | None) -> bool:
        """Return whether a batched dot writes the wanted layout by exchanging its operands."""
        rank = len(written)
        if not self.hardware.backend.swaps_outputs or self.assignment.opcode[instruction] != "dot":
            return False
        if rank < 3 or unmoved is None:
            return False
        return {*unmoved[:2]} == {rank - 1, rank - 2} and unmoved[2:] == written[2:]

    # ---- quantities

    def quantities(self, configs: int) -> Floats:
        """Return `QUANTITIES` of each configuration, ``(configs, quantities)``."""
        number: dict[Mask, int] = {}
        entries = [
            (number.setdefault(mask, len(number)), name, amount)
            for name, amount, mask in self._amounts()
        ]
        amounts = np.zeros((len(number), len(QUANTITIES)))
        for row, name, amount in entries:
            amounts[row, _NUMBER[name]] += amount
        return unpacked([*number], configs) @ amounts

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
                    if (
                        len(layout) > 1
                        and minor_dimension(layout, program.dims[tensor])
                        not in program.reduced[node]
                    ):
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
        return self._padded(relayout.instruction, before) + self._padded(
            relayout.instruction, relayout.after
        )

    def _padded(self, instruction: int, layout: Layout) -> int:
        return self.program.padded_bytes(self.assignment.tensor[instruction], layout)

    def stride(self, relayout: Relayout) -> int:
        """Return the elements between reads of neighbours in the new layout; 2 if there is no single stride."""
        if relayout.before is None:
            return 2
        dims = self.assignment.dims[relayout.instruction]
        minor = minor_dimension(relayout.after, dims)
        return stride(relayout.before, dims, minor) if minor >= 0 else 1

    def transposes(self, relayout: Relayout) -> bool:
        """Return whether a relayout changes the minor-most dimension, or moves every element."""
        if relayout.before is None:
            return True
        dims = self.assignment.dims[relayout.instruction]
        return minor_dimension(relayout.before, dims) != minor_dimension(relayout.after, dims)


def unpacked(masks: list[Mask], configs: int) -> Floats:
    """Return masks as flags, ``(configs, masks)``.

    >>> unpacked([5, 2], 3).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    width = (configs + 7) // 8
    packed = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in masks), np.uint8)
    flags: NDArray[np.uint8] = np.unpackbits(
        packed.reshape(-1, width), axis=1, count=configs, bitorder="little"
    )
    return flags.T.astype(np.float64)


def relayout_quantities(
    program: LayoutProgram, hardware: Hardware, types: NDArray[np.integer]
) -> Floats:
    """Return `QUANTITIES` of configurations, ``(configs, quantities)``; ``types`` ``(configs, K)`` of rows."""
    configs = len(types)
    assignment = Assignment(program, hardware.backend, types, configs)
    return Relayouts(assignment, hardware).quantities(configs)
