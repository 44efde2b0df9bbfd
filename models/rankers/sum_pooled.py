"""Trees on instances: a configuration's score is the sum of its instances' scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import Instances, LazyInstances
from xlarank.features.instances.pair_blocks import InstanceGraph, InstanceRarity
from xlarank.features.sampling import even_ranks
from xlarank.models.base import Learned
from xlarank.models.explanation.parts import Parts, Place, Rows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives import faster_by_sign, graph_weights
from xlarank.models.params import Between, Number, Whole, param
from xlarank.models.rankers.columns import (
    chosen_columns,
    columns_param,
    graph_weight_param,
    leaves_out,
    leaves_param,
    tie_tolerance_param,
)
from xlarank.models.rankers.lightgbm import LightGBMRanker, TreeParams, tree_settings
from xlarank.models.ranking_data import RankingData

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SumPooledParams(TreeParams):
    """Parameters of `SumPooled`.

    By leave-family-out folds of the sample's train split. Configurations of layouts hold dozens of instances of a
    leaf, so a little goes a long way; where each is its own instance (tiles), trees must say more.

    Attributes:
        leaf_l2: weight of the squares of leaf values in the joint Newton step.
        configs: most configurations of a graph that are learned from.
        round_configs: most of them that are compared with each other in a round.
    """

    ranker: ClassVar[str] = "sum-pooled"

    learning_rate: float = param(0.1, Number(0, above=True), Between(0.02, 0.3, log=True))
    num_leaves: int = leaves_param(7, tile=15)
    min_data_in_leaf: int = param(10, Whole(0), Between(5, 100, log=True))
    lambda_l2: float = param(0.001, Number(0))
    leaf_l2: float = param(0.1, Number(0, above=True), Between(0.0001, 10.0, log=True), tile=0.001)
    configs: int = param(1000, Whole(1))
    round_configs: int = param(128, Whole(2, why="pairs are compared"))
    tie_tolerance: float = tie_tolerance_param(0.003)
    graph_weight: str = graph_weight_param()
    columns: str = columns_param()


@dataclass(frozen=True, eq=False)
class _Group:
    """Configurations of one graph that are learned from: their instances are rows ``first`` on of all."""

    counts: sparse.csr_array
    cost: Floats
    first: int
    weight: float

    def draw(self, most: int, rng: np.random.Generator) -> tuple[sparse.csr_array, Floats]:
        """At most so many of them."""
        if len(self.cost) <= most:
            return self.counts, self.cost
        chosen = np.sort(rng.choice(len(self.cost), most, replace=False))
        return sparse.csr_array(self.counts[chosen]), self.cost[chosen]

    @property
    def part(self) -> slice:
        return slice(self.first, self.first + self.counts.shape[1])


class SumPooled(LightGBMRanker[SumPooledParams]):
    """RankNet's loss on sums over `xlarank.features.instances.graph_instances.Instances`.

    The gradient of a configuration is handed to each of its instances, as often as it holds them; a tree is
    grown on these, and its leaf values are then one joint Newton step (`newton_step`). TVM's
    cost model sums the scores of stores in the same way (Chen et al. 2018, *Learning to Optimize Tensor
    Programs*).

    Rows without instances (tiles: one kernel, one choice) are instances themselves, one a configuration.
    """

    name = SumPooledParams.ranker
    params_class = SumPooledParams

    def __init__(self, params: SumPooledParams | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._instance_columns: list[str] = []

    @property
    def row_by_row(self) -> bool:
        return False

    def _fit(self, data: RankingData, settings: FitSettings) -> None:
        rng = np.random.default_rng(settings.seed)
        self._threads = settings.threads
        groups, values = self._groups(data, rng)
        booster = self._grow(groups, values, settings, rng)
        # as lightgbm.train does: it lets go of the data, and is what will be loaded again to the last bit
        self._booster = (
            self._start.extended(booster) if self._start else lgb.Booster(model_str=booster.model_to_string())
        )

    def _groups(self, data: RankingData, rng: np.random.Generator) -> tuple[list[_Group], NDArray[np.float32]]:
        """What is learned from, and the columns used of its instances one below the other."""
        own = self.params
        weights = graph_weights(data.indptr, own.graph_weight) * data.group_weight
        self._choose(data, own.columns)
        groups: list[_Group] = []
        values: list[NDArray[np.float32]] = []
        first = 0
        for g in range(data.groups):
            part = slice(int(data.indptr[g]), int(data.indptr[g + 1]))
            cost = data.cost[part]
            kept = even_ranks(cost, own.configs, rng)
            instances = data.instances_of(g)
            if instances is None:
                counts = sparse.csr_array(sparse.eye_array(len(kept), format="csr"))
                values.append(data.parts[g].matrix(kept, self._used))
            else:
                table = instances.value
                counts = table.counts(kept)
                held = np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]))
                counts = sparse.csr_array(counts[:, held])
                values.append(table.values[held][:, self._used])
            groups.append(_Group(counts, cost[kept], first, weights[g]))
            first += counts.shape[1]
        return groups, np.concatenate(values)

    def _choose(self, data: RankingData, columns: str) -> None:
        """Which columns to look at: of instances where the first group has them, otherwise of rows.

        Raises `ModelError` where the groups' instances are different ones.
        """
        for g in range(data.groups):
            instances = data.instances_of(g)
            names = [] if instances is None else instances.value.columns
            if g == 0:
                self._instance_columns = names
            elif names != self._instance_columns:
                raise ModelError(
                    f"{data.names[g]} and {data.names[0]} have different instances", do="run build-features again"
                )
        if self._start is not None:
            self._used = self._start.places(self._tree_columns() if self._instance_columns else data.columns)
        elif self._instance_columns:
            self._used = _chosen(self._tree_columns(), columns)
        else:
            self._used = chosen_columns(data.columns, columns, data.target)

    def _grow(
        self, groups: list[_Group], values: NDArray[np.float32], settings: FitSettings, rng: np.random.Generator
    ) -> lgb.Booster:
        own = self.params
        binning = {
            "max_bin": 63, "min_data_in_leaf": own.min_data_in_leaf, "num_threads": settings.threads, "verbose": -1,
        }  # fmt: skip
        train = lgb.Dataset(values, np.zeros(len(values)), params=binning).construct()
        params = {
            "objective": "none",
            **tree_settings(own, settings),
            "learning_rate": 1.0,  # leaf values are set below, the rate included
            "min_sum_hessian_in_leaf": 0.0,
        }
        booster = lgb.Booster(params, train)
        if not any(train.feature_num_bin(i) for i in range(values.shape[1])):
            return booster  # LightGBM refuses a custom objective where nothing can be split
        relevance = self._start.relevance(values, self._threads) if self._start else np.zeros(len(values))
        rate = own.learning_rate * (self._start.rate if self._start else 1.0)
        for number in range(settings.rounds):
            drawn = [group.draw(own.round_configs, rng) for group in groups]
            terms = [
                PairTerms.of(counts @ relevance[group.part], cost, own.tie_tolerance).scaled(group.weight)
                for group, (counts, cost) in zip(groups, drawn, strict=True)
            ]
            gradient, hessian = np.zeros(len(values)), np.zeros(len(values))
            for group, (counts, _), term in zip(groups, drawn, terms, strict=True):
                gradient[group.part] = counts.T @ term.gradient
                hessian[group.part] = counts.power(2).T @ term.curvature
            hessian += 1e-6 * hessian.max()
            if booster.update(fobj=lambda *_, found=(gradient, hessian): found):
                break
            leaf = _leaves(booster, values, number, self._threads)
            held = [
                counts @ np.eye(int(leaf.max()) + 1)[leaf[group.part]]
                for group, (counts, _) in zip(groups, drawn, strict=True)
            ]
            output = rate * newton_step(terms, held, own.leaf_l2)
            for one, value in enumerate(output):
                booster.set_leaf_output(number, one, float(value))
            relevance += output[leaf]
        return booster

    def contributions(self, rows: Rows, now: int, then: int) -> Parts:
        """Compare the scores of the instances at every place of two configurations."""
        table = self._table(rows.matrix, rows.instances)
        if table is None:
            return super().contributions(rows, now, then)
        scores = self.predict(rows.matrix, rows.columns, rows.instances)
        difference = float(scores[now] - scores[then])
        ours, theirs = table.parts(now), table.parts(then)
        different = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.instance != b.instance]
        if not different:
            return Parts(difference, members={self.name: difference})
        held = np.array([[a.instance, b.instance] for a, b in different])
        used, place = np.unique(held, return_inverse=True)
        values = self.row_contributions(table.values[used])
        first, second = (values[place.reshape(held.shape)[:, side]] for side in (0, 1))
        change = (first - second)[:, :-1]
        places = tuple(
            Place(a.nodes, a.text, b.text, float(value))
            for (a, b), value in zip(different, change.sum(axis=1), strict=True)
        )
        by_column = change.sum(axis=0)
        columns = {table.columns[i]: float(by_column[i]) for i in np.flatnonzero(by_column)}
        return Parts(difference, {}, places, columns, {self.name: difference})

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> Floats:
        return next(self._staged(rows, max(1, self._trees().num_trees()), instances))

    def _staged(self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        table = self._table(rows, instances)
        values = rows if table is None else table.values
        used = values[:, self._used]
        for total in self._stages(used, np.zeros(len(used)), every):
            yield total if table is None else table.sums(total)

    def _table(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> Instances | None:
        """The instances to score, or None where rows are instances; raises `ModelError` for the wrong ones."""
        if not self._instance_columns:
            return None
        if instances is None:
            raise ModelError(
                "the rows come without their instances",
                expected=f"the instances that {self.name} was trained on",
                do="pass the instances of the graph",
            )
        table = instances.value
        if table.configs != len(rows):
            raise ModelError(f"instances of {table.configs} configurations", expected=f"of the {len(rows)} rows")
        if table.columns != self._instance_columns:
            raise ModelError("the instances have other columns", do="run build-features again, or train again")
        return table

    def _tree_columns(self) -> list[str]:
        return self._instance_columns or self.columns

    def _learned(self) -> Learned:
        learned = super()._learned()
        return replace(learned, state={**learned.state, "instance_columns": self._instance_columns})

    def _restore(self, learned: Learned) -> None:
        self._instance_columns = [str(name) for name in learned.state["instance_columns"]]
        super()._restore(learned)


def _leaves(booster: lgb.Booster, values: NDArray[np.float32], tree: int, threads: int) -> NDArray[np.intp]:
    found = booster.predict(values, start_iteration=tree, num_iteration=1, pred_leaf=True, num_threads=threads)
    return np.asarray(found).reshape(-1).astype(np.intp)


def _chosen(columns: list[str], choice: str) -> NDArray[np.intp]:
    """Indices of the columns of instances that a choice of `xlarank.models.rankers.columns.CHOICES` leaves."""
    graph, candidates = leaves_out(choice)
    left_out = {*(InstanceGraph.columns if graph else ()), *(InstanceRarity.columns if candidates else ())}
    return np.array([i for i, name in enumerate(columns) if name not in left_out], np.intp)


@dataclass(frozen=True, eq=False)
class PairTerms:
    """Derivatives of the mean over pairs of log(1 + exp(relevance of the slower - relevance of the faster)).

    With p = 1 / (1 + exp(relevance of the faster - that of the slower)) a pair adds -p to the gradient of the
    faster, p to the slower one's, and p (1 - p) to its weight; all is divided by the number of pairs. A tie (see
    `faster_by_sign`) is no pair. The matrix of second derivatives is the Laplacian of the weights: their row sums
    on the diagonal, minus the weights. A relevance is higher for what is faster.

    Attributes:
        gradient: ``(configs,)``.
        weight: ``(configs, configs)`` symmetric, 0 on the diagonal.
    """

    gradient: Floats
    weight: Floats

    @classmethod
    def of(cls, relevance: Floats, cost: Floats, tie_tolerance: float) -> PairTerms:
        sign = faster_by_sign(cost[:, None], cost[None, :], tie_tolerance)
        pairs = max(1.0, np.count_nonzero(sign) / 2)
        wrong = expit(sign * (relevance[None, :] - relevance[:, None]))
        gradient = -(sign * wrong).sum(axis=1) / pairs
        return cls(gradient, np.abs(sign) * wrong * (1 - wrong) / pairs)

    def scaled(self, weight: float) -> PairTerms:
        """The derivatives of ``weight`` times the loss."""
        return PairTerms(self.gradient * weight, self.weight * weight)

    @property
    def curvature(self) -> Floats:
        """``(configs,)`` the diagonal of the second derivatives."""
        total: Floats = self.weight.sum(axis=1)
        return total


def newton_step(terms: Sequence[PairTerms], held: Sequence[Floats], ridge: float) -> Floats:
    """``(leaves,)`` values that minimise the second-order loss, the mean over graphs plus ridge / 2 |values|^2.

    Where S, ``held[g]`` ``(configs, leaves)``, says how many instances of each leaf a configuration of graph g
    holds, its relevances change by S v: v solves (mean of S' L S + ridge I) v = - mean of S' gradient, L the
    Laplacian of the pairs' weights. LightGBM's own leaf values take instances of one configuration as if each
    moved it alone.
    """
    leaves = held[0].shape[1]
    slope, curve = np.zeros(leaves), np.zeros((leaves, leaves))
    for term, counts in zip(terms, held, strict=True):
        slope += counts.T @ term.gradient
        curve += counts.T @ (term.curvature[:, None] * counts - term.weight @ counts)
    step = np.linalg.solve(curve / len(terms) + ridge * np.eye(leaves), -slope / len(terms))
    return step.astype(np.float64)
