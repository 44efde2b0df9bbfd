"""Dimensions along the lanes and the sublanes, by role, position and size."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.block import Cause, Tier
from xlarank.features.layout.aggregation import Aggregation, LayoutBlock, Request
from xlarank.features.layout.layout_context import CLASS_ROLES, LayoutContext
from xlarank.features.program.opcode_classes import COARSE_CLASSES

_POSITIONS: Final = {"minor": "minor-most", "second": "second minor-most"}
_ROLE_COLUMNS: Final = [
    (kind, position, slot, role)
    for kind, roles in CLASS_ROLES.items()
    for position in _POSITIONS
    for slot in LAYOUT_SLOTS[: 2 if kind == "reshape" else 3]
    for role in roles
]


class DimensionRoles(LayoutBlock):
    """Role of the minor-most and second minor-most dimensions of convolutions, dots and reshapes.

    Roles of a convolution are batch, feature or spatial (node columns 93-106); in its kernel, ``batch`` is the
    input feature and ``feature`` the output feature. Roles of a dot are batch, rows (free) or contracted; in its
    output, ``rows`` come from the left operand and ``contracted`` stands for those of the right one. Dimensions of
    a reshape are kept, split or merged. See `xlarank.features.program.slots.slot_roles`.
    """

    tier = Tier.FULL
    cause = Cause.MINOR
    columns = {
        f"roles__{kind}_{slot}_{role}_{position}{suffix}__share": f"share of {nodes.format(kind=kind, slot=slot)}"
        f"the {_POSITIONS[position]} dimension is {role}"
        for kind, position, slot, role in _ROLE_COLUMNS
        for suffix, nodes in (
            ("", "configurable {kind} nodes: of the {slot}, "),
            ("_bytes", "the {slot} bytes of configurable {kind} nodes: "),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        parts: list[tuple[NDArray[Any], float]] = []
        for kind, position, slot, role in _ROLE_COLUMNS:
            rows, coarse = context.slots[slot], COARSE_CLASSES.index(kind)
            dimension = rows.layout[:, list(_POSITIONS).index(position)]
            roles = context.roles[context.type_configurable, LAYOUT_SLOTS.index(slot), dimension]
            here = (
                (context.type_coarse_class == coarse) & (dimension >= 0) & (roles == CLASS_ROLES[kind].index(role))
            )
            parts.append((here, context.nodes_of_class[coarse]))
            parts.append((here * rows.bytes, rows.bytes_of_class[coarse]))
        return aggregation.shares(parts)


_RANKS: Final = range(2, MAX_RANK + 1)
#: Bins of minor-most sizes, from and up to (excluded); the tile has 8 x 128 elements.
_BINS: Final = tuple(pairwise((1, 2, 8, 32, 128, 512, np.inf)))


class TypeHistogram(LayoutBlock):
    """Share of configurable nodes by class, rank of the output and which of its dimensions is minor-most.

    count(class, rank, minor-most dimension) / configurable nodes, a histogram that sums to 1 with the tensors
    of rank 0 and 1, which have no choice. Counts of node type by layout per graph are from the trees that
    placed 11th in the Kaggle competition.
    """

    tier = Tier.FULL
    cause = Cause.MINOR
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
    """Minor-most sizes in bins, by nodes and by bytes: the sizes along the 128 lanes."""

    tier = Tier.FULL
    cause = Cause.MINOR
    columns = {
        f"types__{slot}_minor_from{low}{suffix}__share": f"share of {what.format(slot)} {low} "
        + ("or more" if high == np.inf else f"to {high - 1}")
        for slot in LAYOUT_SLOTS
        for low, high in _BINS
        for suffix, what in (
            ("", "configurable nodes whose {}'s minor-most size is"),
            ("_bytes", "the {} bytes with a minor-most size of"),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        parts: list[tuple[NDArray[Any], float]] = []
        for rows in context.slots.values():
            for low, high in _BINS:
                here = (rows.minor >= low) & (rows.minor < high)
                parts += [(here, context.configurable_nodes), (here * rows.bytes, rows.total_bytes)]
        return aggregation.shares(parts)
