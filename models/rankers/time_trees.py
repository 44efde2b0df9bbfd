"""Boosted trees on log time, starting from the estimate of a time model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.models.arrays import Floats
from xlarank.models.params import Number, OneOf, param
from xlarank.models.rankers.boosted import BoostedRanker, TreeParams, centred, columns_param
from xlarank.models.training_data import FitSettings, Task, TrainingData


@dataclass(frozen=True, kw_only=True)
class TimeTreesParams(TreeParams):
    """Parameters of `TimeTrees`.

    Attributes:
        init_score_weight: weight of the estimate's logarithm in the initial score.
        monotone: whether scores are constrained to be non-decreasing in the columns of estimated
            times.
    """

    ranker: ClassVar[str] = "time-trees"

    init_score_weight: float = param(1.0, Number(0, 1), OneOf((0.0, 0.5, 1.0)))
    monotone: bool = param(True, OneOf((True, False)), OneOf((True, False)), tile=False)
    columns: str = columns_param()


class TimeTrees(BoostedRanker[TimeTreesParams]):
    """Least squares on log2 time, starting from the estimate of the target's time model.

    Trees learn the ratio of time to estimate. For layouts they learn it up to a factor per graph,
    because runtimes of different programs are not comparable. All graphs have equal weight. A score
    is log2 of the predicted nanoseconds; without an estimate of weight 1, it only ranks. Without
    trees it is the estimate (tiles: cycles).
    """

    params_class = TimeTreesParams
    min_rounds = 0

    @property
    def ranks_without_trees(self) -> bool:
        return self._init_score is not None

    @property
    def is_time_model(self) -> bool:
        warm = self._warm_start
        return (
            self._predicts_times and not self._booster.rounds and not (warm and warm.booster.rounds)
        )

    @property
    def _predicts_times(self) -> bool:
        return self._init_score is not None and self._init_score.weight == 1

    def task(self, data: TrainingData, settings: FitSettings) -> Task:
        init_score = self._init_score
        if init_score is None and not settings.rounds:
            raise ModelError(
                "the target has no estimated time to rank by", expected="1 round or more"
            )
        # one normalizer per kernel: its median over the runs
        times = np.concatenate(
            [part.row_cost * float(np.median(part.normalizer)) for part in data.parts]
        )
        label = -np.log2(times) - (init_score.training_relevance(data) if init_score else 0.0)
        is_centred = init_score is None or self.kind == "layout"
        label = centred(label, data) if is_centred else label
        sizes = np.diff(data.indptr)
        weight = np.repeat(data.group_weight / sizes, sizes) * sizes.mean()
        params: dict[str, Any] = {"objective": "regression"}
        if self.params.monotone and data.target and data.target.times:
            params["monotone_constraints"] = [
                -(data.columns[i] in data.target.times) for i in self._used
            ]
        return Task(data, label, params, weight, residual=True, centred=is_centred)

    def nanoseconds(self, scores: Floats) -> Floats | None:
        if not self._predicts_times or (
            self.kind == "tile" and self.is_time_model
        ):  # cycles, not nanoseconds
            return None
        return np.exp2(np.minimum(scores, 100.0))
