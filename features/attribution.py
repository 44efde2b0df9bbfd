"""Walks from one configuration to another, node by node.

Nodes change one by one, in ascending and in descending order. The contribution of a node is the
mean of its two steps; contributions add up to the total change. For a sum over nodes and pairs,
each pair's term is split evenly between its ends, as in the Shapley value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import LayoutGraph
from xlarank.features.block_files import naming_lines
from xlarank.features.candidates import rank_sources, standard_score
from xlarank.features.layout.aggregation import LayoutBlock, compute_together
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.program.tensors import Floats, Ints
from xlarank.features.rows import GraphRows
from xlarank.features.settings import FeatureSettings

Code = TypeVar("Code", bound=np.integer[Any])


@dataclass(frozen=True, eq=False)
class ChangePath:
    """Rows of both walks from one configuration to another.

    Attributes:
        nodes: ``(changed,)`` nodes of the graph that differ.
        matrix: ``(2 * (changed + 1), columns)`` rows, first in the order of ``nodes``, then in the
            reverse order.
    """

    nodes: Ints
    matrix: NDArray[np.float32]

    def by_node(self, values: Floats) -> dict[int, float]:
        """Return the mean step of ``values``, one per row, at each node."""
        return dict(zip(self.nodes.tolist(), walk_steps(values).tolist(), strict=True))


def walk_between(
    graph: LayoutGraph, rows: GraphRows, settings: FeatureSettings, target: int, origin: int
) -> ChangePath:
    """Return the walk from configuration ``origin`` to ``target`` (ids in the file); ``rows`` hold
    all candidates.

    Intermediate configurations are compared with the graph's candidates, but need not be among
    them.
    """
    start, end = graph.table.codes[[origin, target]]
    changed = np.flatnonzero(start != end)
    codes = walk_codes(start, end, changed)
    sources = rank_sources()
    needed = {*rows.config_columns, *(sources.get(name, "") for name in rows.config_columns)}
    blocks = [block for block in settings.blocks("layout") if isinstance(block, LayoutBlock)]
    blocks = [block for block in blocks if not block.columns.keys().isdisjoint(needed)]
    names = [name for block in blocks for name in block.columns]
    context = LayoutContext(graph, settings.tiling, settings.hardware)
    with naming_lines(graph.name, settings.block_files):
        values = compute_together(context, blocks, names, codes)
    computed = dict(zip(names, values.T, strict=True))
    half = len(codes) // 2
    ends = rows.group[[origin, target]]
    columns = []
    for name, candidates in zip(rows.config_columns, rows.config_values.T, strict=True):
        if name in computed:
            columns.append(computed[name])
        elif name in sources:
            stored = rows.config_values[:, rows.config_columns.index(sources[name])]
            is_rank = name.startswith("rank__")
            columns.append(position_among(computed[sources[name]], stored, is_rank))
        else:  # a user's block is computed for candidates only: interpolate
            first, last = candidates[ends].tolist()
            columns.append(np.tile(np.linspace(first, last, half), 2))
    steps = np.stack(columns, axis=1).astype(np.float32)
    # Both ends are candidates: exact values.
    steps[[0, half]], steps[[half - 1, -1]] = rows.config_values[ends]
    constant = np.broadcast_to(rows.graph_values, (len(codes), len(rows.graph_values)))
    return ChangePath(graph.configurable[changed], np.concatenate([constant, steps], axis=1))


def position_among(
    values: NDArray[np.floating[Any]], candidates: NDArray[np.floating[Any]], rank: bool
) -> Floats:
    """Return the rank of each value among candidates, 0 to 1, or its standard score.

    >>> position_among(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 5.0]), True).tolist()
    [0.0, 0.25, 0.5]
    >>> position_among(np.array([3.0, 4.0]), np.array([1.0, 3.0]), False).tolist()
    [1.0, 2.0]
    """
    if not rank:
        return standard_score(values, candidates)
    ordered = np.sort(candidates.astype(np.float64))
    if len(ordered) < 2:
        return np.full(len(values), 0.5)
    margin = 1e-6 * np.maximum(np.abs(values), 1e-30)
    smaller = np.searchsorted(ordered, values - margin)
    ranks = smaller + np.searchsorted(ordered, values + margin, side="right") - 1
    return np.asarray((ranks / 2 / (len(ordered) - 1)).clip(0.0, 1.0))


def walk_steps(values: Floats) -> Floats:
    """Return the mean step at each node, ``(changed,)``, of values along `walk_codes`."""
    half = len(values) // 2
    return np.asarray((np.diff(values[:half]) + np.diff(values[half:])[::-1]) / 2)


def walk_codes(start: NDArray[Code], end: NDArray[Code], nodes: Ints) -> NDArray[Code]:
    """Return the codes of both walks from ``start`` to ``end``, ``(2 * (changed + 1), nodes)``."""
    walks = np.tile(start, (2, len(nodes) + 1, 1))
    for walk, order in zip(walks, (nodes, nodes[::-1]), strict=True):
        for step, node in enumerate(order, 1):
            walk[step:, node] = end[node]
    return walks.reshape(2 * (len(nodes) + 1), len(start))
