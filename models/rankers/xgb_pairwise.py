"""XGBoost's pairwise ranking loss on sampled pairs, independent of LightGBM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from types import ModuleType
from typing import Any, ClassVar, Final

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.objectives import mean_rank, merge_ties, row_weights
from xlarank.models.params import Between, Number, RankerParams, Whole, param
from xlarank.models.rankers.boosted import BoostedTrees, InitScore, PairLossParams, chosen_columns, leaves_param
from xlarank.models.rankers.booster_text import MOST_DEPTH, checked_json
from xlarank.models.training_data import FitSettings, TrainingData, in_batches

#: As near to LightGBM's 63 as XGBoost likes it.
_MAX_BIN: Final = 64


@dataclass(frozen=True, kw_only=True)
class XGBTreeParams(RankerParams):
    """Parameters of XGBoost's trees, named as there."""

    learning_rate: float = param(0.05, Number(0, above=True), Between(0.02, 0.2, log=True))
    max_leaves: int = leaves_param(15)
    min_child_weight: float = param(5.0, Number(0), Between(0.1, 30.0, log=True))
    colsample_bytree: float = param(0.5, Number(0, 1, above=True), Between(0.1, 1.0), tile=0.3)
    subsample: float = param(0.8, Number(0, 1, above=True), Between(0.5, 1.0), tile=0.6)
    reg_lambda: float = param(1.0, Number(0), Between(0.1, 100.0, log=True))


@dataclass(frozen=True, kw_only=True)
class XGBPairwiseParams(PairLossParams, XGBTreeParams):
    """Parameters of `XGBPairwise`."""

    ranker: ClassVar[str] = "xgb-pairwise"

    pairs: int = param(8, Whole(1), Between(4, 16))


class XGBPairwise(BoostedTrees[XGBPairwiseParams]):
    """XGBoost trees on ``rank:pairwise``; pairs are sampled, so a graph may have any number of rows.

    Needs ``xgboost`` or the smaller ``xgboost-cpu``; raises `ModelError` without either.
    """

    params_class = XGBPairwiseParams
    file_names = ("booster.json",)

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        module, params = _xgboost(), self.params
        relevance = data.per_group(lambda cost: 1 - mean_rank(merge_ties(cost, params.tie_tolerance)))
        self._used = chosen_columns(data.columns, params.columns, data.target)
        weight = row_weights(data.indptr, params.graph_weight, data.group_weight)[data.indptr[:-1]]
        self._init_score = InitScore.find(data.columns, params.init_score_weight, data.target)
        start = self._init_score.centred(data) if self._init_score else None
        targets = {"label": relevance, "weight": weight, "base_margin": start}
        train = _binned(module, data, self._used, targets, settings.threads)
        with module.config_context(verbosity=0):
            self._booster = module.train(_booster_params(params, settings), train, settings.rounds)

    def _grown(self, values: Matrix, rounds: int = 0) -> Floats:
        grown = self._booster.inplace_predict(values, iteration_range=(0, rounds), predict_type="margin")
        return np.asarray(grown, np.float64)

    def _staged(self, rows: Matrix, every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        rounds, values, started = self._booster.num_boosted_rounds(), rows[:, self._used], self._started(rows)
        for stop in [*range(every, rounds, every), rounds]:
            yield -(started + self._grown(values, stop))

    def _grown_parts(self, values: Matrix) -> Floats:
        return np.asarray(self._booster.predict(_xgboost().DMatrix(values), pred_contribs=True), np.float64)

    def _total_gain(self) -> Floats:
        # XGBoost names unnamed columns f0, f1, ... and leaves out those it never split on.
        found = self._booster.get_score(importance_type="total_gain")
        return np.array([float(np.sum(found.get(f"f{column}", 0.0))) for column in range(len(self._used))])

    def _text(self) -> str:
        return str(self._booster.save_raw("json").decode("utf-8"))

    def _read(self, text: str, features: int) -> None:
        module, content = _xgboost(), checked_json(text, features).encode("utf-8")
        with module.config_context(verbosity=0):
            self._booster = module.Booster(model_file=bytearray(content))


def _booster_params(params: XGBPairwiseParams, settings: FitSettings) -> dict[str, Any]:
    return {
        "objective": "rank:pairwise",
        "lambdarank_pair_method": "mean",  # the default looks at the 32 best of a group only
        "lambdarank_num_pair_per_sample": params.pairs,
        # On by default, it divides a pair's gradient by the distance of its scores, which is no longer RankNet's.
        # Left on, it cost 0.02 of tau on layout:cpu:random and 0.03 on default, families held out.
        "lambdarank_score_normalization": False,
        # The default metric, NDCG, refuses labels that are not small whole numbers, even where it is not asked for.
        "eval_metric": "auc",
        **{one.name: getattr(params, one.name) for one in fields(XGBTreeParams)},
        "base_score": 0.0, "tree_method": "hist", "max_bin": _MAX_BIN, "grow_policy": "lossguide",
        "max_depth": MOST_DEPTH, "seed": settings.seed, "nthread": settings.threads, "verbosity": 0,
    }  # fmt: skip


def _xgboost() -> ModuleType:
    """The module, imported where it is needed: the other rankers do without."""
    try:
        import xgboost
    except ImportError as error:
        got = f"the model {XGBPairwise.name} needs the module xgboost ({error})"
        do = "pip install xgboost-cpu (or xgboost), or choose another model"
        raise ModelError(got, expected="xgboost 3.2 or newer", do=do) from error
    return xgboost


def _binned(module: ModuleType, data: TrainingData, used: Indices, targets: dict[str, Any], threads: int) -> Any:
    """XGBoost's data of some columns; ``targets`` has label and base_margin ``(rows,)`` and weight ``(groups,)``.

    Weights also decide where it draws the edges of its bins, a little differently for rows that come in batches.
    """
    binned = partial(module.QuantileDMatrix, max_bin=_MAX_BIN, nthread=threads)
    if not in_batches(len(data.cost), len(used)):
        return binned(data.matrix(used), group=np.diff(data.indptr), **targets)

    class Batches(module.DataIter):  # type: ignore[misc, name-defined]
        """The graphs' rows one graph after the other; XGBoost asks for them several times."""

        def __init__(self) -> None:
            super().__init__(release_data=True)
            self.reset()

        def next(self, input_data: Any) -> bool:
            g = next(self.left, None)
            if g is None:
                return False
            part, matrix = data.rows_of(g), data.group_matrix(g, used=used)
            place = {"label": part, "base_margin": part, "weight": slice(g, g + 1)}
            values = {name: None if value is None else value[place[name]] for name, value in targets.items()}
            input_data(data=matrix, qid=np.full(len(matrix), g), **values)
            return True

        def reset(self) -> None:
            self.left = iter(range(data.groups))

    return binned(Batches())
