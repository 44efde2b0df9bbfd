"""Columns of copies: the quantities that their time depends on, and the estimated time.

Quantities are whole numbers, so that sums do not depend on their order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.block import Cause, Column, layout_block
from xlarank.features.layout.aggregation import Batch, BatchFunction
from xlarank.features.layout.configuration_masks import Mask, unpacked
from xlarank.features.layout.hardware import HARDWARE
from xlarank.features.layout.layout_assignment import Assignment
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.layout_mapping import minor_dimension, read_stride, row_major
from xlarank.features.layout.layout_program import LayoutProgram
from xlarank.features.layout.relayouts import Copies, Copy
from xlarank.features.program.slots import DOT_ROLES, node_flops
from xlarank.features.program.tensors import Floats, log2p

#: Column of log2 of the estimated time.
TIME: Final = "relayout__time__log"
#: Quantities -> meaning and unit.
QUANTITIES: Final = {
    "transposed": "bytes read and written by copies in chains that change the minor-most dimension",
    "straight": "bytes read and written by copies in chains that keep the minor-most dimension",
    "transposes": "copies in chains that change the minor-most dimension",
    "copies": "copies in chains",
    "padded": "bytes read and written by copies in chains, in the hardware's tiles",
    "every_transposed": "bytes read and written by all copies from a stride above 1",
    "every_straight": "bytes read and written by all other copies",
    "every_copies": "all copies",
    "strided": "bytes of all copies, times log2(1 + stride of the reads)",
    "every_padded": "bytes read and written by all copies, in the hardware's tiles",
    "constrained_turned": "bytes of tensors set to a layout other than row-major",
    "constrained_padded": "bytes of tensors with a set layout, in the hardware's tiles",
    "strided_dots": "operations of dots that read both operands across the contracted dimension",
    "half_strided_dots": "operations of dots that read an operand across the contracted dimension",
    "turned": "bytes written by elementwise operations in another order than row-major",
    "column_reduced": "bytes read by reductions that keep the minor-most dimension",
}
#: Quantities that are counts, that are operations, and that have another cause than copies.
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
_NUMBER: Final = {name: at for at, name in enumerate(QUANTITIES)}


def relayout_quantities(program: LayoutProgram, types: NDArray[np.integer]) -> Floats:
    """Return `QUANTITIES` of configurations, ``(configs, quantities)``.

    ``types`` ``(configs, K)`` are the types of their rows.
    """
    copies = Copies(Assignment(program, types))
    amounts: dict[Mask, Floats] = defaultdict(lambda: np.zeros(len(QUANTITIES)))
    for chained, masks in ((True, copies.chained), (False, copies.every)):
        for copy, mask in masks.items():
            for name, amount in copy_amounts(copies, copy, chained=chained).items():
                amounts[mask][_NUMBER[name]] += amount
    for _, name, amount, mask in node_amounts(copies):
        amounts[mask][_NUMBER[name]] += amount
    table = np.array([*amounts.values()]).reshape(-1, len(QUANTITIES))
    return np.asarray(unpacked([*amounts], len(types)) @ table)


def copy_amounts(copies: Copies, copy: Copy, *, chained: bool) -> dict[str, int]:
    """Return what a copy adds to each quantity, as the rest of a chain or as one of all."""
    program = copies.program
    node = copies.assignment.tensor[copy.instruction]
    size = program.bytes[node]
    layouts = copy.before or copy.after, copy.after
    stride = 2  # if there is no single one
    if copy.before is not None:
        stride = read_stride(*layouts, program.dims[node])
    prefix = "" if chained else "every_"
    amounts = {
        f"{prefix}{'straight' if stride == 1 else 'transposed'}": 2 * size,
        f"{prefix}copies": 1,
        f"{prefix}padded": sum(program.padded_bytes(node, layout) for layout in layouts),
    }
    if chained:
        return {**amounts, "transposes": int(stride != 1)}
    return {**amounts, "strided": round(size * math.log2(1 + stride))}


def node_amounts(copies: Copies) -> Iterator[tuple[int, str, int, Mask]]:
    """Yield what layouts add to quantities of nodes themselves: node, quantity, amount, where."""
    assignment = copies.assignment
    program = assignment.program
    for instruction, choices in assignment.constraint.items():
        node = assignment.tensor[instruction]
        for layout, mask in choices.items():
            yield node, "constrained_padded", program.padded_bytes(node, layout), mask
            if layout != row_major(len(layout)):
                yield node, "constrained_turned", program.bytes[node], mask
    for node, keeps in enumerate(program.keeps):
        if program.opcode[node] == "dot" and len(program.operands[node]) == 2:
            left, right = (_strided_reads(assignment, node, number) for number in (0, 1))
            flops = round(program.flops[node])
            yield node, "strided_dots", flops, left & right
            yield node, "half_strided_dots", flops, left | right
        elif node in program.reduced:
            tensor = program.operands[node][0]
            removed = program.reduced[node]
            for layout, mask in copies.wanted[node, 0].items():
                if len(layout) > 1 and minor_dimension(layout, program.dims[tensor]) not in removed:
                    yield node, "column_reduced", program.bytes[tensor], mask
        elif keeps and len(program.dims[node]) > 1:
            for layout, mask in assignment.written[node].items():
                if layout != row_major(len(layout)):
                    yield node, "turned", program.bytes[node], mask


def _strided_reads(assignment: Assignment, node: int, number: int) -> Mask:
    """Return where a dot reads an operand across its contracted dimension."""
    program = assignment.program
    dims = program.dims[program.operands[node][number]]
    contracted = program.groups[node][number + 1][DOT_ROLES.index("contracted")]
    strided = 0
    for layout, mask in assignment.wanted[node, number].items():
        minor = minor_dimension(layout, dims)
        if minor >= 0 and minor not in contracted:
            strided |= mask
    return strided


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

    All columns are 0 unless the hardware is known. The estimated time is the program's time without
    copies, at the peak rates, plus the hardware's cost of each quantity; nothing is learned. A
    tensor that a fusing compiler stores is written and read once.
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
    flops = float(context.shared(node_flops).sum())
    stored = float(context.bytes[~context.fused].sum())
    least = max(1.0, 1e9 * (flops / hardware.peak + 2 * stored / hardware.bandwidth))

    def finalize(batch: Batch) -> Floats:
        quantities = relayout_quantities(program, batch.types)
        scaled = np.where(is_count, log2p(quantities), quantities / divisors)
        ns = (quantities * costs).sum(axis=1)
        return np.column_stack([scaled, np.log2(least + ns), ns / least])

    return finalize
