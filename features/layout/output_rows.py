"""What each distinct row does to the output of its node, and to the region that shares the output's layout."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import MAX_RANK
from xlarank.features.program.tensors import Floats, Ints, Tiling, complete_layout, packed_waste

if TYPE_CHECKING:
    from xlarank.features.layout.facts import LayoutFacts
    from xlarank.features.layout.regions import Regions


@dataclass(frozen=True, eq=False)
class OutputRows:
    """Arrays are ``(R,)``, for every distinct row of the table, whether it sets the output's layout or not.

    Attributes:
        given: it does.
        minor, second: the minor-most and the second minor-most dimension of the full layout; -1 for none.
        padded, least, default: bytes in tiles over true bytes: in the full layout, in the one that pads least, in
            the default.
        bytes: of the output over those of all tensors that a fusing compiler stores.
        region: which region the output is in.
        region_bytes: of the region's stored tensors (at least the output) over the same.
    """

    given: NDArray[np.bool_]
    minor: Ints
    second: Ints
    padded: Floats
    least: Floats
    default: Floats
    bytes: Floats
    region: Ints
    region_bytes: Floats


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
    least = np.full(len(dims), np.inf)
    layout = np.full(dims.shape, -1)
    for first, second in permutations(range(MAX_RANK), 2):
        fits = np.flatnonzero(rank > max(first, second))
        layout[:, 0], layout[:, 1] = first, second
        waste = packed_waste(dims[fits], layout[fits], element_bytes[fits], tiling)
        least[fits] = np.minimum(least[fits], waste)
    return least
