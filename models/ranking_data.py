"""What rankers learn from and are validated on: rows of many graphs with group boundaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError
from xlarank.data.family import program_family
from xlarank.data.graph import Kind
from xlarank.data.wording import counted
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.features.targets import Target
from xlarank.models.fallback import Fallback
from xlarank.models.params import Number
from xlarank.models.validation.metrics import judge

#: Numbers from which on a booster gets rows in batches, 0.5 GB: below, one copy costs less than many calls.
BATCHED: Final = 2**27


def in_batches(rows: int, columns: int) -> bool:
    """Whether boosters get so many rows and columns in batches."""
    return rows * columns >= BATCHED


@dataclass(frozen=True, eq=False)
class RankingData:
    """Query groups for training.

    Attributes:
        parts: rows of each group; shared with whoever made them, not copied.
        cost: ``(rows,)`` lower is faster; only compared within a group.
        indptr: ``(groups + 1,)``; group g is rows ``indptr[g]:indptr[g + 1]``.
        names, families: of each group.
        columns: names of the columns of the rows.
        instances: what the rows of each group are made of; empty, or None for a group, where there are none.
        weight: ``(groups,)`` factor of each group in a loss; None for 1.
        target: the hardware that is ranked for; None where that is unknown.
    """

    parts: Sequence[GraphRows]
    cost: NDArray[np.float64]
    indptr: NDArray[np.int64]
    names: list[str]
    families: list[str]
    columns: list[str]
    instances: Sequence[LazyInstances | None] = ()
    weight: NDArray[np.float64] | None = None
    target: Target | None = None

    @property
    def groups(self) -> int:
        return len(self.names)

    @property
    def rows(self) -> NDArray[np.float32]:
        """``(rows, columns)`` float32, a new copy at each call."""
        return self.matrix()

    def matrix(
        self, orders: Sequence[NDArray[np.intp]] | None = None, used: NDArray[np.intp] | None = None
    ) -> NDArray[np.float32]:
        """``(rows, columns)`` float32, a copy: each group's rows in its order of ``orders``, columns ``used``."""
        each = orders if orders is not None else [None] * self.groups
        return np.concatenate([part.matrix(order, used) for part, order in zip(self.parts, each, strict=True)])

    @classmethod
    def from_graphs(cls, graphs: Sequence[GraphRows], target: Target | None = None) -> RankingData:
        """Join the labelled, rankable graphs; raises `ModelError` when there are none or columns differ."""
        usable = [graph for graph in graphs if graph.labelled and graph.rankable]
        if not usable:
            raise ModelError(
                f"none of {counted(len(graphs), 'graph')} can be learned from",
                expected="a graph with measured runtimes and two configurations that differ",
            )
        for graph in usable:
            if graph.columns != usable[0].columns:
                raise ModelError(
                    f"{graph.name} and {usable[0].name} have different columns", do="run build-features again"
                )
        indptr = np.cumsum([0, *(len(graph) for graph in usable)])
        return cls(
            parts=usable,
            cost=np.concatenate([graph.row_cost for graph in usable]),
            indptr=indptr,
            names=[graph.name for graph in usable],
            families=[program_family(graph.name) for graph in usable],
            columns=usable[0].columns,
            instances=[graph.instances for graph in usable],
            target=target,
        )

    def take(self, groups: Sequence[int]) -> RankingData:
        """Some of the groups; their rows are shared."""
        return RankingData(
            parts=[self.parts[g] for g in groups],
            cost=np.concatenate([self.cost[self.indptr[g] : self.indptr[g + 1]] for g in groups]),
            indptr=np.cumsum([0, *(len(self.parts[g]) for g in groups)]),
            names=[self.names[g] for g in groups],
            families=[self.families[g] for g in groups],
            columns=self.columns,
            instances=[self.instances_of(g) for g in groups],
            weight=None if self.weight is None else self.weight[np.asarray(groups, np.intp)],
            target=self.target,
        )

    def join(self, other: RankingData) -> RankingData:
        """Append the groups of ``other``; raises `ModelError` where their columns differ."""
        if other.columns != self.columns:
            raise ModelError(
                f"{other.names[0]} and {self.names[0]} have different columns", do="run build-features again"
            )
        return RankingData(
            parts=[*self.parts, *other.parts],
            cost=np.concatenate([self.cost, other.cost]),
            indptr=np.concatenate([self.indptr, self.indptr[-1] + other.indptr[1:]]),
            names=[*self.names, *other.names],
            families=[*self.families, *other.families],
            columns=self.columns,
            instances=[one.instances_of(group) for one in (self, other) for group in range(one.groups)],
            weight=(
                None
                if self.weight is None and other.weight is None
                else np.concatenate([self.group_weight, other.group_weight])
            ),
            target=self.target,
        )

    def weighted(self, weight: float) -> RankingData:
        """Multiply the weight of every group; raises `ModelError` unless ``weight`` is above 0."""
        return replace(self, weight=self.group_weight * Number(0, above=True)("weight", weight))

    @property
    def group_weight(self) -> NDArray[np.float64]:
        """``(groups,)`` `weight`, 1 where there is none."""
        return np.ones(self.groups) if self.weight is None else self.weight

    @property
    def row_weight(self) -> NDArray[np.float64] | None:
        """``(rows,)`` the weight of each row's group; None where all count alike."""
        return None if self.weight is None else np.repeat(self.weight, np.diff(self.indptr))

    def instances_of(self, group: int) -> LazyInstances | None:
        """The instances of a group, if it has any."""
        return self.instances[group] if self.instances else None

    def per_group(self, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Apply a function to the costs of each group and join the results."""
        bounds = zip(self.indptr[:-1], self.indptr[1:], strict=True)
        return np.concatenate([function(self.cost[a:b]) for a, b in bounds])


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Graphs of one kind that can be learned from.

    Attributes:
        data: its query groups; the parts are whole graphs, to be validated on.
        also: groups of other collections, to learn from alone; None for none.
        fallback: what held-out graphs fall back on, where folds hold out kinds of kernels.
    """

    kind: Kind
    data: RankingData
    also: RankingData | None = field(default=None, kw_only=True)
    fallback: Fallback | None = field(default=None, kw_only=True)

    def judge(self, group: int, scores: NDArray[np.float64]) -> dict[str, float]:
        """Metrics of a group by ``(rows,)`` scores."""
        graph = self.data.parts[group]
        if self.fallback is not None:
            scores = self.fallback.blend(graph, scores)
        return judge(self.kind, scores[graph.group], graph.cost, graph.group)

    def without(self, held: Sequence[int]) -> RankingData:
        """The training groups while some are held out.

        Of other collections, groups of the families and kinds of kernel that are held out are left out, too: they
        hold the same programs.
        """
        held_set = set(held)
        left = self.data.take([group for group in range(self.data.groups) if group not in held_set])
        if self.also is None:
            return left
        unseen = {self.data.families[group] for group in held}
        kinds = {kind for group in held for kind in self.data.parts[group].kinds}
        fitting = [
            group
            for group in range(self.also.groups)
            if self.also.families[group] not in unseen and kinds.isdisjoint(self.also.parts[group].kinds)
        ]
        return left.join(self.also.take(fitting)) if fitting else left

    def whole(self) -> RankingData:
        """All training groups."""
        return self.data if self.also is None else self.data.join(self.also)
