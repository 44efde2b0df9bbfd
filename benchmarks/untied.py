"""Random layouts of each node on its own, without ties, for fixtures and simulated labels."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import LayoutGraph
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.pipelines.programs.candidates import (
    CandidateLayouts,
    Codes,
    distinct_codes,
    row_of,
    settable,
)

#: Fractions of the nodes that a random configuration may set.
_ACTIVITY: Final = (0.05, 0.15, 0.3, 0.6, 1.0)


def candidate_rows(
    graph: LayoutGraph, rng: np.random.Generator, *, per_node: int = 8
) -> CandidateLayouts:
    """Draw candidate rows for every configurable node of ``graph``.

    The compiler's choice comes first, then orders of the output's dimensions: the default order,
    the default order with one dimension made minor-most, and random ones. Small outputs are left to
    the compiler.
    """
    context = LayoutContext(graph)
    rows = []
    for node, is_settable in zip(graph.configurable, settable(context), strict=True):
        choices: dict[tuple[int, ...], None] = {(): None}
        if is_settable:
            default = tuple(context.default_layout[node, : context.rank[node]].tolist())
            for order in _orders(default, rng):
                if len(choices) >= per_node:
                    break
                choices[order] = None
        rows.append(np.array(list(map(row_of, choices)), np.int8))
    nodes = np.arange(len(rows))
    return CandidateLayouts(rows, nodes, np.zeros(len(rows), np.int64))


def _orders(default: tuple[int, ...], rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    """Yield the default order, those with another dimension minor-most, then all, shuffled."""
    yield default
    for dimension in rng.permutation(len(default)).tolist():
        yield (dimension, *(other for other in default if other != dimension))
    orders = list(permutations(range(len(default))))  # at most 6! = 720
    for at in rng.permutation(len(orders)).tolist():
        yield orders[at]


def random_configurations(
    candidates: CandidateLayouts, count: int, rng: np.random.Generator
) -> Codes:
    """Return up to ``count`` distinct codes ``(configs, nodes)``, the compiler's choice first.

    Each configuration draws from `_ACTIVITY` the share of nodes that it sets, then their rows.
    """

    def draw() -> NDArray[np.int32]:
        code = np.zeros(len(candidates.rows), np.int32)
        if len(candidates.free):
            active = candidates.free[rng.random(len(candidates.free)) < rng.choice(_ACTIVITY)]
            code[active] = rng.integers(1, candidates.choices[active])
        return code

    return distinct_codes(candidates, count, draw)
