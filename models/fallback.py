"""What a ranking falls back on where a kernel is of a kind that nothing was learned of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import MAX_RANK, TILE_SLOTS
from xlarank.features.rows import GraphRows
from xlarank.models.objectives.labels import mean_rank

Floats = NDArray[np.float64]

#: Orders that need no model: the compiler's own choice ahead of all others, which are even; the nearer to it the
#: better; as in the file.
OWN, NEAR, FILE = "the compiler's own choice", "nearness to the compiler's own choice", "the file's order"
ORDERS: Final = (OWN, NEAR, FILE)
#: From one half on the compiler's own choice is first whatever the model says, so more would change nothing.
_WEIGHTS: Final = {OWN: (0.1, 0.2, 0.5), NEAR: (0.1, 0.2, 0.5, 1.0), FILE: (0.1, 0.2, 0.5, 1.0)}
_BOUNDS: Final = tuple(f"bounds__{slot}_{i}__log" for slot, i in product(TILE_SLOTS, range(MAX_RANK)))


@dataclass(frozen=True)
class Fallback:
    """A label-free order, and how much it counts beside the model's; raises `ValueError` for what makes no sense.

    The compiler's own choice is the first configuration of a tile file: so they are written, and so the runtime
    behind ``config_runtime_normalizers`` comes about. It is known before anything runs, as is the file's order.

    Attributes:
        order: one of `ORDERS`.
        weight: 0 for the model alone, 1 for the order alone.
    """

    order: str = OWN
    weight: float = 0.0

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ValueError(f"the fallback is on {self.order!r:.60}")
        if not 0 <= self.weight <= 1:
            raise ValueError(f"the weight of the fallback is {self.weight!r}")

    def __str__(self) -> str:
        return f"weight {self.weight:g} on {self.order}"

    def blend(self, graph: GraphRows, scores: Floats) -> Floats:
        """``(rows,)`` scores of a graph's rows, lower is faster: (1 - weight) * rank + weight * place.

        Ranks are those of ``scores`` within the graph, 0 to 1, ties averaged; places those of `places`. Where the
        compiler's own choice is not among the configurations, or for a weight of 0, the scores stay as they are.
        """
        place = self.places(graph) if self.weight else None
        if place is None:
            return scores
        mixed: Floats = (1 - self.weight) * mean_rank(scores) + self.weight * place
        return mixed

    def places(self, graph: GraphRows) -> Floats | None:
        """``(rows,)`` of the order alone, 0 to 1, lower is better; None where it is not known.

        The distance of two tiles is the sum of |log2(1 + bound) - log2(1 + bound)| over all bounds.
        """
        first = np.flatnonzero(graph.ids == 0)
        if len(first) == 0:
            return None
        own = graph.group[first[0]]
        if self.order == OWN:
            places: Floats = (np.arange(len(graph)) != own).astype(np.float64)
            return places
        if self.order == FILE:
            return mean_rank(first_ids(graph))
        if not set(_BOUNDS) <= set(graph.columns):
            return None
        bounds = graph.matrix(used=np.sort([graph.columns.index(name) for name in _BOUNDS])).astype(np.float64)
        distance: Floats = np.abs(bounds - bounds[own]).sum(axis=1)
        return mean_rank(distance)


#: What a choice is made among.
FALLBACKS: Final = tuple(Fallback(order, weight) for order, weights in _WEIGHTS.items() for weight in weights)


def first_ids(graph: GraphRows) -> Floats:
    """``(rows,)`` the lowest id of the configurations behind each row."""
    found = np.full(len(graph), np.inf)
    np.minimum.at(found, graph.group, graph.ids)
    return found


def learned_kinds(graphs: Sequence[GraphRows]) -> list[str]:
    """Kinds of kernel that are learned from for certain: of graphs that can be of one kind only; sorted."""
    return sorted({graph.kinds[0] for graph in graphs if len(graph.kinds) == 1})


def unseen_kinds(graph: GraphRows, learned: Sequence[str]) -> tuple[str, ...]:
    """Kinds that a kernel may be of and that nothing was learned of for certain.

    Any of them makes the kernel one of a kind never seen: where sizes leave the kind open, the new one is assumed.
    """
    return tuple(kind for kind in graph.kinds if kind not in set(learned))
