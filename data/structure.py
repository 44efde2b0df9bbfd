"""Structure of programs: dimensions of their tensors, cycles, levels of nodes."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, NODE_COLUMN

#: Columns of ``node_feat`` with the sizes of the output, and its default layout.
SIZES: Final = slice(
    NODE_COLUMN["shape_dimensions_0"], NODE_COLUMN["shape_dimensions_0"] + MAX_RANK
)
DEFAULT_LAYOUT: Final = slice(NODE_COLUMN["layout_minor_to_major_0"], None)


def tensor_ranks(node_feat: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return ``(nodes,)`` number of dimensions of each node's output.

    The format has no rank column. The last dimension is the last one whose size is above 0 or that
    the default layout names (size 0 is legal in HLO).
    """
    layout = node_feat[:, DEFAULT_LAYOUT]
    positions = np.arange(1, MAX_RANK + 1)
    named = np.where(layout.any(axis=1), layout.max(axis=1) + 1, 0)
    last = ((node_feat[:, SIZES] > 0) * positions).max(axis=1)
    rank: NDArray[np.int64] = np.maximum(last, named).astype(np.int64)
    return rank


def check_layouts(
    node_feat: NDArray[np.float32],
    edges: NDArray[np.int64],
    owner: NDArray[np.int64],
    rows: NDArray[np.int8],
) -> None:
    """Check that layouts name dimensions of their tensors, each once, and are padded at the end.

    ``rows`` are ``(R, 18)`` layouts of the nodes ``owner (R,)``; raises `GraphFileError`.
    """
    rank = tensor_ranks(node_feat)
    operand_rank = np.full(len(rank), -1)
    np.maximum.at(operand_rank, edges[:, 0], rank[edges[:, 1]])
    operand_rank[operand_rank < 0] = MAX_RANK  # unknown for a node without operands
    limits = (rank, operand_rank, operand_rank)
    for index, (slot, limit) in enumerate(zip(LAYOUT_SLOTS, limits, strict=True)):
        layout = rows[:, MAX_RANK * index : MAX_RANK * (index + 1)]
        named = layout >= 0
        ordered = np.sort(layout, axis=1)
        repeats = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any(axis=1)
        gaps = (named[:, 1:] & ~named[:, :-1]).any(axis=1)
        beyond = layout.max(axis=1, initial=-1) >= limit[owner]
        for wrong, problem, expected in (
            (repeats, "names a dimension twice", "every dimension at most once"),
            (gaps, "has -1 before a dimension", "the padding at the end"),
            (beyond, "names a dimension beyond the rank", "dimensions of that tensor"),
        ):
            if wrong.any():
                row = int(wrong.argmax())
                text = ", ".join(str(entry) for entry in layout[row] if entry >= 0)
                got = f"the {slot} layout ({text}) of node {owner[row]} {problem}"
                raise GraphFileError(got, expected=expected)


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
