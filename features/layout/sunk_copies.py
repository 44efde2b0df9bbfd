"""Copies that XLA:GPU moves behind the operations that read them, so that they meet others.

Source: xla/service/gpu/transforms/move_copy_to_users.cc of openxla/xla.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Final

from xlarank.features.layout.configuration_masks import Mask
from xlarank.features.layout.layout_assignment import Assignment, Slot
from xlarank.features.layout.layout_mapping import Layout

#: Operations that a copy moves behind if it is between all their operands and one layout.
_SINKING: Final = frozenset(
    "abs add and atan2 cbrt ceil compare complex concatenate convert cosine count-leading-zeros "
    "divide dynamic-slice exponential exponential-minus-one floor imag is-finite log log-plus-one "
    "logistic maximum minimum multiply negate not or pad popcnt power real reduce-window remainder "
    "reverse round-nearest-afz round-nearest-even rsqrt shift-left shift-right-arithmetic "
    "shift-right-logical sign sine slice sqrt subtract tan tanh xor".split()
)
#: Layouts with the configurations that have them.
Layouts = dict[Layout, Mask]


class SunkCopies:
    """Layouts of an assignment, and those after copies were moved if the back end does so.

    Attributes:
        written: layouts of each instruction's output.
        wanted: layouts in which each operand is read.
    """

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.written: list[Layouts] = [*assignment.written]
        self.wanted: dict[Slot, Layouts] = {**assignment.wanted}
        if assignment.program.hardware.backend.sinks_copies:
            for instruction in assignment.order:
                if instruction in assignment.program.reduced:  # reads and writes any layout
                    self._read((instruction, 0), self._copied((instruction, 0)))
                elif assignment.opcode[instruction] in _SINKING:
                    self._sink(instruction)

    def _sink(self, node: int) -> None:
        """Move copies from one layout of all operands behind a node."""
        dims = self.assignment.dims
        rank = len(dims[node])
        inputs = self.assignment.program.operands[node]
        slots = [(node, at) for at, tensor in enumerate(inputs) if len(dims[tensor]) == rank > 1]
        if not slots:
            return
        copied = [self._copied(slot) for slot in slots]
        moved = {
            layout: reduce(and_, (layouts.get(layout, 0) for layouts in copied))
            for layout in copied[0]
        }
        moved = {layout: mask for layout, mask in moved.items() if mask}
        if moved:
            self.written[node] = _replaced(self.written[node], moved)
            for slot in slots:
                self._read(slot, moved)

    def _copied(self, slot: Slot) -> Layouts:
        """Return the layouts that copies before an operand read."""
        copied: Layouts = {}
        for source, part in self.assignment.sources[slot]:
            for layout, mask in self.written[source].items():
                elsewhere = mask & part & ~self.wanted[slot].get(layout, 0)
                if elsewhere:
                    copied[layout] = copied.get(layout, 0) | elsewhere
        return copied

    def _read(self, slot: Slot, layouts: Layouts) -> None:
        self.wanted[slot] = _replaced(self.wanted[slot], layouts)


def _replaced(layouts: Layouts, others: Layouts) -> Layouts:
    """Return layouts with those of some configurations replaced."""
    taken = reduce(lambda left, right: left | right, others.values(), 0)
    replaced = {layout: mask & ~taken for layout, mask in layouts.items() if mask & ~taken}
    for layout, mask in others.items():
        replaced[layout] = replaced.get(layout, 0) | mask
    return replaced
