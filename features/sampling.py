"""Which configurations of a large graph to learn from."""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import XlarankError
from xlarank.features.recipe import Recipe
from xlarank.features.rows import GraphRows

SAMPLES: Final = ("random", "thirds", "uniform")


def draw_of_graph(seed: int, name: str) -> np.random.Generator:
    """Random numbers that depend on the seed and the graph alone, not on what else is sampled."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def sample_configs(
    cost: NDArray[np.float64], most: int, rng: np.random.Generator, how: str = "random"
) -> NDArray[np.intp]:
    """Sorted indices, ``(min(most, configs),)``, of the distinct configurations to keep.

    ``random``: any, whatever they cost. ``thirds``: the most // 3 fastest, as many slowest, the rest drawn at
    random from all others; both ends decide what a ranking is used for and are rare in a random draw.
    ``uniform``: at even steps of rank, from the fastest to the slowest. Equal costs are taken in random order.
    All are kept where there are no more than ``most``.

    Args:
        cost: ``(configs,)`` lower is faster.

    Raises `XlarankError` for another ``how`` and for ``most`` below 1.

    >>> sample_configs(np.array([5.0, 1.0, 4.0, 2.0, 3.0]), 3, np.random.default_rng(0), "uniform").tolist()
    [0, 1, 4]
    """
    if how not in SAMPLES:
        raise XlarankError(f"{how!r} is not a way to sample", expected=", ".join(SAMPLES))
    if most < 1:
        raise XlarankError(f"a sample of {most} configurations", expected="1 or more")
    if most >= len(cost):
        return np.arange(len(cost))
    if how == "random":
        return np.sort(rng.choice(len(cost), most, replace=False))
    shuffled = rng.permutation(len(cost))
    order = shuffled[np.argsort(cost[shuffled], kind="stable")]
    if how == "uniform":
        return np.sort(order[np.rint(np.linspace(0, len(order) - 1, most)).astype(np.intp)])
    third = most // 3
    middle = rng.choice(order[third : len(order) - third], most - 2 * third, replace=False)
    return np.sort(np.concatenate([order[:third], order[len(order) - third :], middle]))


def at_most(rows: GraphRows, recipe: Recipe) -> GraphRows:
    """The rows that a recipe keeps of a graph; the draw depends on the recipe and the graph alone.

    Where it has more than ``max_configs``, those that were not measured go first: nothing can be learned from them.
    Graphs without labels are drawn from at random.
    """
    most = recipe.max_configs
    if not most or len(rows) <= most:
        return rows
    rng = draw_of_graph(recipe.seed, rows.name)
    if not rows.labelled:
        return rows.take(sample_configs(np.zeros(len(rows)), most, rng))
    measured = rows.measured()
    return measured.take(sample_configs(measured.row_cost, most, rng, recipe.sampling))
