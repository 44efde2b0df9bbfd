"""Blocks that all instances of a graph share, and that set each among the candidates."""

from __future__ import annotations

import numpy as np

from xlarank.features.instances.block import InstanceBlock
from xlarank.features.instances.context import InstanceContext
from xlarank.features.instances.pairs import PairCombinations
from xlarank.features.layout.context import LayoutContext
from xlarank.features.program.tensors import Floats, log2p


class InstanceGraph(InstanceBlock):
    """Sizes of the graph that an instance is of."""

    columns = {
        "graph__bytes__log2": "log2 of 1 + bytes of all outputs",
        "graph__nodes__log2": "log2 of 1 + nodes",
        "graph__configurable__log2": "log2 of 1 + configurable nodes",
    }

    def compute(self, context: InstanceContext) -> Floats:
        graph = context.layout.graph
        sizes = np.array([context.layout.bytes.sum(), graph.nodes, len(graph.configurable)], np.float64)
        return np.broadcast_to(log2p(sizes), (len(context), len(self.columns)))


class InstanceRarity(InstanceBlock):
    """How rare an instance is among the graph's candidates.

    The share is that of the configurations for a row, and of the candidates' equal pairs for a combination.
    """

    transductive = True
    columns = {
        "candidates__rarity__log2": "-log2 of the share of the candidates' nodes (pairs) like this that take this "
        "row (combination)",
        "candidates__behind__log2": "log2 of how much more often the most frequent row of the node is taken",
    }

    def compute(self, context: InstanceContext) -> Floats:
        rows, combinations = _of_rows(context.layout), _of_combinations(context.combinations)
        return np.concatenate([rows[context.rows], combinations[context.taken]])


def _of_rows(context: LayoutContext) -> Floats:
    """``(R, 2)`` of `InstanceRarity` for rows; rows that no distinct configuration takes count as one."""
    frequency = np.maximum(context.table.frequency, 1)
    most = np.zeros(context.table.nodes, np.int64)
    np.maximum.at(most, context.table.node, frequency)
    share = np.log2(max(1, context.table.configs) / frequency)
    return np.stack([share, np.log2(most[context.table.node] / frequency)], axis=1)


def _of_combinations(combinations: PairCombinations) -> Floats:
    """``(combinations, 2)`` of `InstanceRarity` for combinations, over equal pairs between equal nodes."""
    frequency = np.maximum(combinations.frequency, 1)
    starts = np.unique(combinations.first)
    group = np.searchsorted(starts, np.arange(combinations.total), side="right") - 1
    taken, most = np.zeros(len(starts)), np.zeros(len(starts))
    np.add.at(taken, group, combinations.frequency)
    np.maximum.at(most, group, frequency)
    share = np.log2(np.maximum(taken[group] / frequency, 1.0)) if len(starts) else np.zeros(0)
    behind = np.log2(most[group] / frequency) if len(starts) else np.zeros(0)
    return np.stack([share, behind], axis=1)
