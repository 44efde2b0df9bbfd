"""Structure of a program: cycles, levels of nodes, a hash."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def has_cycle(edges: NDArray[np.int64], nodes: int) -> bool:
    """Return whether edges ``(edges, 2)`` (consumer, operand) contain a cycle."""
    if (edges[:, 0] > edges[:, 1]).all():  # numbered in topological order, as the dataset is
        return False
    return bool((node_levels(edges, nodes) < 0).any())


def node_levels(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Return ``(nodes,)`` length of the longest path from each node to one without operands.

    Nodes on a cycle, and nodes that depend on one, get -1.

    >>> node_levels(np.array([[2, 0], [2, 1], [3, 2], [3, 0]]), 4).tolist()
    [0, 0, 1, 2]
    """
    users: list[list[int]] = [[] for _ in range(nodes)]
    for consumer, operand in edges.tolist():
        users[operand].append(consumer)
    pending = np.bincount(edges[:, 0], minlength=nodes).tolist()
    level = [-1 if pending[node] else 0 for node in range(nodes)]
    finished = [node for node in range(nodes) if not pending[node]]
    # Kahn's algorithm; nodes finish in order of level, so a node's last operand is its deepest
    for node in finished:
        for user in users[node]:
            pending[user] -= 1
            if not pending[user]:
                level[user] = level[node] + 1
                finished.append(user)
    return np.array(level, np.int64)


def structure_hash(opcode: NDArray[np.integer], edges: NDArray[np.integer]) -> int:
    """Return a 64-bit hash of opcodes and edges, equal for one program at different batch sizes.

    Compilers number a program's nodes independently of its sizes, so no graph matching is needed.
    """
    ordered = edges[np.lexsort(edges.T[::-1])] if len(edges) else edges.reshape(0, 2)
    parts = [np.array([len(opcode)]), opcode, ordered.reshape(-1)]
    numbers = np.concatenate(parts).astype("<i8")
    return int.from_bytes(blake2b(numbers.tobytes(), digest_size=8).digest(), "little")
