"""Trees on instances: a configuration's score is the sum of its instances' scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import lightgbm as lgb
import numpy as np
from scipy import sparse
from scipy.special import expit

from xlarank.data.errors import ModelError
from xlarank.features.attribution import Walk
from xlarank.features.instances.graph_instances import Instances
from xlarank.features.rows import GraphRows, LazyInstances, even_ranks
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.base import Parts, Place
from xlarank.models.objectives import graph_weights, pair_sign
from xlarank.models.params import Between, Number, Whole, param
from xlarank.models.rankers import boosted
from xlarank.models.rankers.lightgbm import LightGBMBooster, can_split, reread
from xlarank.models.training_data import FitSettings, TrainingData


@dataclass(frozen=True, kw_only=True)
class SumPooledParams(boosted.TreeParams):
    """Parameters of `SumPooled`; per leaf, a layout configuration has dozens of instances, a tile
    at most one.

    Attributes:
        leaf_l2: L2 penalty on leaf values in the joint Newton step.
        configs: maximum number of training configurations per graph.
        round_configs: maximum number of configurations per graph compared in a round.
    """

    ranker: ClassVar[str] = "sum-pooled"

    learning_rate: float = param(0.1, Number(0, above=True), Between(0.02, 0.3, log=True))
    num_leaves: int = boosted.leaves_param(7, tile=15)
    min_data_in_leaf: int = param(10, Whole(0), Between(5, 100, log=True))
    lambda_l2: float = param(0.001, Number(0))
    leaf_l2: float = param(0.1, Number(0, above=True), Between(0.0001, 10.0, log=True), tile=0.001)
    configs: int = param(1000, Whole(1))
    round_configs: int = param(128, Whole(2))
    tie_tolerance: float = boosted.tie_tolerance_param(0.003)
    graph_weight: str = boosted.graph_weight_param()
    columns: str = boosted.columns_param()


@dataclass(frozen=True, eq=False)
class _Pool:
    """Training configurations, ordered by graph, and their instances.

    Attributes:
        counts: ``(configs, instances)`` number of each instance, one block per graph.
        values: ``(instances, used columns)`` columns of the trees.
        cost: ``(configs,)``, lower is faster.
        sizes, weight: ``(graphs,)`` number of configurations, and weight in the loss.
    """

    counts: sparse.csr_array
    values: Matrix
    cost: Floats
    sizes: Indices
    weight: Floats

    def split(self, values: Floats) -> list[Floats]:
        """Split an array with an entry per configuration by graph."""
        return np.split(values, np.cumsum(self.sizes)[:-1])

    def draw(self, limit: int, rng: np.random.Generator) -> _Pool:
        """Draw at most ``limit`` configurations of each graph."""
        graphs = np.split(np.arange(len(self.cost)), np.cumsum(self.sizes)[:-1])
        selected = (
            np.sort(rng.choice(rows, limit, replace=False)) if len(rows) > limit else rows
            for rows in graphs
        )
        drawn = np.concatenate([*selected])
        sizes = np.minimum(self.sizes, limit)
        return replace(self, counts=self.counts[drawn], cost=self.cost[drawn], sizes=sizes)

    def derivatives(self, terms: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
        """Return the gradient of `pair_terms`, ``(instances,)``, and an upper bound of the
        hessian's diagonal.
        """
        gradient = np.concatenate([slopes for slopes, _ in terms])
        hessian = self.counts.power(2).T @ np.concatenate(
            [weights.sum(axis=-1) for _, weights in terms]
        )
        return self.counts.T @ gradient, hessian + 1e-6 * hessian.max()


class SumPooled(boosted.BoostedRanker[SumPooledParams]):
    """RankNet's loss on sums over `xlarank.features.instances.graph_instances.Instances`.

    An instance's gradient is the sum over the configurations that contain it, weighted by its
    count. A tree is grown on these gradients; its leaf values are then set by one joint Newton step
    (`newton_step`). The cost model of Ansor sums scores of innermost statements in the same way
    (Zheng et al. 2020, *Ansor: Generating High-Performance Tensor Programs for Deep Learning*).
    Rows without instances (tiles) are single instances.
    """

    params_class = SumPooledParams
    row_by_row = False
    _instance_columns: Sequence[str] = ()

    @property
    def _tree_columns(self) -> Sequence[str]:
        return self._instance_columns or self.columns

    def fit(self, data: TrainingData, settings: FitSettings) -> Self:
        self._require_rounds(settings)
        rng = np.random.default_rng(settings.seed)
        self._instance_columns = _shared_instance_columns(data)
        self._choose_columns(self._instance_columns or data.columns, data.target)
        booster = self._boost(self._pool(data, rng), settings, rng)
        base = self._warm_start.booster if self._warm_start else None
        self._booster = LightGBMBooster.appended(reread(booster), settings.threads, base)
        self.columns = data.columns
        return self

    def _pool(self, data: TrainingData, rng: np.random.Generator) -> _Pool:
        counts = []
        values = []
        costs = []
        for group, part in enumerate(data.parts):
            cost = data.cost[data.rows_of(group)]
            selected = even_ranks(cost, self.params.configs, rng)
            costs.append(cost[selected])
            if part.instances is None:
                counts.append(sparse.eye_array(len(selected), format="csr"))
                values.append(part.matrix(selected, self._used))
            else:
                table = part.instances.value
                all_counts = table.counts(selected)
                occurring = np.unique(all_counts.indices)
                counts.append(all_counts[:, occurring])
                values.append(table.values[occurring][:, self._used])
        weight = graph_weights(data.indptr, self.params.graph_weight) * data.group_weight
        joined = sparse.csr_array(sparse.block_diag(counts, format="csr"))
        return _Pool(
            joined,
            np.concatenate(values),
            np.concatenate(costs),
            np.array([*map(len, costs)]),
            weight,
        )

    def _boost(self, pool: _Pool, settings: FitSettings, rng: np.random.Generator) -> lgb.Booster:
        """Grow a tree per round, on newly drawn configurations if any graph has more than
        ``round_configs``.
        """
        params = self.params
        values = pool.values
        warm = self._warm_start
        bins = {
            "max_bin": 63,
            "min_data_in_leaf": params.min_data_in_leaf,
            "num_threads": settings.threads,
            "verbose": -1,
            "is_enable_sparse": False,  # see `binning`
        }
        train = lgb.Dataset(values, np.zeros(len(values)), params=bins).construct()
        # leaf values, including the learning rate, are set below
        overrides = {"objective": "none", "learning_rate": 1.0, "min_sum_hessian_in_leaf": 0.0}
        booster = lgb.Booster({**params.of_trees(settings), **overrides}, train)
        if not can_split(train):
            return booster  # LightGBM would refuse the custom objective
        rate = params.learning_rate * (warm.rate if warm else 1.0)
        relevance = (
            warm.booster.relevance(values, settings.threads) if warm else np.zeros(len(values))
        )
        for tree in range(settings.rounds):
            if tree == 0 or pool.sizes.max() > params.round_configs:
                drawn = pool.draw(params.round_configs, rng)
                costs = drawn.split(drawn.cost)
                signs = [pair_sign(cost[:, None], cost, params.tie_tolerance) for cost in costs]
            terms = [*map(pair_terms, drawn.split(drawn.counts @ relevance), signs, pool.weight)]
            derivatives = drawn.derivatives(terms)
            if booster.update(fobj=lambda *_, computed=derivatives: computed):
                break
            leaf = _leaves(booster, values, tree)
            in_leaf = drawn.counts @ np.eye(int(leaf.max()) + 1)[leaf]
            output = rate * newton_step(terms, drawn.split(in_leaf), params.leaf_l2)
            for number, value in enumerate(output):
                booster.set_leaf_output(tree, number, float(value))
            relevance += output[leaf]
        return booster

    def predict(
        self, rows: Matrix, columns: list[str], instances: LazyInstances | None = None
    ) -> Floats:
        self._require_fitted(columns)
        *_, scores = self.staged(rows, max(1, self._booster.rounds), instances)
        return scores

    def staged(
        self, rows: Matrix, every: int, instances: LazyInstances | None = None
    ) -> Iterator[Floats]:
        self._require_fitted()
        table = self._table(rows, instances)
        values = (rows if table is None else table.values)[:, self._used]
        for scores in self._booster.stages(values, np.zeros(len(values)), every, from_zero=False):
            yield scores if table is None else table.sums(scores)

    def _table(self, rows: Matrix, instances: LazyInstances | None) -> Instances | None:
        """Return the instances to score, None if rows are their own; raises `ModelError` for a
        mismatch.
        """
        if not self._instance_columns:
            return None
        table = instances.value if instances else None
        if table is None or table.configs != len(rows) or table.columns != self._instance_columns:
            got = "the rows come without their instances, or with others"
            raise ModelError(got, expected="those of the same rows", do="run build-features again")
        return table

    def contributions(
        self, graph: GraphRows, now: int, then: int, walk: Walk | None = None
    ) -> Parts:
        rows = graph.matrix()
        table = self._table(rows, graph.instances)
        if table is None:
            return super().contributions(graph, now, then, walk)
        scores = self.predict(rows, graph.columns, graph.instances)
        difference = float(scores[now] - scores[then])
        both = zip(table.parts(now), table.parts(then), strict=True)
        pairs = [(a, b) for a, b in both if a.instance != b.instance]
        if not pairs:
            return Parts(difference, members={self.name: difference})
        instances = np.array([[a.instance, b.instance] for a, b in pairs])
        change = np.subtract(
            *(self._column_contributions(table.values[column]) for column in instances.T)
        )
        values = map(float, change.sum(axis=1))
        places = tuple(
            Place(a.nodes, a.text, b.text, value)
            for (a, b), value in zip(pairs, values, strict=True)
        )
        columns = boosted.nonzero_by_name(change.sum(axis=0), table.columns)
        return Parts(difference, {}, places, columns, {self.name: difference})

    def _write(self, folder: Path) -> dict[str, Any]:
        return {**super()._write(folder), "instance_columns": self._instance_columns}

    def _read(self, folder: Path, state: Mapping[str, Any]) -> None:
        self._instance_columns = [str(name) for name in state["instance_columns"]]
        super()._read(folder, state)


def _shared_instance_columns(data: TrainingData) -> list[str]:
    by_group = [
        [] if part.instances is None else part.instances.value.columns for part in data.parts
    ]
    for name, columns in zip(data.names, by_group, strict=True):
        if columns != by_group[0]:
            raise ModelError(
                f"{name} and {data.names[0]} have different instances",
                do="run build-features again",
            )
    return by_group[0]


def _leaves(booster: lgb.Booster, values: Matrix, tree: int) -> Indices:
    """Return the leaf of each row, ``(rows,)``; five times as fast as LightGBM's own prediction."""
    (info,) = booster.dump_model(num_iteration=1, start_iteration=tree)["tree_info"]
    leaf = np.zeros(len(values), np.intp)

    def descend(node: dict[str, Any], rows: Indices) -> None:
        if "split_feature" in node:
            left = values[rows, node["split_feature"]] <= np.float64(node["threshold"])
            descend(node["left_child"], rows[left])
            descend(node["right_child"], rows[~left])
        else:
            leaf[rows] = node.get("leaf_index", 0)  # missing in a tree of one leaf

    descend(info["tree_structure"], np.arange(len(values)))
    return leaf


