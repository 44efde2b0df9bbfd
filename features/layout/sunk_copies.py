"""Copies that XLA:GPU moves behind the operations that read them, so that they meet others.

Source: xla/service/gpu/transforms/move_copy_to_users.cc of openxla/xla.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Final

from xlarank.features.layout.configuration_masks import Mask
from xlarank.features.layout.layout_assignment import Assignment, Operand
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


def sink_copies(assignment: Assignment) -> tuple[list[Layouts], dict[Operand, Layouts]]:
    """Return what is written and wanted, as in `Assignment`, after copies were moved if the back
    end does so.
    """
    written: list[Layouts] = [*assignment.written]
    wanted: dict[Operand, Layouts] = {**assignment.wanted}

    def copied(operand: Operand) -> Layouts:
        """Return the layouts that copies before an operand read."""
        layouts: Layouts = {}
        for source, part in assignment.sources[operand]:
            for layout, mask in written[source].items():
                elsewhere = mask & part & ~wanted[operand].get(layout, 0)
                if elsewhere:
                    layouts[layout] = layouts.get(layout, 0) | elsewhere
        return layouts

    program = assignment.program
    for node in assignment.order if program.hardware.sinks_copies else ():
        if node in program.reduced:  # reads and writes any layout
            wanted[node, 0] = _replaced(wanted[node, 0], copied((node, 0)))
        elif assignment.opcode[node] in _SINKING:
            rank = len(assignment.dims[node])
            inputs = [len(assignment.dims[tensor]) for tensor in program.operands[node]]
            operands = [(node, at) for at, other in enumerate(inputs) if other == rank > 1]
            moved = _common([copied(operand) for operand in operands])
            if moved:
                written[node] = _replaced(written[node], moved)
            for operand in operands if moved else ():
                wanted[operand] = _replaced(wanted[operand], moved)
    return written, wanted


def _common(copied: list[Layouts]) -> Layouts:
    """Return the layouts that all operands are copied from."""
    if not copied:
        return {}
    moved = {
        layout: reduce(and_, (layouts.get(layout, 0) for layouts in copied)) for layout in copied[0]
    }
    return {layout: mask for layout, mask in moved.items() if mask}


def _replaced(layouts: Layouts, others: Layouts) -> Layouts:
    """Return layouts with those of some configurations replaced."""
    taken = reduce(lambda left, right: left | right, others.values(), 0)
    replaced = {layout: mask & ~taken for layout, mask in layouts.items() if mask & ~taken}
    for layout, mask in others.items():
        replaced[layout] = replaced.get(layout, 0) | mask
    return replaced
