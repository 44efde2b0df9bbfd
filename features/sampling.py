"""Which configurations of a large graph to train on."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from xlarank.features.recipe import Recipe
from xlarank.features.rows import GraphRows


def draw_of_graph(seed: int, name: str) -> np.random.Generator:
    """Random numbers that depend on the seed and the graph alone, not on what else is sampled."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def even_ranks(cost: NDArray[np.float64], most: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Sorted indices, ``(min(most, configs),)``, of configurations at even steps of rank of ``cost (configs,)``.

    Equal costs are taken in random order.

    >>> even_ranks(np.array([5.0, 1.0, 4.0, 2.0, 3.0]), 3, np.random.default_rng(0)).tolist()
    [0, 1, 4]
    """
    if most >= len(cost):
        return np.arange(len(cost))
    shuffled = rng.permutation(len(cost))
    order = shuffled[np.argsort(cost[shuffled], kind="stable")]
    return np.sort(order[np.rint(np.linspace(0, len(order) - 1, most)).astype(np.intp)])


def at_most(rows: GraphRows, recipe: Recipe) -> GraphRows:
    """The rows that a recipe keeps of a graph, drawn at random; the draw depends on the recipe and the graph alone.

    Where it has more than ``max_configs``, those that were not measured go first: they cannot be trained on.
    """
    most = recipe.max_configs or len(rows)
    if len(rows) > most and rows.labelled:
        rows = rows.measured()
    if len(rows) <= most:
        return rows
    return rows.take(np.sort(draw_of_graph(recipe.seed, rows.name).choice(len(rows), most, replace=False)))
