"""Boosted trees on rows: parameters, choice of columns, initial score, warm start, and a ranker per
loss.

The losses are LightGBM's lambdarank, RankNet's and XGBoost's pairwise loss.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.data.files import read_text
from xlarank.data.graph import Kind
from xlarank.features.attribution import Walk
from xlarank.features.block import Scope
from xlarank.features.catalogue import every_block
from xlarank.features.instances.instance_blocks import InstanceGraph
from xlarank.features.rows import GraphRows, LazyInstances
from xlarank.models import objectives
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.base import Parts, Ranker, column_indices, largest_first
from xlarank.models.params import Between, Number, OneOf, RankerParams, Whole, param
from xlarank.models.rankers.lightgbm import MAX_DEPTH, MAX_LEAVES, LightGBMBooster
from xlarank.models.rankers.xgboost import XGBoostBooster
from xlarank.models.training_data import (
    CPU,
    FitSettings,
    Target,
    Task,
    TrainingData,
    foreign_columns,
)

#: Choices of columns: ``no_graph`` omits those that are constant within a graph, ``no_candidates``
#: the transductive ones, ``alone`` both.
CHOICES: Final = ("all", "no_graph", "no_candidates", "alone")
#: One of `CHOICES`. Tiles leave out ranks among a kernel's few candidates, which do not transfer to
#: other kernels.
columns_param = partial(param, "all", OneOf(CHOICES), OneOf(CHOICES), tile="no_candidates")
leaves_param = partial(param, check=Whole(2, MAX_LEAVES), search=Between(4, 48, log=True))
#: Weight of `InitScore`.
init_score_param = partial(
    param, 0.0, Number(0), OneOf((0.0, 1.0, 2.0, 4.0)), tile=2.0, searched_for=("tile",)
)
#: Maximum relative difference of tied costs; runs differ by 0.001 on a TPU, 0.03 on a busy CPU.
tie_tolerance_param = partial(param, check=Number(0), search=OneOf((0.0, 0.001, 0.003, 0.01, 0.03)))
graph_weight_param = partial(param, "equal", *[OneOf(tuple(objectives.GRAPH_WEIGHTS))] * 2)


class BoostedParams(RankerParams):
    """Parameters of a boosted-tree ranker."""

    columns: str
    init_score_weight: float = 0.0

    @abstractmethod
    def of_trees(self, settings: FitSettings) -> dict[str, Any]:
        """Return the parameters of trees by the library's names."""


B = TypeVar("B", bound=BoostedParams)


@dataclass(frozen=True, kw_only=True)
class TreeParams(BoostedParams):
    """Parameters of LightGBM's trees, with LightGBM's names.

    Defaults were chosen by leave-family-out folds. For tiles, trees see fewer rows and columns,
    because a kernel's five best tiles vary from seed to seed.
    """

    learning_rate: float = param(
        0.05, Number(0, above=True), Between(0.02, 0.2, log=True), tile=0.07
    )
    num_leaves: int = leaves_param(15)
    min_data_in_leaf: int = param(20, Whole(0), Between(5, 100, log=True))
    feature_fraction: float = param(0.5, Number(0, 1, above=True), Between(0.1, 1.0), tile=0.3)
    bagging_fraction: float = param(0.8, Number(0, 1, above=True), Between(0.5, 1.0), tile=0.6)
    lambda_l2: float = param(1.0, Number(0), Between(0.1, 100.0, log=True))

    def of_trees(self, settings: FitSettings) -> dict[str, Any]:
        return {
            **{parameter.name: getattr(self, parameter.name) for parameter in fields(TreeParams)},
            "metric": "None",
            "max_depth": MAX_DEPTH,
            "bagging_freq": 1,
            "seed": settings.seed,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": settings.threads,
            "verbose": -1,
        }


