"""LightGBM trees that regress the rank of a configuration within its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives.graph_weights import row_weights
from xlarank.models.objectives.labels import mean_rank, normal_score
from xlarank.models.objectives.ties import merge_ties
from xlarank.models.param_checks import OneOf
from xlarank.models.params import param
from xlarank.models.rankers.common_params import (
    columns_param,
    graph_weight_param,
    init_score_param,
    tie_tolerance_param,
)
from xlarank.models.rankers.lightgbm import LightGBMRanker, TreeParams
from xlarank.models.ranking_data import RankingData
from xlarank.models.search_space import Among

#: ``rank``: 0 for the fastest to 1 for the slowest; ``normal``: the same as normal scores.
TARGETS: Final = ("rank", "normal")


@dataclass(frozen=True, kw_only=True)
class RankRegressionParams(TreeParams):
    """Parameters of `RankRegression`.

    Attributes:
        target: one of `TARGETS`; of a tile's kernel the five best count, which normal scores spread.
    """

    ranker: ClassVar[str] = "rankreg"

    init_score_weight: float = init_score_param(0.8)
    target: str = param("rank", OneOf(TARGETS), Among(TARGETS), tile="normal")
    tie_tolerance: float = tie_tolerance_param(0.0)
    graph_weight: str = graph_weight_param()
    columns: str = columns_param()


class RankRegression(LightGBMRanker[RankRegressionParams]):
    """Least squares on the within-graph rank; no pairs, no groups, any number of rows a graph."""

    name = RankRegressionParams.ranker
    params_class = RankRegressionParams

    def _fit(self, data: RankingData, settings: FitSettings) -> None:
        own = self.params
        relevance = data.per_group(lambda cost: _target(merge_ties(cost, own.tie_tolerance), own.target))
        weight = row_weights(data.indptr, own.graph_weight, data.weight)
        # The targets of each graph have mean 0 already: an intercept would only blur what a stage is.
        objective = {"objective": "regression", "boost_from_average": False}
        self._train(
            data, relevance, objective, settings, columns=own.columns, init_score_weight=own.init_score_weight,
            weight=weight,
        )  # fmt: skip


def _target(cost: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    """``(rows,)`` of one group, higher is faster, mean 0."""
    return normal_score(-cost) if how == "normal" else 0.5 - mean_rank(cost)
