"""Parts of the difference between two scores.

Parts are exact TreeSHAP contributions of columns (Lundberg et al. 2018, *Consistent Individualized Feature
Attribution for Tree Ensembles*), and instance scores if a score is their sum.
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
    """Contribution of a node's instance, or of a pair of nodes that share a tensor, to the difference.

    Attributes:
        nodes: the node, or consumer (or first reader) and producer (or next reader), as numbered in the graph.
        now, then: layouts in the two configurations, as text.
    """

    nodes: tuple[int, ...]
    now: str
    then: str
    value: float


@dataclass(frozen=True)
class Parts:
    """Contributions to the difference between two scores of a graph; negative if the first is faster.

    Up to rounding, ``difference == sum(columns) + sum(places)``, ``sum(places) == sum(instance_columns)`` and, if
    there is a walk, ``sum(columns) == sum(nodes)``.

    Attributes:
        difference: score of the first configuration minus that of the second.
        columns: nonzero contributions by wide-row column.
        places: nodes and pairs whose instance differs.
        instance_columns: contributions of ``places``, by column of the instances.
        members: share of the difference by ranker; one entry unless rankers are combined.
        nodes: contributions of ``columns``, by node of the graph.
    """

    difference: float
    columns: dict[str, float] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    instance_columns: dict[str, float] = field(default_factory=dict)
    members: dict[str, float] = field(default_factory=dict)
    nodes: dict[int, float] = field(default_factory=dict)

    def scaled(self, factor: float) -> Parts:
        return Parts.total([self], factor)

    @classmethod
    def total(cls, parts: Iterable[Parts], factor: float = 1.0) -> Parts:
        """Sum differences, scaled by ``factor``, and merge equal places."""
        parts = list(parts)

        def added(mappings: Iterable[Mapping[_Key, float]]) -> dict[_Key, float]:
            total: dict[_Key, float] = {}
            for key, value in (item for mapping in mappings for item in mapping.items()):
                total[key] = total.get(key, 0.0) + value * factor
            return total

        places = added({(p.nodes, p.now, p.then): p.value} for part in parts for p in part.places)
        return cls(
            sum(part.difference * factor for part in parts),
            added(part.columns for part in parts),
            tuple(Place(*key, value) for key, value in places.items()),
            added(part.instance_columns for part in parts),
            added(part.members for part in parts),
            added(part.nodes for part in parts),
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of the distinct configurations of a graph.

    Attributes:
        walk: steps from the second configuration to the first, for contributions by node.
    """

    matrix: Matrix
    columns: list[str]
    instances: LazyInstances | None = None
    walk: Walk | None = None

    @classmethod
    def of(cls, graph: GraphRows, walk: Walk | None = None) -> Rows:
        return cls(graph.matrix(), graph.columns, graph.instances, walk)
