"""Memory lost to the hardware's tiles."""

from __future__ import annotations

import numpy as np

from data.schema import LAYOUT_SLOTS
from features.block import Block
from features.layout import LayoutContext
from features.tensors import Floats


def _columns() -> dict[str, str]:
    columns: dict[str, str] = {}
    for slot in LAYOUT_SLOTS:
        columns |= {
            f"padding__{slot}_waste__mean": f"mean over configurable nodes of the {slot}'s waste",
            f"padding__{slot}_waste__max": f"largest waste of a {slot}",
            f"padding__{slot}_waste_bytes__ratio": f"bytes of padding over true bytes, all {slot}s together",
            f"padding__{slot}_waste_change__mean": f"mean of the {slot}'s waste minus its default's",
            f"padding__{slot}_waste_change_bytes__ratio": f"bytes of padding beyond the default's over true "
            f"bytes, all {slot}s together",
        }
    return columns


class Padding(Block):
    """Padding waste (padded size / true size - 1) with the two minor-most dimensions rounded up to 128 x 8.

    TPU arrays live in tiles of 8 sublanes x 128 lanes; a layout decides which dimensions are rounded up.
    """

    kinds = ("layout",)
    columns = _columns()

    def compute(self, context: LayoutContext) -> Floats:
        columns = []
        for rows in context.slots.values():
            extra = rows.now.waste - rows.default.waste
            table = [rows.now.waste, rows.now.waste * rows.bytes, extra, extra * rows.bytes]
            mean, by_bytes, change, change_bytes = context.sum_rows(table).T
            columns += [
                mean / context.configurable_nodes,
                context.max_rows(rows.now.waste),
                by_bytes / rows.total_bytes,
                change / context.configurable_nodes,
                change_bytes / rows.total_bytes,
            ]
        return np.stack(columns, axis=1)
