"""What the difference between two scores is made of.

Every part is the model's own: the exact contributions of a tree ensemble to its columns (Lundberg et al. 2018,
*Consistent Individualized Feature Attribution for Tree Ensembles*, as LightGBM and XGBoost compute them), and the
scores of instances where a score is their sum. Parts always add up to the difference.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from xlarank.features.attribution import Walk
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Matrix


@dataclass(frozen=True)
class Place:
    """A node, or a pair of nodes that meet over a tensor, and what its instance adds to the difference.

    Attributes:
        nodes: the node, or consumer (or first reader) and producer (or next reader), as numbered in the graph.
        now, then: what stands there in either configuration, for people.
    """

    nodes: tuple[int, ...]
    now: str
    then: str
    value: float


@dataclass(frozen=True)
class Parts:
    """A difference between two scores of one graph, taken apart; below 0 where the first is the faster.

    ``difference == sum(columns) + sum(places)``, ``sum(places) == sum(instance_columns)`` and, where there was a
    walk to follow, ``sum(columns) == sum(nodes)``, up to the rounding of floating point numbers (XGBoost's
    contributions are float32).

    Attributes:
        difference: score of the first configuration minus that of the second.
        columns: wide-row column -> its contribution; columns without any are left out.
        places: nodes and pairs whose instance differs.
        instance_columns: the same as ``places``, by column of the instances.
        nodes: the same as ``columns``, by node of the graph.
        members: name of a ranker -> its share of the difference; one entry unless rankers are combined.
    """

    difference: float
    columns: dict[str, float] = field(default_factory=dict)
    places: tuple[Place, ...] = ()
    instance_columns: dict[str, float] = field(default_factory=dict)
    members: dict[str, float] = field(default_factory=dict)
    nodes: dict[int, float] = field(default_factory=dict)

    def scaled(self, factor: float) -> Parts:
        """All parts times a factor."""
        return Parts(
            self.difference * factor,
            {name: value * factor for name, value in self.columns.items()},
            tuple(replace(place, value=place.value * factor) for place in self.places),
            {name: value * factor for name, value in self.instance_columns.items()},
            {name: value * factor for name, value in self.members.items()},
            {node: value * factor for node, value in self.nodes.items()},
        )

    @classmethod
    def total(cls, parts: Iterable[Parts]) -> Parts:
        """The sum of differences; the same place of several is one."""
        difference = 0.0
        columns: dict[str, float] = {}
        instance_columns: dict[str, float] = {}
        members: dict[str, float] = {}
        nodes: dict[int, float] = {}
        places: dict[tuple[tuple[int, ...], str, str], float] = {}
        for part in parts:
            difference += part.difference
            for found, more in (
                (columns, part.columns), (instance_columns, part.instance_columns), (members, part.members),
            ):  # fmt: skip
                for name, value in more.items():
                    found[name] = found.get(name, 0.0) + value
            for node, value in part.nodes.items():
                nodes[node] = nodes.get(node, 0.0) + value
            for place in part.places:
                key = place.nodes, place.now, place.then
                places[key] = places.get(key, 0.0) + place.value
        return cls(
            difference,
            columns,
            tuple(Place(*key, value) for key, value in places.items()),
            instance_columns,
            members,
            nodes,
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """The distinct configurations of one graph, as rankers are given them.

    Attributes:
        matrix: ``(rows, columns)`` float32.
        columns: their names.
        instances: what they are made of, where they have any.
        walk: from the second configuration that is explained to the first, where nodes are asked for.
    """

    matrix: Matrix
    columns: list[str]
    instances: LazyInstances | None = None
    walk: Walk | None = None

    @classmethod
    def of(cls, graph: GraphRows, walk: Walk | None = None) -> Rows:
        return cls(graph.matrix(), graph.columns, graph.instances, walk)
