"""The built-in blocks, and which of them make the columns of a graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xlarank.data.graph import Kind
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.candidates import LAYOUT_PLACES, RELAYOUT_PLACES, TILE_PLACES, Frequency
from xlarank.features.layout import change, copies, padding, relayout_blocks
from xlarank.features.program import composition
from xlarank.features.tile import bounds, tpu_time


def checked(*blocks: Block) -> tuple[Block, ...]:
    """Return the blocks; raise `TypeError` for incomplete ones, malformed and duplicate names."""
    owner: dict[tuple[Kind, str], str] = {}
    for block in blocks:
        title = block.title
        if not (block.__doc__ or "").strip():
            raise TypeError(f"feature block {title} has no docstring")
        for name, meaning in block.columns.items():
            if len(name.split("__")) != 3 or not all(name.split("__")) or not name.isidentifier():
                raise TypeError(f"column {name!r} of {title} is not named block__what__how")
            if not meaning.strip():
                raise TypeError(f"column {name!r} of {title} has no meaning")
            for kind in block.kinds:
                if (kind, name) in owner:
                    raise TypeError(
                        f"column {name!r} is declared by {owner[kind, name]} and {title}"
                    )
                owner[kind, name] = title
    return blocks


BLOCKS: Final = checked(
    composition.Degrees(),
    composition.OpcodeHistogram(),
    composition.OpcodeSizes(),
    composition.GraphSize(),
    composition.ElementTypes(),
    composition.Work(),
    composition.Computations(),
    padding.FastestTime(),
    Frequency(),
    LAYOUT_PLACES,
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
    RELAYOUT_PLACES,
    bounds.Bounds(),
    bounds.TileCounts(),
    bounds.TileShape(),
    TILE_PLACES,
    bounds.TileInner(),
    bounds.Kernel(),
    bounds.Traffic(),
    tpu_time.TpuTime(),
)


def blocks_of(kind: Kind, tier: Tier = Tier.FULL, *, candidates: bool = True) -> list[Block]:
    """Return the blocks for one kind of graph: of the graph, of configurations, listwise.

    Each group is in the order of `BLOCKS`; ``candidates=False`` omits
    listwise blocks.
    """
    blocks = [
        block
        for block in BLOCKS
        if kind in block.kinds
        and tier in (Tier.FULL, block.tier)
        and (candidates or not block.transductive)
    ]
    return sorted(blocks, key=lambda block: (block.scope is not Scope.GRAPH, block.transductive))


def columns_in(blocks: Iterable[Block], scope: Scope) -> list[str]:
    """Return the columns of the blocks of one scope."""
    return [name for block in blocks if block.scope is scope for name in block.columns]
