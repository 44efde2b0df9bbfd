"""Regions of tensors that have one layout, the roles of their dimensions, and least padding.

XLA's layout assignment propagates the layout of an output through elementwise operations of the
same shape. A *region* is a connected component of tensors linked by these: they share one layout
and, if their elements have one size, the same padding.
"""

from __future__ import annotations

from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.program.program_context import COARSE_CLASSES, OPCODE_CLASSES
from xlarank.features.program.slots import CONVOLUTION_ROLES, DOT_ROLES, RESHAPE_ROLES
from xlarank.features.program.tensors import Floats, Ints, packed_waste

#: Roles of the dimensions of configurable nodes, by coarse class.
CLASS_ROLES: Final = dict(
    zip(COARSE_CLASSES[:3], (CONVOLUTION_ROLES, DOT_ROLES, RESHAPE_ROLES), strict=True)
)
#: Roles of all these classes one after another: ``convolution_batch``, ...
ROLE_NAMES: Final = tuple(f"{kind}_{role}" for kind, roles in CLASS_ROLES.items() for role in roles)
#: Positions of dimensions that are padded -> description.
POSITIONS: Final = {"minor": "minor-most", "second": "second minor-most"}
_ELEMENTWISE = OPCODE_CLASSES.index("elementwise")
_REDUCE = OPCODE_CLASSES.index("reduce")


def node_regions(context: LayoutContext) -> Ints:
    """Return the region of each node's output, ``(nodes,)``."""
    from scipy import sparse  # slow to import
    from scipy.sparse.csgraph import connected_components

    graph = context.graph
    consumer, operand = graph.edges.T
    linked = (context.opcode_class[consumer] == _ELEMENTWISE) & (context.rank[consumer] > 0)
    linked &= (context.dims[consumer] == context.dims[operand]).all(axis=1)
    linked &= context.rank[consumer] == context.rank[operand]
    links = sparse.coo_array(
        (linked[linked], (consumer[linked], operand[linked])), shape=(graph.nodes,) * 2
    )
    return np.asarray(connected_components(links, directed=False)[1].astype(np.int64))


def roles_in_regions(
    context: LayoutContext, regions: Ints
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether dimensions have roles, ``(regions, ROLE_NAMES, 6)``, two arrays.

    The first is for configurable nodes that make a tensor, the second for those that read it.
    """
    shape = int(regions.max()) + 1, len(ROLE_NAMES), MAX_RANK
    made = np.zeros(shape, bool)
    read = np.zeros(shape, bool)
    for number, (kind, roles) in enumerate(CLASS_ROLES.items()):
        first = ROLE_NAMES.index(f"{kind}_{roles[0]}")
        for slot in range(2 if kind == "reshape" else len(LAYOUT_SLOTS)):
            tensor = context.slot_tensor[:, slot]
            role = context.roles[:, slot]
            present = (context.coarse_class == number) & (tensor >= 0)
            node, dim = np.nonzero((role >= 0) & present[:, None])
            table = read if slot else made
            table[regions[tensor[node]], first + role[node, dim], dim] = True
    return made, read


def reduced_in_regions(context: LayoutContext, regions: Ints) -> NDArray[np.bool_]:
    """Return whether a reduction that reads a tensor removes a dimension, ``(regions, 6)``.

    A reduction lists what it removes; its other operand, the initial value, has no dimensions.
    """
    reduced = np.zeros((int(regions.max()) + 1, MAX_RANK), bool)
    consumer, operand = context.graph.edges.T
    fewer = context.rank[operand] - context.rank[consumer]
    at = np.flatnonzero((context.opcode_class[consumer] == _REDUCE) & (fewer > 0))
    listed = context.column("dimensions_0", MAX_RANK).astype(np.int64)[consumer[at]]
    removed = (np.arange(MAX_RANK) < fewer[at, None]) & (listed >= 0) & (listed < MAX_RANK)
    reduced[regions[operand[at[np.nonzero(removed)[0]]]], listed[removed]] = True
    return reduced


def least_waste(dims: Ints, rank: Ints, element_bytes: Floats) -> Floats:
    """Return the least `packed_waste` of any layout, ``(tensors,)``; inf for a rank below 2.

    >>> dims = np.array([[4, 128, 8, 0, 0, 0]])  # 128 along the lanes, 8 along the sublanes
    >>> least_waste(dims, np.array([3]), np.array([4.0])).tolist()
    [0.0]
    """
    least = np.full(len(dims), np.inf)
    layout = np.full(dims.shape, -1)
    # Padding depends on the two minor-most dimensions alone.
    for pair in permutations(range(MAX_RANK), 2):
        fits = np.flatnonzero(rank > max(pair))
        layout[:, :2] = pair
        waste = packed_waste(dims[fits], layout[fits], element_bytes[fits])
        least[fits] = np.minimum(least[fits], waste)
    return least
