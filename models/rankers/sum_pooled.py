"""Trees on instances: a configuration's score is the sum of its instances' scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import lightgbm as lgb
import numpy as np
from scipy import sparse
from scipy.special import expit

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import Instances, LazyInstances
from xlarank.features.rows import even_ranks
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.explanation.parts import Parts, Place, Rows
from xlarank.models.objectives import faster_by_sign, graph_weights
from xlarank.models.params import Between, Number, Whole, param
from xlarank.models.rankers import boosted
from xlarank.models.rankers.lightgbm import LightGBMBooster, can_split, reread
from xlarank.models.training_data import FitSettings, TrainingData


@dataclass(frozen=True, kw_only=True)
class SumPooledParams(boosted.TreeParams):
    """Parameters of `SumPooled`; a layout configuration has dozens of instances per leaf, a tile one.

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
        values: ``(instances, used columns)``.
        cost: ``(configs,)``.
        sizes: ``(graphs,)`` number of configurations.
        weight: ``(graphs,)`` factor of the loss.
    """

    counts: sparse.csr_array
    values: Matrix
    cost: Floats
    sizes: Indices
    weight: Floats

    def draw(self, most: int, rng: np.random.Generator) -> Indices:
        """Draw indices of at most ``most`` configurations of each graph, ascending."""
        starts = np.cumsum(self.sizes) - self.sizes
        return np.concatenate([
            start + (np.sort(rng.choice(size, most, replace=False)) if size > most else np.arange(size))
            for start, size in zip(starts, self.sizes, strict=True)
        ])  # fmt: skip

    def batches(self, most: int) -> list[tuple[Indices, Indices]]:
        """Return batches of graphs, ``(graphs,)``, with equally many draws, and these, ``(graphs, configs)``."""
        sizes = np.minimum(self.sizes, most)
        starts, batches = np.cumsum(sizes) - sizes, []
        for size in np.unique(sizes):
            graphs = np.flatnonzero(sizes == size)
            # 2**14 pairs fit into a processor's cache
            for part in np.array_split(graphs, -(-len(graphs) * int(size) ** 2 // 2**14)):
                batches.append((part, starts[part][:, None] + np.arange(size)))
        return batches


class SumPooled(boosted.BoostedRanker[SumPooledParams]):
    """RankNet's loss on sums over `xlarank.features.instances.graph_instances.Instances`.

    An instance's gradient is the sum over the configurations that contain it, weighted by its count. A tree is
    grown on these gradients; its leaf values are then set by one joint Newton step (`newton_step`). TVM's cost
    model sums scores of stores in the same way (Chen et al. 2018, *Learning to Optimize Tensor Programs*). A row
    without instances (a tile) is its own single instance.
    """

    params_class = SumPooledParams
    row_by_row = False

    def __init__(self, params: SumPooledParams | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._instance_columns: list[str] = []

    @property
    def _tree_columns(self) -> list[str]:
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
        blocks, values, costs = [], [], []
        for group, part in enumerate(data.parts):
            cost = data.cost[data.rows_of(group)]
            kept = even_ranks(cost, self.params.configs, rng)
            costs.append(cost[kept])
            if part.instances is None:
                blocks.append(sparse.csr_array(sparse.eye_array(len(kept), format="csr")))
                values.append(part.matrix(kept, self._used))
                continue
            table = part.instances.value
            counts = table.counts(kept)
            held = np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]))
            blocks.append(sparse.csr_array(counts[:, held]))
            values.append(table.values[held][:, self._used])
        return _Pool(
            sparse.csr_array(sparse.block_diag(blocks, format="csr")),
            np.concatenate(values),
            np.concatenate(costs),
            np.array([len(cost) for cost in costs]),
            graph_weights(data.indptr, self.params.graph_weight) * data.group_weight,
        )

    def _boost(self, pool: _Pool, settings: FitSettings, rng: np.random.Generator) -> lgb.Booster:
        params, values, warm = self.params, pool.values, self._warm_start
        bins = {
            "max_bin": 63, "min_data_in_leaf": params.min_data_in_leaf, "num_threads": settings.threads,
            "verbose": -1, "is_enable_sparse": False,  # see `binning`
        }  # fmt: skip
        train = lgb.Dataset(values, np.zeros(len(values)), params=bins).construct()
        # leaf values, including the learning rate, are set below
        trees = {"objective": "none", "learning_rate": 1.0, "min_sum_hessian_in_leaf": 0.0}
        booster = lgb.Booster({**params.of_trees(settings), **trees}, train)
        if not can_split(train):
            return booster  # LightGBM would refuse the custom objective
        rate, relevance = params.learning_rate, np.zeros(len(values))
        if warm:
            rate *= warm.rate
            relevance = warm.booster.relevance(values, settings.threads)
        batches, squares = pool.batches(params.round_configs), pool.counts.power(2)
        for tree in range(settings.rounds):
            if tree == 0 or (pool.sizes > params.round_configs).any():
                drawn = pool.draw(params.round_configs, rng)
                counts, squared, cost = pool.counts[drawn], squares[drawn], pool.cost[drawn]
                costs, tolerance = [cost[at] for _, at in batches], params.tie_tolerance
                signs = [faster_by_sign(c[:, :, None], c[:, None], tolerance) for c in costs]
            sums, signed = counts @ relevance, zip(batches, signs, strict=True)
            terms = [pair_terms(sums[at], sign, pool.weight[graphs]) for (graphs, at), sign in signed]
            gradient, curvature = np.empty(len(cost)), np.empty(len(cost))
            for (_, at), (slopes, weights) in zip(batches, terms, strict=True):
                gradient[at], curvature[at] = slopes, weights.sum(axis=-1)
            hessian = squared.T @ curvature
            hessian += 1e-6 * hessian.max()
            if booster.update(fobj=lambda *_, derivatives=(counts.T @ gradient, hessian): derivatives):
                break
            leaf = _leaves(booster, values, tree)
            leaves = int(leaf.max()) + 1
            held = counts @ np.eye(leaves)[leaf]
            slope, curve = np.empty((len(pool.sizes), leaves)), np.empty((len(pool.sizes), leaves, leaves))
            for (graphs, at), term in zip(batches, terms, strict=True):
                slope[graphs], curve[graphs] = pooled(*term, held[at])
            output = rate * newton_step(slope, curve, params.leaf_l2)
            for number, value in enumerate(output):
                booster.set_leaf_output(tree, number, float(value))
            relevance += output[leaf]
        return booster

    def predict(self, rows: Matrix, columns: list[str], instances: LazyInstances | None = None) -> Floats:
        self._require_fitted(columns)
        *_, scores = self.staged(rows, max(1, self._booster.rounds), instances)
        return scores

    def staged(self, rows: Matrix, every: int, instances: LazyInstances | None = None) -> Iterator[Floats]:
        self._require_fitted()
        table = self._table(rows, instances)
        values = (rows if table is None else table.values)[:, self._used]
        for scores in self._booster.stages(values, np.zeros(len(values)), every, from_zero=False):
            yield scores if table is None else table.sums(scores)

    def _table(self, rows: Matrix, instances: LazyInstances | None) -> Instances | None:
        """Return the instances to score, None if rows are instances; raises `ModelError` for a mismatch."""
        if not self._instance_columns:
            return None
        table = instances.value if instances else None
        if table is None or table.configs != len(rows) or table.columns != self._instance_columns:
            got = "the rows come without their instances, or with others"
            raise ModelError(got, expected="those of the same rows", do="run build-features again")
        return table

    def contributions(self, rows: Rows, now: int, then: int) -> Parts:
        table = self._table(rows.matrix, rows.instances)
        if table is None:
            return super().contributions(rows, now, then)
        scores = self.predict(rows.matrix, rows.columns, rows.instances)
        difference = float(scores[now] - scores[then])
        parts = Parts(difference, members={self.name: difference})
        both = zip(table.parts(now), table.parts(then), strict=True)
        different = [(a, b) for a, b in both if a.instance != b.instance]
        if not different:
            return parts
        held = np.array([[a.instance, b.instance] for a, b in different])
        first, second = (self._column_contributions(table.values[instances]) for instances in held.T)
        change = first - second
        differences = zip(different, change.sum(axis=1), strict=True)
        places = tuple(Place(a.nodes, a.text, b.text, float(value)) for (a, b), value in differences)
        columns = boosted.nonzero_by_name(change.sum(axis=0), table.columns)
        return replace(parts, places=places, instance_columns=columns)

    def _write(self, folder: Path) -> dict[str, Any]:
        return {**super()._write(folder), "instance_columns": self._instance_columns}

    def _read(self, folder: Path, state: Mapping[str, Any]) -> None:
        self._instance_columns = [str(name) for name in state["instance_columns"]]
        super()._read(folder, state)


def _shared_instance_columns(data: TrainingData) -> list[str]:
    by_group = [[] if part.instances is None else part.instances.value.columns for part in data.parts]
    for name, columns in zip(data.names, by_group, strict=True):
        if columns != by_group[0]:
            raise ModelError(f"{name} and {data.names[0]} have different instances", do="run build-features again")
    return by_group[0]


def _leaves(booster: lgb.Booster, values: Matrix, tree: int) -> Indices:
    """Return the leaf of each row, ``(rows,)``; ten times as fast as LightGBM's own prediction."""
    (info,) = booster.dump_model(num_iteration=1, start_iteration=tree)["tree_info"]
    leaf = np.zeros(len(values), np.intp)
    waiting = [(info["tree_structure"], np.arange(len(values)))]
    while waiting:
        node, rows = waiting.pop()
        if "split_feature" not in node:
            leaf[rows] = node.get("leaf_index", 0)  # missing in a tree of one leaf
            continue
        left = values[rows, node["split_feature"]] <= np.float64(node["threshold"])
        waiting += [(node["left_child"], rows[left]), (node["right_child"], rows[~left])]
    return leaf


