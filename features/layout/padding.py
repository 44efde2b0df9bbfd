"""Memory lost to the hardware's tiles, and layouts that do not suit its lanes and sublanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Tier
from xlarank.features.layout.aggregation import Aggregation, Batch, Finalize, LayoutBlock, Request
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.program.opcode_classes import COARSE_CLASSES
from xlarank.features.program.tensors import Floats

_WASTE: Final = {
    "waste__mean": "mean of the waste over {}",
    "waste__max": "largest waste, {}",
    "waste_bytes__ratio": "bytes of padding over true bytes, all {} together",
    "waste_change__mean": "mean of the waste minus the default's over {}",
    "waste_change_bytes__ratio": "bytes of padding beyond the default's over true bytes, all {} together",
}
_WASTE_OF_CLASS: Final = {"waste__log": "sum of the waste over {}, log2(1 + x)", **_WASTE}


def _all_slots(block: str) -> dict[str, str]:
    return {
        f"{block}__{slot}_{what}": text.format(f"{slot} tensors of configurable nodes")
        for slot in LAYOUT_SLOTS
        for what, text in _WASTE.items()
    }


def _classes_and_slots(block: str) -> dict[str, str]:
    return {
        f"{block}__{coarse}_{slot}_{what}": text.format(f"{slot} tensors of configurable {coarse} nodes")
        for coarse in COARSE_CLASSES
        for slot in LAYOUT_SLOTS
        for what, text in _WASTE_OF_CLASS.items()
    }


class Padding(LayoutBlock):
    """Padding waste (padded size / true size - 1) with the two minor-most dimensions rounded up to 128 x 8.

    TPU arrays live in tiles of 8 sublanes x 128 lanes; a layout decides which dimensions are rounded up.
    """

    columns = _all_slots("padding")
    packed = False

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        requests = self._requests(context, aggregation, None)

        return lambda batch: np.concatenate(self._waste(batch, requests), axis=2).reshape(len(batch), -1)

    def _requests(
        self, context: LayoutContext, aggregation: Aggregation, classes: Sequence[int] | None
    ) -> tuple[Request, Request]:
        """Sums and maxima for each slot: of all configurable nodes, or of those of each coarse class."""
        parts: list[tuple[NDArray[Any], float]] = []
        wastes: list[Floats] = []
        for coarse in [None] if classes is None else classes:
            for rows in context.slots.values():
                now = rows.now.packed if self.packed else rows.now.waste
                extra = now - (rows.default.packed if self.packed else rows.default.waste)
                nodes, bytes_ = float(context.configurable_nodes), rows.total_bytes
                if coarse is not None:
                    mine = context.type_coarse_class == coarse
                    now, extra = mine * now, mine * extra
                    nodes, bytes_ = context.nodes_of_class[coarse], rows.bytes_of_class[coarse]
                for waste in (now, extra):
                    parts += [(waste, nodes), (waste * rows.bytes, bytes_)]
                wastes.append(now)
        return aggregation.shares(parts), aggregation.maximum(wastes)

    @staticmethod
    def _waste(batch: Batch, requests: tuple[Request, Request]) -> tuple[Floats, Floats, Floats]:
        """``(configs, slots, ...)`` the mean, the largest, and the other sums."""
        summed, largest = (batch[request] for request in requests)
        table = summed.reshape(*largest.shape, 4)
        return table[:, :, :1], largest[:, :, None], table[:, :, 1:]


class PaddingByClass(Padding):
    """`Padding` for convolutions, dots, reshapes and other configurable nodes apart, with the sum of the waste."""

    tier = Tier.FULL
    columns = _classes_and_slots("padding")

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        requests = self._requests(context, aggregation, range(len(COARSE_CLASSES)))
        nodes = np.repeat(context.nodes_of_class, len(LAYOUT_SLOTS))[:, None]

        def finalize(batch: Batch) -> Floats:
            mean, largest, others = self._waste(batch, requests)
            parts = [np.log2(1 + mean * nodes), mean, largest, others]
            return np.concatenate(parts, axis=2).reshape(len(batch), -1)

        return finalize


class PackedPadding(Padding):
    """`Padding` as XLA's finer tiles have it: narrow elements packed into words, small tiles for few rows."""

    tier = Tier.FULL
    columns = _all_slots("packed")
    packed = True


class PackedPaddingByClass(PaddingByClass):
    """`PaddingByClass` with packed elements and small tiles."""

    tier = Tier.FULL
    columns = _classes_and_slots("packed")
    packed = True


_MISFITS = {
    "largest": "largest dimension is not minor-most",
    "lanes": "minor-most size is no multiple of the lanes (128)",
    "sublanes": "second minor-most size is no multiple of the sublanes (8)",
}


class Violation(LayoutBlock):
    """Violation ratios: shares of configurable nodes (or of bytes) whose layout wastes lanes or sublanes.

    The first is the ratio that lifted Harvard's ordered pair accuracy from 0.6 to 0.75 (2023).
    """

    columns = {
        f"violation__{slot}_{name}{of}__share": f"share of {whose.format(slot)} {what}"
        for slot in LAYOUT_SLOTS
        for name, what in _MISFITS.items()
        for of, whose in (
            ("", "configurable nodes: the {}'s"),
            ("_bytes", "the {} bytes:"),
            ("_change", "configurable nodes minus the default's: the {}'s"),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        parts: list[tuple[NDArray[Any], float]] = []
        nodes = context.configurable_nodes
        for rows in context.slots.values():
            for name in ("violation", "minor_misfit", "second_misfit"):
                now, default = getattr(rows.now, name), getattr(rows.default, name)
                parts += [(now, nodes), (now * rows.bytes, rows.total_bytes), (now.astype(float) - default, nodes)]
        return aggregation.shares(parts)
