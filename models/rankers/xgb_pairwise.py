"""XGBoost's pairwise ranking loss on sampled pairs, independent of LightGBM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.models.base import Learned, Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives import mean_rank, merge_ties, row_weights
from xlarank.models.params import Between, Number, RankerParams, param
from xlarank.models.rankers.columns import (
    checked_indices,
    chosen_columns,
    columns_param,
    graph_weight_param,
    init_score_param,
    leaves_param,
    pairs_param,
    tie_tolerance_param,
)
from xlarank.models.rankers.init_score import InitScore, init_score_state, score_contributions
from xlarank.models.rankers.xgboost_json import checked_json
from xlarank.models.training_data import TrainingData, in_batches

if TYPE_CHECKING:
    import xgboost as xgb
if TYPE_CHECKING:
    import xgboost

_BOOSTER: Final = "booster.json"
#: As near to LightGBM's 63 as XGBoost likes it.
_MAX_BIN: Final = 64


@dataclass(frozen=True, kw_only=True)
class XGBPairwiseParams(RankerParams):
    """Parameters of `XGBPairwise`: those of the trees, named as in XGBoost, then those of the loss."""

    ranker: ClassVar[str] = "xgb-pairwise"

    learning_rate: float = param(0.05, Number(0, above=True), Between(0.02, 0.2, log=True))
    max_leaves: int = leaves_param(15)
    min_child_weight: float = param(5.0, Number(0), Between(0.1, 30.0, log=True))
    colsample_bytree: float = param(0.5, Number(0, 1, above=True), Between(0.1, 1.0), tile=0.3)
    subsample: float = param(0.8, Number(0, 1, above=True), Between(0.5, 1.0), tile=0.6)
    reg_lambda: float = param(1.0, Number(0), Between(0.1, 100.0, log=True))
    init_score_weight: float = init_score_param(2.0)
    pairs: int = pairs_param(Between(4, 16))
    tie_tolerance: float = tie_tolerance_param(0.0)
    graph_weight: str = graph_weight_param()
    columns: str = columns_param()


class XGBPairwise(Ranker[XGBPairwiseParams]):
    """XGBoost trees on ``rank:pairwise``; pairs are sampled, so a graph may have any number of rows.

    Needs the module ``xgboost``, of either distribution (``xgboost-cpu`` is the light one); `ModelError` where
    there is none.
    """

    name = XGBPairwiseParams.ranker
    params_class = XGBPairwiseParams
    file_names = (_BOOSTER,)

    def __init__(self, params: XGBPairwiseParams | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._booster: xgb.Booster | None = None
        self._used: NDArray[np.intp] = np.empty(0, np.intp)
        self._init_score: InitScore | None = None

    @property
    def row_by_row(self) -> bool:
        return True

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        xgb, params = _xgboost(), self.params
        relevance = data.per_group(lambda cost: 1 - mean_rank(merge_ties(cost, params.tie_tolerance)))
        self._used = chosen_columns(data.columns, params.columns, data.target)
        weight = row_weights(data.indptr, params.graph_weight, data.weight)[data.indptr[:-1]]
        self._init_score = InitScore.find(data.columns, params.init_score_weight, data.target)
        start = self._init_score.of(data) if self._init_score else None
        targets = {"label": relevance, "weight": weight, "base_margin": start}
        train = _binned(xgb, data, self._used, targets, settings.threads)
        with xgb.config_context(verbosity=0):
            self._booster = xgb.train(_booster_params(params, settings), train, settings.rounds)

    def _trees(self) -> xgb.Booster:
        assert self._booster is not None, "a ranker with columns has trees"
        return self._booster

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> NDArray[np.float64]:
        return next(self._stages(rows, [self._trees().num_boosted_rounds()]))

    def _staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None
    ) -> Iterator[NDArray[np.float64]]:
        rounds = self._trees().num_boosted_rounds()
        yield from self._stages(rows, [*range(every, rounds, every), rounds])

    def _stages(self, rows: NDArray[np.float32], stops: list[int]) -> Iterator[NDArray[np.float64]]:
        """Scores after so many rounds; the trees' sum is a relevance, higher is faster."""
        booster, used = self._trees(), rows[:, self._used]
        started = self._init_score.relevance(rows) if self._init_score else 0.0
        for stop in stops:
            grown = booster.inplace_predict(used, iteration_range=(0, stop), predict_type="margin")
            yield -(started + np.asarray(grown, np.float64))

    def row_contributions(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        data = _xgboost().DMatrix(values[:, self._used])
        grown = self._trees().predict(data, pred_contribs=True)
        return score_contributions(np.asarray(grown, np.float64), self._used, values, self._init_score)

    def _gains(self) -> dict[str, float]:
        # XGBoost names unnamed columns f0, f1, ... and leaves out those it never split on.
        found: dict[str, float | list[float]] = self._trees().get_score(importance_type="total_gain")
        gain = {int(name[1:]): float(np.sum(value)) for name, value in found.items()}
        total = max(sum(gain.values()), 1e-12)
        return {self.columns[self._used[index]]: value / total for index, value in gain.items()}

    def _learned(self) -> Learned:
        state = {
            "used": self._used.tolist(),
            **init_score_state(self._init_score, self.columns),
        }
        return Learned(state, {_BOOSTER: self._trees().save_raw("json").decode("utf-8")})

    def _restore(self, learned: Learned) -> None:
        xgb = _xgboost()
        self._used = checked_indices(learned.state["used"], len(self.columns))
        self._init_score = InitScore.restored(self.columns, learned.state)
        try:
            text = checked_json(learned.files[_BOOSTER], len(self._used))
        except ValueError as error:
            raise ValueError(f"{_BOOSTER}: {error}") from error
        with xgb.config_context(verbosity=0):
            self._booster = xgb.Booster(model_file=bytearray(text.encode("utf-8")))


def _booster_params(params: XGBPairwiseParams, settings: FitSettings) -> dict[str, Any]:
    return {
        "objective": "rank:pairwise",
        # The default is to look at the 32 best of a group only.
        "lambdarank_pair_method": "mean",
        "lambdarank_num_pair_per_sample": params.pairs,
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
        "max_leaves": params.max_leaves,
        "learning_rate": params.learning_rate,
        "min_child_weight": params.min_child_weight,
        "colsample_bytree": params.colsample_bytree,
        "subsample": params.subsample,
        "reg_lambda": params.reg_lambda,
        "seed": settings.seed,
        "nthread": settings.threads,
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
            do="pip install xgboost-cpu (or xgboost), or choose another model",
        ) from error
    return xgboost


def _binned(
    xgb: ModuleType, data: TrainingData, used: NDArray[np.intp], targets: dict[str, Any], threads: int
) -> xgboost.QuantileDMatrix:
    """XGBoost's data of some columns; ``targets`` has label and base_margin ``(rows,)`` and weight ``(groups,)``.

    Weights also decide where it draws the edges of its bins, a little differently for rows that come in batches.
    """
    if in_batches(len(data.cost), len(used)):
        rows, given = _batches(xgb, data, used, targets), {}
    else:
        rows, given = data.matrix(used=used), {"group": np.diff(data.indptr), **targets}
    binned: xgboost.QuantileDMatrix = xgb.QuantileDMatrix(rows, max_bin=_MAX_BIN, nthread=threads, **given)
    return binned


def _batches(xgb: ModuleType, data: TrainingData, used: NDArray[np.intp], targets: dict[str, Any]) -> Any:
    """The graphs' rows one graph after the other; XGBoost asks for them several times."""

    class Batches(xgb.DataIter):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__(release_data=True)
            self.reset()

        def next(self, input_data: Any) -> bool:
            if self.at == data.groups:
                return False
            g = self.at
            part = slice(int(data.indptr[g]), int(data.indptr[g + 1]))
            place = {"label": part, "base_margin": part, "weight": slice(g, g + 1)}
            values = {name: None if value is None else value[place[name]] for name, value in targets.items()}
            input_data(data=data.parts[g].matrix(used=used), qid=np.full(part.stop - part.start, g), **values)
            self.at += 1
            return True

        def reset(self) -> None:
            self.at = 0

    return Batches()
