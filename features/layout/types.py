"""Histograms over configurable nodes: what coarse of tensor lies how."""

from __future__ import annotations

from typing import Any, Final

from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.block import Tier
from xlarank.features.layout.aggregation import Aggregation, Request
from xlarank.features.layout.block import LayoutBlock
from xlarank.features.layout.context import LayoutContext
from xlarank.features.program.opcode_classes import COARSE_CLASSES

_RANKS: Final = range(2, MAX_RANK + 1)
#: Lower ends of the bins of minor-most sizes; the tile has 8 x 128 elements.
_BINS: Final = (1, 2, 8, 32, 128, 512)


class TypeHistogram(LayoutBlock):
    """Share of configurable nodes by class, rank of the output and which of its dimensions is minor-most.

    count(class, rank, minor-most dimension) / configurable nodes, a histogram that sums to 1 with the tensors
    of rank 0 and 1, which have no choice. Counts of node type by layout per graph are from the trees that
    placed 11th in the Kaggle competition.
    """

    tier = Tier.FULL
    columns = {
        f"types__{coarse}_rank{rank}_minor{dimension}__share": f"share of configurable nodes that are {coarse} "
        f"with an output of rank {rank} and dimension {dimension} minor-most"
        for coarse in COARSE_CLASSES
        for rank in _RANKS
        for dimension in range(rank)
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        layout = context.slots["output"].layout
        rank = (layout >= 0).sum(axis=1)
        tables: list[NDArray[Any]] = [
            (context.type_coarse_class == coarse) & (rank == size) & (layout[:, 0] == dimension)
            for coarse in range(len(COARSE_CLASSES))
            for size in _RANKS
            for dimension in range(size)
        ]
        return aggregation.sum(tables, over=context.configurable_nodes)


def _bins() -> dict[str, str]:
    columns: dict[str, str] = {}
    for slot in LAYOUT_SLOTS:
        for low, high in zip(_BINS, (*_BINS[1:], None), strict=True):
            sizes = f"{low} or more" if high is None else f"{low} to {high - 1}"
            columns |= {
                f"types__{slot}_minor_from{low}__share": f"share of configurable nodes whose {slot}'s minor-most "
                f"size is {sizes}",
                f"types__{slot}_minor_from{low}_bytes__share": f"share of the {slot} bytes with a "
                f"minor-most size of {sizes}",
            }
    return columns


class MinorSizes(LayoutBlock):
    """Minor-most sizes in bins, by nodes and by bytes: what runs along the 128 lanes."""

    tier = Tier.FULL
    columns = _bins()

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        tables: list[NDArray[Any]] = []
        scales: list[float] = []
        for rows in context.slots.values():
            for low, high in zip(_BINS, (*_BINS[1:], None), strict=True):
                here = (rows.minor >= low) & (True if high is None else rows.minor < high)
                tables += [here, here * rows.bytes]
                scales += [context.configurable_nodes, rows.total_bytes]
        return aggregation.sum(tables, over=scales)
