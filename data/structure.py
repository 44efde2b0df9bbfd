"""Which programs are one program at other sizes."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Graph


def structure_hash(opcode: NDArray[np.integer], edges: NDArray[np.integer]) -> int:
    """64 bits of the opcodes in their order and the edges in any: equal for one program at another batch size.

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


def graph_structure(graph: Graph) -> int:
    """`structure_hash` of a graph."""
    return structure_hash(graph.opcode, graph.edges)
