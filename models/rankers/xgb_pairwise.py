"""XGBoost's pairwise ranking loss on sampled pairs, an implementation of its own beside LightGBM's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.instances import LazyInstances
from xlarank.models.base import Params, Ranker
from xlarank.models.objectives.graph_weights import GRAPH_WEIGHTS, row_weights
from xlarank.models.objectives.labels import TIE_TOLERANCES, mean_rank, merge_ties
from xlarank.models.rankers.columns import chosen_columns, default_columns, suggest_columns, suggest_tier
from xlarank.models.rankers.init_score import HeadStart, suggest_head_start
from xlarank.models.rankers.xgboost_data import quantiles
from xlarank.models.ranking_data import RankingData

if TYPE_CHECKING:
    import optuna
    import xgboost as xgb

_BOOSTER: Final = "booster.json"
_STATE: Final = "ranker.json"
#: As near to LightGBM's 63 as XGBoost likes it.
_MAX_BIN: Final = 64


class XGBPairwise(Ranker):
    """XGBoost trees on ``rank:pairwise``; pairs are sampled, so a graph may have any number of rows.

    Needs the module ``xgboost``, of either distribution (``xgboost-cpu`` is the light one); `ModelError` where
    there is none.
    """

    name = "xgb-pairwise"

    def __init__(self) -> None:
        super().__init__()
        self._booster: xgb.Booster | None = None
        self._used: NDArray[np.intp] = np.empty(0, np.intp)
        self._head_start: HeadStart | None = None

    @classmethod
    def default_params(cls, kind: Kind = "layout") -> Params:
        tile = kind == "tile"
        return {
            "learning_rate": 0.05,
            "max_leaves": 15,
            "min_child_weight": 5.0,
            "colsample_bytree": 0.3 if tile else 0.5,
            "subsample": 0.6 if tile else 0.8,
            "reg_lambda": 1.0,
            "head_start": 2.0 if tile else 0.0,
            "pairs": 8,
            "tie_tolerance": 0.0,
            "graph_weight": "equal",
            "columns": default_columns(kind),
            "tier": "full",
        }

    @classmethod
    def suggest(cls, trial: optuna.trial.BaseTrial, kind: Kind = "layout") -> Params:
        return {
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.2, log=True),
            "max_leaves": trial.suggest_int("max_leaves", 4, 48, log=True),
            "min_child_weight": trial.suggest_float("min_child_weight", 0.1, 30.0, log=True),
            "colsample_bytree": trial.suggest_float("colsample_bytree", 0.1, 1.0),
            "subsample": trial.suggest_float("subsample", 0.5, 1.0),
            "reg_lambda": trial.suggest_float("reg_lambda", 0.1, 100.0, log=True),
            **suggest_head_start(trial, cls.default_params(kind)["head_start"]),
            "pairs": trial.suggest_int("pairs", 4, 16),
            "tie_tolerance": trial.suggest_categorical("tie_tolerance", list(TIE_TOLERANCES)),
            "graph_weight": trial.suggest_categorical("graph_weight", list(GRAPH_WEIGHTS)),
            "columns": suggest_columns(trial),
            "tier": suggest_tier(trial),
        }

    def fit(self, data: RankingData, params: Params, *, rounds: int, seed: int, threads: int = 0) -> Self:
        xgb = _xgboost()
        own = {**self.default_params(), **params}
        relevance = data.per_group(lambda cost: 1 - mean_rank(merge_ties(cost, own["tie_tolerance"])))
        self.columns, self._used = data.columns, chosen_columns(data.columns, own["columns"], own["tier"])
        weight = row_weights(data.indptr, own["graph_weight"])[data.indptr[:-1]]
        self._head_start = HeadStart.find(data.columns, own["head_start"])
        start = self._head_start.of(data) if self._head_start else None
        train = quantiles(xgb, data, relevance, weight, self._used, start=start, bins=_MAX_BIN, threads=threads)
        with xgb.config_context(verbosity=0):
            self._booster = xgb.train(_booster_params(own, seed, threads), train, rounds)
        return self

    def _fitted(self) -> xgb.Booster:
        if self._booster is None:
            raise ModelError("the ranker was not trained", do="call fit or load first")
        return self._booster

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None = None) -> NDArray[np.float64]:
        return next(self._stages(rows, [self._fitted().num_boosted_rounds()]))

    def staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None = None
    ) -> Iterator[NDArray[np.float64]]:
        rounds = self._fitted().num_boosted_rounds()
        yield from self._stages(rows, [*range(every, rounds, every), rounds])

    def _stages(self, rows: NDArray[np.float32], stops: list[int]) -> Iterator[NDArray[np.float64]]:
        """Scores after so many rounds; the trees' sum is a relevance, higher is faster."""
        booster, used = self._fitted(), rows[:, self._used]
        started = self._head_start.relevance(rows) if self._head_start else 0.0
        for stop in stops:
            grown = booster.inplace_predict(used, iteration_range=(0, stop), predict_type="margin")
            yield -(started + np.asarray(grown, np.float64))

    def importance(self) -> dict[str, float]:
        # XGBoost names unnamed columns f0, f1, ... and leaves out those it never split on.
        gain = {int(name[1:]): float(np.sum(value)) for name, value in self._gain().items()}
        total = max(sum(gain.values()), 1e-12)
        ordered = sorted(gain.items(), key=lambda item: (-item[1], item[0]))
        return {self.columns[self._used[i]]: value / total for i, value in ordered if value > 0}

    def _gain(self) -> dict[str, float | list[float]]:
        gain: dict[str, float | list[float]] = self._fitted().get_score(importance_type="total_gain")
        return gain

    def save(self, folder: Path) -> None:
        folder.joinpath(_BOOSTER).write_bytes(self._fitted().save_raw("json"))
        weight = self._head_start.weight if self._head_start else 0.0
        state = {"columns": self.columns, "used": self._used.tolist(), "head_start": weight}
        folder.joinpath(_STATE).write_text(json.dumps(state), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        xgb, ranker = _xgboost(), cls()
        try:
            state = json.loads(folder.joinpath(_STATE).read_text(encoding="utf-8"))
            ranker.columns, ranker._used = state["columns"], np.array(state["used"], np.intp)
            ranker._head_start = HeadStart.find(ranker.columns, state["head_start"])
            content = folder.joinpath(_BOOSTER).read_bytes()
            json.loads(content)["learner"]  # XGBoost takes other bytes for other formats
            with xgb.config_context(verbosity=0):
                ranker._booster = xgb.Booster(model_file=bytearray(content))
        except (OSError, ValueError, KeyError, TypeError, xgb.core.XGBoostError) as error:
            raise ModelError(
                f"{folder} cannot be read ({error})", expected="a trained model", do="run train again"
            ) from error
        return ranker


def _booster_params(own: Params, seed: int, threads: int) -> dict[str, Any]:
    return {
        "objective": "rank:pairwise",
        # The default is to look at the 32 best of a group only.
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": int(own["pairs"]),
        # On by default, it divides a pair's gradient by the distance of its scores, which is no longer RankNet's.
        # Left on, it cost 0.02 of tau on layout:cpu:random and 0.03 on default, families held out.
        "lambdarank_score_normalization": False,
        # The default metric, NDCG, refuses labels that are not small whole numbers, even where it is not asked for.
        "eval_metric": "auc",
        "base_score": 0.0,
        "tree_method": "hist",
        "max_bin": _MAX_BIN,
        "grow_policy": "lossguide",
        "max_depth": 0,
        "max_leaves": own["max_leaves"],
        "learning_rate": own["learning_rate"],
        "min_child_weight": own["min_child_weight"],
        "colsample_bytree": own["colsample_bytree"],
        "subsample": own["subsample"],
        "reg_lambda": own["reg_lambda"],
        "seed": seed,
        "nthread": threads,
        "verbosity": 0,
    }


def _xgboost() -> ModuleType:
    """The module, imported where it is needed: the other rankers do without."""
    try:
        import xgboost
    except ImportError as error:
        raise ModelError(
            f"the model {XGBPairwise.name} needs the module xgboost ({error})",
            expected="xgboost 3.2 or newer",
            do="pip install xgboost-cpu (or xgboost), or choose another --model",
        ) from error
    return xgboost
