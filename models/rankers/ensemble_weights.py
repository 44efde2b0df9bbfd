"""How much each ranker of an ensemble counts, from scores of graphs that it never learned from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.models.objectives.labels import mean_rank
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.metrics import kendall_tau

Floats = NDArray[np.float64]

#: Weights are multiples of one over this; a finer grid would only fit noise.
STEPS: Final = 10
#: Standard errors over graphs by which other weights must beat equal ones.
_ERRORS: Final = 2.0


def blend(scores: Sequence[Floats], weights: Sequence[float] | Floats) -> Floats:
    """Weighted mean of the within-graph ranks of several rankers' scores, ``(rows,)`` of one graph, 0 to 1.

    Scores of different losses have different units, and one ranker's scores spread differently in every
    graph; ranks do not.

    >>> blend([np.array([0.1, 0.2, 0.3]), np.array([70.0, 50.0, 60.0])], [1.0, 3.0]).tolist()
    [0.75, 0.125, 0.625]
    """
    mixed: Floats = np.average([mean_rank(score) for score in scores], axis=0, weights=weights)
    return mixed


def ensemble_weights(out_of_fold: Sequence[Floats], data: RankingData) -> Floats:
    """Weights of rankers, ``(rankers,)`` from 0, summing to 1, by Kendall's tau of their `blend`.

    Every split of the whole into tenths is tried; of the best the most even. It must beat equal weights,
    graph by graph, by two standard errors of the mean over graphs; else equal weights stay.

    Args:
        out_of_fold: ``(rows,)`` scores of each ranker on graphs that it did not learn from.
    """
    parts = [slice(a, b) for a, b in zip(data.indptr[:-1], data.indptr[1:], strict=True)]
    ranks = [np.stack([mean_rank(scores[part]) for scores in out_of_fold]) for part in parts]

    def taus(weights: Floats) -> Floats:
        return np.array(
            [kendall_tau(_even(weights @ rank), data.cost[part]) for rank, part in zip(ranks, parts, strict=True)]
        )

    rankers = len(out_of_fold)
    equal = np.full(rankers, 1 / rankers)
    grid = np.array(list(_compositions(STEPS, rankers))) / STEPS
    grid = grid[np.argsort(((grid - equal) ** 2).sum(axis=1), kind="stable")]
    found = np.array([taus(weights) for weights in grid])
    best = int(np.argmax(found.mean(axis=1)))
    difference = found[best] - taus(equal)
    graphs = len(difference)
    error = difference.std(ddof=1) / np.sqrt(graphs) if graphs > 1 else np.inf
    chosen: Floats = grid[best] if difference.mean() > _ERRORS * error else equal
    return chosen


def _even(values: Floats) -> Floats:
    """Without the last bits, in which sums that are equal on paper differ."""
    return values.round(12)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to write ``total`` as a sum of ``parts`` whole numbers from 0, in order."""
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)
