"""LightGBM trees on RankNet's pairwise loss: every pair counts the same, as in Kendall's tau."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.models.base import Params
from xlarank.models.objectives.graph_weights import GRAPH_WEIGHTS, row_weights
from xlarank.models.objectives.labels import TIE_TOLERANCES
from xlarank.models.objectives.ranknet_loss import RankNetLoss
from xlarank.models.rankers.columns import default_columns, suggest_columns
from xlarank.models.rankers.init_score import suggest_head_start
from xlarank.models.rankers.lightgbm import LightGBMRanker
from xlarank.models.ranking_data import RankingData

if TYPE_CHECKING:
    import optuna


class RankNet(LightGBMRanker):
    """Pairs within a graph are drawn anew each round, so a graph may have any number of rows."""

    name = "ranknet"

    @classmethod
    def default_params(cls, kind: Kind = "layout") -> Params:
        # Chosen like the others' by leave-family-out folds of the sample's train split: faster overfits layouts,
        # and beside a head start the trees of tiles need less depth.
        return {
            **cls.tree_defaults(kind),
            "learning_rate": 0.07 if kind == "tile" else 0.03,
            "num_leaves": 7 if kind == "tile" else 15,
            "head_start": 2.0 if kind == "tile" else 0.0,
            "pairs": 8,
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
            "pairs": trial.suggest_int("pairs", 2, 32, log=True),
            "tie_tolerance": trial.suggest_categorical("tie_tolerance", list(TIE_TOLERANCES)),
            "graph_weight": trial.suggest_categorical("graph_weight", list(GRAPH_WEIGHTS)),
            "columns": suggest_columns(trial),
        }

    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        own = {**self.default_params(), **params}
        if own["pairs"] < 1:
            raise ModelError(f"pairs is {own['pairs']}", expected="1 or more partners a row")
        weight = row_weights(data.indptr, own["graph_weight"])
        loss = RankNetLoss(data.cost, data.indptr, weight, int(own["pairs"]), own["tie_tolerance"])
        rng = np.random.default_rng(seed)

        def objective(relevance: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            return loss.gradients(relevance, rng)

        return self._train(
            data, np.zeros(len(data.cost)), own, {"objective": objective}, rounds=rounds, seed=seed, threads=threads
        )
