"""Which dimensions a layout puts along the lanes and the sublanes: by role, by place and by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.block import Tier
from xlarank.features.layout.aggregation import Aggregation, LayoutBlock, Request
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.program.opcode_classes import COARSE_CLASSES
from xlarank.features.program.roles import CONVOLUTION_ROLES, DOT_ROLES, RESHAPE_ROLES

_POSITIONS = {"minor": "minor-most", "second": "second minor-most"}


def _columns(name: str, slots: Sequence[str], roles: Sequence[str], position: str) -> dict[str, str]:
    columns: dict[str, str] = {}
    for slot in slots:
        for role in roles:
            what = f"the {_POSITIONS[position]} dimension is {role}"
            columns |= {
                f"roles__{name}_{slot}_{role}_{position}__share": f"share of configurable {name} nodes: of the "
                f"{slot}, {what}",
                f"roles__{name}_{slot}_{role}_{position}_bytes__share": f"share of the {slot} bytes of "
                f"configurable {name} nodes: {what}",
            }
    return columns


class _Roles(LayoutBlock, abstract=True):
    """Shares of nodes and bytes by the role in one position; see `program.roles` for what the roles are."""

    tier = Tier.FULL
    of_class: str
    roles: Sequence[str]
    slots: Sequence[str]
    position = 0

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        tables: list[NDArray[Any]] = []
        scales: list[float] = []
        of_class = COARSE_CLASSES.index(self.of_class)
        mine = context.type_coarse_class == of_class
        for slot in self.slots:
            rows = context.slots[slot]
            at = rows.layout[:, self.position]
            named = context.roles[context.type_node, LAYOUT_SLOTS.index(slot), np.maximum(at, 0)]
            for role in range(len(self.roles)):
                here = mine & (at >= 0) & (named == role)
                tables += [here, here * rows.bytes]
                scales += [context.nodes_of_class[of_class], rows.bytes_of_class[of_class]]
        return aggregation.sum(tables, over=scales)


class ConvolutionRoles(_Roles):
    """Role of a convolution's minor-most dimensions: batch, feature or spatial (node columns 93-106).

    Of a kernel, ``batch`` is the input feature and ``feature`` the output feature.
    """

    of_class, slots, roles = "convolution", LAYOUT_SLOTS, CONVOLUTION_ROLES
    columns = _columns(of_class, slots, roles, "minor")


class SecondConvolutionRoles(ConvolutionRoles):
    """Role of a convolution's second minor-most dimensions; as `ConvolutionRoles`."""

    position = 1
    columns = _columns("convolution", LAYOUT_SLOTS, CONVOLUTION_ROLES, "second")


class DotRoles(_Roles):
    """Role of a dot's minor-most dimensions: batch, rows (the operand's own) or contracted.

    Of the output, ``rows`` come from the left operand and ``contracted`` stands for those of the right one.
    """

    of_class, slots, roles = "dot", LAYOUT_SLOTS, DOT_ROLES
    columns = _columns(of_class, slots, roles, "minor")


class SecondDotRoles(DotRoles):
    """Role of a dot's second minor-most dimensions; as `DotRoles`."""

    position = 1
    columns = _columns("dot", LAYOUT_SLOTS, DOT_ROLES, "second")


class ReshapeRoles(_Roles):
    """Whether a reshape's minor-most dimensions are kept, split or merged by it."""

    of_class, slots, roles = "reshape", LAYOUT_SLOTS[:2], RESHAPE_ROLES
    columns = _columns(of_class, slots, roles, "minor")


class SecondReshapeRoles(ReshapeRoles):
    """Whether a reshape's second minor-most dimensions are kept, split or merged; as `ReshapeRoles`."""

    position = 1
    columns = _columns("reshape", LAYOUT_SLOTS[:2], RESHAPE_ROLES, "second")


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
