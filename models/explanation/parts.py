"""Parts of the difference between two scores.

Parts are exact TreeSHAP contributions of columns (Lundberg et al. 2018, *Consistent Individualized Feature
Attribution for Tree Ensembles*), or differences of instance scores if a score is the sum of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Place:
    """Contribution of a node, or of a pair of nodes that share a tensor, to the difference.

    Attributes:
        nodes: number of the node; for a pair, of consumer and producer, or of one reader and the next.
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
        """Sum the parts, scaled by ``factor``, and merge equal places."""
        parts = list(parts)
        places = sum_by_key(({(p.nodes, p.now, p.then): p.value} for part in parts for p in part.places), factor)
        return cls(
            sum(part.difference * factor for part in parts),
            sum_by_key((part.columns for part in parts), factor),
            tuple(Place(*key, value) for key, value in places.items()),
            sum_by_key((part.instance_columns for part in parts), factor),
            sum_by_key((part.members for part in parts), factor),
            sum_by_key((part.nodes for part in parts), factor),
        )


def sum_by_key(mappings: Iterable[Mapping[_Key, float]], factor: float = 1.0) -> dict[_Key, float]:
    """Sum the values by key, multiplied by ``factor``."""
    total: dict[_Key, float] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            total[key] = total.get(key, 0.0) + value * factor
    return total
