"""Trees on instances: a configuration's score is the sum of its instances' scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import lightgbm as lgb
import numpy as np
from scipy import sparse
from scipy.special import expit

from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import Instances, LazyInstances
from xlarank.features.rows import even_ranks
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.base import Learned
from xlarank.models.explanation.parts import Parts, Place, Rows
from xlarank.models.objectives import faster_by_sign, graph_weights
from xlarank.models.params import Between, Number, Whole, param
from xlarank.models.rankers.boosted import (
    by_name,
    columns_param,
    graph_weight_param,
    leaves_param,
    tie_tolerance_param,
)
from xlarank.models.rankers.lightgbm import LightGBMRanker, TreeParams
from xlarank.models.training_data import FitSettings, TrainingData

#: Pairs of configurations that are worked on at once.
_PAIRS: Final = 1 << 14


@dataclass(frozen=True, kw_only=True)
class SumPooledParams(TreeParams):
    """Parameters of `SumPooled`.

    Configurations of layouts hold dozens of instances of a leaf, so a little goes a long way; where each is its own
    instance (tiles), trees must say more.

    Attributes:
        leaf_l2: weight of the squares of leaf values in the joint Newton step.
        configs: maximum number of training configurations per graph.
        round_configs: maximum number of configurations compared with each other per round.
    """

    ranker: ClassVar[str] = "sum-pooled"

    learning_rate: float = param(0.1, Number(0, above=True), Between(0.02, 0.3, log=True))
    num_leaves: int = leaves_param(7, tile=15)
    min_data_in_leaf: int = param(10, Whole(0), Between(5, 100, log=True))
    lambda_l2: float = param(0.001, Number(0))
    leaf_l2: float = param(0.1, Number(0, above=True), Between(0.0001, 10.0, log=True), tile=0.001)
    configs: int = param(1000, Whole(1))
    round_configs: int = param(128, Whole(2))
    tie_tolerance: float = tie_tolerance_param(0.003)
    graph_weight: str = graph_weight_param()
    columns: str = columns_param()


@dataclass(frozen=True, eq=False)
class _Pool:
    """Configurations to train on, graph after graph, and the instances that they hold."""

    counts: sparse.csr_array  # ``(configs, instances)`` how many of each, a block a graph
    values: Matrix  # ``(instances, used columns)``
    cost: Floats  # ``(configs,)``
    # sizes, weight: ``(graphs,)`` numbers of configurations, and factors of the losses.
    sizes: Indices
    weight: Floats

    def draw(self, most: int, rng: np.random.Generator) -> Indices:
        """Configurations drawn for a round, ascending: at most so many of each graph."""
        starts = np.cumsum(self.sizes) - self.sizes
        return np.concatenate([
            start + (np.sort(rng.choice(size, most, replace=False)) if size > most else np.arange(size))
            for start, size in zip(starts, self.sizes, strict=True)
        ])  # fmt: skip

    def batches(self, most: int) -> list[tuple[Indices, Indices]]:
        """Graphs of which equally many configurations are drawn, ``(graphs,)``, and these, ``(graphs, configs)``.

        Their pairs are worked on at once, as long as these fit into a processor's cache.
        """
        sizes = np.minimum(self.sizes, most)
        starts, found = np.cumsum(sizes) - sizes, []
        for size in np.unique(sizes):
            graphs = np.flatnonzero(sizes == size)
            for part in np.array_split(graphs, -(-len(graphs) * int(size) ** 2 // _PAIRS)):
                found.append((part, starts[part][:, None] + np.arange(size)))
        return found


class SumPooled(LightGBMRanker[SumPooledParams]):
    """RankNet's loss on sums over `xlarank.features.instances.graph_instances.Instances`.

    The gradient of a configuration is handed to each of its instances, as often as it holds them; a tree is grown
    on these, and its leaf values are then one joint Newton step (`newton_step`). TVM's cost model sums the scores
    of stores in the same way (Chen et al. 2018, *Learning to Optimize Tensor Programs*).

    Rows without instances (tiles: one kernel, one choice) are instances themselves, one a configuration.
    """

    params_class = SumPooledParams
    row_by_row = False

    def __init__(self, params: SumPooledParams | Mapping[str, Any] | None = None, *, kind: Kind) -> None:
        super().__init__(params, kind=kind)
        self._instance_columns: list[str] = []

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        rng = np.random.default_rng(settings.seed)
        self._threads = settings.threads
        booster = self._grow(self._pool(data, rng), settings, rng)
        # as lightgbm.train does: it lets go of the data, and is what will be loaded again to the last bit
        self._booster = self._extended(lgb.Booster(model_str=booster.model_to_string()))

    def _pool(self, data: TrainingData, rng: np.random.Generator) -> _Pool:
        own = self.params
        self._choose_instances(data)
        blocks, values, cost = [], [], []
        for g in range(data.groups):
            of_group = data.cost[data.rows_of(g)]
            kept = even_ranks(of_group, own.configs, rng)
            cost.append(of_group[kept])
            instances = data.parts[g].instances
            if instances is None:
                blocks.append(sparse.csr_array(sparse.eye_array(len(kept), format="csr")))
                values.append(data.parts[g].matrix(kept, self._used))
                continue
            table = instances.value
            counts = table.counts(kept)
            held = np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]))
            blocks.append(sparse.csr_array(counts[:, held]))
            values.append(table.values[held][:, self._used])
        return _Pool(
            sparse.csr_array(sparse.block_diag(blocks, format="csr")),
            np.concatenate(values),
            np.concatenate(cost),
            np.array([len(one) for one in cost]),
            graph_weights(data.indptr, own.graph_weight) * data.group_weight,
        )

    def _choose_instances(self, data: TrainingData) -> None:
        """Which columns to look at: of instances where the first group has them, otherwise of rows.

        Raises `ModelError` where the groups' instances are different ones.
        """
        found = [[] if part.instances is None else part.instances.value.columns for part in data.parts]
        self._instance_columns = found[0]
        for name, names in zip(data.names, found, strict=True):
            if names != found[0]:
                got = f"{name} and {data.names[0]} have different instances"
                raise ModelError(got, do="run build-features again")
        self._choose(self._instance_columns or data.columns, data, self.params.columns)

    def _grow(self, pool: _Pool, settings: FitSettings, rng: np.random.Generator) -> lgb.Booster:
        own, values = self.params, pool.values
        binning = {
            "max_bin": 63, "min_data_in_leaf": own.min_data_in_leaf, "num_threads": settings.threads, "verbose": -1,
            "is_enable_sparse": False,  # see `binning`
        }  # fmt: skip
        train = lgb.Dataset(values, np.zeros(len(values)), params=binning).construct()
        params = {
            "objective": "none",
            **self._tree_settings(settings),
            "learning_rate": 1.0,  # leaf values are set below, the rate included
            "min_sum_hessian_in_leaf": 0.0,
        }
        booster = lgb.Booster(params, train)
        if not any(train.feature_num_bin(i) for i in range(values.shape[1])):
            return booster  # LightGBM refuses a custom objective where nothing can be split
        relevance = self._start.relevance(values, self._threads) if self._start else np.zeros(len(values))
        batches, squares = pool.batches(own.round_configs), pool.counts.power(2)
        for number in range(settings.rounds):
            if number == 0 or (pool.sizes > own.round_configs).any():
                drawn = pool.draw(own.round_configs, rng)
                counts, squared, cost = pool.counts[drawn], squares[drawn], pool.cost[drawn]
                signs = [
                    faster_by_sign(cost[at][:, :, None], cost[at][:, None], own.tie_tolerance) for _, at in batches
                ]
            sums = counts @ relevance
            terms = [
                pair_terms(sums[at], sign, pool.weight[graphs])
                for (graphs, at), sign in zip(batches, signs, strict=True)
            ]
            gradient, curvature = np.empty(len(cost)), np.empty(len(cost))
            for (_, at), (slopes, weights) in zip(batches, terms, strict=True):
                gradient[at], curvature[at] = slopes, weights.sum(axis=-1)
            hessian = squared.T @ curvature
            hessian += 1e-6 * hessian.max()
            if booster.update(fobj=lambda *_, found=(counts.T @ gradient, hessian): found):
                break
            leaf = _leaves(booster, values, number)
            leaves = int(leaf.max()) + 1
            held = counts @ np.eye(leaves)[leaf]
            slope, curve = np.empty((len(pool.sizes), leaves)), np.empty((len(pool.sizes), leaves, leaves))
            for (graphs, at), term in zip(batches, terms, strict=True):
                slope[graphs], curve[graphs] = pooled(*term, held[at])
            output = self._rate * newton_step(slope, curve, own.leaf_l2)
            for one, value in enumerate(output):
                booster.set_leaf_output(number, one, float(value))
            relevance += output[leaf]
        return booster

    def _parts(self, rows: Rows, now: int, then: int, difference: float) -> Parts:
        """Compare the scores of the instances at every place of two configurations."""
        table = self._table(rows.matrix, rows.instances)
        if table is None:
            return super()._parts(rows, now, then, difference)
        both = zip(table.parts(now), table.parts(then), strict=True)
        different = [(a, b) for a, b in both if a.instance != b.instance]
        if not different:
            return Parts(difference)
        held = np.array([[a.instance, b.instance] for a, b in different])
        change = self._row_parts(table.values[held[:, 0]]) - self._row_parts(table.values[held[:, 1]])
        places = tuple(
            Place(a.nodes, a.text, b.text, float(value))
            for (a, b), value in zip(different, change.sum(axis=1), strict=True)
        )
        return Parts(difference, {}, places, by_name(change.sum(axis=0), table.columns))

    def _scores(self, rows: Matrix, instances: LazyInstances | None) -> Floats:
        return next(self._staged(rows, max(1, self._booster.num_trees()), instances))

    def _staged(self, rows: Matrix, every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        table = self._table(rows, instances)
        values = rows if table is None else table.values
        used = values[:, self._used]
        for total in self._stages(used, np.zeros(len(used)), every):
            yield total if table is None else table.sums(total)

    def _table(self, rows: Matrix, instances: LazyInstances | None) -> Instances | None:
        """The instances to score, or None where rows are instances; raises `ModelError` for the wrong ones."""
        if not self._instance_columns:
            return None
        table = instances.value if instances else None
        if table is None or table.configs != len(rows) or table.columns != self._instance_columns:
            got = "the rows come without their instances, or with others"
            raise ModelError(got, expected="those of the same rows", do="run build-features again")
        return table

    @property
    def _tree_columns(self) -> list[str]:
        return self._instance_columns or self.columns

    def _learned(self) -> Learned:
        learned = super()._learned()
        learned.state["instance_columns"] = self._instance_columns
        return learned

    def _restore(self, learned: Learned) -> None:
        self._instance_columns = [str(name) for name in learned.state["instance_columns"]]
        super()._restore(learned)


def _leaves(booster: lgb.Booster, values: Matrix, tree: int) -> Indices:
    """``(rows,)`` the leaf of each row; LightGBM's own prediction looks at all columns and is ten times as slow."""
    (about,) = booster.dump_model(num_iteration=1, start_iteration=tree)["tree_info"]
    leaf = np.zeros(len(values), np.intp)
    waiting = [(about["tree_structure"], np.arange(len(values)))]
    while waiting:
        node, rows = waiting.pop()
        if "split_feature" not in node:
            leaf[rows] = node.get("leaf_index", 0)  # a tree of one leaf does not number it
            continue
        left = values[rows, node["split_feature"]] <= np.float64(node["threshold"])
        waiting += [(node["left_child"], rows[left]), (node["right_child"], rows[~left])]
    return leaf


