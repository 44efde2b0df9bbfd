"""Random configurations of a program.

A configuration is one code per group of tied configurable nodes: the index of its candidate row.
Code 0 is the compiler's choice, a row of -1; other rows are permutations of dimensions, so every
configuration is valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import ConfigTable
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import LayoutGraph
from xlarank.data.schema import LAYOUT_COLUMNS
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.tied_nodes import groups_of, tied_nodes

Codes = NDArray[np.int32]

#: Outputs with fewer elements are left to the compiler.
MIN_ELEMENTS: Final = 1024
#: Consecutive draws of known configurations, per requested one, that end a search.
_MAX_IDLE: Final = 50


class CandidateLayouts:
    """Candidate rows of each group of tied configurable nodes.

    Attributes:
        rows: ``(choices, 18)`` of each group, the first one all -1.
        group: ``(configurable nodes,)`` group of each node, -1 if the compiler chooses.
        least: ``(groups,)`` lowest code drawn, 1 if always set.
        choices: ``(groups,)`` number of candidate rows, the default included.
        free: groups with several candidate rows.
        space: number of configurations that can be drawn, and the compiler's choice.
    """

    def __init__(
        self, rows: Sequence[NDArray[np.int8]], group: NDArray[np.intp], least: NDArray[np.int64]
    ) -> None:
        self.rows = rows
        self.group = group
        self.least = least
        self.choices = np.array([len(choices) for choices in rows], np.int64)
        self.free = np.flatnonzero(self.choices > 1)
        self.space = math.prod((self.choices - least).tolist()) + bool(least.any())

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


def tied_candidates(graph: LayoutGraph) -> CandidateLayouts:
    """Return candidate rows of groups of tied nodes (`tied_nodes`); small outputs have none."""
    context = LayoutContext(graph)
    tied = tied_nodes(context)
    nodes = np.flatnonzero(settable(context))
    group = np.full(len(tied), -1, np.intp)
    group[nodes] = groups_of([tied[at] for at in nodes])
    _, first = np.unique(group[nodes], return_index=True)
    rows = []
    least = []
    for node in [tied[at] for at in nodes[first]]:
        orders = dict.fromkeys([(), *node.orders])
        rows.append(np.array(list(map(row_of, orders)), np.int8))
        # Google's random configurations may leave reshapes to the compiler
        opcode = node.signature[0]
        least.append(0 if opcode == "reshape" else min(1, len(orders) - 1))
    return CandidateLayouts(rows, group, np.array(least, np.int64))


def settable(context: LayoutContext) -> NDArray[np.bool_]:
    """Return whether each output is large and has an order, ``(configurable nodes,)``."""
    large = context.column("shape_dimensions_product") >= MIN_ELEMENTS
    return (large & (context.rank > 1))[context.graph.configurable]


def random_configurations(
    candidates: CandidateLayouts, count: int, rng: np.random.Generator
) -> Codes:
    """Return up to ``count`` distinct codes ``(configs, groups)``, the compiler's choice first.

    Each group draws a code from ``least`` on, as in Google's random collections. Raises
    `GraphFileError` if there is nothing to draw.
    """
    if not len(candidates.free):
        got = f"none of {len(candidates.group)} configurable nodes has a choice of layouts"
        expected = f"a convolution, dot or reshape with {MIN_ELEMENTS} elements in 2 dimensions"
        raise GraphFileError(got, expected=expected)

    def draw() -> NDArray[np.int32]:
        return rng.integers(candidates.least, candidates.choices).astype(np.int32)

    return distinct_codes(candidates, count, draw)


def distinct_codes(
    candidates: CandidateLayouts, count: int, draw: Callable[[], NDArray[np.int32]]
) -> Codes:
    """Return the compiler's choice and distinct draws, up to ``count``, fewer if few are new."""
    count = min(count, candidates.space)
    default = np.zeros(len(candidates.rows), np.int32)
    distinct = {default.tobytes(): default}
    idle = 0
    while len(distinct) < count and idle < _MAX_IDLE * max(10, count):
        code = draw()
        idle = idle + 1 if code.tobytes() in distinct else 0
        distinct[code.tobytes()] = code
    return np.array([*distinct.values()])


def row_of(order: Sequence[int]) -> list[int]:
    """Return the row of 18 entries that sets an order of the output; empty: sets nothing."""
    return [*order, *[-1] * (len(LAYOUT_COLUMNS) - len(order))]
