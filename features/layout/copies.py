"""Copies between layouts, and the surroundings of changed nodes.

A copy is needed if a consumer requests another layout of a tensor than its producer or another
consumer.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.data.config_table import code_counts, group_codes
from xlarank.features.block import Cause, block, layout_block
from xlarank.features.layout.aggregation import Batch, BatchFunction, sum_nodes
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.pairs import FARTHEST, STATES, Pairs, connected_pairs, pair_states
from xlarank.features.program.program_context import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, log2p

_COMPARED: Final = {
    "clash_{}__share": "share of {} with two different layouts set",
    "clash_{}_bytes__share": "share of the bytes of {} with two different layouts set",
    "mismatch_{}__share": "share of {} with different layouts, the default if unset",
    "mismatch_{}_bytes__share": "share of the bytes of {} with different layouts",
    "half_{}__share": "share of {} with one layout set, unlike the other's default",
    "half_{}_bytes__share": "share of the bytes of {} with one layout set, unlike the other's",
    "agree_{}__share": "share of {} with the same layout set on both sides",
}
_DISTANCES: Final = {"1hop": "1 edge", "2hop": "2 edges", "3hop": f"3 to {FARTHEST} edges"}
_HEAVY: Final = ("convolution", "dot", "reduce", "transpose")
_REACH: Final = range(1, 6)


@layout_block(
    cause=Cause.COPIES,
    columns={
        **{
            f"disagreement__{what.format(hop)}": text.format(f"consumer-producer pairs {far} apart")
            for hop, far in _DISTANCES.items()
            for what, text in _COMPARED.items()
        },
        **{
            f"disagreement__{side}_{name}_bytes__share": f"mismatched bytes of pairs whose {side} "
            f"is a {name} node, over the bytes of all pairs"
            for side in ("consumer", "producer")
            for name in OPCODE_CLASSES
        },
    },
)
def disagreement(context: LayoutContext) -> BatchFunction:
    """Consumer-producer pairs whose layouts differ, and their bytes, also by opcode class.

    Pairs are connected through operations that are not configurable themselves and keep a layout
    (such as elementwise ones) or permute it (transposes). A clash has a layout set on both sides, a
    half on one; a mismatch takes the default for an unset side, so it is clash plus half plus
    different defaults. A copy costs about the bytes that it moves. Partial layouts are completed by
    the default before comparing.
    """
    pairs_by_hop = connected_pairs(context)
    all_bytes = max(1.0, float(sum(pairs.bytes.sum() for pairs in pairs_by_hop)))
    requests = [_sum_pairs(context, pairs, all_bytes) for pairs in pairs_by_hop]

    def finalize(batch: Batch) -> Floats:
        hops = [request(batch) for request in requests]
        by_class = np.add.reduce(hops)[:, len(_COMPARED) :]
        return np.concatenate([*(hop[:, : len(_COMPARED)] for hop in hops), by_class], axis=1)

    return finalize


def _sum_pairs(context: LayoutContext, pairs: Pairs, all_bytes: float) -> BatchFunction:
    """Return sums over the pairs of one distance, and by opcode class.

    Pairs of equal bytes and classes are of one kind; each kind and state has a row of a table.
    """
    sides = [context.configurable_class[side] for side in (pairs.left, pairs.right)]
    examples, kind = group_codes(np.column_stack([pairs.bytes.astype(np.int64), *sides]))
    bytes_ = np.repeat(pairs.bytes[examples], STATES)
    state = np.tile(np.arange(STATES), len(examples))
    unlike, left_set, right_set = (state & flag > 0 for flag in (4, 2, 1))
    clash = unlike & left_set & right_set
    half = unlike & (left_set != right_set)
    agree = ~unlike & left_set & right_set
    columns = [clash, clash * bytes_, unlike, unlike * bytes_, half, half * bytes_, agree]
    for of_side in sides:
        of_kind = np.repeat(of_side[examples], STATES)
        columns += [unlike * bytes_ * (of_kind == n) for n in range(len(OPCODE_CLASSES))]
    count = max(1.0, len(pairs.left))
    total = max(1.0, float(pairs.bytes.sum()))
    over = [*[count, total] * 3, count, *[all_bytes] * 2 * len(OPCODE_CLASSES)]
    values = np.stack(columns, axis=1) / over
    used = np.flatnonzero(values.any(axis=0))  # few classes have pairs
    table = np.ascontiguousarray(values[:, used])
    states = pair_states(context, pairs)
    start = (STATES * kind).astype(np.int32)

    def summed(batch: Batch) -> Floats:
        total = np.zeros((len(batch), len(over)))
        total[:, used] = code_counts(start + states(batch), len(table)) @ table
        return total

    return summed


@block(
    kinds=("layout",),
    scope="graph",
    columns={
        "configurable__nodes__log": "number of configurable nodes, log2(1 + x)",
        "configurable__nodes__share": "share of nodes that are configurable",
        **{
            f"configurable__{name}__share": f"share of configurable nodes that are {name}"
            for name in OPCODE_CLASSES
        },
        **{
            f"configurable__within_{hop}hop__share": f"share of nodes within {hop} edges of a "
            "configurable one"
            for hop in _REACH
        },
    },
)
def configurable_nodes(context: LayoutContext) -> Floats:
    """Number, opcode classes and reach of configurable nodes."""
    count = len(context.graph.configurable)
    nodes = context.graph.nodes
    classes = np.bincount(context.configurable_class, minlength=len(OPCODE_CLASSES))
    reached = (context.configurable_index >= 0).astype(np.float64)
    within = []
    for _ in _REACH:
        reached = np.minimum(reached + context.neighbours @ reached, 1.0)
        within.append(reached.mean())
    shares = classes / context.configurable_nodes
    return np.array([np.log2(1 + count), count / nodes, *shares, *within])


@layout_block(
    cause=Cause.SURROUNDINGS,
    columns={
        f"neighbourhood__around_{what}_{power}hop__share": f"{meaning}, mean over the neighbours "
        f"{power} edge(s) away: sum over changed nodes, divided by that over all configurable nodes"
        for power in (1, 2)
        for what, meaning in (
            ("bytes", "log2(1 + output bytes)"),
            *((name, f"share of {name} nodes") for name in _HEAVY),
        )
    },
)
def changed_surroundings(context: LayoutContext) -> BatchFunction:
    """Bytes and heavy operations around changed nodes, over those around all configurable nodes.

    The surroundings of a node are the k-th power of the row-normalised adjacency (operands and
    consumers) times a quantity per node; for k = 2, a mean over neighbours of their means. The
    column is sum_n changed_n (P^k q)_n / sum_n (P^k q)_n over configurable nodes n. Such
    powers in place of learned convolutions are the idea of simplified graph convolutions (SGC, Wu
    et al. 2019).
    """
    from scipy import sparse  # slow to import

    heavy = [context.opcode_class == OPCODE_CLASSES.index(name) for name in _HEAVY]
    quantities = np.stack([log2p(context.bytes), *heavy], axis=1)
    adjacency = context.neighbours
    mean = sparse.diags_array(1 / np.maximum(np.diff(adjacency.indptr), 1)) @ adjacency
    once = mean @ quantities
    table = np.concatenate([once, mean @ once], axis=1)[context.graph.configurable]
    total = table.sum(axis=0)
    per_row = context.type_changed[context.row_type, None] * table[context.table.node]
    over = np.where(total > 0, total, 1.0).tolist()
    return sum_nodes([*per_row.T], over=over, per_row=True)
