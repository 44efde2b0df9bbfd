"""Scores of graphs that a ranker never learned from, for what is built on top of rankers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlarank.models.base import Params, Ranker
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.folds import family_folds


def out_of_fold_scores(
    ranker: type[Ranker], data: RankingData, params: Params, *, folds: int, rounds: int, seed: int, threads: int
) -> NDArray[np.float64]:
    """``(rows,)`` scores of every graph by a ranker that never saw its family, in at most ``folds`` fits.

    All 0 with a single family: there is nothing to learn from.
    """
    scores = np.zeros(len(data.cost))
    for held in family_folds(data.families, folds):
        learned = [g for g in range(data.groups) if g not in set(held)]
        fitted = ranker().fit(data.take(learned), params, rounds=rounds, seed=seed, threads=threads)
        for g in held:
            part = slice(data.indptr[g], data.indptr[g + 1])
            scores[part] = fitted.predict(data.parts[g].matrix(), data.columns, data.instances_of(g))
    return scores
