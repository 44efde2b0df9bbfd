"""Cycles of a compiled program, handed to the nodes of the graph whose layouts a configuration sets.

An operation stands for one node (`xlarank.data.hlo.compiler.node_marks`); a fusion for one of those in it. Where
that is no configurable node, its cycles are shared equally by the configurable nodes that are nearest to it, edges
taken either way: the layout of a copy or of an elementwise fusion is decided by them. What no node is told of, or
no edge leads to, stays with none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.compiler.cycle_table import CycleTable


@dataclass(frozen=True, eq=False)
class NodeCycles:
    """Cycles by program and configurable node.

    Attributes:
        program: ``(configs,)`` which program a configuration became.
        cycles: ``(programs, configurable nodes)``.
        own: ``(programs,)`` those of operations that stand for a configurable node themselves.
        unattributed: ``(programs,)`` those that stay with none.
    """

    program: NDArray[np.int64]
    cycles: NDArray[np.float64]
    own: NDArray[np.float64]
    unattributed: NDArray[np.float64]


def node_cycles(graph: LayoutGraph, table: CycleTable) -> NodeCycles:
    """Hand the cycles of each program of a file to the configurable nodes of its graph."""
    share = nearest_configurable(graph)
    configurable = np.zeros(graph.nodes, bool)
    configurable[graph.configurable] = True
    by_node = np.zeros((len(table.estimates), graph.nodes))
    unknown = np.zeros(len(table.estimates))
    for at, estimate in enumerate(table.estimates):
        for one in estimate.operations:
            if 0 <= one.node < graph.nodes:
                by_node[at, one.node] += one.cycles
            else:
                unknown[at] += one.cycles
    cycles = np.asarray(by_node @ share)
    total = by_node.sum(axis=1)
    return NodeCycles(
        table.program, cycles, by_node[:, configurable].sum(axis=1), unknown + total - cycles.sum(axis=1)
    )


def nearest_configurable(graph: LayoutGraph) -> sparse.csr_array:
    """``(nodes, configurable nodes)`` share of a node's cycles that each configurable node answers for.

    Rows sum to 1, or to 0 where no edges lead to a configurable node.
    """
    ends = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    ones = np.ones(len(ends))
    step = sparse.csr_array((ones, (ends[:, 0], ends[:, 1])), shape=(graph.nodes, graph.nodes))
    nodes = len(graph.configurable)
    reached = np.zeros((graph.nodes, nodes), bool)
    reached[graph.configurable, np.arange(nodes)] = True
    settled = np.logical_or.reduce(reached, axis=1)
    while True:
        fresh = (np.asarray(step @ reached.astype(np.float64)) > 0) & ~settled[:, None]
        found = fresh.any(axis=1)
        if not found.any():
            break
        reached |= fresh
        settled |= found
    counts = reached.sum(axis=1, keepdims=True)
    return sparse.csr_array(reached / np.maximum(counts, 1))
