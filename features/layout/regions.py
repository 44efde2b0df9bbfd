"""Tensors that share one layout, who makes and reads them, and what a row does to them.

XLA's layout assignment carries the layout of an output on through elementwise operations of the same shape. A
*region* is a connected component along those: what pads one of its tensors pads all of them, and whoever reads one
meets that layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.layout.row_types import LayoutFacts
from xlarank.features.program.opcode_classes import COARSE_CLASSES, OPCODE_CLASSES
from xlarank.features.program.slots import CONVOLUTION_ROLES, DOT_ROLES, RESHAPE_ROLES
from xlarank.features.program.tensors import Floats, Ints, Tiling, complete_layout, packed_waste

#: The kinds of configurable nodes whose dimensions have roles, with these.
CLASS_ROLES: Final = dict(zip(COARSE_CLASSES[:3], (CONVOLUTION_ROLES, DOT_ROLES, RESHAPE_ROLES), strict=True))
#: Roles of all kinds one after another: ``convolution_batch``, ...
ROLE_NAMES: Final = tuple(f"{kind}_{role}" for kind, roles in CLASS_ROLES.items() for role in roles)
_ELEMENTWISE, _REDUCE = OPCODE_CLASSES.index("elementwise"), OPCODE_CLASSES.index("reduce")


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of one graph; arrays are ``(regions, ...)`` but for ``of``."""

    of: Ints  # ``(nodes,)`` the region of each node's output
    tensors: Ints  # number of tensors
    bytes: Floats  # those that a fusing compiler stores, without padding
    makers: Ints  # configurable nodes among them
    # made, read: ``(regions, ROLE_NAMES, 6)`` whether a dimension is that to a configurable node that makes, or
    # reads, a tensor of the region.
    made: NDArray[np.bool_]
    read: NDArray[np.bool_]
    # ``(regions, 6)`` whether a reduction that reads a tensor of the region removes the dimension.
    reduced: NDArray[np.bool_]


def layout_regions(facts: LayoutFacts) -> Regions:
    graph = facts.graph
    consumer, operand = graph.edges.T
    alike = (facts.dims[consumer] == facts.dims[operand]).all(axis=1) & (facts.rank[consumer] > 0)
    alike &= facts.rank[consumer] == facts.rank[operand]
    joins = alike & (facts.opcode_class[consumer] == _ELEMENTWISE)
    links = sparse.coo_array(
        (np.ones(np.count_nonzero(joins)), (consumer[joins], operand[joins])), shape=(graph.nodes,) * 2
    )
    count, component = connected_components(links, directed=False)
    of = component.astype(np.int64)
    made, read = (np.zeros((count, len(ROLE_NAMES), MAX_RANK), bool) for _ in range(2))
    first = 0
    for kind, roles in enumerate(CLASS_ROLES.values()):
        for slot in range(2 if roles is RESHAPE_ROLES else len(LAYOUT_SLOTS)):
            tensor, role = facts.slot_tensor[:, slot], facts.roles[:, slot]
            mine = (facts.coarse_class == kind) & (tensor >= 0)
            node, dim = np.nonzero((role >= 0) & mine[:, None])
            (read if slot else made)[of[tensor[node]], first + role[node, dim], dim] = True
        first += len(roles)
    # a reduction lists the dimensions that it removes; its other operand, the initial value, has none
    reduced = np.zeros((count, MAX_RANK), bool)
    fewer = facts.rank[operand] - facts.rank[consumer]
    at = np.flatnonzero((facts.opcode_class[consumer] == _REDUCE) & (fewer > 0))
    listed = facts.column("dimensions_0", MAX_RANK).astype(np.int64)[consumer[at]]
    removed = (np.arange(MAX_RANK) < fewer[at, None]) & (listed >= 0) & (listed < MAX_RANK)
    reduced[of[operand[at[np.nonzero(removed)[0]]]], listed[removed]] = True
    return Regions(
        of=of,
        tensors=np.bincount(of, minlength=count),
        bytes=np.bincount(of, np.where(facts.fused, 0.0, facts.bytes), minlength=count).astype(np.float64),
        makers=np.bincount(of[graph.configurable], minlength=count),
        made=made,
        read=read,
        reduced=reduced,
    )


@dataclass(frozen=True, eq=False)
class OutputRows:
    """Arrays are ``(R,)``, for every distinct row of the table, whether it sets the output's layout or not."""

    given: NDArray[np.bool_]  # it does
    # minor, second: the minor-most and the second minor-most dimension of the full layout; -1 for none.
    minor: Ints
    second: Ints
    # padded, least, default: bytes in tiles over true bytes: in the full layout, in the one that pads least, in the
    # default.
    padded: Floats
    least: Floats
    default: Floats
    bytes: Floats  # of the output over those of all tensors that a fusing compiler stores
    region: Ints  # which region the output is in
    region_bytes: Floats  # of the region's stored tensors (at least the output) over the same


def output_rows(facts: LayoutFacts, regions: Regions) -> OutputRows:
    """Physics of outputs, row by row."""
    graph, table = facts.graph, facts.table
    node = graph.configurable[table.node]
    given = table.rows[:, :MAX_RANK].astype(np.int64)
    layout = complete_layout(given, facts.default_layout[node])
    dims, element = facts.dims[graph.configurable], facts.element_bytes[graph.configurable]
    default = packed_waste(dims, facts.default_layout[graph.configurable], element, facts.tiling)
    least = np.minimum(default, least_waste(dims, facts.rank[graph.configurable], element, facts.tiling))
    stored = max(1.0, float(facts.bytes[~facts.fused].sum()))
    region = regions.of[node]
    return OutputRows(
        given=given[:, 0] >= 0,
        minor=layout[:, 0],
        second=layout[:, 1],
        padded=1 + packed_waste(facts.dims[node], layout, facts.element_bytes[node], facts.tiling),
        least=1 + least[table.node],
        default=1 + default[table.node],
        bytes=facts.bytes[node] / stored,
        region=region,
        region_bytes=np.maximum(regions.bytes[region], facts.bytes[node]) / stored,
    )


def least_waste(dims: Ints, rank: Ints, element_bytes: Floats, tiling: Tiling) -> Floats:
    """`packed_waste` of the layout that pads least, ``(tensors,)``; inf for a rank below 2.

    Padding depends on the two minor-most dimensions alone.

    >>> dims, rank = np.array([[4, 128, 8, 0, 0, 0]]), np.array([3])
    >>> least_waste(dims, rank, np.array([4.0]), Tiling()).tolist()  # 128 along the lanes, 8 along the sublanes
    [0.0]
    """
    least, layout = np.full(len(dims), np.inf), np.full(dims.shape, -1)
    for pair in permutations(range(MAX_RANK), 2):
        fits = np.flatnonzero(rank > max(pair))
        layout[:, :2] = pair
        waste = packed_waste(dims[fits], layout[fits], element_bytes[fits], tiling)
        least[fits] = np.minimum(least[fits], waste)
    return least
