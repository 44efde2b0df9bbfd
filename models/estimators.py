"""Estimators of the user's own: any with ``fit(X, y, group=)`` and ``predict(X)``.

LightGBM's and XGBoost's are saved as the text of their trees and loaded without scikit-learn; no
other is saved, because nothing is pickled.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from xlarank.data.errors import ModelError, ParameterError
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.boosters.lightgbm import LightGBMBooster
from xlarank.models.boosters.xgboost import XGBoostBooster
from xlarank.models.member import Loss, Member
from xlarank.models.objectives import MAX_GROUP, mean_rank
from xlarank.models.training_data import Dataset, FitSettings, TrainingData

#: Relevance of the fastest row of a graph. LightGBM's and XGBoost's default gains end at 31.
MAX_RELEVANCE: Final = 30
_LIGHTGBM: Final = "LGBMRanker"
_XGBOOST: Final = "XGBRanker"


@dataclass(frozen=True, eq=False)
class EstimatorBooster:
    """An estimator with the interface of `LightGBMBooster`; `fit` fits a copy. It is not saved."""

    estimator: Any

    rounds = 1

    def tree_params(self, params: object, settings: FitSettings) -> dict[str, Any]:
        """Return nothing: the estimator has its own parameters."""
        return {}

    def fit(
        self, dataset: Dataset, used: Indices, settings: FitSettings
    ) -> LightGBMBooster | XGBoostBooster | EstimatorBooster:
        """Fit on the columns ``used`` and at most `MAX_GROUP` rows of each graph."""
        data = dataset.data
        kept = slice(MAX_GROUP)
        rows = [data.group_matrix(group, kept, used) for group in range(data.groups)]
        label = np.concatenate([label[kept] for label in data.split(dataset.label)])
        fitted = deepcopy(self.estimator)
        sizes = np.array([len(part) for part in rows])
        fitted.fit(np.concatenate(rows), label.astype(np.int64), group=sizes)
        if name_of(fitted) == _LIGHTGBM:
            return LightGBMBooster(fitted.booster_, settings.threads)
        if name_of(fitted) == _XGBOOST:
            return XGBoostBooster(fitted.get_booster())
        return EstimatorBooster(fitted)

    def relevance(self, values: Matrix) -> Floats:
        """Return the predictions, ``(rows,)``; raise `ModelError` for another shape."""
        predicted = np.asarray(self.estimator.predict(values), np.float64)
        if predicted.shape != (len(values),):
            got = f"{name_of(self.estimator)} predicts an array of shape {predicted.shape}"
            raise ModelError(got, expected=f"({len(values)},), one number for each row")
        return predicted

    def contributions(self, values: Matrix) -> Floats:
        got = f"{name_of(self.estimator)} has no contributions by column"
        raise ModelError(got, expected=_SAVED)

    def gains(self) -> Floats:
        """Return the estimator's importance of each column, ``(used columns,)``, 0 without any."""
        return np.asarray(getattr(self.estimator, "feature_importances_", 0.0), np.float64)

    def text(self) -> str:
        do = "keep its scores, which submit takes"
        raise ModelError(f"{name_of(self.estimator)} cannot be saved", expected=_SAVED, do=do)


def relevance_labels(member: Member, data: TrainingData, settings: FitSettings) -> Dataset:
    """Return whole numbers from 0 to `MAX_RELEVANCE` by rank within a graph, higher is faster.

    Graphs of more than `MAX_GROUP` rows are shuffled, so that the first rows are a sample.
    """
    if np.diff(data.indptr).max() > MAX_GROUP:
        data = data.shuffled(settings.seed)
    label = data.per_group(lambda cost: np.rint(MAX_RELEVANCE * (1 - mean_rank(cost))))
    return Dataset(data, label, {})


def loss_of(estimator: Any) -> Loss:
    """Return the loss that fits copies of an estimator."""
    return Loss(name_of(estimator), relevance_labels, {}, EstimatorBooster(estimator))


def name_of(estimator: Any) -> str:
    """Return the name of an estimator's class; raise `ParameterError` without its methods."""
    methods = [getattr(estimator, name, None) for name in ("fit", "predict")]
    if isinstance(estimator, type) or not all(map(callable, methods)):
        expected = "an object with fit(X, y, group=) and predict(X)"
        raise ParameterError(f"estimator is {estimator!r}", expected=expected)
    return type(estimator).__name__


def _refuse(member: Member, data: TrainingData, settings: FitSettings) -> Dataset:
    name = member.loss.name
    do = f"pass GraphRanker(estimator={name}(...))"
    raise ModelError(f"{name} can be loaded, but not fitted by its name", do=do)


#: Estimators that are saved, by the name of their class. Loaded ones score and are not fitted.
ESTIMATORS: Final = {
    _LIGHTGBM: Loss(_LIGHTGBM, _refuse, {}, LightGBMBooster),
    _XGBOOST: Loss(_XGBOOST, _refuse, {}, XGBoostBooster),
}
_SAVED: Final = " or ".join(ESTIMATORS)
