"""Columns of copies, computed if the settings name the hardware whose labels they explain."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.features.block import Cause, Column, layout_block
from xlarank.features.layout.aggregation import Batch, BatchFunction
from xlarank.features.layout.hardware import HARDWARE, Hardware
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.layout_program import LayoutProgram
from xlarank.features.layout.relayout_quantities import QUANTITIES, relayout_quantities
from xlarank.features.program.slots import node_flops
from xlarank.features.program.tensors import Floats, log2p

#: Column of log2 of the estimated time.
TIME: Final = "relayout__time__log"
_COUNTS: Final = ("transposes", "copies", "every_copies")
_OPERATIONS: Final = ("strided_dots", "half_strided_dots")
_CAUSES: Final = {
    "padded": Cause.PADDING,
    "every_padded": Cause.PADDING,
    "constrained_padded": Cause.PADDING,
    "strided_dots": Cause.MINOR,
    "half_strided_dots": Cause.MINOR,
    "column_reduced": Cause.MINOR,
}


def _columns() -> dict[str, Column]:
    """Return the column of each quantity, in order, with its meaning and cause."""
    columns: dict[str, Column] = {}
    for name, meaning in QUANTITIES.items():
        suffix = "ratio"
        over = ", over the bytes of all tensors"
        if name in _COUNTS:
            suffix = "log"
            over = ", log2(1 + x)"
        elif name in _OPERATIONS:
            suffix = "share"
            over = ", over the operations of all dots"
        cause = _CAUSES.get(name, Cause.COPIES)
        columns[f"relayout__{name}__{suffix}"] = Column(meaning + over, cause)
    return columns


def program_ns(context: LayoutContext, hardware: Hardware) -> float:
    """Return the time of a program without copies at the peak rates, in ns.

    Tensors that a fusing compiler stores are written and read once.
    """
    stored = float(context.bytes[~context.fused].sum())
    seconds = (
        float(context.shared(node_flops).sum()) / hardware.peak + 2 * stored / hardware.bandwidth
    )
    return max(1.0, 1e9 * seconds)


@layout_block(
    cause=Cause.COPIES,
    columns={
        **_columns(),
        TIME: Column("estimated ns of the program with its copies, log2", Cause.ESTIMATE),
        "relayout__time__ratio": Column(
            "time of copies over the program's time without copies", Cause.ESTIMATE
        ),
    },
)
def relayout_costs(context: LayoutContext) -> BatchFunction:
    """Copies that a compiler inserts where layouts disagree, by simulated layout assignment.

    All columns are 0 unless the settings name the hardware. The estimated time is the
    program's time without copies, plus the hardware's cost of each quantity; nothing is learned.
    """
    if context.hardware is None:
        return lambda batch: np.zeros((len(batch), len(relayout_costs.columns)))
    hardware = HARDWARE[context.hardware]
    program = LayoutProgram(context, hardware)
    total_bytes = max(1.0, float(context.bytes.sum()))
    dot_flops = max(1.0, sum(program.flops.values()))
    divisors = [dot_flops if name in _OPERATIONS else total_bytes for name in QUANTITIES]
    is_count = np.array([name in _COUNTS for name in QUANTITIES])
    costs = np.array([hardware.costs.get(name, 0.0) for name in QUANTITIES])
    least = program_ns(context, hardware)

    def finalize(batch: Batch) -> Floats:
        quantities = relayout_quantities(program, batch.types)
        scaled = np.where(is_count, log2p(quantities), quantities / divisors)
        ns = (quantities * costs).sum(axis=1)
        return np.column_stack([scaled, np.log2(least + ns), ns / least])

    return finalize
