"""Order of a program graph: levels from the parameters up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def has_cycle(edges: NDArray[np.int64], nodes: int) -> bool:
    """Whether edges ``(edges, 2)`` (consumer, operand) hold a cycle."""
    if (edges[:, 0] > edges[:, 1]).all():  # numbered in topological order, as the dataset is
        return False
    return bool((node_levels(edges, nodes) < 0).any())


def node_levels(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """``(nodes,)`` length in edges of the longest path from a node down to one without operands.

    Nodes on or above a cycle get -1. Works level by level (Kahn's algorithm on whole frontiers), so
    the loop runs as often as the graph is deep.

    >>> node_levels(np.array([[2, 0], [2, 1], [3, 2], [3, 0]]), 4).tolist()
    [0, 0, 1, 2]
    """
    pairs = np.unique(edges[:, 1] * nodes + edges[:, 0])  # by operand; an edge given twice counts once
    consumers = pairs % nodes
    first = np.searchsorted(pairs // nodes, np.arange(nodes + 1))
    missing = np.bincount(consumers, minlength=nodes)
    level = np.full(nodes, -1, np.int64)
    frontier = np.flatnonzero(missing == 0)
    depth = 0
    while len(frontier):
        level[frontier] = depth
        depth += 1
        if len(frontier) == 1:  # deep programs are mostly chains: their consumers need no merging
            at = frontier[0]
            reached = consumers[first[at] : first[at + 1]]
            missing[reached] -= 1
            frontier = reached[missing[reached] == 0]
            continue
        sizes = first[frontier + 1] - first[frontier]
        ends = np.cumsum(sizes)
        offsets = np.arange(ends[-1]) - np.repeat(ends - sizes, sizes)
        reached = consumers[np.repeat(first[frontier], sizes) + offsets]
        np.subtract.at(missing, reached, 1)
        frontier = np.unique(reached[missing[reached] == 0])
    return level
