"""LightGBM trees on RankNet's pairwise loss: every pair counts the same, as in Kendall's tau."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xlarank.models.objectives import RankNetLoss, row_weights
from xlarank.models.params import Between, Number, param
from xlarank.models.rankers.boosted import PairLossParams, leaves_param
from xlarank.models.rankers.lightgbm import LightGBMRanker, TreeParams
from xlarank.models.rankers.lightgbm_data import RowTargets
from xlarank.models.training_data import FitSettings, TrainingData


@dataclass(frozen=True, kw_only=True)
class RankNetParams(PairLossParams, TreeParams):
    """Parameters of `RankNet`: faster overfits layouts; beside an initial score trees of tiles need less depth."""

    ranker: ClassVar[str] = "ranknet"

    learning_rate: float = param(0.03, Number(0, above=True), Between(0.02, 0.2, log=True), tile=0.07)
    num_leaves: int = leaves_param(15, tile=7)


class RankNet(LightGBMRanker[RankNetParams]):
    """Pairs within a graph are drawn anew each round, so a graph may have any number of rows."""

    name = RankNetParams.ranker
    params_class = RankNetParams

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        params = self.params
        weight = row_weights(data.indptr, params.graph_weight, data.group_weight)
        loss = RankNetLoss(data.cost, data.indptr, weight, params.pairs, params.tie_tolerance)
        rng = np.random.default_rng(settings.seed)
        objective = {"objective": lambda relevance, _: loss.gradients(relevance, rng)}
        targets = RowTargets(label=np.zeros(len(data.cost)))
        self._train(data, targets, objective, settings, params.columns, params.init_score_weight)
