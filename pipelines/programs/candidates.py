"""Configurations of a program, drawn at random or bred from good ones.

A configuration is one code per configurable node, or per group of tied nodes: the index of its
candidate row. Code 0 is the compiler's choice, a row of -1; other rows are permutations of
dimensions, so every configuration is valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import ConfigTable
from xlarank.data.graph import LayoutGraph
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.tied_nodes import groups_of, tied_nodes
from xlarank.pipelines.programs.compiler.constrain import row_of

Codes = NDArray[np.int32]

#: Fractions of the nodes that a random configuration may set.
_ACTIVITY: Final = (0.05, 0.15, 0.3, 0.6, 1.0)
#: Consecutive draws of known configurations, per requested one, that end a search.
_MAX_IDLE: Final = 50
#: Probabilities of crossing two parents and of resetting a changed node; numbers changed.
_CROSSOVER = 0.4
_RESET = 0.15
_CHANGED = (1, 1, 2, 3, 5)


class CandidateLayouts:
    """Candidate rows of each configurable node, or of each group of tied ones.

    Attributes:
        rows: ``(choices, 18)`` of each group, the first one all -1.
        group: ``(configurable nodes,)`` group of each node, -1 if the compiler chooses.
        least: ``(groups,)`` lowest code drawn, 1 if always set; None if nodes are not tied.
        choices: ``(groups,)`` number of candidate rows, the default included.
        free: groups with several candidate rows.
        space: number of possible configurations.
    """

    def __init__(
        self,
        rows: Sequence[NDArray[np.int8]],
        group: NDArray[np.intp] | None = None,
        least: NDArray[np.int64] | None = None,
    ) -> None:
        self.rows = rows
        self.least = least
        self.group = np.arange(len(rows)) if group is None else group
        self.choices = np.array([len(choices) for choices in rows], np.int64)
        self.free = np.flatnonzero(self.choices > 1)
        self.space = math.prod(self.choices.tolist())

    def expand(self, codes: Codes) -> NDArray[np.int8]:
        """Return the rows, ``(configs, nodes, 18)``, as in ``node_config_feat``."""
        start = 1 + np.cumsum(self.choices) - self.choices
        # group -1 is the last column
        at = np.column_stack([codes + start, np.zeros(len(codes), np.int64)])
        candidates = np.concatenate([[row_of(())], *self.rows], dtype=np.int8)
        rows: NDArray[np.int8] = candidates[at[:, self.group]]
        return rows

    def graph(self, graph: LayoutGraph, codes: Codes) -> LayoutGraph:
        """Return the same program with these configurations, unmeasured, as if read from a file."""
        rows = self.expand(codes)
        table = ConfigTable.from_blocks([rows], configs=len(codes), nodes=len(self.group))
        return replace(graph, table=table, runtime=np.zeros(len(codes), np.int64))


def candidate_rows(
    graph: LayoutGraph, rng: np.random.Generator, *, per_node: int = 8, min_elements: int = 1024
) -> CandidateLayouts:
    """Draw candidate rows for every configurable node of ``graph``.

    The compiler's choice comes first, then orders of the output's dimensions: the default order,
    the default order with one dimension made minor-most, and random ones. Operands, whose layouts
    made no difference on a TPU, and outputs of fewer than two dimensions or ``min_elements``
    elements are left to the compiler.
    """
    context = LayoutContext(graph)
    rows = []
    for node, settable in zip(graph.configurable, _settable(context, min_elements), strict=True):
        choices: dict[tuple[int, ...], None] = {(): None}
        if settable:
            default = tuple(context.default_layout[node, : context.rank[node]].tolist())
            for order in _orders(default, rng):
                if len(choices) >= per_node:
                    break
                choices[order] = None
        rows.append(np.array(list(map(row_of, choices)), np.int8))
    return CandidateLayouts(rows)


def tied_candidates(graph: LayoutGraph, *, min_elements: int = 1024) -> CandidateLayouts:
    """Return candidate rows of groups of tied nodes (`tied_nodes`); small outputs have none."""
    context = LayoutContext(graph)
    tied = tied_nodes(context)
    settable = np.flatnonzero(_settable(context, min_elements))
    group = np.full(len(tied), -1, np.intp)
    group[settable] = groups_of([tied[at] for at in settable])
    _, first = np.unique(group[settable], return_index=True)
    nodes = [tied[at] for at in settable[first]]
    rows = []
    least = []
    for node in nodes:
        orders = dict.fromkeys([(), *node.orders])
        rows.append(np.array(list(map(row_of, orders)), np.int8))
        least.append(0 if node.optional else min(1, len(orders) - 1))
    return CandidateLayouts(rows, group, np.array(least, np.int64))


def _settable(context: LayoutContext, min_elements: int) -> NDArray[np.bool_]:
    """Return whether each output is large and has an order, ``(configurable nodes,)``."""
    large = context.column("shape_dimensions_product") >= min_elements
    return (large & (context.rank > 1))[context.graph.configurable]


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
    """Return up to ``count`` distinct codes ``(configs, groups)``, the compiler's choice first.

    Each configuration draws from `_ACTIVITY` the share of nodes that it sets, then their rows;
    groups of tied nodes draw a code from ``least`` on, as in Google's random collections.
    """

    def draw() -> NDArray[np.int32]:
        code = np.zeros(len(candidates.rows), np.int32)
        if candidates.least is not None:
            code[:] = rng.integers(candidates.least, candidates.choices)
        elif len(candidates.free):
            active = candidates.free[rng.random(len(candidates.free)) < rng.choice(_ACTIVITY)]
            code[active] = rng.integers(1, candidates.choices[active])
        return code

    default = np.zeros((1, len(candidates.rows)), np.int32)
    return _collect(default, min(count, candidates.space), draw)


def breed(
    candidates: CandidateLayouts,
    parents: Codes,
    count: int,
    rng: np.random.Generator,
    *,
    known: Codes | None = None,
) -> Codes:
    """Return up to ``count`` new codes ``(configs, groups)`` bred from ``parents``, not ``known``.

    A child copies a parent or crosses two; then one to five nodes take a random row or are reset.
    """
    old = np.unique(parents if known is None else np.concatenate([parents, known]), axis=0)

    def child() -> NDArray[np.int32]:
        code: NDArray[np.int32] = parents[rng.integers(len(parents))].copy()
        if rng.random() < _CROSSOVER:
            partner = parents[rng.integers(len(parents))]
            code = np.where(rng.random(len(candidates.rows)) < 0.5, code, partner)
        if len(free := candidates.free):
            changed = rng.choice(free, min(len(free), int(rng.choice(_CHANGED))), replace=False)
            reset = rng.random(len(changed)) < _RESET
            code[changed] = np.where(reset, 0, rng.integers(candidates.choices[changed]))
        return code

    return _collect(old, len(old) + count, child)[len(old) :]


def evolve(
    candidates: CandidateLayouts,
    score: Callable[[Codes], NDArray[np.floating]],
    count: int,
    rng: np.random.Generator,
    *,
    population: int,
    generations: int,
) -> Codes:
    """Return up to ``count`` distinct codes ``(configs, groups)``: the default, then the best.

    A genetic search: the population starts as neighbours of the compiler's choice, and its best
    quarter breeds in every generation. Scores are compared only within one call of ``score``, so it
    may return ranks.
    """
    population = max(population, count)
    default = np.zeros((1, len(candidates.rows)), np.int32)
    survivors = np.concatenate([default, breed(candidates, default, population - 1, rng)])
    survivors = survivors[np.argsort(score(survivors), kind="stable")]
    evaluated = survivors
    for _ in range(generations):
        parents = survivors[: max(2, len(survivors) // 4)]
        children = breed(candidates, parents, population, rng, known=evaluated)
        if not len(children):
            break
        evaluated = np.concatenate([evaluated, children])
        pool = np.concatenate([survivors, children])
        survivors = pool[np.argsort(score(pool), kind="stable")[:population]]
    return np.concatenate([default, survivors[survivors.any(axis=1)]])[:count]


def _collect(first: Codes, count: int, draw: Callable[[], NDArray[np.int32]]) -> Codes:
    """Return the distinct rows of ``first`` and of draws, up to ``count``, fewer if few are new."""
    distinct = {code.tobytes(): code for code in first}
    idle = 0
    while len(distinct) < count and idle < _MAX_IDLE * max(10, count - len(first)):
        code = draw()
        idle = idle + 1 if code.tobytes() in distinct else 0
        distinct[code.tobytes()] = code
    return np.array([*distinct.values()])
