"""Copies between layouts, and the surroundings of changed nodes.

A copy is needed if a consumer requests another layout of a tensor than its producer or another
consumer.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
from scipy import sparse

from xlarank.features.block import Block, Cause, Column, Scope, Tier
from xlarank.features.layout.aggregation import Aggregation, Batch, BatchFunction, LayoutBlock
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.pairs import FARTHEST, Pairs, pair_layouts
from xlarank.features.program.program_context import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, Ints, layout_key, log2p

_ELEMENTWISE: Final = OPCODE_CLASSES.index("elementwise")
_COMPARED: Final = {
    "clash{}__share": "share of {} with two different layouts set",
    "clash{}_bytes__share": "share of the bytes of {} with two different layouts set",
    "mismatch{}__share": "share of {} with different layouts, the default if unset",
    "mismatch{}_bytes__share": (
        "share of the bytes of {} with different layouts, the default if unset"
    ),
    "half{}__share": "share of {} with one layout set, unlike the other's default",
    "half{}_bytes__share": (
        "share of the bytes of {} with one layout set, unlike the other's default"
    ),
    "agree{}__share": "share of {} with the same layout set on both sides",
}
_HEAVY: Final = ("convolution", "dot", "reduce", "transpose")
_REACH: Final = range(1, 6)


def _disagreement(context: LayoutContext, aggregation: Aggregation, pairs: Pairs) -> BatchFunction:
    """Request the quantities of `_COMPARED`, over the number or the bytes of the pairs."""

    def compared(pair: Ints, left: Ints, right: Ints) -> Floats:
        left_key, right_key, sides_set = pair_layouts(context, pairs, pair, left, right)
        unlike = left_key != right_key
        bytes_ = pairs.bytes[pair]
        clash = unlike & (sides_set == 2)
        half = unlike & (sides_set == 1)
        agree = ~unlike & (sides_set == 2)
        columns = [clash, clash * bytes_, unlike, unlike * bytes_, half, half * bytes_, agree]
        return np.stack(columns, axis=1).astype(np.float64)

    count = max(1.0, len(pairs))
    total = max(1.0, float(pairs.bytes.sum()))
    return aggregation.sum_pairs(pairs, compared, [*[count, total] * 3, count])


class Disagreement(LayoutBlock):
    """Consumer-producer pairs whose layouts differ: shares of pairs and of their bytes.

    Pairs are connected through operations that are not configurable themselves and keep a layout
    (such as elementwise ones) or permute it (transposes). A clash has a layout set on both sides, a
    half on one; a mismatch takes the default for an unset side, so it is clash plus half plus
    different defaults. A copy costs about the bytes that it moves. Partial layouts are completed by
    the default before comparing.
    """

    cause = Cause.COPIES
    columns = {
        f"disagreement__{what.format(hop)}": text.format(f"consumer-producer pairs {far} apart")
        for hop, far in (
            ("_1hop", "1 edge"),
            ("_2hop", "2 edges"),
            ("_3hop", f"3 to {FARTHEST} edges"),
        )
        for what, text in _COMPARED.items()
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> BatchFunction:
        requests = [_disagreement(context, aggregation, pairs) for pairs in context.pairs]
        return lambda batch: np.concatenate([hop(batch) for hop in requests], axis=1)


class SiblingDisagreement(LayoutBlock):
    """Operand slots that request different layouts of one tensor: shares of pairs and of bytes.

    The readers of a tensor are sorted by node and slot, and each is compared with the next: n
    different requests need at least n - 1 copies. Terms are those of `Disagreement`.
    """

    cause = Cause.COPIES
    columns = {
        f"siblings__{what.format('')}": text.format("neighbouring readers of one tensor")
        for what, text in _COMPARED.items()
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> BatchFunction:
        return _disagreement(context, aggregation, context.siblings)


class DisagreementByClass(LayoutBlock):
    """Mismatched bytes of pairs at any distance, by opcode class of either side, over the bytes of
    all pairs.
    """

    cause = Cause.COPIES
    columns = {
        f"disagreement__{side}_{name}_bytes__share": (
            f"mismatched bytes of pairs whose {side} is a {name} node"
        )
        for side in ("consumer", "producer")
        for name in OPCODE_CLASSES
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> BatchFunction:
        total = max(1.0, float(sum(pairs.bytes.sum() for pairs in context.pairs)))
        classes = np.arange(len(OPCODE_CLASSES))
        of_node = context.configurable_class[:, None]

        def mismatched_bytes(pairs: Pairs, pair: Ints, left: Ints, right: Ints) -> Floats:
            requested, produced, _ = pair_layouts(context, pairs, pair, left, right)
            sides = (of_node[side[pair]] == classes for side in (pairs.left, pairs.right))
            moved = (requested != produced) * pairs.bytes[pair]
            return np.asarray(moved[:, None] * np.concatenate([*sides], axis=1))

        requests = []
        for pairs in context.pairs:
            function = partial(mismatched_bytes, pairs)
            requests.append(aggregation.sum_pairs(pairs, function, [total] * len(self.columns)))
        return lambda batch: np.add.reduce([hop(batch) for hop in requests])


class Propagation(LayoutBlock):
    """Copies left after set layouts have spread to unset neighbours.

    Imitates XLA's layout assignment: in each of three rounds over the connected pairs (without
    transposes), unset outputs take the layout that a consumer requests, then unset elementwise
    nodes take that of an operand (the producer with the lowest id). A consumer requests the layout
    set for its operand slot; an elementwise one whose slot is unset requests the layout of its own
    output. If consumers request different layouts, the one with the largest `layout_key` wins. A
    copy remains if a consumer requests another layout than the producer's output has.
    """

    tier = Tier.FULL
    cause = Cause.COPIES
    columns = {
        "propagation__copies__share": (
            "share of consumer-producer pairs that settle on different layouts"
        ),
        "propagation__copies_bytes__share": (
            "share of the bytes of pairs that settle on different layouts"
        ),
        "propagation__unlike_default__share": (
            "share of configurable nodes whose output settles unlike the default"
        ),
        "propagation__unlike_default_bytes__share": (
            "share of the output bytes that settle unlike the default"
        ),
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> BatchFunction:
        pairs = context.straight_pairs.take(np.argsort(context.straight_pairs.right, kind="stable"))
        left = pairs.left
        right = pairs.right
        bytes_ = pairs.bytes
        producers, first = np.unique(right, return_index=True)
        set_key = np.concatenate(
            [rows.is_set * rows.key for rows in context.slots.values()]
        ).astype(np.int32)
        offset = (pairs.left_slot * len(context.type_configurable))[:, None].astype(np.int32)
        passing = context.configurable_class[left] == _ELEMENTWISE
        ids = context.graph.configurable
        passing &= (context.dims[ids[left]] == context.dims[ids[right]]).all(axis=1)
        receivers, first_of_receiver = np.unique(left[passing], return_index=True)
        source = right[np.flatnonzero(passing)[first_of_receiver]]
        default = layout_key(context.default_layout[ids])[:, None]
        node_bytes = context.bytes[ids]
        count = max(1, len(left))
        total = max(1.0, float(bytes_.sum()))
        nodes = context.configurable_nodes
        output_bytes = context.slots["output"].total_bytes
        # One round suffices without elementwise nodes.
        rounds = (3 if len(receivers) else 1) if len(left) else 0

        def finalize(batch: Batch) -> Floats:
            output_key = set_key[batch.by_node]
            set_by_consumer = set_key[batch.by_node[left] + offset]
            free = (set_by_consumer == 0) & passing[:, None]
            for _ in range(rounds):
                requested = np.where(free, output_key[left], set_by_consumer)
                winner = np.maximum.reduceat(requested, first, axis=0)
                output_key[producers] = np.where(
                    output_key[producers] == 0, winner, output_key[producers]
                )
                unset = output_key[receivers] == 0
                output_key[receivers] = np.where(unset, output_key[source], output_key[receivers])
            requested = np.where(free, output_key[left], set_by_consumer)
            final = output_key[right]
            copied = (requested > 0) & (final > 0) & (requested != final)
            unlike = (output_key > 0) & (output_key != default)
            moved = bytes_ @ copied / total
            turned = node_bytes @ unlike / output_bytes
            return np.stack(
                [copied.sum(axis=0) / count, moved, unlike.sum(axis=0) / nodes, turned], axis=1
            )

        return finalize


class ConfigurableNodes(Block):
    """Number, opcode classes and reach of configurable nodes."""

    scope = Scope.GRAPH
    columns = {
        "configurable__nodes__log": "number of configurable nodes, log2(1 + x)",
        "configurable__nodes__share": "share of nodes that are configurable",
        **{
            f"configurable__{name}__share": f"share of configurable nodes that are {name}"
            for name in OPCODE_CLASSES
        },
        **{
            f"configurable__within_{hop}hop__share": (
                f"share of nodes within {hop} edges of a configurable one"
            )
            for hop in _REACH
        },
    }

    def compute(self, context: LayoutContext) -> Floats:
        count = len(context.graph.configurable)
        nodes = context.graph.nodes
        classes = np.bincount(context.configurable_class, minlength=len(OPCODE_CLASSES))
        reached = (context.configurable_index >= 0).astype(np.float64)
        within = []
        for _ in _REACH:
            reached = np.minimum(reached + context.neighbours @ reached, 1.0)
            within.append(reached.mean())
        return np.array(
            [np.log2(1 + count), count / nodes, *(classes / context.configurable_nodes), *within]
        )


class ChangedSurroundings(LayoutBlock):
    """Bytes and heavy operations around changed nodes, over those around all configurable nodes.

    The surroundings of a node are the k-th power of the row-normalised adjacency (down to operands,
    up to consumers, or both) times a quantity per node; for k = 2, a mean over neighbours of their
    means. The column is sum_n changed_n (P^k q)_n / sum_n (P^k q)_n over configurable nodes n. Such
    powers in place of learned convolutions are the idea of simplified graph convolutions (SGC, Wu
    et al. 2019).
    """

    tier = Tier.FULL
    cause = Cause.SURROUNDINGS
    columns = {
        f"neighbourhood__{direction}_{what}_{power}hop__share": (
            f"{meaning}, mean over the {nodes} {power} edge(s) "
            "away: sum over changed nodes, divided by that over all configurable nodes"
        )
        for direction, nodes in (
            ("down", "operands"),
            ("up", "consumers"),
            ("around", "neighbours"),
        )
        for power in (1, 2)
        for what, meaning in (
            ("bytes", "log2(1 + output bytes)"),
            *((name, f"share of {name} nodes") for name in _HEAVY),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> BatchFunction:
        heavy = [context.opcode_class == OPCODE_CLASSES.index(name) for name in _HEAVY]
        quantities = np.stack([log2p(context.bytes), *heavy], axis=1)
        around = []
        for matrix in (context.operands, context.consumers, context.neighbours):
            mean = sparse.diags_array(1 / np.maximum(np.diff(matrix.indptr), 1)) @ matrix
            once = mean @ quantities
            around += [once[context.graph.configurable], (mean @ once)[context.graph.configurable]]
        table = np.concatenate(around, axis=1)
        total = table.sum(axis=0)
        per_row = context.type_changed[context.row_type, None] * table[context.table.node]
        return aggregation.sum(
            list(per_row.T), over=list(np.where(total > 0, total, 1.0)), per_row=True
        )


class Boundary(LayoutBlock):
    """Pairs of changed and unchanged configurable nodes, and padding and copies near changed nodes.

    With x = 1 for changed nodes and N the 0/1 matrix of configurable nodes h edges apart, the cut
    is sum N_uv (x_u - x_v)^2 and the inside is sum N_uv x_u x_v, both over sum N_uv. Two quantities
    q are summed as sum_u q_u (N x)_u, weighted by the number of changed nodes around each node: the
    output's padding bytes beyond the default's over all output bytes, and the mismatched bytes of
    consumers over the bytes of all pairs (those of `Disagreement` at any distance, without pairs
    through transposes).
    """

    tier = Tier.FULL
    cause = Cause.SURROUNDINGS
    columns = {
        f"neighbourhood__{what}_{hop}hop__{how}": Column(
            meaning.format(hop=hop), Cause.COPIES if what == "mismatch" else None
        )
        for hop in (1, 2)
        for what, how, meaning in (
            (
                "cut",
                "share",
                "share of configurable pairs {hop} edge(s) apart of which one is changed",
            ),
            (
                "inside",
                "share",
                "share of configurable pairs {hop} edge(s) apart of which both are changed",
            ),
            (
                "waste",
                "ratio",
                "padding bytes beyond the default's times changed nodes {hop} edge(s) away",
            ),
            (
                "mismatch",
                "ratio",
                "mismatched bytes of a consumer times changed nodes {hop} edge(s) away",
            ),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> BatchFunction:
        output = context.slots["output"]
        pairs = context.straight_pairs
        changed_type = context.type_changed.astype(np.float32)
        extra = (
            (output.now["padding"] - output.default["padding"]) * output.bytes / output.total_bytes
        )
        waste_type = extra.astype(np.float32)
        left = pairs.left
        right = pairs.right
        keys = np.concatenate([rows.key for rows in context.slots.values()]).astype(np.int32)
        offset = (pairs.left_slot * len(context.type_configurable))[:, None].astype(np.int32)
        weight = (pairs.bytes / max(1.0, pairs.bytes.sum()))[:, None].astype(np.float32)
        near = [sparse.csr_array(matrix.astype(np.float32)) for matrix in context.near]

        def finalize(batch: Batch) -> Floats:
            codes = batch.by_node
            changed = changed_type[codes]
            waste = waste_type[codes]
            mismatch = (keys[codes[left] + offset] != keys[codes[right]]) * weight
            columns = []
            for matrix in near:
                count = max(1.0, float(matrix.nnz))
                around = matrix @ changed
                ends = around.sum(axis=0, dtype=np.float64)
                inside, padding = (
                    np.einsum("nc,nc->c", q, around, dtype=np.float64) for q in (changed, waste)
                )
                mismatched = np.einsum("pc,pc->c", mismatch, around[left], dtype=np.float64)
                columns += [2 * (ends - inside) / count, inside / count, padding, mismatched]
            return np.stack(columns, axis=1)

        return finalize