@dataclass(frozen=True, kw_only=True)
class PairLossParams(BoostedParams):
    """Parameters of a loss on sampled pairs.

    Attributes:
        pairs: number of partners drawn for a row in a round.
    """

    init_score_weight: float = init_score_param()
    pairs: int = param(8, Whole(1), Between(2, 32, log=True))
    tie_tolerance: float = tie_tolerance_param(0.0)
    graph_weight: str = graph_weight_param()
    columns: str = columns_param()


def chosen_columns(columns: Sequence[str], choice: str, target: Target | None = None) -> Indices:
    """Return the ascending indices of the columns that ``choice``, one of `CHOICES`, keeps for the
    target.

    >>> chosen_columns(["size__nodes__log", "candidates__hamming__mean", "other"], "alone").tolist()
    [2]
    """
    omitted: set[str] = {*foreign_columns(target)}
    no_graph, no_candidates = (choice in (name, "alone") for name in ("no_graph", "no_candidates"))
    for block in [*every_block("layout"), *every_block("tile")]:
        constant = block.scope is Scope.GRAPH or isinstance(block, InstanceGraph)
        if (constant and no_graph) or (block.transductive and no_candidates):
            omitted.update(block.columns)
    return np.array([i for i, name in enumerate(columns) if name not in omitted], np.intp)


@dataclass(frozen=True)
class InitScore:
    """Initial relevance, to which trees are added: -weight * log2(estimated time), a sum of
    columns.
    """

    columns: tuple[int, ...]
    weight: float

    @classmethod
    def find(
        cls, columns: Sequence[str], weight: float, target: Target | None = None
    ) -> Self | None:
        """Return the target's initial score (default: CPU); None if the weight is 0 or the estimate
        is missing.
        """
        for names in (target or CPU).estimate.values():
            if weight and set(names) <= set(columns):
                return cls(tuple(columns.index(name) for name in names), weight)
        return None

    def relevance(self, rows: Matrix) -> Floats:
        """Return ``(rows,)``, higher is faster."""
        return np.asarray(-self.weight * rows[:, self.columns].astype(np.float64).sum(axis=1))

    def training_relevance(self, data: TrainingData) -> Floats:
        """Return the `relevance` of all training rows."""
        rows = data.matrix(np.sort(np.array(self.columns, np.intp)))
        return np.asarray(-self.weight * rows.astype(np.float64).sum(axis=1))


def centred(values: Floats, data: TrainingData) -> Floats:
    """Subtract the mean over each graph from ``(rows,)`` values."""
    sizes = np.diff(data.indptr)
    return values - np.repeat(np.add.reduceat(values, data.indptr[:-1]) / sizes, sizes)


class WarmStart(NamedTuple):
    """Trees to continue, their columns, and the learning-rate factor of new trees."""

    booster: LightGBMBooster
    columns: list[str]
    rate: float


