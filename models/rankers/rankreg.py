"""LightGBM trees that regress the rank of a configuration within its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.models.base import Params
from xlarank.models.objectives.graph_weights import GRAPH_WEIGHTS, row_weights
from xlarank.models.objectives.labels import TIE_TOLERANCES, mean_rank, merge_ties, normal_score
from xlarank.models.rankers.columns import default_columns, suggest_columns
from xlarank.models.rankers.init_score import suggest_head_start
from xlarank.models.rankers.lightgbm import LightGBMRanker
from xlarank.models.ranking_data import RankingData

if TYPE_CHECKING:
    import optuna

#: ``rank``: 0 for the fastest to 1 for the slowest; ``normal``: the same as normal scores.
TARGETS: Final = ("rank", "normal")


class RankRegression(LightGBMRanker):
    """Least squares on the within-graph rank; no pairs, no groups, any number of rows a graph."""

    name = "rankreg"

    @classmethod
    def default_params(cls, kind: Kind = "layout") -> Params:
        return {
            **cls.tree_defaults(kind),
            "head_start": 0.8 if kind == "tile" else 0.0,
            "target": "normal" if kind == "tile" else "rank",  # of a kernel the five best count
            "tie_tolerance": 0.0,
            "graph_weight": "equal",
            "columns": default_columns(kind),
        }

    @classmethod
    def suggest(cls, trial: optuna.trial.BaseTrial, kind: Kind = "layout") -> Params:
        defaults = cls.default_params(kind)
        return {
            **defaults,
            **cls.suggest_trees(trial),
            **suggest_head_start(trial, defaults["head_start"]),
            "target": trial.suggest_categorical("target", list(TARGETS)),
            "tie_tolerance": trial.suggest_categorical("tie_tolerance", list(TIE_TOLERANCES)),
            "graph_weight": trial.suggest_categorical("graph_weight", list(GRAPH_WEIGHTS)),
            "columns": suggest_columns(trial),
        }

    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        own = {**self.default_params(), **params}
        relevance = data.per_group(lambda cost: _target(merge_ties(cost, own["tie_tolerance"]), own["target"]))
        weight = row_weights(data.indptr, own["graph_weight"])
        # The targets of each graph have mean 0 already: an intercept would only blur what a stage is.
        objective = {"objective": "regression", "boost_from_average": False}
        return self._train(
            data, relevance, own, objective, rounds=rounds, seed=seed, threads=threads, weight=weight
        )


def _target(cost: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    """``(rows,)`` of one group, higher is faster, mean 0."""
    if how not in TARGETS:
        raise ModelError(f"target is {how!r}", expected=", ".join(TARGETS))
    return normal_score(-cost) if how == "normal" else 0.5 - mean_rank(cost)
