"""Out-of-fold scores never come from a ranker that saw the family."""

from __future__ import annotations

import numpy as np

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.validation.curves import out_of_fold_scores
from xlarank.models.validation.folds import family_folds, whole_folds


def test_each_family_is_scored_by_the_others() -> None:
    data = easy_data(graphs=6, configs=20)
    folds = whole_folds(family_folds(data.families, 3))
    scores = out_of_fold_scores(LambdaRank(kind="layout"), data, folds, FitSettings(5, 2, 1))
    for first in (0, 2, 4):
        others = [g for g in range(6) if g not in (first, first + 1)]
        held = slice(data.indptr[first], data.indptr[first + 2])
        expected = fitted("lambdarank", data.take(others), seed=2, rounds=5).predict(data.rows[held], COLUMNS)
        assert np.array_equal(scores[held], expected)


def test_one_family_has_no_scores() -> None:
    data = easy_data(graphs=2)
    folds = whole_folds(family_folds(data.families, 3))
    assert not out_of_fold_scores(LambdaRank(kind="layout"), data, folds, FitSettings(5, 2, 1)).any()
