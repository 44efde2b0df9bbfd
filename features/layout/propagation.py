"""An estimate of where copies end up once the compiler has spread the set layouts."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Tier
from xlarank.features.layout.aggregation import Aggregation, Batch
from xlarank.features.layout.block import Finalize, LayoutBlock
from xlarank.features.layout.context import LayoutContext
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, layout_key

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
        slots = [context.slots[slot] for slot in LAYOUT_SLOTS]
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
        passing = passing[:, None]
        rounds = (_ROUNDS if len(passed) else 1) if len(left) else 0  # nothing spreads twice without passing on

        def finalize(batch: Batch) -> Floats:
            made = set_key[batch.by_node]
            set_by_consumer = set_key[batch.by_node[left] + offset]
            free = (set_by_consumer == 0) & passing
            for _ in range(rounds):
                requested = np.where(free, made[left], set_by_consumer) if len(passed) else set_by_consumer
                most = np.maximum.reduceat(requested, first, axis=0)
                made[makers] = np.where(made[makers] == 0, most, made[makers])
                if len(passed):
                    made[passed] = np.where(made[passed] == 0, made[right[by_left]], made[passed])
            requested = np.where(free, made[left], set_by_consumer) if len(passed) else set_by_consumer
            settled = made[right]
            copied = (requested > 0) & (settled > 0) & (requested != settled)
            unlike = (made > 0) & (made != default)
            moved, turned = bytes_ @ copied / total, node_bytes @ unlike / output.total_bytes
            return np.stack([copied.sum(axis=0) / count, moved, unlike.sum(axis=0) / nodes, turned], axis=1)

        return finalize