class BoostedRanker(Ranker[B]):
    """Gradient-boosted trees; a subclass defines `task`, or overrides `fit`."""

    row_by_row = True
    booster_type: ClassVar[type[LightGBMBooster] | type[XGBoostBooster]] = LightGBMBooster

    def __init__(self, params: B | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._booster: Any = None  # an instance of `booster_type`
        self._used: Indices = np.empty(0, np.intp)  # ascending indices into `_tree_columns`
        self._init_score: InitScore | None = None
        self._warm_start: WarmStart | None = None

    @property
    def _tree_columns(self) -> Sequence[str]:
        return self.columns

    @property
    def _used_columns(self) -> list[str]:
        return [self._tree_columns[index] for index in self._used]

    def task(self, data: TrainingData, settings: FitSettings) -> Task:
        """Return the trees' labels and objective."""
        raise NotImplementedError

    def continuing(self, rate: float = 1.0) -> Self:
        self._require_fitted()
        ranker = self.clone()
        rate = Number(0, above=True)("rate", rate)
        ranker._warm_start = WarmStart(self._booster.first(), self._used_columns, rate)
        return ranker

    def fit(self, data: TrainingData, settings: FitSettings) -> Self:
        self._require_rounds(settings)
        self._init_score = InitScore.find(data.columns, self.params.init_score_weight, data.target)
        self._choose_columns(data.columns, data.target)
        task = self.task(data, settings)
        warm = self._warm_start
        params = {**self.params.of_trees(settings), **task.params}
        if warm:
            params["learning_rate"] *= warm.rate
        task = replace(task, params=params, start=self._start(task, settings.threads))
        base: Any = warm and warm.booster
        self._booster = self.booster_type.fit(task, self._used, settings, base)
        self.columns = data.columns
        return self

    def _choose_columns(self, columns: Sequence[str], target: Target | None) -> None:
        """Use the columns of the warm start if it has trees, else those that the parameters
        choose.
        """
        warm = self._warm_start
        if warm and warm.booster.rounds:
            do = "build features with the settings of that model, or fine-tune another"
            self._used = column_indices(warm.columns, columns, "the model to fine-tune", do)
        else:
            self._used = chosen_columns(columns, self.params.columns, target)

    def _start(self, task: Task, threads: int) -> Floats | None:
        """Return the relevance to which new trees are added, ``(rows,)``; None if it is 0."""
        data = task.data
        start = None
        if self._init_score and not task.residual:
            start = centred(self._init_score.training_relevance(data), data)
        if self._warm_start and (base := self._warm_start.booster).rounds:
            matrices = (data.group_matrix(group, used=self._used) for group in range(data.groups))
            sums = [base.relevance(values, threads) for values in matrices]
            total = np.concatenate([part - part.mean() if task.centred else part for part in sums])
            start = total if start is None else start + total
        return start

    def grow(self, data: TrainingData, settings: FitSettings) -> Self:
        booster = self._booster.grow(settings) if self._booster else None
        if booster is None:
            return self.fit(data, settings)
        self._booster = booster
        return self

    def predict(
        self, rows: Matrix, columns: list[str], instances: LazyInstances | None = None
    ) -> Floats:
        self._require_fitted(columns)
        return np.asarray(
            -self._init_relevance(rows) - self._booster.relevance(rows[:, self._used])
        )

    def staged(
        self, rows: Matrix, every: int, instances: LazyInstances | None = None
    ) -> Iterator[Floats]:
        self._require_fitted()
        scores = -self._init_relevance(rows)
        from_zero = self.ranks_without_trees
        yield from self._booster.stages(rows[:, self._used], scores, every, from_zero=from_zero)

    def _init_relevance(self, rows: Matrix) -> Floats:
        return self._init_score.relevance(rows) if self._init_score else np.zeros(len(rows))

    def contributions(
        self, graph: GraphRows, now: int, then: int, walk: Walk | None = None
    ) -> Parts:
        rows = graph.matrix(np.array([now, then]))
        scores = self.predict(rows, graph.columns)
        values = self._column_contributions(rows)
        difference = float(scores[0] - scores[1])
        nodes = walk.by_node(self.predict(walk.matrix, graph.columns)) if walk else {}
        columns = nonzero_by_name(values[0] - values[1], graph.columns)
        return Parts(difference, columns, members={self.name: difference}, nodes=nodes)

    def _column_contributions(self, rows: Matrix) -> Floats:
        """Return contributions to scores, ``(rows, columns)``, up to a constant; raises
        `ModelError` if inexact.
        """
        values = rows[:, self._used]
        parts = self._booster.contributions(values)
        total = self._booster.relevance(values)
        error = float(np.abs(parts.sum(axis=1) - total).max(initial=0.0))
        if not error <= 1e-3 * float(np.abs(total).max(initial=1.0)):  # XGBoost computes in float32
            got = (
                f"the trees of {self.name} are too deep for their contributions (off by "
                f"{error:.3g})"
            )
            raise ModelError(got, do="train with fewer leaves; rank works with it as it is")
        contributions = np.zeros(rows.shape)
        contributions[:, self._used] = -parts[:, :-1]
        if init := self._init_score:
            for column in init.columns:
                contributions[:, column] += init.weight * rows[:, column]
        return contributions

    def importance(self) -> dict[str, float]:
        self._require_fitted()
        gains = self._booster.gains()
        shares = zip(self._used_columns, gains / max(gains.sum(), 1e-12), strict=True)
        return largest_first({name: float(share) for name, share in shares if share > 0})

    def _write(self, folder: Path) -> dict[str, Any]:
        folder.joinpath(self.booster_type.file_name).write_text(
            self._booster.text(), encoding="utf-8"
        )
        state = {"used": self._used.tolist(), "init_score_weight": 0.0}
        if init := self._init_score:
            columns = [self.columns[column] for column in init.columns]
            state |= {"init_score_weight": init.weight, "init_score_columns": columns}
        if warm := self._warm_start:
            state |= {"start_trees": warm.booster.rounds, "start_rate": warm.rate}
        return state

    def _read(self, folder: Path, state: Mapping[str, Any]) -> None:
        used = state["used"]
        width = len(self._tree_columns)
        if any(type(index) is not int for index in used) or used != sorted(
            {*used} & {*range(width)}
        ):
            raise ValueError(f"the chosen columns do not ascend within its {width}")
        self._used = np.array(used, np.intp)
        weight = Number(0)("init_score_weight", state["init_score_weight"])
        if weight and state["init_score_columns"]:
            estimate = tuple(self.columns.index(name) for name in state["init_score_columns"])
            self._init_score = InitScore(estimate, weight)
        name = self.booster_type.file_name
        base = state.get("start_trees", 0)
        text = read_text(folder / name)
        try:
            self._booster = self.booster_type.read(text, len(self._used), base)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if "start_trees" in state:
            rate = Number(0, above=True)("start_rate", state["start_rate"])
            self._warm_start = WarmStart(self._booster.first(base), self._used_columns, rate)


def nonzero_by_name(values: Floats, columns: list[str]) -> dict[str, float]:
    return {columns[index]: float(values[index]) for index in np.flatnonzero(values)}


@dataclass(frozen=True, kw_only=True)
class LambdaRankParams(TreeParams):
    """Parameters of `LambdaRank`.

    Attributes:
        lambdarank_norm: whether to normalise gradients per group.
        labels: whether relevance is by rank or by log cost (`xlarank.models.objectives.relevance`).
        max_group: maximum number of rows of a query group; larger graphs are split at random into
            several.
    """

    ranker: ClassVar[str] = "lambdarank"

    init_score_weight: float = init_score_param()
    lambdarank_norm: bool = param(True, OneOf((True, False)), OneOf((True, False)))
    labels: str = param("rank", OneOf(("rank", "log")), OneOf(("rank", "log")))
    columns: str = columns_param()
    # The cost of the loss is quadratic in the group size. On 5000 configurations of a real graph,
    # groups of 250 reached the tau of groups of 1000 (0.855 and 0.851 after 100 rounds) in less
    # than half the time.
    max_group: int = param(250, Whole(2, objectives.MAX_GROUP), OneOf((30, 100, 250, 1000)))
    tie_tolerance: float = tie_tolerance_param(0.0)


class LambdaRank(BoostedRanker[LambdaRankParams]):
    """Trees on the lambdarank loss, grouped by graph.

    LightGBM's default exponential gain, truncated to the top 30, suits web search. Kendall's tau
    counts every pair, so labels here have linear gains, without truncation.
    """

    params_class = LambdaRankParams

    def task(self, data: TrainingData, settings: FitSettings) -> Task:
        params = self.params
        # split larger graphs into as few query groups as possible, of even size
        counts = [(len(part), -(-len(part) // params.max_group)) for part in data.parts]
        sizes = [
            len(group)
            for rows, groups in counts
            for group in np.array_split(np.empty(rows), groups)
        ]
        if len(sizes) > data.groups:
            data = data.shuffled(settings.seed)
        merge_ties = partial(objectives.merge_ties, tolerance=params.tie_tolerance)
        labels = data.per_group(lambda cost: objectives.relevance(merge_ties(cost), params.labels))
        weight = np.repeat(data.group_weight, np.diff(data.indptr))
        objective = {
            "objective": "lambdarank",
            "label_gain": list(range(int(labels.max()) + 1)),
            "lambdarank_truncation_level": max(sizes),
            "lambdarank_norm": params.lambdarank_norm,
        }
        return Task(data, labels, objective, weight, sizes)


@dataclass(frozen=True, kw_only=True)
class RankNetParams(PairLossParams, TreeParams):
    """Parameters of `RankNet`."""

    ranker: ClassVar[str] = "ranknet"

    learning_rate: float = param(
        0.03, Number(0, above=True), Between(0.02, 0.2, log=True), tile=0.07
    )
    num_leaves: int = leaves_param(15, tile=7)


class RankNet(BoostedRanker[RankNetParams]):
    """Trees with RankNet's loss; pairs are resampled each round, so graphs may have any size."""

    params_class = RankNetParams

    def task(self, data: TrainingData, settings: FitSettings) -> Task:
        params = self.params
        weight = objectives.row_weights(data.indptr, params.graph_weight, data.group_weight)
        loss = objectives.RankNetLoss(
            data.cost, data.indptr, weight, params.pairs, params.tie_tolerance
        )
        rng = np.random.default_rng(settings.seed)
        objective = {"objective": lambda relevance, _: loss.gradients(relevance, rng)}
        return Task(data, np.zeros(len(data.cost)), objective)


@dataclass(frozen=True, kw_only=True)
class XGBTreeParams(BoostedParams):
    """Parameters of XGBoost's trees, with XGBoost's names."""

    learning_rate: float = param(0.05, Number(0, above=True), Between(0.02, 0.2, log=True))
    max_leaves: int = leaves_param(15)
    min_child_weight: float = param(5.0, Number(0), Between(0.1, 30.0, log=True))
    colsample_bytree: float = param(0.5, Number(0, 1, above=True), Between(0.1, 1.0), tile=0.3)
    subsample: float = param(0.8, Number(0, 1, above=True), Between(0.5, 1.0), tile=0.6)
    reg_lambda: float = param(1.0, Number(0), Between(0.1, 100.0, log=True))

    def of_trees(self, settings: FitSettings) -> dict[str, Any]:
        return {
            **{
                parameter.name: getattr(self, parameter.name) for parameter in fields(XGBTreeParams)
            },
            "base_score": 0.0,
            "tree_method": "hist",
            "grow_policy": "lossguide",
            "max_depth": MAX_DEPTH,
            "seed": settings.seed,
            "nthread": settings.threads,
            "verbosity": 0,
        }


@dataclass(frozen=True, kw_only=True)
class XGBPairwiseParams(PairLossParams, XGBTreeParams):
    """Parameters of `XGBPairwise`."""

    ranker: ClassVar[str] = "xgb-pairwise"

    pairs: int = param(8, Whole(1), Between(4, 16))


class XGBPairwise(BoostedRanker[XGBPairwiseParams]):
    """XGBoost trees with ``rank:pairwise``; pairs are sampled, so graphs may have any size."""

    params_class = XGBPairwiseParams
    booster_type = XGBoostBooster
    continuing = Ranker.continuing
    grow = Ranker.grow

    def task(self, data: TrainingData, settings: FitSettings) -> Task:
        params = self.params
        merge_ties = partial(objectives.merge_ties, tolerance=params.tie_tolerance)
        labels = data.per_group(lambda cost: 1 - objectives.mean_rank(merge_ties(cost)))
        weight = objectives.row_weights(data.indptr, params.graph_weight, data.group_weight)[
            data.indptr[:-1]
        ]
        objective = {
            "objective": "rank:pairwise",
            "lambdarank_pair_method": "mean",  # the default compares only the top 32 of a group
            "lambdarank_num_pair_per_sample": params.pairs,
            # By default a pair's gradient is divided by its score difference, which costs 0.02 to
            # 0.03 tau.
            "lambdarank_score_normalization": False,
            # the default, NDCG, rejects labels other than small integers, even if unused
            "eval_metric": "auc",
        }
        return Task(data, labels, objective, weight)
