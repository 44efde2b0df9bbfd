"""Which tensor each slot of a configurable node lays out.

The output slot is the node's own output. The input and kernel slots lay out its first and second
operand, but the dataset's edge list does not keep the operand order (real convolutions list the kernel
first about half the time), so it is inferred from shapes and, last, from the order of the edges.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import ConfigTable
from xlarank.data.schema import MAX_RANK, OPCODE
from xlarank.features.program.node_facts import ProgramFacts
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Ints

#: What one piece of evidence weighs: a layout that names a dimension the operand lacks outweighs shapes.
_RANK_FITS, _SHAPE_FITS = 4.0, 1.0
_DOT = OPCODE_CLASSES.index("dot")


def slot_tensors(facts: ProgramFacts, nodes: Ints, table: ConfigTable | None = None) -> Ints:
    """``(nodes, 3)`` node ids of the output, input and kernel tensors; -1 for none.

    With the ``table`` of these nodes, its layouts are evidence too.
    """
    first, second = _two_operands(facts.graph.edges, nodes, facts.rank)
    named = np.zeros((len(nodes), 2), np.int64) if table is None else _ranks_named(table)
    straight = _fit(facts, nodes, first, second, named)
    swapped = _fit(facts, nodes, second, first, named)
    swap = (second >= 0) & (swapped > straight)
    # x * x has one edge for two operands
    twice = facts.opcode_class[nodes] == _DOT if table is None else named[:, 1] > 0
    second = np.where((second < 0) & twice, first, second)
    return np.stack([nodes, np.where(swap, second, first), np.where(swap, first, second)], axis=1)


def _two_operands(edges: Ints, nodes: Ints, rank: Ints) -> tuple[Ints, Ints]:
    """The first two operands of each node in the order of the edges; -1 for none.

    A scalar comes last: it has no layout, and a reduction's initial value often stands first.
    """
    order = np.lexsort((rank[edges[:, 1]] == 0, edges[:, 0]))
    consumer, operand = edges[order, 0], np.append(edges[order, 1], -1)
    at = np.searchsorted(consumer, nodes)
    count = np.searchsorted(consumer, nodes, side="right") - at
    first = np.where(count > 0, operand[np.minimum(at, len(consumer))], -1)
    second = np.where(count > 1, operand[np.minimum(at + 1, len(consumer))], -1)
    return first, second


def _ranks_named(table: ConfigTable) -> Ints:
    """``(configurable nodes, 2)`` the rank that the layouts of the input and kernel slots ask for."""
    named = np.zeros((table.nodes, 2), np.int64)
    for number in (0, 1):
        slot = table.rows[:, MAX_RANK * (number + 1) : MAX_RANK * (number + 2)]
        np.maximum.at(named[:, number], table.node, slot.max(axis=1, initial=-1) + 1)
    return named


def _fit(facts: ProgramFacts, node: Ints, input_: Ints, kernel: Ints, named: Ints) -> NDArray[np.float64]:
    """How well a pair of operands suits the input and kernel slots."""
    fits = _RANK_FITS * ((facts.rank[input_] >= named[:, 0]).astype(float) + (facts.rank[kernel] >= named[:, 1]))
    opcode = facts.graph.opcode[node]
    convolution = opcode == OPCODE["convolution"]
    fits[convolution] += _SHAPE_FITS * _is_kernel(facts, node, kernel)[convolution]
    dot = opcode == OPCODE["dot"]
    fits[dot] += _SHAPE_FITS * _dot_order(facts, node, input_, kernel)[dot]
    return fits


def _is_kernel(facts: ProgramFacts, node: Ints, tensor: Ints) -> NDArray[np.bool_]:
    """A convolution's kernel has the window's size and the output's features in the named dimensions."""
    dims = facts.dims[tensor]
    rows = np.arange(len(node))
    spatial = facts.column("convolution_dim_numbers_kernel_spatial_dims_0", 4)[node].astype(np.int64)
    window = facts.column("window_size_0", 4)[node]
    used = np.arange(4) < (facts.rank[node] - 2)[:, None]
    same_window = ((dims[rows[:, None], spatial] == window) | ~used).all(axis=1)
    features = facts.column("convolution_dim_numbers_kernel_output_feature_dim")[node].astype(np.int64)
    produced = facts.column("convolution_dim_numbers_output_feature_dim")[node].astype(np.int64)
    same: NDArray[np.bool_] = same_window & (dims[rows, features] == facts.dims[node][rows, produced])
    return same


def _dot_order(facts: ProgramFacts, node: Ints, left: Ints, right: Ints) -> NDArray[np.float64]:
    """A dot's output lists the dimensions of the left operand before those of the right one."""
    dims, rank = facts.dims[node], facts.rank[node]
    rows = np.arange(len(node))
    last = dims[rows, np.maximum(rank - 1, 0)][:, None]
    before = dims[rows, np.maximum(rank - 2, 0)][:, None]
    has_last = (facts.dims[right] == last).any(axis=1)
    has_before = (facts.dims[left] == before).any(axis=1) & (facts.dims[left] == dims[:, :1]).any(axis=1)
    return np.where(rank > 0, has_last.astype(float) + has_before, 0.0)
