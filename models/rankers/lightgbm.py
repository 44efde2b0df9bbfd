"""What the rankers on LightGBM trees share: growing, scoring, saving."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, Self, TypeVar

import lightgbm as lgb
import numpy as np

from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.base import Learned, Ranker, places_by_name
from xlarank.models.fit_settings import FitSettings
from xlarank.models.params import Between, Number, RankerParams, Whole, param
from xlarank.models.rankers.columns import checked_indices, chosen_columns, leaves_param
from xlarank.models.rankers.init_score import InitScore, init_score_state, score_contributions
from xlarank.models.rankers.lightgbm_data import RowTargets, binned, dealt_orders, silence_lightgbm, train_booster
from xlarank.models.rankers.lightgbm_text import checked_text, first_trees, joined, whole
from xlarank.models.training_data import TrainingData

#: ``(scores of all rows, data) -> (gradient, hessian)``, each ``(rows,)``, as LightGBM calls it while it trains.
Objective = Callable[[Floats, lgb.Dataset], tuple[Floats, Floats]]

BOOSTER: Final = "booster.txt"


class _Growing(NamedTuple):
    """A booster of so many rounds that still holds its data."""

    booster: lgb.Booster
    gradients: Objective | None
    rounds: int


@dataclass(frozen=True, kw_only=True)
class TreeParams(RankerParams):
    """Parameters of LightGBM's trees, named as there.

    Chosen for lambdarank by leave-family-out folds of the embedded sample's train split; other objectives change
    what suits them better. The five best of a kernel vary from seed to seed, which stronger sampling averages out.
    """

    learning_rate: float = param(0.05, Number(0, above=True), Between(0.02, 0.2, log=True), tile=0.07)
    num_leaves: int = leaves_param(15)
    min_data_in_leaf: int = param(20, Whole(0), Between(5, 100, log=True))
    feature_fraction: float = param(0.5, Number(0, 1, above=True), Between(0.1, 1.0), tile=0.3)
    bagging_fraction: float = param(0.8, Number(0, 1, above=True), Between(0.5, 1.0), tile=0.6)
    lambda_l2: float = param(1.0, Number(0), Between(0.1, 100.0, log=True))


T = TypeVar("T", bound=TreeParams)


@dataclass(frozen=True)
class Start:
    """Trees that a warm-started ranker adds to: LightGBM's text, their number, and names of their columns in order.

    New trees learn ``rate`` times as fast as their parameters say.
    """

    text: str
    trees: int
    columns: list[str]
    rate: float

    def places(self, columns: Sequence[str]) -> Indices:
        """Indices of its columns among others; raises `ModelError` where one is missing or the order differs."""
        do = "build features with the settings of that model, or fine-tune another"
        return places_by_name(self.columns, columns, "the model to fine-tune", do)

    def relevance(self, values: Matrix, threads: int) -> Floats:
        """``(rows,)`` sum of its trees for ``(rows, columns)``."""
        if not self.trees:
            return np.zeros(len(values))
        return np.asarray(self._booster.predict(values, num_threads=threads), np.float64)

    def centred_relevance(
        self, data: TrainingData, used: Indices, orders: Sequence[Indices] | None, threads: int
    ) -> Floats:
        """``(rows,)`` `relevance` minus its mean over each graph; ``orders`` as for `TrainingData.matrix`."""
        each = orders if orders is not None else [None] * data.groups
        found = [
            self.relevance(part.matrix(order, used), threads) for part, order in zip(data.parts, each, strict=True)
        ]
        return np.concatenate([one - one.mean() for one in found])

    @cached_property
    def _booster(self) -> lgb.Booster:
        return lgb.Booster(model_str=self.text)


class LightGBMRanker(Ranker[T]):
    """Gradient-boosted trees of LightGBM; a subclass says what they learn.

    Inside, the trees' sum is a relevance, higher is faster, as LightGBM wants it for ranking; a score is its
    negative.
    """

    file_names = (BOOSTER,)
    row_by_row = True

    def __init__(self, params: T | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._booster: lgb.Booster | None = None
        self._used: Indices = np.empty(0, np.intp)
        self._threads = 0
        self._init_score: InitScore | None = None
        self._growing: _Growing | None = None
        self._start: Start | None = None

    def clone(self) -> Self:
        twin = super().clone()
        twin._start = self._start
        return twin

    def continuing(self, rate: float = 1.0) -> Self:
        self._require_fitted()
        names, booster = self._tree_columns(), self._trees()
        twin = self.clone()
        twin._start = Start(
            booster.model_to_string(),
            booster.num_trees(),
            [names[index] for index in self._used],
            Number(0, above=True)("rate", rate),
        )
        return twin

    def _train(
        self,
        data: TrainingData,
        targets: RowTargets,
        objective: dict[str, Any],
        settings: FitSettings,
        *,
        columns: str,
        init_score_weight: float,
        deal: int | None = None,
    ) -> None:
        """Grow the trees.

        Args:
            targets: in the order of ``data``, without a start.
            objective: LightGBM's ``objective`` (a name or an `Objective`) and its parameters.
            columns, init_score_weight: parameters of those names.
            deal: the seed that each graph's rows are shuffled by (`dealt_orders`); None: they stay as they are.
        """
        own, self._threads, self._growing = self.params, settings.threads, None
        warm_start = self._start
        self._used = (
            warm_start.places(data.columns) if warm_start else chosen_columns(data.columns, columns, data.target)
        )
        self._init_score = InitScore.find(data.columns, init_score_weight, data.target)
        orders = dealt_orders(data, deal)
        if orders is not None:
            index = np.concatenate([first + order for first, order in zip(data.indptr[:-1], orders, strict=True)])
            weight = None if targets.weight is None else targets.weight[index]
            targets = replace(targets, label=targets.label[index], weight=weight)
        start = self._init_score.of(data, orders) if self._init_score else None
        if warm_start:
            earlier = warm_start.centred_relevance(data, self._used, orders, settings.threads)
            start = earlier if start is None else start + earlier
        targets = replace(targets, start=start)
        rate = own.learning_rate * (warm_start.rate if warm_start else 1.0)
        params = {**objective, **tree_settings(own, settings), "learning_rate": rate}
        if settings.cluster is not None:
            grown = settings.cluster.grow(data, self._used, targets, params, settings.rounds, orders)
            self._booster = self._extended(grown)
            return
        train = binned(data, self._used, targets, threads=settings.threads, orders=orders)
        gradients: Objective | None = params["objective"] if callable(params["objective"]) else None
        # Where no column can be split LightGBM refuses a custom objective; named ones grow stumps of nothing.
        if gradients and not any(train.feature_num_bin(i) for i in range(train.num_feature())):
            params |= {"objective": "regression", "boost_from_average": False}
            gradients = None
        grown = train_booster(params, train, settings.rounds, keep_training_booster=settings.grows)
        if settings.grows:
            self._growing = _Growing(grown, gradients, settings.rounds)
        self._booster = self._extended(grown)

    def _grow_on(self, data: TrainingData, settings: FitSettings) -> None:
        growing = self._growing
        if growing is None or settings.rounds < growing.rounds:
            self._fit(data, settings)
            return
        grown = growing.booster
        silence_lightgbm(settings.threads)
        for _ in range(settings.rounds - growing.rounds):
            grown.update(fobj=growing.gradients)
        if settings.grows:
            self._growing = growing._replace(rounds=settings.rounds)
        else:  # as lightgbm.train does: it lets go of the data
            self._growing, grown = None, lgb.Booster(model_str=grown.model_to_string())
        self._booster = self._extended(grown)

    def _extended(self, grown: lgb.Booster) -> lgb.Booster:
        """The trees that were started from, if any, and then those of a booster."""
        if self._start is None:
            return grown
        return lgb.Booster(model_str=joined(self._start.text, grown.model_to_string()))

    def _trees(self) -> lgb.Booster:
        assert self._booster is not None, "a ranker with columns has trees"
        return self._booster

    def _tree_columns(self) -> list[str]:
        """Names of the columns that `_used` indexes."""
        return self.columns

    def _scores(self, rows: Matrix, instances: LazyInstances | None) -> Floats:
        grown = self._trees().predict(rows[:, self._used], num_threads=self._threads)
        return -(self._started(rows) + np.asarray(grown, np.float64))

    def row_contributions(self, values: Matrix) -> Floats:
        used = values[:, self._used]
        grown = self._trees().predict(used, pred_contrib=True, num_threads=self._threads)
        return score_contributions(np.asarray(grown, np.float64), self._used, values, self._init_score)

    def _started(self, rows: Matrix) -> Floats:
        """``(rows,)`` relevance before the first tree."""
        return self._init_score.relevance(rows) if self._init_score else np.zeros(len(rows))

    def _staged(self, rows: Matrix, every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        yield from self._stages(rows[:, self._used], -self._started(rows), every)

    def _stages(self, values: Matrix, total: Floats, every: int) -> Iterator[Floats]:
        """``total`` minus the sum of the trees after each ``every``, beyond those that it started from."""
        booster, first = self._trees(), self._start.trees if self._start else 0
        if first:
            total = total - np.asarray(booster.predict(values, num_iteration=first, num_threads=self._threads))
        if booster.num_trees() <= first:
            yield total
        for start in range(first, booster.num_trees(), every):
            part = booster.predict(values, start_iteration=start, num_iteration=every, num_threads=self._threads)
            total = total - np.asarray(part)
            yield total

    def _gains(self) -> dict[str, float]:
        gain = self._trees().feature_importance("gain")
        total = max(float(gain.sum()), 1e-12)
        names = self._tree_columns()
        return {names[index]: float(value) / total for index, value in zip(self._used, gain, strict=True)}

    def _restored_features(self, state: Mapping[str, Any]) -> int:
        """Restore what else the trees' columns are made of and return their number."""
        return len(self._used)

    def _learned(self) -> Learned:
        state = {"used": self._used.tolist(), **init_score_state(self._init_score, self.columns)}
        if self._start:
            state |= {"start_trees": self._start.trees, "start_rate": self._start.rate}
        return Learned(state, {BOOSTER: whole(self._trees().model_to_string())})

    def _restore(self, learned: Learned) -> None:
        self._used = checked_indices(learned.state["used"], len(self._tree_columns()))
        self._init_score = InitScore.restored(self.columns, learned.state)
        try:
            text = checked_text(learned.files[BOOSTER], self._restored_features(learned.state))
        except ValueError as error:
            raise ValueError(f"{BOOSTER}: {error}") from error
        try:
            self._booster = lgb.Booster(model_str=text)
        except lgb.basic.LightGBMError as error:
            raise ValueError(str(error)) from error
        if "start_trees" in learned.state:
            names = self._tree_columns()
            trees = Whole(0)("start_trees", learned.state["start_trees"])
            rate = Number(0, above=True)("start_rate", learned.state["start_rate"])
            self._start = Start(first_trees(text, trees), trees, [names[index] for index in self._used], rate)


def tree_settings(params: TreeParams, settings: FitSettings) -> dict[str, Any]:
    """LightGBM's parameters of trees, the learning rate apart."""
    return {
        "metric": "None",
        **{one.name: getattr(params, one.name) for one in fields(TreeParams) if one.name != "learning_rate"},
        "bagging_freq": 1,
        "seed": settings.seed,
        "deterministic": True,
        "force_col_wise": True,
        "num_threads": settings.threads,
        "verbose": -1,
    }
