"""Pairs of configurable nodes that hand one tensor on: who wishes which layout for it.

A pair is an operand slot of a consumer and the output slot of a producer, one to three edges below,
whose tensors have one shape, so that their layouts can be compared. As with nodes, a pair takes only
few distinct combinations of rows, so everything is computed per combination and gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import sparse

from data.config_table import code_counts
from features.tensors import Floats, Ints

if TYPE_CHECKING:
    from features.layout import LayoutContext

HOPS: Final = 3
OPERAND_SLOTS: Final = ("input", "kernel")
_PIECE: Final = 1 << 20


@dataclass(frozen=True)
class Pairs:
    """Pairs a number of hops apart; arrays are ``(pairs,)``.

    Attributes:
        consumer, producer: places among the configurable nodes.
        slot: index into `OPERAND_SLOTS`.
        bytes: size of the tensor that is handed on.
    """

    consumer: Ints
    producer: Ints
    slot: Ints
    bytes: Floats

    def __len__(self) -> int:
        return len(self.consumer)


def connected_pairs(context: LayoutContext) -> list[Pairs]:
    """Pairs exactly 1, 2 and 3 edges apart, found by sparse powers of the operand matrix."""
    nodes = len(context.graph.configurable)
    tensor = context.slot_tensor[:, 1:].reshape(-1)  # start number = 2 * consumer + slot
    starts = np.flatnonzero(tensor >= 0)
    at_tensor = sparse.csr_array(
        (np.ones(len(starts)), (starts, tensor[starts])), shape=(2 * nodes, context.graph.nodes)
    )
    found = []
    for shell in shells(at_tensor, context.operands, hops=HOPS - 1):
        start, node = (np.asarray(side, np.int64) for side in shell.nonzero())
        producer = context.position[node]
        same_shape = (context.dims[tensor[start]] == context.dims[node]).all(axis=1)
        keep = (producer >= 0) & same_shape & (context.rank[node] > 0)
        order = np.lexsort((producer[keep], start[keep]))
        start, producer = start[keep][order], producer[keep][order]
        found.append(Pairs(start // 2, producer, start % 2, context.bytes[tensor[start]]))
    return found


def shells(start: sparse.csr_array, adjacency: sparse.csr_array, hops: int) -> list[sparse.csr_array]:
    """Nodes first reached after 0, 1, ... ``hops`` steps, by sparse matrix powers.

    ``start`` is ``(starts, nodes)`` and ``adjacency`` ``(nodes, nodes)``, both 0 or 1; the result has
    one matrix like ``start`` for each number of steps.
    """
    found = [start]
    seen = start
    for _ in range(hops):
        ahead = sparse.csr_array(found[-1] @ adjacency)
        ahead.data[:] = 1.0
        fresh = sparse.csr_array(ahead - ahead.multiply(seen))
        fresh.eliminate_zeros()
        found.append(fresh)
        seen = sparse.csr_array(seen + fresh)
    return found


def sum_pairs(
    context: LayoutContext,
    pairs: Pairs,
    judge: Callable[[Ints, Ints, Ints], Floats],
    over: Sequence[float],
) -> Floats:
    """Sum over pairs for each configuration, divided by ``over``: ``(configs, len(over))``.

    ``judge(pair, consumer row, producer row)`` gives the ``(combinations, len(over))`` quantities of row
    combinations. It is called on all combinations that the pairs' rows allow, or, where the
    configurations are fewer than those, on what the configurations really take.
    """
    table, width = context.table, len(over)
    total: Floats = np.zeros((table.configs, width))
    if len(pairs) == 0:
        return total
    start = table.start.astype(np.int64)
    rows_of = np.diff(start)
    sizes = rows_of[pairs.consumer] * rows_of[pairs.producer]
    step = max(1, _PIECE // len(pairs))
    if sizes.sum() <= table.configs * len(pairs):
        base = np.cumsum(sizes) - sizes
        pair = np.repeat(np.arange(len(pairs)), sizes)
        offset = np.arange(sizes.sum()) - base[pair]
        other = rows_of[pairs.producer]
        consumer_row = start[pairs.consumer][pair] + offset // other[pair]
        producer_row = start[pairs.producer][pair] + offset % other[pair]
        values = judge(pair, consumer_row, producer_row)
        for at in range(0, table.configs, step):
            codes = table.codes[at : at + step]
            combination = base + (codes[:, pairs.consumer] - start[pairs.consumer]) * other
            combination += codes[:, pairs.producer] - start[pairs.producer]
            total[at : at + step] = code_counts(combination, len(values)) @ values
        return np.divide(total, over)
    for at in range(0, table.configs, step):
        codes = table.codes[at : at + step].astype(np.int64)
        pair = np.tile(np.arange(len(pairs)), len(codes))
        sides = (np.asarray(codes[:, side].reshape(-1), np.int64) for side in (pairs.consumer, pairs.producer))
        values = judge(pair, *sides)
        total[at : at + step] = values.reshape(len(codes), len(pairs), width).sum(axis=1)
    return np.divide(total, over)
