"""Scores of graphs that a ranker never learned from, for what is built on top of rankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.ranking_data import RankingData, TrainingSet
from xlarank.models.validation.folds import Fold


def out_of_fold_scores(
    ranker: Ranker[Any],
    data: RankingData,
    folds: Sequence[Fold],
    settings: FitSettings,
    also: RankingData | None = None,
) -> NDArray[np.float64]:
    """``(rows,)`` scores of the graphs that folds judge, by clones of the ranker that saw none held out with them.

    ``also`` is learned from, too, without what is like the held-out graphs. Graphs that no fold judges score 0.
    """
    training = TrainingSet(ranker.kind, data, also=also)
    scores = np.zeros(len(data.cost))
    for fold in folds:
        fitted = ranker.clone().fit(training.without(fold.held), settings)
        for g in fold.judged:
            part = slice(data.indptr[g], data.indptr[g + 1])
            scores[part] = fitted.predict(data.parts[g].matrix(), data.columns, data.instances_of(g))
    return scores
