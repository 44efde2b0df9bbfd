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

_POSITIONS: Final = {"minor": "minor-most", "second": "second minor-most"}


class _Roles(LayoutBlock, abstract=True):
    """Shares of nodes and bytes by the role in one position; see `program.roles` for what the roles are."""

    tier = Tier.FULL
    of_class: str
    roles: Sequence[str]
    slots: Sequence[str] = LAYOUT_SLOTS
    position = "minor"

    def __init_subclass__(cls) -> None:
        cls.columns = {}
        for slot in cls.slots:
            for role in cls.roles:
                name = f"roles__{cls.of_class}_{slot}_{role}_{cls.position}"
                what = f"the {_POSITIONS[cls.position]} dimension is {role}"
                nodes = f"configurable {cls.of_class} nodes"
                cls.columns[f"{name}__share"] = f"share of {nodes}: of the {slot}, {what}"
                cls.columns[f"{name}_bytes__share"] = f"share of the {slot} bytes of {nodes}: {what}"
        super().__init_subclass__()

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        parts: list[tuple[NDArray[Any], float]] = []
        of_class = COARSE_CLASSES.index(self.of_class)
        mine = context.type_coarse_class == of_class
        for slot in self.slots:
            rows = context.slots[slot]
            at = rows.layout[:, list(_POSITIONS).index(self.position)]
            named = context.roles[context.type_node, LAYOUT_SLOTS.index(slot), np.maximum(at, 0)]
            for role in range(len(self.roles)):
                here = mine & (at >= 0) & (named == role)
                parts.append((here, context.nodes_of_class[of_class]))
                parts.append((here * rows.bytes, rows.bytes_of_class[of_class]))
        return aggregation.shares(parts)


class ConvolutionRoles(_Roles):
    """Role of a convolution's minor-most dimensions: batch, feature or spatial (node columns 93-106).

    Of a kernel, ``batch`` is the input feature and ``feature`` the output feature.
    """

    of_class, roles = "convolution", CONVOLUTION_ROLES


class SecondConvolutionRoles(ConvolutionRoles):
    """Role of a convolution's second minor-most dimensions; as `ConvolutionRoles`."""

    position = "second"


class DotRoles(_Roles):
    """Role of a dot's minor-most dimensions: batch, rows (the operand's own) or contracted.

    Of the output, ``rows`` come from the left operand and ``contracted`` stands for those of the right one.
    """

    of_class, roles = "dot", DOT_ROLES


class SecondDotRoles(DotRoles):
    """Role of a dot's second minor-most dimensions; as `DotRoles`."""

    position = "second"


class ReshapeRoles(_Roles):
    """Whether a reshape's minor-most dimensions are kept, split or merged by it."""

    of_class, slots, roles = "reshape", LAYOUT_SLOTS[:2], RESHAPE_ROLES


class SecondReshapeRoles(ReshapeRoles):
    """Whether a reshape's second minor-most dimensions are kept, split or merged; as `ReshapeRoles`."""

    position = "second"


_RANKS: Final = range(2, MAX_RANK + 1)
#: Lower ends of the bins of minor-most sizes; the tile has 8 x 128 elements.
_BIN_STARTS: Final = (1, 2, 8, 32, 128, 512)
#: Lower end of a bin -> what follows its upper end.
_BINS: Final = dict(zip(_BIN_STARTS, (*_BIN_STARTS[1:], np.inf), strict=True))


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


class MinorSizes(LayoutBlock):
    """Minor-most sizes in bins, by nodes and by bytes: what runs along the 128 lanes."""

    tier = Tier.FULL
    columns = {
        f"types__{slot}_minor_from{low}{of}__share": f"share of {what.format(slot)} {low} "
        + ("or more" if high == np.inf else f"to {high - 1}")
        for slot in LAYOUT_SLOTS
        for low, high in _BINS.items()
        for of, what in (
            ("", "configurable nodes whose {}'s minor-most size is"),
            ("_bytes", "the {} bytes with a minor-most size of"),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        parts: list[tuple[NDArray[Any], float]] = []
        for rows in context.slots.values():
            for low, high in _BINS.items():
                here = (rows.minor >= low) & (rows.minor < high)
                parts += [(here, context.configurable_nodes), (here * rows.bytes, rows.total_bytes)]
        return aggregation.shares(parts)
