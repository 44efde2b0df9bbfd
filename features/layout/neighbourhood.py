"""What surrounds the nodes that a configuration changes."""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy import sparse

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.layout.aggregation import Aggregation, Batch, Finalize, LayoutBlock, Request
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, log2p

_HEAVY: Final = ("convolution", "dot", "reduce", "transpose")
_REACH: Final = 5
_WITHIN: Final = "share of nodes within {} edges of a configurable one"


class ConfigurableNodes(Block):
    """Which nodes can be configured: their number, classes and reach."""

    scope = Scope.GRAPH
    columns = {
        "configurable__nodes__log": "number of configurable nodes, log2(1 + x)",
        "configurable__nodes__share": "share of nodes that are configurable",
        **{
            f"configurable__{name}__share": f"share of configurable nodes that are {name}"
            for name in OPCODE_CLASSES
        },
        **{f"configurable__within_{hop}hop__share": _WITHIN.format(hop) for hop in range(1, _REACH + 1)},
    }

    def compute(self, context: LayoutContext) -> Floats:
        ids = context.graph.configurable
        classes = np.bincount(context.node_class, minlength=len(OPCODE_CLASSES))
        reached = np.zeros(context.graph.nodes)
        reached[ids] = 1.0
        within = []
        for _ in range(_REACH):
            reached = np.minimum(reached + context.neighbours @ reached, 1.0)
            within.append(reached.mean())
        sizes = [np.log2(1 + len(ids)), len(ids) / context.graph.nodes]
        return np.array([*sizes, *(classes / context.configurable_nodes), *within])


_DIRECTIONS: Final = {"down": "operands", "up": "consumers", "around": "neighbours"}
_POWERS: Final = (1, 2)


class ChangedSurroundings(LayoutBlock):
    """Bytes and heavy operations around changed nodes, over the same around all configurable ones.

    What surrounds a node is the k-th power of the row-normalised adjacency (down to operands, up to consumers,
    or both) times a quantity per node: the mean over neighbours of their mean. The column is
    sum_n changed_n (P^k q)_n / sum_n (P^k q)_n over configurable nodes n. Such powers in place of learned
    convolutions are the idea of simplified graph convolutions (SGC, Wu et al. 2019).
    """

    tier = Tier.FULL
    columns = {
        f"neighbourhood__{direction}_{what}_{power}hop__share": f"{meaning}, mean over the {nodes} {power} edge(s) "
        "away, summed over changed nodes, over the same of all configurable nodes"
        for direction, nodes in _DIRECTIONS.items()
        for power in _POWERS
        for what, meaning in (
            ("bytes", "log2(1 + output bytes)"),
            *((name, f"share of {name} nodes") for name in _HEAVY),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        heavy = [context.opcode_class == OPCODE_CLASSES.index(name) for name in _HEAVY]
        quantities = np.stack([log2p(context.bytes), *heavy], axis=1)
        around = []
        for matrix in (context.operands, context.consumers, context.neighbours):
            mean = _row_normalised(matrix)
            reached = quantities
            for _ in _POWERS:
                reached = mean @ reached
                around.append(reached[context.graph.configurable])
        table = np.concatenate(around, axis=1)
        total = table.sum(axis=0)
        per_row = context.type_changed[context.row_type, None] * table[context.table.node]
        return aggregation.sum(list(per_row.T), over=list(np.where(total > 0, total, 1.0)), each_node=True)


def _row_normalised(matrix: sparse.csr_array) -> sparse.csr_array:
    degree = np.diff(matrix.indptr)
    mean = matrix.copy()
    mean.data = matrix.data / np.repeat(np.maximum(degree, 1), degree)
    return mean


class Boundary(LayoutBlock):
    """Changed nodes, padding and copies next to changed nodes of the configurable neighbourhood.

    With x = 1 for changed nodes and N the 0/1 matrix of configurable nodes h edges apart, the cut is
    sum N_uv (x_u - x_v)^2 and the inside is sum N_uv x_u x_v, both over sum N_uv. A quantity q of nodes is
    met by sum_u q_u (N x)_u, the quantity times the number of changed nodes around it: the output's padding
    bytes beyond the default's over all output bytes, and the mismatched bytes of consumers (pairs as in
    `xlarank.features.layout.copies.Disagreement` at any distance, those through transposes left out) over all bytes
    handed on.
    """

    tier = Tier.FULL
    columns = {
        f"neighbourhood__{what}_{hop}hop__{how}": meaning.format(hop=hop)
        for hop in (1, 2)
        for what, how, meaning in (
            ("cut", "share", "share of configurable pairs {hop} edge(s) apart with one of both changed"),
            ("inside", "share", "share of configurable pairs {hop} edge(s) apart with both changed"),
            ("waste", "ratio", "padding bytes beyond the default's times changed nodes {hop} edge(s) away"),
            ("mismatch", "ratio", "mismatched bytes of a consumer times changed nodes {hop} edge(s) from it"),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        output = context.slots["output"]
        changed_type = context.type_changed.astype(np.float32)
        extra = (output.now["waste"] - output.default["waste"]) * output.bytes / output.total_bytes
        waste_type = extra.astype(np.float32)
        pairs = context.straight_pairs
        left, right = pairs.left, pairs.right
        keys = np.concatenate([context.slots[slot].key for slot in LAYOUT_SLOTS]).astype(np.int32)
        offset = (pairs.left_slot * len(context.type_node))[:, None].astype(np.int32)
        weight = (pairs.bytes / max(1.0, pairs.bytes.sum()))[:, None].astype(np.float32)
        near = [sparse.csr_array(matrix.astype(np.float32)) for matrix in context.near]

        def finalize(batch: Batch) -> Floats:
            codes = batch.by_node
            changed, waste = changed_type[codes], waste_type[codes]
            mismatch = (keys[codes[left] + offset] != keys[codes[right]]) * weight
            columns = []
            for matrix in near:
                pairs_there = max(1.0, float(matrix.nnz))
                around = matrix @ changed
                inside = np.einsum("nc,nc->c", changed, around, dtype=np.float64)
                ends = around.sum(axis=0, dtype=np.float64)
                columns += [2 * (ends - inside) / pairs_there, inside / pairs_there]
                columns += [np.einsum("nc,nc->c", waste, around, dtype=np.float64)]
                columns += [np.einsum("pc,pc->c", mismatch, around[left], dtype=np.float64)]
            return np.stack(columns, axis=1)

        return finalize
