"""Trees on what a kernel takes: an absolute time for every tile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from xlarank.models.arrays import Floats
from xlarank.models.rankers.boosted import InitScore, columns_param
from xlarank.models.rankers.lightgbm import LightGBMRanker, TreeParams
from xlarank.models.rankers.lightgbm_data import RowTargets
from xlarank.models.training_data import FitSettings, TrainingData

#: Logarithms (base 2) beyond which trees have lost their way; keeps times finite.
_MOST: Final = 100.0


@dataclass(frozen=True, kw_only=True)
class TileCostParams(TreeParams):
    """Parameters of `TileCost`."""

    ranker: ClassVar[str] = "tile-cost"

    columns: str = columns_param()


class TileCost(LightGBMRanker[TileCostParams]):
    """Least squares on log2 of the nanoseconds of a tile, beginning at the estimate of the target's time model.

    Times of many kernels show what a tile costs, not only which one is better. All kernels have equal weight. A
    score is log2 of the predicted nanoseconds. For rows without an estimate, the label is the time relative to the
    mean of the kernel; scores are then not times.
    """

    name = TileCostParams.ranker
    params_class = TileCostParams

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        start = InitScore.find(data.columns, 1.0, data.target)
        if start is None:
            label = data.per_group(lambda cost: np.log2(cost).mean() - np.log2(cost))
        else:
            # runs of one kernel are brought to one normalizer
            times = np.concatenate([part.row_cost * float(np.median(part.normalizer)) for part in data.parts])
            label = -np.log2(times) - start.relevance(data.matrix())
        sizes = np.diff(data.indptr)
        weight = np.repeat(data.group_weight / sizes, sizes) * sizes.mean()
        targets = RowTargets(label=label, weight=weight)
        self._train(data, targets, {"objective": "regression"}, settings, self.params.columns)
        self._init_score = start

    def nanoseconds(self, scores: Floats) -> Floats | None:
        return np.exp2(np.minimum(scores, _MOST)) if self._init_score else None
