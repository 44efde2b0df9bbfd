"""Copies that XLA:GPU moves behind the operations that read them, so that they meet others.

Source: xla/service/gpu/transforms/move_copy_to_users.cc of openxla/xla.
"""

from __future__ import annotations

from typing import Final

from xlarank.features.layout.configuration_masks import Choices, Mask
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