def pair_terms(relevance: Floats, sign: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Derivatives of the mean over pairs of log(1 + exp(relevance of the slower - relevance of the faster)).

    Of relevances ``(..., configs)``, higher is faster, and ``sign (..., configs, configs)``, `faster_by_sign` of
    their costs; the loss counts ``weight (...,)`` times. With p = 1 / (1 + exp(relevance of the faster - that of
    the slower)) a pair adds -p to the gradient ``(..., configs)`` of the faster and p to the slower one's, and its
    weight ``(..., configs, configs)``, symmetric, is p (1 - p). A tie is no pair. The matrix of second derivatives
    is the Laplacian of the weights: their row sums on the diagonal, minus the weights.
    """
    pairs = np.maximum(1.0, np.count_nonzero(sign, axis=(-2, -1)) / 2)[..., None]
    wrong = expit(sign * (relevance[..., None, :] - relevance[..., :, None]))
    gradient = -(sign * wrong).sum(axis=-1) / pairs * weight[..., None]
    return gradient, np.abs(sign) * wrong * (1 - wrong) / pairs[..., None] * weight[..., None, None]


def pooled(gradient: Floats, weights: Floats, held: Floats) -> tuple[Floats, Floats]:
    """Derivatives by the values of leaves, ``(..., leaves)`` and ``(..., leaves, leaves)``, of `pair_terms`.

    Where S, ``held (..., configs, leaves)``, says how many instances of each leaf a configuration holds, its
    relevance changes by S v: they are S' gradient and S' L S, L the Laplacian of the pairs' weights.
    """
    turned = np.swapaxes(held, -2, -1)
    curve: Floats = turned @ (weights.sum(axis=-1)[..., None] * held - weights @ held)
    return (turned @ gradient[..., None])[..., 0], curve


def newton_step(slope: Floats, curve: Floats, ridge: float) -> Floats:
    """``(leaves,)`` values that minimise the second-order loss, the mean over graphs plus ridge / 2 |values|^2.

    Of the derivatives of each graph (`pooled`): v solves (mean of ``curve`` + ridge I) v = - mean of
    ``slope``. LightGBM's own leaf values take instances of one configuration as if each moved it alone.
    """
    graphs, leaves = slope.shape
    step = np.linalg.solve(curve.sum(axis=0) / graphs + ridge * np.eye(leaves), -slope.sum(axis=0) / graphs)
    return step.astype(np.float64)
