"""What the rankers on LightGBM trees share: growing, scoring, saving."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.instances import LazyInstances
from xlarank.models.base import Params, Ranker
from xlarank.models.rankers.columns import chosen_columns, suggest_tier
from xlarank.models.rankers.init_score import HeadStart
from xlarank.models.rankers.lightgbm_data import binned
from xlarank.models.ranking_data import RankingData

if TYPE_CHECKING:
    import optuna

#: ``(scores of all rows) -> (gradient, hessian)``, each ``(rows,)``.
Objective = Callable[[NDArray[np.float64]], tuple[NDArray[np.float64], NDArray[np.float64]]]

_BOOSTER: Final = "booster.txt"
_STATE: Final = "ranker.json"


class LightGBMRanker(Ranker):
    """Gradient-boosted trees of LightGBM; a subclass says what they learn.

    Inside, the trees' sum is a relevance, higher is faster, as LightGBM wants it for ranking; a score is its
    negative.
    """

    def __init__(self) -> None:
        super().__init__()
        self._booster: lgb.Booster | None = None
        self._used: NDArray[np.intp] = np.empty(0, np.intp)
        self._threads = 0
        self._head_start: HeadStart | None = None

    @staticmethod
    def tree_defaults(kind: Kind) -> Params:
        """Parameters of the trees, chosen for lambdarank; other objectives change what suits them better."""
        # Chosen by leave-family-out folds of the embedded sample's train split. The five best of a kernel vary
        # from seed to seed, which stronger sampling averages out.
        tile = kind == "tile"
        return {
            "learning_rate": 0.07 if tile else 0.05,
            "num_leaves": 15,
            "min_data_in_leaf": 20,
            "feature_fraction": 0.3 if tile else 0.5,
            "bagging_fraction": 0.6 if tile else 0.8,
            "lambda_l2": 1.0,
            "tier": "full",
        }

    @staticmethod
    def suggest_trees(trial: optuna.trial.BaseTrial) -> Params:
        """Parameters of the trees from the search space that all objectives share."""
        return {
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.2, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 4, 48, log=True),
            "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 5, 100, log=True),
            "feature_fraction": trial.suggest_float("feature_fraction", 0.1, 1.0),
            "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
            "lambda_l2": trial.suggest_float("lambda_l2", 0.1, 100.0, log=True),
            "tier": suggest_tier(trial),
        }

    def _train(
        self,
        data: RankingData,
        label: NDArray[np.float64],
        own: Params,
        objective: dict[str, Any],
        *,
        rounds: int,
        seed: int,
        threads: int,
        weight: NDArray[np.float64] | None = None,
        orders: Sequence[NDArray[np.intp]] | None = None,
        sizes: list[int] | None = None,
    ) -> Self:
        """Grow the trees.

        Args:
            label, weight: ``(rows,)`` in the order of ``orders``, or of ``data`` without.
            own: `tree_defaults`, changed or not, ``columns`` and, if any, ``head_start`` (see `HeadStart`).
            objective: LightGBM's ``objective`` (a name or an `Objective`) and its own parameters.
            orders, sizes: query groups, where the objective has them: for each graph the places of its rows in
                their order (or None, as they are), and the rows of each query group.
        """
        self.columns, self._threads = data.columns, threads
        self._used = chosen_columns(data.columns, own["columns"], own["tier"])
        self._head_start = HeadStart.find(data.columns, own.get("head_start", 0.0))
        start = self._head_start.of(data, orders) if self._head_start else None
        train = binned(
            data, label, self._used, min_data_in_leaf=own["min_data_in_leaf"], threads=threads, weight=weight,
            start=start, orders=orders, sizes=sizes,
        )  # fmt: skip
        # The bins are all that trees grow on; a copy of the rows would stay in memory, fold by fold, until the end.
        train.construct()
        params = {
            **objective,
            "metric": "None",
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
        if callable(custom := params["objective"]):
            params["objective"] = lambda relevance, _: custom(relevance)
            # Where no column can be split LightGBM refuses a custom objective; named ones grow stumps of nothing.
            if not any(train.feature_num_bin(i) for i in range(train.num_feature())):
                params |= {"objective": "regression", "boost_from_average": False}
        self._booster = lgb.train(params, train, rounds)
        return self

    def _fitted(self) -> lgb.Booster:
        if self._booster is None:
            raise ModelError("the ranker was not trained", do="call fit or load first")
        return self._booster

    def _tree_columns(self) -> list[str]:
        """Names of what the trees choose their columns from."""
        return self.columns

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None = None) -> NDArray[np.float64]:
        grown = self._fitted().predict(rows[:, self._used], num_threads=self._threads)
        return -(self._started(rows) + np.asarray(grown, np.float64))

    def _started(self, rows: NDArray[np.float32]) -> NDArray[np.float64]:
        """``(rows,)`` relevance before the first tree."""
        return self._head_start.relevance(rows) if self._head_start else np.zeros(len(rows))

    def staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None = None
    ) -> Iterator[NDArray[np.float64]]:
        booster, used = self._fitted(), rows[:, self._used]
        total = -self._started(rows)
        for start in range(0, max(1, booster.num_trees()), every):
            part = booster.predict(used, start_iteration=start, num_iteration=every, num_threads=self._threads)
            total = total - np.asarray(part)
            yield total

    def importance(self) -> dict[str, float]:
        gain = self._fitted().feature_importance("gain")
        total = max(float(gain.sum()), 1e-12)
        names = self._tree_columns()
        shares = {names[self._used[i]]: float(gain[i]) / total for i in np.argsort(-gain)}
        return {name: share for name, share in shares.items() if share > 0}

    def save(self, folder: Path) -> None:
        folder.joinpath(_BOOSTER).write_text(self._fitted().model_to_string(), encoding="utf-8")
        weight = self._head_start.weight if self._head_start else 0.0
        state = {"columns": self.columns, "used": self._used.tolist(), "head_start": weight}
        folder.joinpath(_STATE).write_text(json.dumps(state), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        ranker = cls()
        try:
            state = json.loads(folder.joinpath(_STATE).read_text(encoding="utf-8"))
            ranker.columns, ranker._used = state["columns"], np.array(state["used"], np.intp)
            ranker._head_start = HeadStart.find(ranker.columns, state["head_start"])
            text = folder.joinpath(_BOOSTER).read_text(encoding="utf-8")
            if "\nend of parameters\n" not in text:  # LightGBM reads past the end of a cut text
                raise ValueError(f"{_BOOSTER} is cut short")
            ranker._booster = lgb.Booster(model_str=text)
        except (OSError, ValueError, KeyError, TypeError, lgb.basic.LightGBMError) as error:
            raise ModelError(
                f"{folder} cannot be read ({error})", expected="a trained model", do="run train again"
            ) from error
        return ranker
