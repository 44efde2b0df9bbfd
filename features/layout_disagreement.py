"""Copies: a consumer wants a tensor in another layout than its producer makes it in."""

from __future__ import annotations

import numpy as np

from features.block import Block
from features.layout import LayoutContext
from features.opcode_classes import OPCODE_CLASSES
from features.pairs import HOPS, OPERAND_SLOTS, Pairs, sum_pairs
from features.tensors import Floats, Ints


class _Wishes:
    """Layouts of both sides of row combinations."""

    def __init__(self, context: LayoutContext, pairs: Pairs) -> None:
        slots = [context.slots[name] for name in OPERAND_SLOTS]
        self.pairs = pairs
        self.wanted_key = np.stack([rows.key for rows in slots])
        self.wanted_given = np.stack([rows.given for rows in slots])
        self.made = context.slots["output"]

    def judge(self, pair: Ints, consumer: Ints, producer: Ints) -> Floats:
        """Clash, its bytes, mismatch, its bytes, agreement: ``(combinations, 5)``."""
        slot = self.pairs.slot[pair]
        unlike = self.wanted_key[slot, consumer] != self.made.key[producer]
        both = self.wanted_given[slot, consumer] & self.made.given[producer]
        clash = unlike & both
        bytes_ = self.pairs.bytes[pair]
        return np.stack([clash, clash * bytes_, unlike, unlike * bytes_, both & ~unlike], axis=1)


def _columns() -> dict[str, str]:
    columns: dict[str, str] = {}
    for hop in range(1, HOPS + 1):
        far = f"connected pairs {hop} edge{'s' if hop > 1 else ''} apart"
        columns |= {
            f"disagreement__clash_{hop}hop__share": f"share of {far} with two different layouts set",
            f"disagreement__clash_{hop}hop_bytes__share": f"the same by bytes of the tensor handed on, {far}",
            f"disagreement__mismatch_{hop}hop__share": f"share of {far} with different layouts, unset = default",
            f"disagreement__mismatch_{hop}hop_bytes__share": f"the same by bytes, {far}",
            f"disagreement__agree_{hop}hop__share": f"share of {far} with one layout set on both sides",
        }
    return columns


class Disagreement(Block):
    """Connected pairs whose layouts differ: share of the pairs, and of the bytes handed on.

    A clash has a layout set on both sides; a mismatch takes the default for an unset side. Each copy
    costs about the bytes it moves. Partial layouts are completed by the default before comparing.
    """

    kinds = ("layout",)
    columns = _columns()

    def compute(self, context: LayoutContext) -> Floats:
        parts = []
        for pairs in context.pairs:
            bytes_, count = max(1.0, pairs.bytes.sum()), max(1, len(pairs))
            over = [count, bytes_, count, bytes_, count]
            parts.append(sum_pairs(context, pairs, _Wishes(context, pairs).judge, over))
        return np.concatenate(parts, axis=1)


class DisagreementByClass(Block):
    """Mismatched bytes one edge apart, by the opcode class of either side, over all bytes handed on."""

    kinds = ("layout",)
    columns = {
        f"disagreement__{side}_{name}_bytes__share": f"mismatched bytes one edge apart whose {side} is a "
        f"{name} node"
        for side in ("consumer", "producer")
        for name in OPCODE_CLASSES
    }

    def compute(self, context: LayoutContext) -> Floats:
        pairs = context.pairs[0]
        wishes = _Wishes(context, pairs)
        node_class = context.opcode_class[context.graph.configurable]
        names = np.arange(len(OPCODE_CLASSES))
        is_consumer = node_class[pairs.consumer][:, None] == names
        is_producer = node_class[pairs.producer][:, None] == names
        member = np.concatenate([is_consumer, is_producer], axis=1)

        def judge(pair: Ints, consumer: Ints, producer: Ints) -> Floats:
            mismatch = wishes.judge(pair, consumer, producer)[:, 3:4]
            by_class: Floats = np.multiply(mismatch, member[pair])
            return by_class

        return sum_pairs(context, pairs, judge, [max(1.0, pairs.bytes.sum())] * member.shape[1])
