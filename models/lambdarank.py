"""LightGBM's lambdarank, set up for Kendall tau.

Out of the box lambdarank looks at the 30 best and weighs them exponentially, which suits web search. Here
every row counts: labels are full ranks with a linear gain and no truncation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from data.errors import ModelError
from data.graph import Kind
from models.columns import CHOICES, chosen_columns
from models.contract import Params, Ranker
from models.labels import MAX_GROUP, relevance, split_group
from models.ranking_data import RankingData

if TYPE_CHECKING:
    import optuna

_BOOSTER: Final = "booster.txt"
_STATE: Final = "ranker.json"


class LambdaRank(Ranker):
    """Gradient-boosted trees on the lambdarank loss, grouped by graph."""

    name = "lambdarank"

    def __init__(self) -> None:
        super().__init__()
        self._booster: lgb.Booster | None = None
        self._used: NDArray[np.intp] = np.empty(0, np.intp)
        self._threads = 0

    @classmethod
    def default_params(cls, kind: Kind = "layout") -> Params:
        # Chosen by leave-family-out folds of the embedded sample's train split. The tile files hold too few
        # kernels for a place among candidates to carry over to other families, and the five best of a kernel
        # vary from seed to seed, which stronger sampling averages out.
        tile = kind == "tile"
        return {
            "learning_rate": 0.1 if tile else 0.05,
            "num_leaves": 15,
            "min_data_in_leaf": 20,
            "feature_fraction": 0.3 if tile else 0.5,
            "bagging_fraction": 0.6 if tile else 0.8,
            "lambda_l2": 1.0,
            "lambdarank_norm": True,
            "labels": "rank",
            "columns": "no_candidates" if tile else "all",
            "max_group": 1000,
        }

    @classmethod
    def suggest(cls, trial: optuna.trial.BaseTrial, kind: Kind = "layout") -> Params:
        return {
            **cls.default_params(kind),
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.2, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 4, 48, log=True),
            "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 5, 100, log=True),
            "feature_fraction": trial.suggest_float("feature_fraction", 0.1, 1.0),
            "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
            "lambda_l2": trial.suggest_float("lambda_l2", 0.1, 100.0, log=True),
            "lambdarank_norm": trial.suggest_categorical("lambdarank_norm", [True, False]),
            "labels": trial.suggest_categorical("labels", ["rank", "log"]),
            "columns": trial.suggest_categorical("columns", list(CHOICES)),
        }

    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        own = {**self.default_params(), **params}
        labels = data.per_group(lambda cost: relevance(cost, own["labels"]))
        order, sizes = self._query_groups(data, int(own["max_group"]), seed)
        self.columns, self._threads = data.columns, threads
        self._used = chosen_columns(data.columns, own["columns"])
        whole = len(self._used) == len(data.columns) and len(sizes) == data.groups
        rows = data.rows if whole else data.rows[np.ix_(order, self._used)]
        train = lgb.Dataset(rows, labels[order], group=sizes, params={"max_bin": 63, "verbose": -1})
        self._booster = lgb.train(self._booster_params(own, labels, sizes, seed, threads), train, rounds)
        return self

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

    @staticmethod
    def _booster_params(
        own: Params, labels: NDArray[np.float64], sizes: list[int], seed: int, threads: int
    ) -> dict[str, Any]:
        return {
            "objective": "lambdarank",
            "metric": "None",
            "label_gain": list(range(int(labels.max()) + 1)),
            "lambdarank_truncation_level": max(sizes),
            "lambdarank_norm": own["lambdarank_norm"],
            "learning_rate": own["learning_rate"],
            "num_leaves": own["num_leaves"],
            "min_data_in_leaf": own["min_data_in_leaf"],
            "feature_fraction": own["feature_fraction"],
            "bagging_fraction": own["bagging_fraction"],
            "bagging_freq": 1,
            "lambda_l2": own["lambda_l2"],
            "seed": seed,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": threads,
            "verbose": -1,
        }

    def _fitted(self) -> lgb.Booster:
        if self._booster is None:
            raise ModelError("the ranker was not trained", do="call fit or load first")
        return self._booster

    def _scores(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        return -np.asarray(self._fitted().predict(rows[:, self._used], num_threads=self._threads), np.float64)

    def staged(self, rows: NDArray[np.float32], every: int) -> Iterator[NDArray[np.float64]]:
        booster, used = self._fitted(), rows[:, self._used]
        total = np.zeros(len(rows))
        for start in range(0, max(1, booster.num_trees()), every):
            part = booster.predict(used, start_iteration=start, num_iteration=every, num_threads=self._threads)
            total = total - np.asarray(part)
            yield total

    def importance(self) -> dict[str, float]:
        gain = self._fitted().feature_importance("gain")
        total = max(float(gain.sum()), 1e-12)
        shares = {self.columns[self._used[i]]: float(gain[i]) / total for i in np.argsort(-gain)}
        return {name: share for name, share in shares.items() if share > 0}

    def save(self, folder: Path) -> None:
        folder.joinpath(_BOOSTER).write_text(self._fitted().model_to_string(), encoding="utf-8")
        state = {"columns": self.columns, "used": self._used.tolist()}
        folder.joinpath(_STATE).write_text(json.dumps(state), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        ranker = cls()
        try:
            state = json.loads(folder.joinpath(_STATE).read_text(encoding="utf-8"))
            ranker.columns, ranker._used = state["columns"], np.array(state["used"], np.intp)
            text = folder.joinpath(_BOOSTER).read_text(encoding="utf-8")
            if "\nend of parameters\n" not in text:  # LightGBM reads past the end of a cut text
                raise ValueError(f"{_BOOSTER} is cut short")
            ranker._booster = lgb.Booster(model_str=text)
        except (OSError, ValueError, KeyError, TypeError, lgb.basic.LightGBMError) as error:
            raise ModelError(
                f"{folder} cannot be read ({error})", expected="a trained model", do="run train again"
            ) from error
        return ranker
