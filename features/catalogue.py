"""The built-in blocks, and which of them make the columns of a graph."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final

from xlarank.data.graph import Kind
from xlarank.features.block import Block, Scope
from xlarank.features.layout import change, copies, padding, relayout_blocks
from xlarank.features.listwise import COPY_RANKS, LAYOUT_RANKS, TILE_RANKS, Frequency
from xlarank.features.program import composition
from xlarank.features.tile import bounds, tpu_time

#: Version of the values of columns. Raise it when values of any column change: rows of an earlier
#: version are built again, and models trained on them are refused.
COLUMNS_VERSION: Final = 1


BLOCKS: Final[tuple[Block, ...]] = (
    composition.Degrees(),
    composition.OpcodeHistogram(),
    composition.OpcodeSizes(),
    composition.GraphSize(),
    composition.ElementTypes(),
    composition.Work(),
    composition.Computations(),
    padding.FastestTime(),
    Frequency(),
    LAYOUT_RANKS,
    change.SlotChange(),
    change.NodeChange(),
    copies.Disagreement(),
    copies.ConfigurableNodes(),
    copies.ChangedSurroundings(),
    padding.Padding(),
    padding.Outputs(),
    change.TiedGroups(),
    padding.DimensionRoles(),
    padding.MinorSizes(),
    padding.Violation(),
    padding.EstimatedTime(),
    relayout_blocks.RelayoutCosts(),
    COPY_RANKS,
    bounds.Bounds(),
    bounds.TileCounts(),
    bounds.TileShape(),
    TILE_RANKS,
    bounds.TileInner(),
    bounds.Kernel(),
    bounds.Traffic(),
    tpu_time.TpuTime(),
)


def blocks_of(kind: Kind) -> list[Block]:
    """Return the blocks for one kind of graph: of the graph, of configurations, listwise.

    Each group is in the order of `BLOCKS`.
    """
    blocks = [block for block in BLOCKS if kind in block.kinds]
    return sorted(blocks, key=lambda block: (block.scope != "graph", block.listwise))


def columns_in(blocks: Iterable[Block], scope: Scope) -> list[str]:
    """Return the columns of the blocks of one scope."""
    return [name for block in blocks if block.scope == scope for name in block.columns]


def graph_columns(kind: Kind) -> list[str]:
    """Return the columns that are constant within a graph."""
    return columns_in(blocks_of(kind), "graph")


def config_columns(kind: Kind) -> list[str]:
    """Return the columns of configurations."""
    return columns_in(blocks_of(kind), "configuration")


def all_columns(kind: Kind) -> list[str]:
    """Return the columns of the rows of a kind of graphs, in order."""
    return graph_columns(kind) + config_columns(kind)


def columns_version(kind: Kind) -> str:
    """Return `COLUMNS_VERSION` and a checksum of the names of columns."""
    names = ",".join(all_columns(kind))
    return f"{COLUMNS_VERSION}-{zlib.crc32(names.encode()):08x}"
