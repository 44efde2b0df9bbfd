"""Trees on what operations cost: a configuration takes the sum of the cycles of its nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, Self

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xlarank.features.instances.instances import Instances, LazyInstances
from xlarank.features.sampling import sample_configs
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.param_checks import Number, Whole
from xlarank.models.params import param
from xlarank.models.rankers.common_params import columns_param, tier_param
from xlarank.models.rankers.instance_trees import InstanceTrees
from xlarank.models.rankers.lightgbm import TreeParams, tree_settings
from xlarank.models.ranking_data import RankingData
from xlarank.models.search_space import Between

Floats = NDArray[np.float64]

#: Logarithms of cycles beyond which a tree has lost its way; keeps exponentials finite.
_MOST: Final = 60.0
#: Cycles that stand for the geometric mean of a graph whose rows are operations themselves.
_TYPICAL: Final = 1000.0
#: Of fewer instances than so many leaves could hold, leaves are smaller.
_FEW: Final = 8


@dataclass(frozen=True, kw_only=True)
class OpCostParams(TreeParams):
    """Parameters of `OpCost`.

    Attributes:
        min_data_in_leaf: in instances; where there are few, an eighth of them.
        reach: a node answers for its own cycles and those of nodes that are at most so many pairs of instances
            away: what is next to a layout pays for it, too. By folds of families of the estimated layouts.
        weight: power of a node's mean cycles by which it counts: with 0 all nodes of a graph count alike, with 1
            by the time they take.
        configs: most configurations of a graph that are learned from.
    """

    ranker: ClassVar[str] = "op-cost"

    min_data_in_leaf: int = param(30, Whole(0), Between(5, 100, log=True))
    tier: str = tier_param(searched=False)
    reach: int = param(1, Whole(0))
    weight: float = param(1.0, Number(0), Between(0.0, 1.0))
    configs: int = param(1000, Whole(1))
    columns: str = columns_param()


@dataclass(frozen=True, eq=False)
class _Group:
    """Configurations of one graph.

    Attributes:
        values: ``(instances, used columns)``.
        held: ``(configs, nodes)`` instance of each node; -1 for none.
        cycles: ``(configs, nodes)``, or None where only the sums are known.
        cost: ``(configs,)`` those sums.
        weight: how much the graph counts.
    """

    values: NDArray[np.float32]
    held: NDArray[np.int64]
    cycles: Floats | None
    cost: Floats
    weight: float = 1.0

    def dealt(self, score: Floats | None) -> Floats:
        """``(configs, nodes)`` cycles: those known, or each sum in parts as ``score`` ``(instances,)`` has them.

        Without a score the parts are equal. What a sum has too much or too little for the parts that it is made of
        changes all of them by one factor; the mean over the configurations that hold an instance tells which of
        them it was. (Differences in place of factors were tried: few configurations are very slow, so that most
        layouts seemed to gain, and the order came out the wrong way round.)
        """
        if self.cycles is not None:
            return self.cycles
        parts = np.ones(self.held.shape) if score is None else np.maximum(score[self.held], 1e-6)
        parts = np.where(self.held >= 0, parts, 0.0)
        found: Floats = self.cost[:, None] * parts / np.maximum(parts.sum(axis=1, keepdims=True), 1e-12)
        return found


class OpCost(InstanceTrees[OpCostParams]):
    """Least squares on the logarithm of the cycles that a node takes, by its node instance.

    The score of a configuration is the sum of the scores of its nodes; pairs have none. A compiler that tells
    what every operation takes teaches hundreds of costs by each program, where its sum is one
    (`xlarank.data.hlo.compiler.attribution`). Of graphs whose sums alone are known each sum is dealt to the nodes,
    first by what the other graphs teach (or in equal parts), then once more by what that gave: a joint fit.
    """

    name = OpCostParams.ranker
    params_class = OpCostParams

    @staticmethod
    def instance_score(sums: Floats) -> Floats:
        """Cycles of an instance from the logarithm of 1 + cycles."""
        return np.expm1(np.minimum(sums, _MOST))

    def continuing(self, rate: float = 1.0) -> Self:
        return Ranker.continuing(self, rate)  # it cannot: costs are fitted in one go

    def _fit(self, data: RankingData, settings: FitSettings) -> None:
        own, self._threads = self.params, settings.threads
        self._choose(data, own.columns, own.tier)
        rng = np.random.default_rng(settings.seed)
        groups = [self._group(data, g, rng) for g in range(data.groups)]
        known = [group for group in groups if group.cycles is not None]
        if len(known) < len(groups):
            self._grow([(group, group.dealt(None)) for group in known or groups], settings)
            self._grow([(group, group.dealt(self._costs(group))) for group in groups], settings)
        else:
            self._grow([(group, group.dealt(None)) for group in groups], settings)

    def _group(self, data: RankingData, g: int, rng: np.random.Generator) -> _Group:
        cost = data.cost[int(data.indptr[g]) : int(data.indptr[g + 1])]
        kept = sample_configs(cost, self.params.configs, rng, "uniform")
        instances, cycles = data.instances_of(g), data.cycles_of(g)
        weight = float(data.group_weight[g])
        if instances is None:
            sums = _TYPICAL * cost[kept] / np.exp(np.log(cost[kept]).mean())
            rows = np.arange(len(kept))[:, None]
            return _Group(data.parts[g].matrix(kept, self._used), rows, sums[:, None], sums, weight)
        table = instances.value
        several = np.flatnonzero(np.diff(table.first, append=len(table.rows)) > 1)
        held = table.row_instance[(table.first + table.codes[kept])[:, several]].astype(np.int64)
        by_node = None
        if cycles is not None and cycles.value is not None:
            by_node = np.asarray(cycles.value[kept] @ within_reach(table, self.params.reach))[:, several]
        return _Group(table.values[:, self._used], held, by_node, cost[kept], weight)

    def _grow(self, work: list[tuple[_Group, Floats]], settings: FitSettings) -> None:
        """Fit to cycles ``(configs, nodes)`` of each group."""
        parts = [_targets(group, cycles, self.params.weight) for group, cycles in work]
        values, target, weight = (np.concatenate(one) for one in zip(*parts, strict=True))
        least = min(self.params.min_data_in_leaf, len(values) // _FEW)
        binning = {"min_data_in_leaf": least, "verbose": -1}
        train = lgb.Dataset(values, -target, weight=weight, params=binning)
        params = {
            "objective": "regression", **tree_settings(self.params, settings),
            "learning_rate": self.params.learning_rate, "min_data_in_leaf": least,
        }  # fmt: skip
        self._booster = lgb.train(params, train, settings.rounds)

    def _costs(self, group: _Group) -> Floats:
        """``(instances,)`` cycles."""
        sums = np.asarray(self._trees().predict(group.values, num_threads=self._threads), np.float64)
        return self.instance_score(-sums)

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> Floats:
        *_, last = self._staged(rows, max(1, self._trees().num_trees()), instances)
        return last

    def _staged(self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None) -> Iterator[Floats]:
        booster, table = self._trees(), self._table(rows, instances)
        values = rows if table is None else table.values
        used = values[:, self._used]
        total = np.zeros(len(used))
        of_nodes = None if table is None else np.isin(np.arange(len(table)), table.row_instance)
        for start in range(0, max(1, booster.num_trees()), every):
            part = booster.predict(used, start_iteration=start, num_iteration=every, num_threads=self._threads)
            total = total - np.asarray(part)
            cost = self.instance_score(total)
            yield cost if table is None or of_nodes is None else table.sums(np.where(of_nodes, cost, 0.0))


def within_reach(table: Instances, pairs: int) -> sparse.csr_array:
    """``(nodes, nodes)`` 1 where one node is at most so many pairs away from another, itself included."""
    nodes = len(table.node)
    left, right = table.pairs[:, 0], table.pairs[:, 2]
    there, back = np.concatenate([left, right]), np.concatenate([right, left])
    step = sparse.csr_array((np.ones(len(there)), (there, back)), shape=(nodes, nodes))
    found = sparse.csr_array(sparse.eye_array(nodes, format="csr"))
    for _ in range(pairs):
        found = sparse.csr_array(found + found @ step)
        found.data[:] = 1.0
    return found


def _targets(group: _Group, cycles: Floats, power: float) -> tuple[NDArray[np.float32], Floats, Floats]:
    """Instances that nodes take, the mean logarithm of their cycles, and weights.

    Weights of a graph sum to about its number of nodes times its own; an instance counts as often as it is taken.
    """
    mean = cycles.mean(axis=0) + 1
    share = np.broadcast_to((mean / mean.mean()) ** power * group.weight / len(cycles), cycles.shape)
    there = group.held >= 0
    taken, place = np.unique(group.held[there], return_inverse=True)
    weight: Floats = np.bincount(place, share[there]).astype(np.float64)
    logs = np.bincount(place, share[there] * np.log1p(cycles[there])) / weight
    return group.values[taken], logs, weight
