"""All blocks, in column order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlarank.data.graph import Kind
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.instances.nodes import (
    InstanceAgreement,
    InstanceNode,
    InstanceOperands,
    InstanceOutput,
    InstanceRow,
    InstanceSurroundings,
)
from xlarank.features.instances.pairs import InstanceGraph, InstancePair, InstanceRarity
from xlarank.features.layout.candidates import CandidateRanks, CandidateScores, Frequency
from xlarank.features.layout.change import ChangeByClass, InnerChange, NodeChange, SlotChange
from xlarank.features.layout.copies import Disagreement, DisagreementByClass, SiblingDisagreement
from xlarank.features.layout.dimension_roles import (
    ConvolutionRoles,
    DotRoles,
    MinorSizes,
    ReshapeRoles,
    SecondConvolutionRoles,
    SecondDotRoles,
    SecondReshapeRoles,
    TypeHistogram,
)
from xlarank.features.layout.neighbourhood import Boundary, ChangedSurroundings, ConfigurableNodes
from xlarank.features.layout.outputs import Outputs
from xlarank.features.layout.padding import PackedPadding, PackedPaddingByClass, Padding, PaddingByClass, Violation
from xlarank.features.layout.propagation import Propagation
from xlarank.features.program.composition import ElementTypes, OpcodeBytes, OpcodeCounts, OpcodeHistogram
from xlarank.features.program.size import BytesByClass, Computations, Degrees, GraphSize, Work
from xlarank.features.tile.bounds import Bounds, TileCounts, TileShape
from xlarank.features.tile.candidates import TileCandidateRanks, TileCandidateScores
from xlarank.features.tile.inner import TileEstimate, TileInner
from xlarank.features.tile.kernel import Kernel
from xlarank.features.tile.tpu_time import TpuTime
from xlarank.features.tile.traffic import Traffic


def checked(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks as they are; raises `TypeError` where two name one column of one kind of graph."""
    owner: dict[tuple[Kind, str], Block] = {}
    for block in blocks:
        for name in block.columns:
            for kind in block.kinds:
                other = owner.setdefault((kind, name), block)
                if other is not block:
                    names = f"{type(other).__name__} and {type(block).__name__}"
                    raise TypeError(f"column {name!r} is declared by {names}")
    return tuple(blocks)


BLOCKS: Final = checked(
    (
        Degrees(),
        OpcodeHistogram(),
        OpcodeCounts(),
        OpcodeBytes(),
        GraphSize(),
        BytesByClass(),
        ElementTypes(),
        Work(),
        Computations(),
        Frequency(),
        CandidateRanks(),
        CandidateScores(),
        SlotChange(),
        NodeChange(),
        ChangeByClass(),
        InnerChange(),
        Disagreement(),
        SiblingDisagreement(),
        DisagreementByClass(),
        ConfigurableNodes(),
        ChangedSurroundings(),
        Boundary(),
        Padding(),
        PaddingByClass(),
        PackedPadding(),
        PackedPaddingByClass(),
        Outputs(),
        Propagation(),
        ConvolutionRoles(),
        SecondConvolutionRoles(),
        DotRoles(),
        SecondDotRoles(),
        ReshapeRoles(),
        SecondReshapeRoles(),
        TypeHistogram(),
        MinorSizes(),
        Violation(),
        Bounds(),
        TileCounts(),
        TileShape(),
        TileCandidateRanks(),
        TileCandidateScores(),
        TileInner(),
        TileEstimate(),
        Kernel(),
        Traffic(),
        TpuTime(),
    )
)


#: Columns of instances, of layout graphs alone.
INSTANCE_BLOCKS: Final = checked(
    (
        InstanceGraph(),
        InstanceNode(),
        InstanceRow(),
        InstanceOperands(),
        InstanceAgreement(),
        InstanceSurroundings(),
        InstanceOutput(),
        InstancePair(),
        InstanceRarity(),
    )
)


def instance_blocks(*, candidates: bool = True) -> list[Block]:
    """Blocks of instances in column order; without ``candidates``, the transductive ones are left out."""
    return [block for block in INSTANCE_BLOCKS if candidates or not block.transductive]


def every_block(kind: Kind) -> list[Block]:
    """All blocks for one kind of graph: those of its configurations, then those of its instances."""
    return blocks_of(kind) + [block for block in INSTANCE_BLOCKS if kind in block.kinds]


def blocks_of(kind: Kind, tier: Tier = Tier.FULL, *, candidates: bool = True) -> list[Block]:
    """Blocks for one kind of graph: graph blocks, then those of single configurations, then transductive ones.

    Within these in the order of `BLOCKS`. Without ``candidates``, the transductive blocks are left out.
    """
    chosen = [
        block
        for block in BLOCKS
        if kind in block.kinds and tier.includes(block.tier) and (candidates or not block.transductive)
    ]
    return sorted(chosen, key=lambda block: (block.scope is not Scope.GRAPH, block.transductive))
