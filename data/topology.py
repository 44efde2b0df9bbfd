"""Shape of a program graph: cycles, levels from the parameters up, and a hash of its structure."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

#: Below this many nodes whole frontiers are the faster way to levels.
_LARGE: Final = 1000


def has_cycle(edges: NDArray[np.int64], nodes: int) -> bool:
    """Whether edges ``(edges, 2)`` (consumer, operand) hold a cycle."""
    if (edges[:, 0] > edges[:, 1]).all():  # numbered in topological order, as the dataset is
        return False
    return bool((node_levels(edges, nodes) < 0).any())


def node_levels(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """``(nodes,)`` length in edges of the longest path from a node down to one without operands.

    Nodes on or above a cycle get -1.

    >>> node_levels(np.array([[2, 0], [2, 1], [3, 2], [3, 0]]), 4).tolist()
    [0, 0, 1, 2]
    """
    pairs = np.unique(edges[:, 1] * nodes + edges[:, 0])  # by operand; an edge given twice counts once
    operands, consumers = np.divmod(pairs, nodes)
    if nodes > _LARGE and (consumers > operands).all():
        return _in_order(operands, consumers, nodes)
    return _by_frontier(pairs, consumers, nodes)


def _in_order(operands: NDArray[np.int64], consumers: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Levels of a graph numbered in topological order, by Dijkstra's shortest paths.

    An edge u -> v that costs 2 (v - u) - 1 > 0 makes a path of n edges from s to v cost 2 (v - s) - n, so the
    shortest one has the most edges. An extra node before all leads to those without operands.
    """
    first = np.flatnonzero(np.bincount(consumers, minlength=nodes) == 0)
    cost = np.concatenate([2.0 * (consumers - operands) - 1, 2.0 * first + 1])
    ends = np.concatenate([operands, np.full(len(first), nodes)]), np.concatenate([consumers, first])
    graph = sparse.csr_array((cost, ends), shape=(nodes + 1, nodes + 1))
    shortest = dijkstra(graph, indices=np.array([nodes]))[0, :nodes]
    level: NDArray[np.int64] = np.rint(2.0 * np.arange(nodes) + 1 - shortest).astype(np.int64)
    return level


def _by_frontier(pairs: NDArray[np.int64], consumers: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Return levels of any graph: Kahn's algorithm on whole frontiers, one iteration a level."""
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


def structure_hash(opcode: NDArray[np.integer], edges: NDArray[np.integer]) -> int:
    """Return a 64-bit hash of opcodes and edges, equal for one program at other batch sizes.

    Compilers number a program's nodes alike whatever its sizes, so no graphs need to be matched.

    >>> one = structure_hash(np.array([63, 34]), np.array([[1, 0]]))
    >>> one == structure_hash(np.array([63, 34]), np.array([[1, 0]]))
    True
    >>> one == structure_hash(np.array([63, 26]), np.array([[1, 0]]))
    False
    """
    ordered = edges[np.lexsort(edges.T[::-1])] if len(edges) else edges.reshape(0, 2)
    parts = [np.array([len(opcode)]), opcode, ordered.reshape(-1)]
    return int.from_bytes(blake2b(np.concatenate(parts).astype("<i8").tobytes(), digest_size=8).digest(), "little")
