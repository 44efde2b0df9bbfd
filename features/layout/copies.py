"""Copies: a consumer requests a tensor in another layout than its producer makes it in, or than its sibling."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.block import Tier
from xlarank.features.layout.aggregation import Aggregation, Batch, Finalize, LayoutBlock, Request
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.slot_pairs import FARTHEST, PairLayouts
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, Ints, layout_key

_COMPARED: Final = {
    "clash{}__share": "share of {} with two different layouts set",
    "clash{}_bytes__share": "share of the bytes of {} with two different layouts set",
    "mismatch{}__share": "share of {} with different layouts, unset = default",
    "mismatch{}_bytes__share": "share of the bytes of {} with different layouts, unset = default",
    "half{}__share": "share of {} with one layout set, unlike the other's default",
    "half{}_bytes__share": "share of the bytes of {} with one layout set, unlike the other's default",
    "agree{}__share": "share of {} with one layout set on both sides",
}
_DISTANCES: Final = {"_1hop": "1 edge", "_2hop": "2 edges", "_3hop": f"3 to {FARTHEST} edges"}


class Disagreement(LayoutBlock):
    """Consumer-producer pairs whose layouts differ: share of the pairs, and of the bytes handed on.

    Pairs are connected through operations that are not configurable themselves and keep a layout
    (elementwise) or permute it (transpose). A clash has a layout set on both sides, a half on one; a
    mismatch takes the default for an unset side, so it is clash plus half plus unlike defaults. Each copy costs
    about the bytes it moves. Partial layouts are completed by the default before comparing.
    """

    columns = {
        f"disagreement__{what.format(hop)}": text.format(f"consumer-producer pairs {far} apart")
        for hop, far in _DISTANCES.items()
        for what, text in _COMPARED.items()
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        by_hop = [PairLayouts(context, pairs) for pairs in context.pairs]
        requests = [aggregation.sum_pairs(one.pairs, one.disagreement, one.over()) for one in by_hop]
        return lambda batch: np.concatenate([batch[hop] for hop in requests], axis=1)


class SiblingDisagreement(LayoutBlock):
    """Operand slots that request different layouts of one tensor: share of the pairs, and of the tensor's bytes.

    The readers of a tensor stand in order of node and slot, and each is compared with the next: n different
    requests in a row of readers need at least n - 1 copies. Terms as in `Disagreement`.
    """

    columns = {
        f"siblings__{what.format('')}": text.format("neighbouring readers of one tensor")
        for what, text in _COMPARED.items()
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        layouts = PairLayouts(context, context.siblings)
        return aggregation.sum_pairs(context.siblings, layouts.disagreement, layouts.over())


class DisagreementByClass(LayoutBlock):
    """Mismatched bytes at any distance, by the opcode class of either side, over all bytes handed on."""

    columns = {
        f"disagreement__{side}_{name}_bytes__share": f"mismatched bytes whose {side} is a {name} node"
        for side in ("consumer", "producer")
        for name in OPCODE_CLASSES
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        total = max(1.0, float(sum(pairs.bytes.sum() for pairs in context.pairs)))
        requests = []
        for pairs in context.pairs:
            sides = (context.node_class[side][:, None] for side in (pairs.left, pairs.right))
            member = np.concatenate([side == np.arange(len(OPCODE_CLASSES)) for side in sides], axis=1)
            mismatched = partial(self._mismatched_bytes, PairLayouts(context, pairs), member)
            requests.append(aggregation.sum_pairs(pairs, mismatched, [total] * len(self.columns)))
        return lambda batch: np.add.reduce([batch[hop] for hop in requests])

    @staticmethod
    def _mismatched_bytes(
        layouts: PairLayouts, member: NDArray[np.bool_], pair: Ints, consumer: Ints, producer: Ints
    ) -> Floats:
        wanted, made, _ = layouts.layouts(pair, consumer, producer)
        by_class: Floats = ((wanted != made) * layouts.pairs.bytes[pair])[:, None] * member[pair]
        return by_class


_ROUNDS: Final = 3


class Propagation(LayoutBlock):
    """Copies left after set layouts have spread to unset neighbours.

    As XLA's layout assignment does, an unset output takes the layout that a consumer requests, then an unset
    elementwise node takes its operand's (of several producers the one of the lowest id), and both hand it
    on; three rounds over the connected pairs (those through transposes left out). A consumer requests what its
    operand's slot sets, and an elementwise one with an unset slot what its own output has settled on. Where
    several consumers request different layouts, the one with the largest key wins. A copy is left wherever a
    settled request meets a settled output of another layout.
    """

    tier = Tier.FULL
    columns = {
        "propagation__copies__share": "share of consumer-producer pairs that settle on different layouts",
        "propagation__copies_bytes__share": "share of the bytes handed on that settle on different layouts",
        "propagation__unlike_default__share": "share of configurable nodes whose output settles unlike the default",
        "propagation__unlike_default_bytes__share": "share of the output bytes that settle unlike the default",
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        pairs = context.straight_pairs
        pairs = pairs.take(np.argsort(pairs.right, kind="stable"))
        left, right, bytes_ = pairs.left, pairs.right, pairs.bytes
        makers, first = np.unique(right, return_index=True)
        slots = list(context.slots.values())
        set_key = np.concatenate([np.where(rows.given, rows.key, 0) for rows in slots]).astype(np.int32)
        offset = (pairs.left_slot * len(context.type_node))[:, None].astype(np.int32)
        passing = context.node_class[left] == OPCODE_CLASSES.index("elementwise")
        ends = (context.dims[context.graph.configurable[side]] for side in (left, right))
        passing &= np.equal(*ends).all(axis=1)
        passed, first_passed = np.unique(left[passing], return_index=True)
        by_left = np.flatnonzero(passing)[first_passed]
        output = slots[0]
        default = layout_key(context.default_layout[context.graph.configurable])[:, None]
        node_bytes = context.bytes[context.graph.configurable]
        count, total = max(1, len(left)), max(1.0, float(bytes_.sum()))
        nodes = context.configurable_nodes
        rounds = _ROUNDS if len(left) else 0

        def finalize(batch: Batch) -> Floats:
            made = set_key[batch.by_node]
            set_by_consumer = set_key[batch.by_node[left] + offset]
            free = (set_by_consumer == 0) & passing[:, None]
            for _ in range(rounds):
                requested = np.where(free, made[left], set_by_consumer)
                most = np.maximum.reduceat(requested, first, axis=0)
                made[makers] = np.where(made[makers] == 0, most, made[makers])
                made[passed] = np.where(made[passed] == 0, made[right[by_left]], made[passed])
            requested = np.where(free, made[left], set_by_consumer)
            settled = made[right]
            copied = (requested > 0) & (settled > 0) & (requested != settled)
            unlike = (made > 0) & (made != default)
            moved, turned = bytes_ @ copied / total, node_bytes @ unlike / output.total_bytes
            return np.stack([copied.sum(axis=0) / count, moved, unlike.sum(axis=0) / nodes, turned], axis=1)

        return finalize
