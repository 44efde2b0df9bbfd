"""Training objectives: labels, the pairwise loss, ties, and weights of graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from xlarank.models.arrays import Floats, Integers

#: Maximum number of rows of a query group in LightGBM.
MAX_GROUP: Final = 10_000
#: A graph's total weight is its number of rows to this power. ``equal`` matches the metric, a mean
#: over graphs; with ``rows`` a graph of 100,000 configurations outweighs one of 1000; ``sqrt`` is a
#: compromise, because the few rows of a small graph are noisy.
GRAPH_WEIGHTS: Final = {"equal": 0.0, "sqrt": 0.5, "rows": 1.0}
#: Minimum hessian of a row of weight 1: without it a Newton step would divide by zero if all pairs
#: are ties.
HESSIAN_FLOOR: Final = 1e-3


def merge_ties(cost: Floats, tolerance: float) -> Floats:
    """Round costs of one group, ``(rows,)``, down to steps of the measurement noise.

    Each cost is rounded down to smallest * (1 + tolerance)^k, k = 0, 1, 2, ... Linking neighbours
    instead would chain all costs of a densely measured graph.

    >>> merge_ties(np.array([100.0, 109.0, 111.0, 130.0]), 0.1).round().tolist()
    [100.0, 100.0, 110.0, 121.0]
    """
    if tolerance == 0:
        return cost
    steps = np.floor(np.log(cost / cost.min()) / np.log1p(tolerance))
    return np.asarray(cost.min() * np.exp(steps * np.log1p(tolerance)))


def relevance(cost: Floats, how: str) -> Floats:
    """Return the relevance labels of one group, ``(rows,)``, from 0; higher is faster.

    ``rank``: dense rank; equal costs share a label. ``log``: 300 * (1 - log(cost / smallest) / 2),
    rounded, at least 0, so that near ties weigh little.

    >>> relevance(np.array([30.0, 10.0, 20.0, 10.0]), "rank").tolist()
    [0.0, 2.0, 1.0, 2.0]
    >>> relevance(np.array([1.0, 100.0]), "log").tolist()
    [300.0, 0.0]
    """
    if how == "rank":
        return np.unique(-cost, return_inverse=True)[1].astype(np.float64)
    excess = np.minimum(np.log(cost / cost.min()), 2.0)
    return np.asarray(np.rint((1 - excess / 2.0) * 300))


def mean_rank(values: Floats) -> Floats:
    """Return ranks of one group, ``(rows,)``, from 0 (smallest) to 1; ties share their mean.

    >>> mean_rank(np.array([30.0, 10.0, 20.0, 10.0, 40.0])).tolist()
    [0.75, 0.125, 0.5, 0.125, 1.0]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    mean_ranks = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(mean_ranks[place] / max(1, len(values) - 1))


def blend(scores: Sequence[Floats], weights: Sequence[float] | Floats) -> Floats:
    """Return the weighted mean rank by several scores, ``(rows,)``, or a single score unchanged.

    >>> blend([np.array([0.1, 0.2, 0.3]), np.array([70.0, 50.0, 60.0])], [1.0, 3.0]).tolist()
    [0.75, 0.125, 0.625]
    """
    if len(scores) == 1:
        return scores[0]
    return np.average([mean_rank(score) for score in scores], axis=0, weights=weights)


def row_weights(indptr: Integers, how: str) -> Floats:
    """Return ``(rows,)`` weights in a sum over rows: equal within a graph, 1 on average.

    >>> row_weights(np.array([0, 1, 4]), "equal").round(3).tolist()
    [2.0, 0.667, 0.667, 0.667]
    """
    sizes = np.diff(indptr).astype(np.float64)
    total = sizes ** GRAPH_WEIGHTS[how]
    weights: Floats = np.repeat(total / sizes, np.diff(indptr)) * (sizes.sum() / total.sum())
    return weights


def draw_partners(indptr: Integers, rng: np.random.Generator) -> Integers:
    """Draw another row of the same graph for each row, ``(rows,)``; itself without others."""
    sizes = np.diff(indptr)
    candidates = np.repeat(sizes - 1, sizes)
    drawn: Integers = (rng.random(len(candidates)) * candidates).astype(np.int64)
    drawn += np.repeat(indptr[:-1], sizes)
    drawn += (drawn >= np.arange(len(drawn))) & (candidates > 0)  # skip the row itself
    return drawn


def ranknet_gradients(
    relevance: Floats,
    cost: Floats,
    indptr: Integers,
    weight: Floats,
    pairs: int,
    tie_tolerance: float,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Return ``(rows,)`` gradient and diagonal hessian of RankNet's loss on newly drawn pairs.

    The loss is the weighted sum over rows of log(1 + exp(relevance of the slower - relevance of the
    faster)), a mean over ``pairs`` partners that are drawn for each row; on average the row itself
    is drawn as often. RankNet: Burges et al. 2005, *Learning to Rank using Gradient Descent*, with
    target probabilities 0 and 1. All pairs of a graph are equally likely, as Kendall's tau weights
    them equally. A tie, costs that differ by at most ``tie_tolerance`` times the smaller one, has
    no gradient.

    With p = 1 / (1 + exp(relevance of the faster - relevance of the slower)), a pair adds -p to the
    faster row's gradient, p to the slower row's gradient, and p (1 - p) to both hessians. Sums are
    divided by ``pairs`` and multiplied by ``weight`` ``(rows,)``, constant within a graph; the
    hessian is at least `HESSIAN_FLOOR` times the weight.
    """
    from scipy.special import expit  # slow to import

    gradient = np.zeros(len(cost))
    hessian = np.zeros(len(cost))
    for _ in range(pairs):
        partner = draw_partners(indptr, rng)
        lead = cost[partner] - cost
        is_tie = np.abs(lead) <= tie_tolerance * np.minimum(cost[partner], cost)
        sign = np.where(is_tie, 0.0, np.sign(lead))
        p = expit(sign * (relevance[partner] - relevance))
        slope = -sign * p
        curvature = np.abs(sign) * p * (1 - p)
        gradient += slope - np.bincount(partner, slope, len(partner))
        hessian += curvature + np.bincount(partner, curvature, len(partner))
    floor = HESSIAN_FLOOR * weight
    return gradient * weight / pairs, np.maximum(hessian * weight / pairs, floor)
