"""What the difference between two scores is made of.

Every part is the model's own: the exact contributions of a tree ensemble to its columns (Lundberg et al. 2018,
*Consistent Individualized Feature Attribution for Tree Ensembles*, as LightGBM and XGBoost compute them), and the
scores of instances where a score is their sum. Parts always add up to the difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from xlarank.features.attribution import Walk
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Matrix

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Place:
    """A node, or a pair of nodes that meet over a tensor, and what its instance adds to the difference."""

    # nodes: the node, or consumer (or first reader) and producer (or next reader), as numbered in the graph.
    nodes: tuple[int, ...]
    # now, then: what stands there in either configuration, for people.
    now: str
    then: str
    value: float


@dataclass(frozen=True)
class Parts:
    """A difference between two scores of one graph, taken apart; below 0 where the first is the faster.

    ``difference == sum(columns) + sum(places)``, ``sum(places) == sum(instance_columns)`` and, where there was a
    walk to follow, ``sum(columns) == sum(nodes)``, up to the rounding of floating point numbers (XGBoost's
    contributions are float32).
    """

    difference: float  # score of the first configuration minus that of the second
    # columns: wide-row column -> its contribution; columns without any are left out.
    columns: dict[str, float] = field(default_factory=dict)
    places: tuple[Place, ...] = ()  # nodes and pairs whose instance differs
    # instance_columns: the same as ``places``, by column of the instances.
    instance_columns: dict[str, float] = field(default_factory=dict)
    # members: name of a ranker -> its share of the difference; one entry unless rankers are combined.
    members: dict[str, float] = field(default_factory=dict)
    nodes: dict[int, float] = field(default_factory=dict)  # the same as ``columns``, by node of the graph

    def scaled(self, factor: float) -> Parts:
        return Parts.total([self], factor)

    @classmethod
    def total(cls, parts: Iterable[Parts], factor: float = 1.0) -> Parts:
        """The sum of differences, each times ``factor``; the same place of several is one."""
        each = list(parts)

        def added(mappings: Iterable[Mapping[_Key, float]]) -> dict[_Key, float]:
            total: dict[_Key, float] = {}
            for key, value in (item for mapping in mappings for item in mapping.items()):
                total[key] = total.get(key, 0.0) + value * factor
            return total

        places = added({(p.nodes, p.now, p.then): p.value} for one in each for p in one.places)
        return cls(
            sum(one.difference * factor for one in each),
            added(one.columns for one in each),
            tuple(Place(*key, value) for key, value in places.items()),
            added(one.instance_columns for one in each),
            added(one.members for one in each),
            added(one.nodes for one in each),
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """The distinct configurations of one graph, as rankers are given them."""

    matrix: Matrix  # ``(rows, columns)`` float32
    columns: list[str]  # their names
    instances: LazyInstances | None = None  # what they are made of, where they have any
    # walk: from the second configuration that is explained to the first, where nodes are asked for.
    walk: Walk | None = None

    @classmethod
    def of(cls, graph: GraphRows, walk: Walk | None = None) -> Rows:
        return cls(graph.matrix(), graph.columns, graph.instances, walk)
