"""Which nodes a column's change comes from, where one configuration becomes another.

From one configuration to another the nodes change one by one, in the order of their numbers and in the reverse
order; a node's share of a column is the mean of its two steps. Steps of a walk add up to the whole change, whatever
the column. For a column that is a sum over nodes a step is the node's own term, and for one that is a sum over
nodes and pairs the mean of a walk and its reverse deals a pair's term evenly to both ends, as the Shapley value
does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import LayoutGraph
from xlarank.features.layout.block import LayoutBlock, compute_together
from xlarank.features.layout.candidates import placed_columns
from xlarank.features.layout.context import LayoutContext
from xlarank.features.program.tensors import Floats, Ints
from xlarank.features.recipe import FeatureSettings

Code = TypeVar("Code", bound=np.integer[Any])


@dataclass(frozen=True, eq=False)
class NodeChanges:
    """What each changed node adds to the change of each column.

    Attributes:
        nodes: ``(changed,)`` places among the configurable nodes where the configurations differ, ascending.
        columns: names of the columns that can be followed.
        steps: ``(columns, changed)``; a row adds up to the column's change.
    """

    nodes: Ints
    columns: list[str]
    steps: Floats

    def shares(self, most_cancelled: float = 0.5) -> dict[str, Floats]:
        """Column -> ``(changed,)`` shares of its change that add up to 1.

        Left out are columns that do not change, and those whose steps cancel for more than ``most_cancelled`` of
        their size: a share of what is left of a cancellation says little.
        """
        total = self.steps.sum(axis=1)
        size = np.abs(self.steps).sum(axis=1)
        noise = 1e-6 * np.maximum(size, 1e-30)
        clear = (np.abs(total) > noise) & (np.abs(total) >= (1 - most_cancelled) * size)
        return {self.columns[i]: self.steps[i] / total[i] for i in np.flatnonzero(clear)}


def node_changes(graph: LayoutGraph, settings: FeatureSettings, now: int, then: int) -> NodeChanges:
    """Follow the columns of configuration ``then`` to those of ``now`` (ids in the file), node by node.

    The columns that place a configuration among the graph's candidates are followed through the columns that they
    place; how common a row is is counted among the graph's own candidates.
    """
    table = graph.table
    start, end = table.codes[then], table.codes[now]
    nodes = np.flatnonzero(start != end)
    context = LayoutContext(graph, settings.tiling)
    blocks: list[tuple[LayoutBlock, int]] = []
    columns: list[str] = []
    for block in settings.blocks("layout"):
        if isinstance(block, LayoutBlock):
            blocks.append((block, len(columns)))
            columns += block.columns
    walk = walk_codes(start, end, nodes)
    found = np.zeros((len(columns), len(walk)), np.float32).T
    compute_together(context, blocks, found, walk)
    values = found.astype(np.float64)
    steps = walk_steps(values).T
    place = {name: number for number, name in enumerate(columns)}
    placed = {name: place[of] for name, of in placed_columns().items() if of in place}
    return NodeChanges(nodes, [*columns, *placed], np.concatenate([steps, steps[list(placed.values())]]))


def walk_steps(values: Floats) -> Floats:
    """``(changed, n)`` mean step at each node, from values ``(2 * (changed + 1), n)`` along `walk_codes`."""
    half = len(values) // 2
    forward, backward = np.diff(values[:half], axis=0), np.diff(values[half:], axis=0)[::-1]
    mean: Floats = (forward + backward) / 2
    return mean


def walk_codes(start: NDArray[Code], end: NDArray[Code], nodes: Ints) -> NDArray[Code]:
    """Codes on both ways from ``start`` to ``end``, ``(2 * (changed + 1), nodes)``."""
    ways = []
    for order in (nodes, nodes[::-1]):
        way = np.tile(start, (len(order) + 1, 1))
        for step, node in enumerate(order, 1):
            way[step:, node] = end[node]
        ways.append(way)
    return np.concatenate(ways)
