"""All blocks, in column order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlarank.data.graph import Kind
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.candidates import CandidatePlaces, Frequency, TileCandidatePlaces
from xlarank.features.instances import node_blocks, pair_blocks
from xlarank.features.layout import change, copies, dimension_roles, estimated_time, padding
from xlarank.features.program import composition
from xlarank.features.tile import bounds, inner_loop, tpu_time


def checked(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks; raise `TypeError` for incomplete blocks and duplicate columns."""
    owner: dict[tuple[Kind, str], str] = {}
    for block in blocks:
        title = type(block).__name__
        if not (type(block).__doc__ or "").strip():
            raise TypeError(f"feature block {title} has no docstring")
        for name, meaning in block.columns.items():
            if len(name.split("__")) != 3 or not all(name.split("__")):
                raise TypeError(f"column {name!r} of {title} is not named block__what__how")
            if not meaning.strip():
                raise TypeError(f"column {name!r} of {title} has no meaning")
            for kind in block.kinds:
                if (kind, name) in owner:
                    raise TypeError(f"column {name!r} is declared by {owner[kind, name]} and {title}")
                owner[kind, name] = title
    return tuple(blocks)


BLOCKS: Final = checked(
    (
        composition.Degrees(), composition.OpcodeHistogram(), composition.OpcodeSizes(),
        composition.GraphSize(), composition.ElementTypes(), composition.Work(),
        composition.Computations(), estimated_time.FastestTime(),
        Frequency(), CandidatePlaces(),
        change.SlotChange(), change.NodeChange(), change.ChangeByClass(), change.InnerChange(),
        copies.Disagreement(), copies.SiblingDisagreement(), copies.DisagreementByClass(),
        copies.ConfigurableNodes(), copies.ChangedSurroundings(), copies.Boundary(),
        padding.Padding(), padding.FinePadding(),
        padding.Outputs(), copies.Propagation(), change.TiedGroups(),
        dimension_roles.DimensionRoles(), dimension_roles.TypeHistogram(), dimension_roles.MinorSizes(),
        padding.Violation(), estimated_time.EstimatedTime(),
        bounds.Bounds(), bounds.TileCounts(), bounds.TileShape(), TileCandidatePlaces(),
        inner_loop.TileInner(), bounds.Kernel(), bounds.Traffic(), tpu_time.TpuTime(),
    )
)  # fmt: skip
#: Blocks of instances, for layout graphs only.
INSTANCE_BLOCKS: Final = checked(
    (
        pair_blocks.InstanceGraph(), node_blocks.InstanceNode(), node_blocks.InstanceRow(),
        node_blocks.InstanceOperands(), node_blocks.InstanceSurroundings(),
        node_blocks.InstanceOutput(), pair_blocks.InstancePair(), pair_blocks.InstanceRarity(),
    )
)  # fmt: skip


def every_block(kind: Kind) -> list[Block]:
    """Return all blocks for one kind of graph, instance blocks last."""
    return blocks_of(kind) + [block for block in INSTANCE_BLOCKS if kind in block.kinds]


def blocks_of(
    kind: Kind, tier: Tier = Tier.FULL, *, candidates: bool = True, user_blocks: Sequence[Block] = ()
) -> list[Block]:
    """Return the blocks for one kind of graph: graph blocks, configuration blocks, transductive blocks.

    Each group is in the order of `BLOCKS`, followed by ``user_blocks``. Without ``candidates``, transductive
    blocks are left out.
    """
    chosen = [
        block
        for block in (*BLOCKS, *user_blocks)
        if kind in block.kinds and tier in (Tier.FULL, block.tier) and (candidates or not block.transductive)
    ]
    return sorted(chosen, key=lambda block: (block.scope is not Scope.GRAPH, block.transductive))
