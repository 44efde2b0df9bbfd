"""LightGBM's lambdarank, set up for Kendall tau.

Out of the box lambdarank looks at the 30 best and weighs them exponentially, which suits web search. Here
every row counts: labels are full ranks with a linear gain and no truncation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from data.errors import ModelError
from data.graph import Kind
from models.columns import default_columns, suggest_columns
from models.contract import Params
from models.head_start import suggest_head_start
from models.labels import MAX_GROUP, TIE_TOLERANCES, merge_ties, relevance, split_group
from models.lightgbm_ranker import LightGBMRanker
from models.ranking_data import RankingData

if TYPE_CHECKING:
    import optuna


class LambdaRank(LightGBMRanker):
    """Gradient-boosted trees on the lambdarank loss, grouped by graph."""

    name = "lambdarank"

    @classmethod
    def default_params(cls, kind: Kind = "layout") -> Params:
        return {
            **cls.tree_defaults(kind),
            "head_start": 2.0 if kind == "tile" else 0.0,
            "lambdarank_norm": True,
            "labels": "rank",
            "columns": default_columns(kind),
            "max_group": 1000,
            "tie_tolerance": 0.0,
        }

    @classmethod
    def suggest(cls, trial: optuna.trial.BaseTrial, kind: Kind = "layout") -> Params:
        defaults = cls.default_params(kind)
        return {
            **defaults,
            **cls.suggest_trees(trial),
            **suggest_head_start(trial, defaults["head_start"]),
            "lambdarank_norm": trial.suggest_categorical("lambdarank_norm", [True, False]),
            "labels": trial.suggest_categorical("labels", ["rank", "log"]),
            "columns": suggest_columns(trial),
            "tie_tolerance": trial.suggest_categorical("tie_tolerance", list(TIE_TOLERANCES)),
        }

    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        own = {**self.default_params(), **params}
        labels = data.per_group(lambda cost: relevance(merge_ties(cost, own["tie_tolerance"]), own["labels"]))
        order, sizes = self._query_groups(data, int(own["max_group"]), seed)
        dealt = order if len(sizes) > data.groups else None  # else the rows stay as they are, without a copy
        objective = {
            "objective": "lambdarank",
            "label_gain": list(range(int(labels.max()) + 1)),
            "lambdarank_truncation_level": max(sizes),
            "lambdarank_norm": own["lambdarank_norm"],
        }
        return self._train(
            data, labels, own, objective, rounds=rounds, seed=seed, threads=threads, order=dealt, sizes=sizes
        )

    @staticmethod
    def _query_groups(data: RankingData, most: int, seed: int) -> tuple[NDArray[np.intp], list[int]]:
        """Row order and sizes of the query groups; a graph beyond ``most`` rows is dealt into several."""
        if not 2 <= most <= MAX_GROUP:
            raise ModelError(f"max_group is {most}", expected=f"2 to {MAX_GROUP}, the limit of LightGBM")
        rng = np.random.default_rng(seed)
        order, sizes = [], []
        for start, stop in zip(data.indptr[:-1], data.indptr[1:], strict=True):
            for part in split_group(int(stop - start), most, rng):
                order.append(part + start)
                sizes.append(len(part))
        return np.concatenate(order), sizes
