"""In which order a graph's rows stand where a query group must be some of them in a row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlarank.features.rows import GraphRows
from xlarank.features.sampling import draw_of_graph
from xlarank.models.ranking_data import RankingData


def dealt_order(part: GraphRows, seed: int) -> NDArray[np.intp]:
    """``(rows,)`` a graph's rows shuffled; it depends on the seed and the graph alone.

    So the same rows serve query groups of any size, cut one after the other, and any choice of graphs.
    """
    return draw_of_graph(seed, part.name).permutation(len(part))


def dealt_orders(data: RankingData, seed: int | None) -> list[NDArray[np.intp]] | None:
    """`dealt_order` of each graph; None, as the rows are, without a seed."""
    return None if seed is None else [dealt_order(part, seed) for part in data.parts]


def even_sizes(rows: int, most: int) -> list[int]:
    """Rows of the fewest query groups of at most ``most`` that a graph can be cut into, even in size.

    >>> even_sizes(10, 4)
    [4, 3, 3]
    """
    parts = -(-rows // most)
    size, larger = divmod(rows, parts)
    return [size + 1] * larger + [size] * (parts - larger)
