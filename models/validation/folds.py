"""Folds of graphs, and the fallback for unseen kernel families."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats
from xlarank.models.objectives import mean_rank


def family_folds(families: Sequence[str], most: int) -> list[list[int]]:
    """Return the groups held out by each fold: whole families, in at most ``most`` folds of even size.

    A single family gives no folds.

    >>> family_folds(["a", "b", "a", "c"], most=10)
    [[0, 2], [1], [3]]
    >>> family_folds(["a", "b", "a", "c"], most=2)
    [[0, 2], [1, 3]]
    >>> family_folds(["a", "a"], most=5)
    []
    """
    sizes = Counter(families)
    if len(sizes) < 2:
        return []
    folds: list[list[str]] = [[] for _ in range(min(most, len(sizes)))]
    load = [0] * len(folds)
    for family, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        lightest = load.index(min(load))
        folds[lightest].append(family)
        load[lightest] += size
    return [[i for i, family in enumerate(families) if family in held] for held in folds]


def graph_folds(families: Sequence[str], most: int) -> list[list[int]]:
    """Return the graphs held out by each fold; other graphs of their families stay in training.

    Members of a family are spread over at most ``most`` folds of even size. A graph alone in its family is in no
    fold.

    >>> graph_folds(["a", "b", "a", "c", "b"], most=10)
    [[0], [2], [1], [4]]
    >>> graph_folds(["a", "b", "a", "c", "b"], most=2)
    [[0, 1], [2, 4]]
    >>> graph_folds(["a", "b"], most=5)
    []
    """
    sizes = Counter(families)
    related = [i for i, family in enumerate(families) if sizes[family] > 1]
    related.sort(key=lambda i: families[i])
    return [related[start::most] for start in range(min(most, len(related)))]


class Fold(NamedTuple):
    """Groups ``scored`` by a ranker that is trained without the groups ``held`` out."""

    scored: list[int]
    held: list[int]


def whole_folds(held: Sequence[Sequence[int]]) -> list[Fold]:
    """Return folds that score all the groups they hold out."""
    return [Fold([*groups], [*groups]) for groups in held]


def kind_folds(kinds: Sequence[Sequence[str]], most: int | None = None) -> list[Fold]:
    """Return folds that hold out kernels together with all others possibly of their family.

    ``kinds`` are the possible families of each kernel; kernels with the same ones are scored together. Kernels of
    unknown family, and folds without training data, are omitted. Until at most ``most`` folds are left, the two
    that hold out the fewest graphs together are merged.

    >>> kind_folds([["dot"], ["reduce"], ["dot", "dot transposed"], ["dot transposed"]])
    [Fold(scored=[0], held=[0, 2]), Fold(scored=[2], held=[0, 2, 3]), \
Fold(scored=[3], held=[2, 3]), Fold(scored=[1], held=[1])]
    >>> kind_folds([["dot"], ["reduce"], ["slice"]], most=2)
    [Fold(scored=[0, 1], held=[0, 1]), Fold(scored=[2], held=[2])]
    """
    folds = []
    for together in sorted({tuple(sorted(possible)) for possible in kinds if possible}):
        scored = [i for i, possible in enumerate(kinds) if tuple(sorted(possible)) == together]
        held = [i for i, possible in enumerate(kinds) if set(possible) & set(together)]
        if len(held) < len(kinds):
            folds.append(Fold(scored, held))
    return folds if most is None else _merged(folds, most, len(kinds))


def _merged(folds: list[Fold], most: int, graphs: int) -> list[Fold]:
    merged = [(set(fold.scored), set(fold.held)) for fold in folds]
    while len(merged) > most:
        pairs = combinations(range(len(merged)), 2)
        held, a, b = min((len(merged[a][1] | merged[b][1]), a, b) for a, b in pairs)
        if held == graphs:
            break
        scored, out = merged.pop(b)
        merged[a] = (merged[a][0] | scored, merged[a][1] | out)
    return [Fold(sorted(scored), sorted(out)) for scored, out in merged]


@dataclass(frozen=True)
class Fallback:
    """Blend of a model's ranks with the compiler's default, the first configuration of a tile file.

    Attributes:
        weight: weight of the default from 0 (model only) to 1; from 0.5 on, the default always ranks first.
    """

    weight: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= 1:
            raise ValueError(f"the weight of the fallback is {self.weight!r}")

    def __str__(self) -> str:
        return f"weight {self.weight:g} on the compiler's default"

    def blend(self, graph: GraphRows, scores: Floats) -> Floats:
        """Return ``(rows,)`` scores; unchanged if the graph lacks the compiler's default or the weight is 0."""
        default = self.places(graph) if self.weight else None
        return scores if default is None else (1 - self.weight) * mean_rank(scores) + self.weight * default

    def places(self, graph: GraphRows) -> Floats | None:
        """Return ``(rows,)`` 0 for the compiler's default and 1 for the others; None if the graph lacks it."""
        first = np.flatnonzero(graph.ids == 0)
        return (np.arange(len(graph)) != graph.group[first[0]]).astype(np.float64) if len(first) else None


def learned_kinds(graphs: Sequence[GraphRows]) -> list[str]:
    """Return the families known to be trained on, sorted: those of kernels with one possible family."""
    return sorted({graph.kinds[0] for graph in graphs if len(graph.kinds) == 1})


def unseen_kinds(graph: GraphRows, learned: Sequence[str]) -> tuple[str, ...]:
    """Return the kernel's possible families not known to be trained on; with any, the kernel counts as unseen."""
    return tuple(kind for kind in graph.kinds if kind not in set(learned))
