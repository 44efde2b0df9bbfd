"""Scores of graphs that a ranker never learned from, for what is built on top of rankers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.ranking_data import RankingData
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.folds import family_folds


def out_of_fold_scores(
    ranker: Ranker[Any], data: RankingData, folds: int, settings: FitSettings, also: RankingData | None = None
) -> NDArray[np.float64]:
    """``(rows,)`` scores of every graph by a clone of the ranker that never saw its family; at most ``folds`` fits.

    ``also`` is learned from, too, without the held-out families. All 0 with a single family of ``data``.
    """
    training = TrainingSet(ranker.kind, data, also=also)
    scores = np.zeros(len(data.cost))
    for held in family_folds(data.families, folds):
        fitted = ranker.clone().fit(training.without(held), settings)
        for g in held:
            part = slice(data.indptr[g], data.indptr[g + 1])
            scores[part] = fitted.predict(data.parts[g].matrix(), data.columns, data.instances_of(g))
    return scores
