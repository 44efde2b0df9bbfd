"""Layouts that do not suit the hardware's lanes and sublanes."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.layout.aggregation import Aggregation, Request
from xlarank.features.layout.block import LayoutBlock
from xlarank.features.layout.context import LayoutContext

_WHAT = {
    "largest": "largest dimension is not minor-most",
    "lanes": "minor-most size is no multiple of the lanes (128)",
    "sublanes": "second minor-most size is no multiple of the sublanes (8)",
}


def _columns() -> dict[str, str]:
    columns: dict[str, str] = {}
    for slot in LAYOUT_SLOTS:
        for name, what in _WHAT.items():
            columns |= {
                f"violation__{slot}_{name}__share": f"share of configurable nodes: the {slot}'s {what}",
                f"violation__{slot}_{name}_bytes__share": f"share of the {slot} bytes: {what}",
                f"violation__{slot}_{name}_change__share": f"share of configurable nodes minus the default's: "
                f"the {slot}'s {what}",
            }
    return columns


class Violation(LayoutBlock):
    """Violation ratios: shares of configurable nodes (or of bytes) whose layout wastes lanes or sublanes.

    The first is the ratio that lifted Harvard's ordered pair accuracy from 0.6 to 0.75 (2023).
    """

    columns = _columns()

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        tables: list[NDArray[Any]] = []
        scales: list[float] = []
        for rows in context.slots.values():
            pairs = (
                (rows.now.violation, rows.default.violation),
                (rows.now.minor_misfit, rows.default.minor_misfit),
                (rows.now.second_misfit, rows.default.second_misfit),
            )
            for now, default in pairs:
                tables += [now, now * rows.bytes, now.astype(float) - default]
                scales += [context.configurable_nodes, rows.total_bytes, context.configurable_nodes]
        return aggregation.sum(tables, over=scales)