def pair_terms(relevance: Floats, sign: Floats, weight: float) -> tuple[Floats, Floats]:
    """Return the gradient and the pair weights of `RankNetLoss` over all pairs of a graph, times
    ``weight``.

    Relevances are ``(configs,)``, higher is faster; ``sign (configs, configs)`` is `pair_sign` of
    the costs. With p = 1 / (1 + exp(relevance of the faster - relevance of the slower)), a pair
    adds -p to the gradient, ``(configs,)``, of the faster configuration and p to that of the
    slower; its weight, ``(configs, configs)``, is p (1 - p). The Hessian is the Laplacian of the
    weights: their row sums on the diagonal, minus the weights.
    """
    pairs = max(1.0, np.count_nonzero(sign) / 2)
    p = expit(sign * (relevance - relevance[:, None]))
    gradient = -(sign * p).sum(axis=-1) / pairs * weight
    return gradient, np.abs(sign) * p * (1 - p) / pairs * weight


def newton_step(
    terms: Sequence[tuple[Floats, Floats]], counts: Sequence[Floats], ridge: float
) -> Floats:
    """Return the leaf values, ``(leaves,)``, that minimise the second-order loss plus ridge / 2
    |values|^2.

    The loss is a mean over graphs, each with its `pair_terms` and its ``counts`` S of instances by
    leaf, ``(configs, leaves)``. Leaf values v add S v to the relevances, so the derivatives with
    respect to v are S' gradient and S' L S, with L the Laplacian of the weights. LightGBM's own
    leaf values ignore that a configuration has several instances.
    """
    slopes = []
    hessians = []
    for (gradient, weights), in_leaf in zip(terms, counts, strict=True):
        slopes.append(in_leaf.T @ gradient)
        hessians.append(in_leaf.T @ (weights.sum(axis=-1)[:, None] * in_leaf - weights @ in_leaf))
    hessian = np.mean(hessians, axis=0)
    return np.asarray(
        np.linalg.solve(hessian + ridge * np.eye(len(hessian)), -np.mean(slopes, axis=0))
    )
