"""What a ranking falls back on for kernels of a kind that was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats
from xlarank.models.objectives import mean_rank

#: From one half on the compiler's default is first whatever the model says.
WEIGHT: Final = 0.5


@dataclass(frozen=True)
class Fallback:
    """The compiler's default ahead of all other configurations, by a weight from 0 (the model alone) to 1.

    It is the first configuration of a tile file, known before anything runs. `ValueError` for another weight.
    """

    weight: float = WEIGHT

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ValueError(f"the weight of the fallback is {self.weight!r}")

    def __str__(self) -> str:
        return f"weight {self.weight:g} on the compiler's default"

    def blend(self, graph: GraphRows, scores: Floats) -> Floats:
        """``(rows,)`` scores of a graph's rows, lower is faster: (1 - weight) * rank + weight * place.

        Ranks are `mean_rank` of the scores. Without the compiler's default, or a weight, the scores stay.
        """
        place = self.places(graph) if self.weight else None
        if place is None:
            return scores
        return (1 - self.weight) * mean_rank(scores) + self.weight * place

    def places(self, graph: GraphRows) -> Floats | None:
        """``(rows,)`` 0 for the compiler's default and 1 for the others; None where it is not among them."""
        first = np.flatnonzero(graph.ids == 0)
        return (np.arange(len(graph)) != graph.group[first[0]]).astype(np.float64) if len(first) else None


def learned_kinds(graphs: Sequence[GraphRows]) -> list[str]:
    """Kinds of kernel that are certainly trained on, of graphs that can be of one kind only; sorted."""
    return sorted({graph.kinds[0] for graph in graphs if len(graph.kinds) == 1})


def unseen_kinds(graph: GraphRows, learned: Sequence[str]) -> tuple[str, ...]:
    """Kinds that a kernel may be of and that are not certainly trained on.

    Any of them makes the kernel one of an unseen kind: where sizes leave the kind open, the new one is assumed.
    """
    return tuple(kind for kind in graph.kinds if kind not in set(learned))
