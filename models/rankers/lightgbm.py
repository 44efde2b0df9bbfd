"""What the rankers on LightGBM trees share: growing, scoring, warm starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple, Self, TypeVar

import lightgbm as lgb
import numpy as np

from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.base import Learned, places_by_name
from xlarank.models.params import Between, Number, RankerParams, Whole, param
from xlarank.models.rankers.boosted import BoostedTrees, InitScore, chosen_columns, leaves_param
from xlarank.models.rankers.booster_text import MOST_DEPTH, checked_text, first_trees, joined, whole
from xlarank.models.rankers.lightgbm_data import RowTargets, binned, silence_lightgbm, train_booster
from xlarank.models.training_data import FitSettings, TrainingData

#: ``(scores of all rows, data) -> (gradient, hessian)``, each ``(rows,)``, as LightGBM calls it while it trains.
Objective = Callable[[Floats, lgb.Dataset], tuple[Floats, Floats]]

BOOSTER: Final = "booster.txt"


@dataclass(frozen=True, kw_only=True)
class TreeParams(RankerParams):
    """Parameters of LightGBM's trees, named as there.

    Chosen by leave-family-out folds of the sample's train split, like those of other rankers. The five best of a
    kernel vary from seed to seed, which stronger sampling averages out.
    """

    learning_rate: float = param(0.05, Number(0, above=True), Between(0.02, 0.2, log=True), tile=0.07)
    num_leaves: int = leaves_param(15)
    min_data_in_leaf: int = param(20, Whole(0), Between(5, 100, log=True))
    feature_fraction: float = param(0.5, Number(0, 1, above=True), Between(0.1, 1.0), tile=0.3)
    bagging_fraction: float = param(0.8, Number(0, 1, above=True), Between(0.5, 1.0), tile=0.6)
    lambda_l2: float = param(1.0, Number(0), Between(0.1, 100.0, log=True))


T = TypeVar("T", bound=TreeParams)


class Start(NamedTuple):
    """What a warm-started ranker adds to; new trees learn ``rate`` times as fast as their parameters say."""

    booster: lgb.Booster
    columns: list[str]  # names, in order
    rate: float

    def places(self, columns: Sequence[str]) -> Indices:
        """Indices of its columns among others; raises `ModelError` where one is missing or the order differs."""
        do = "build features with the settings of that model, or fine-tune another"
        return places_by_name(self.columns, columns, "the model to fine-tune", do)

    def relevance(self, values: Matrix, threads: int) -> Floats:
        """``(rows,)`` sum of its trees for ``(rows, columns)``."""
        if not self.booster.num_trees():
            return np.zeros(len(values))
        return np.asarray(self.booster.predict(values, num_threads=threads), np.float64)


class LightGBMRanker(BoostedTrees[T]):
    """Gradient-boosted trees of LightGBM; a subclass says what they learn."""

    file_names = (BOOSTER,)

    def __init__(self, params: T | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._threads = 0
        #: A booster that still holds its data, its objective if that is ours, and its rounds.
        self._growing: tuple[lgb.Booster, Objective | None, int] | None = None
        self._start: Start | None = None
        #: Whether labels have mean 0 in each graph; else trees learn the level of a graph, too.
        self._labels_are_centred = True

    def clone(self) -> Self:
        twin = super().clone()
        twin._start = self._start
        return twin

    def continuing(self, rate: float = 1.0) -> Self:
        self._require_fitted()
        twin = self.clone()
        twin._start = self._start_at(self._booster.num_trees(), rate)
        return twin

    def _start_at(self, trees: int, rate: float) -> Start:
        """After the first trees of the booster."""
        text, names = first_trees(self._booster.model_to_string(), trees), self._tree_columns
        columns = [names[index] for index in self._used]
        return Start(lgb.Booster(model_str=text), columns, Number(0, above=True)("rate", rate))

    def _choose(self, columns: list[str], data: TrainingData, choice: str) -> None:
        """Set the columns to look at: those of the trees that are continued, if any."""
        start = self._start if self._start and self._start.booster.num_trees() else None
        self._used = start.places(columns) if start else chosen_columns(columns, choice, data.target)

    def _train(
        self,
        data: TrainingData,
        targets: RowTargets,
        objective: dict[str, Any],
        settings: FitSettings,
        columns: str,
        init_score_weight: float = 0.0,
        falling: Collection[str] = (),
    ) -> None:
        """Grow the trees.

        ``targets`` are without a start; ``objective`` has LightGBM's ``objective`` (a name or an `Objective`) and
        its parameters; ``columns`` and ``init_score_weight`` are the parameters of those names. Relevance falls
        with the columns ``falling`` (monotone constraints).
        """
        self._growing, self._threads = None, settings.threads
        self._choose(data.columns, data, columns)
        self._init_score = InitScore.find(data.columns, init_score_weight, data.target)
        start = self._init_score.centred(data) if self._init_score else None
        if self._start and self._start.booster.num_trees():
            matrices = (data.group_matrix(group, used=self._used) for group in range(data.groups))
            each = [self._start.relevance(values, settings.threads) for values in matrices]
            earlier = np.concatenate([one - one.mean() if self._labels_are_centred else one for one in each])
            start = earlier if start is None else start + earlier
        targets, params = replace(targets, start=start), {**objective, **self._tree_settings(settings)}
        if falling:
            params["monotone_constraints"] = [-(data.columns[index] in falling) for index in self._used]
        if settings.cluster is not None:
            grown = settings.cluster.grow(data, self._used, targets, params, settings.rounds)
            self._booster = self._extended(grown)
            return
        train = binned(data, self._used, targets, settings.threads)
        gradients: Objective | None = params["objective"] if callable(params["objective"]) else None
        # Where no column can be split LightGBM refuses a custom objective; named ones grow stumps of nothing.
        if gradients and not any(train.feature_num_bin(i) for i in range(train.num_feature())):
            params |= {"objective": "regression", "boost_from_average": False}
            gradients = None
        if settings.rounds:
            grown = train_booster(params, train, settings.rounds, keep_training_booster=settings.grows)
        else:
            grown = lgb.Booster(params, train)
        if settings.grows:
            self._growing = grown, gradients, settings.rounds
        self._booster = self._extended(grown)

    @property
    def _rate(self) -> float:
        return self.params.learning_rate * (self._start.rate if self._start else 1.0)

    def _tree_settings(self, settings: FitSettings) -> dict[str, Any]:
        """LightGBM's parameters of trees."""
        return {
            "metric": "None",
            **{one.name: getattr(self.params, one.name) for one in fields(TreeParams)},
            "learning_rate": self._rate,
            "max_depth": MOST_DEPTH,
            "bagging_freq": 1,
            "seed": settings.seed,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": settings.threads,
            "verbose": -1,
        }

    def grow(self, data: TrainingData, settings: FitSettings) -> Self:
        if self._growing is None or settings.rounds < self._growing[2]:
            return self.fit(data, settings)
        grown, gradients, rounds = self._growing
        silence_lightgbm(settings.threads)
        for _ in range(settings.rounds - rounds):
            grown.update(fobj=gradients)
        if settings.grows:
            self._growing = grown, gradients, settings.rounds
        else:  # as lightgbm.train does: it lets go of the data
            self._growing, grown = None, lgb.Booster(model_str=grown.model_to_string())
        self._booster = self._extended(grown)
        return self

    def _extended(self, grown: lgb.Booster) -> lgb.Booster:
        """The trees that were started from, if any, and then those of a booster."""
        if not self._start or not self._start.booster.num_trees():
            return grown
        return lgb.Booster(model_str=joined(self._start.booster.model_to_string(), grown.model_to_string()))

    def _grown(self, values: Matrix) -> Floats:
        return np.asarray(self._booster.predict(values, num_threads=self._threads), np.float64)

    def _grown_parts(self, values: Matrix) -> Floats:
        parts = self._booster.predict(values, pred_contrib=True, num_threads=self._threads)
        return np.asarray(parts, np.float64)

    def _staged(self, rows: Matrix, every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        yield from self._stages(rows[:, self._used], -self._started(rows), every)

    def _stages(self, values: Matrix, total: Floats, every: int) -> Iterator[Floats]:
        """``total`` minus the sum of the trees after each ``every``, beyond those that it started from."""
        booster, first = self._booster, self._start.booster.num_trees() if self._start else 0
        if first:
            total = total - np.asarray(booster.predict(values, num_iteration=first, num_threads=self._threads))
        if booster.num_trees() <= first or self.ranks_without_trees:
            yield total
        for start in range(first, booster.num_trees(), every):
            part = booster.predict(values, start_iteration=start, num_iteration=every, num_threads=self._threads)
            total = total - np.asarray(part)
            yield total

    def _total_gain(self) -> Floats:
        return np.asarray(self._booster.feature_importance("gain"), np.float64)

    def _text(self) -> str:
        return whole(self._booster.model_to_string())

    def _read(self, text: str, features: int) -> None:
        try:
            self._booster = lgb.Booster(model_str=checked_text(text, features))
        except lgb.basic.LightGBMError as error:
            raise ValueError(str(error)) from error

    def _learned(self) -> Learned:
        learned = super()._learned()
        if self._start:
            learned.state.update(start_trees=self._start.booster.num_trees(), start_rate=self._start.rate)
        return learned

    def _restore(self, learned: Learned) -> None:
        super()._restore(learned)
        if "start_trees" in learned.state:
            trees = Whole(0, self._booster.num_trees())("start_trees", learned.state["start_trees"])
            self._start = self._start_at(trees, learned.state["start_rate"])
