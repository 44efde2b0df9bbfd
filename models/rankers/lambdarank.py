"""LightGBM's lambdarank, set up for Kendall tau.

Out of the box lambdarank looks at the 30 best and weighs them exponentially, which suits web search. Here
every row counts: labels are full ranks with a linear gain and no truncation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.models.base import Params
from xlarank.models.objectives.labels import MAX_GROUP, TIE_TOLERANCES, merge_ties, relevance, split_group
from xlarank.models.rankers.columns import default_columns, suggest_columns
from xlarank.models.rankers.init_score import suggest_head_start
from xlarank.models.rankers.lightgbm import LightGBMRanker
from xlarank.models.ranking_data import RankingData

if TYPE_CHECKING:
    import optuna


#: Sizes of query groups worth trying; small ones are drawn from a graph of few configurations, too.
_GROUPS: Final = (30, 100, 250, 1000)


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
            # The loss costs the square of a group. Of 5000 configurations of a real graph, groups of 250 taught no
            # less than groups of 1000 (tau 0.855 and 0.851 after 100 rounds), in well under half the time.
            "max_group": 250,
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
            "max_group": trial.suggest_categorical("max_group", list(_GROUPS)),
            "tie_tolerance": trial.suggest_categorical("tie_tolerance", list(TIE_TOLERANCES)),
        }

    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        own = {**self.default_params(), **params}
        labels = data.per_group(lambda cost: relevance(merge_ties(cost, own["tie_tolerance"]), own["labels"]))
        orders, sizes = self._query_groups(data, int(own["max_group"]), seed)
        dealt = orders if len(sizes) > data.groups else None  # else the rows stay as they are
        if dealt is not None:
            labels = data.in_order(labels, orders)
        objective = {
            "objective": "lambdarank",
            "label_gain": list(range(int(labels.max()) + 1)),
            "lambdarank_truncation_level": max(sizes),
            "lambdarank_norm": own["lambdarank_norm"],
        }
        return self._train(
            data, labels, own, objective, rounds=rounds, seed=seed, threads=threads, orders=dealt, sizes=sizes
        )

    @staticmethod
    def _query_groups(data: RankingData, most: int, seed: int) -> tuple[list[NDArray[np.intp]], list[int]]:
        """For each graph the order of its rows, and the sizes of the query groups.

        A graph beyond ``most`` rows is dealt into several groups.
        """
        if not 2 <= most <= MAX_GROUP:
            raise ModelError(f"max_group is {most}", expected=f"2 to {MAX_GROUP}, the limit of LightGBM")
        rng = np.random.default_rng(seed)
        dealt = [split_group(len(part), most, rng) for part in data.parts]
        return [np.concatenate(parts) for parts in dealt], [len(part) for parts in dealt for part in parts]