def pair_terms(relevance: Floats, sign: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return the gradient and the pair weights of `RankNetLoss` over all pairs, times ``weight (...,)``.

    Relevances are ``(..., configs)``, higher is faster; ``sign (..., configs, configs)`` is `faster_by_sign` of
    their costs. With p = 1 / (1 + exp(relevance of the faster - that of the slower)) a pair adds -p to the gradient
    ``(..., configs)`` of the faster one and p to that of the slower; its weight, in ``(..., configs, configs)``, is
    p (1 - p).
    The Hessian is the Laplacian of the weights: their row sums on the diagonal, minus the weights.
    """
    pairs = np.maximum(1.0, np.count_nonzero(sign, axis=(-2, -1)) / 2)[..., None]
    wrong = expit(sign * (relevance[..., None, :] - relevance[..., :, None]))
    gradient = -(sign * wrong).sum(axis=-1) / pairs * weight[..., None]
    return gradient, np.abs(sign) * wrong * (1 - wrong) / pairs[..., None] * weight[..., None, None]


def pooled(gradient: Floats, weights: Floats, held: Floats) -> tuple[Floats, Floats]:
    """Return the derivatives of `pair_terms` by leaf value, ``(..., leaves)`` and ``(..., leaves, leaves)``.

    Let S, ``held (..., configs, leaves)``, count a configuration's instances in each leaf. Leaf values v change the
    relevances by S v, so the derivatives are S' gradient and S' L S, with L the Laplacian of the weights.
    """
    turned = np.swapaxes(held, -2, -1)
    curve: Floats = turned @ (weights.sum(axis=-1)[..., None] * held - weights @ held)
    return (turned @ gradient[..., None])[..., 0], curve


def newton_step(slope: Floats, curve: Floats, ridge: float) -> Floats:
    """Return the leaf values that minimise the second-order loss: mean over graphs + ridge / 2 |values|^2.

    With the derivatives of each graph (`pooled`), v ``(leaves,)`` solves (mean ``curve`` + ridge I) v = -mean
    ``slope``. LightGBM's own leaf values ignore that a configuration has several instances.
    """
    graphs, leaves = slope.shape
    step = np.linalg.solve(curve.sum(axis=0) / graphs + ridge * np.eye(leaves), -slope.sum(axis=0) / graphs)
    return step.astype(np.float64)
