"""Copies: a consumer wants a tensor in another layout than its producer makes it in, or than its sibling."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK
from xlarank.features.layout.aggregation import Asked, Judge, Piece, Sums
from xlarank.features.layout.block import Finish, LayoutBlock
from xlarank.features.layout.context import LayoutContext
from xlarank.features.layout.pairs import FARTHEST, Pairs
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, Ints, layout_key


class Meeting:
    """What becomes of a tensor where two rows meet over it."""

    def __init__(self, context: LayoutContext, pairs: Pairs) -> None:
        slots = context.slots.values()
        self.pairs = pairs
        self._key = np.stack([rows.key for rows in slots])
        self._given = np.stack([rows.given for rows in slots])
        self._layout = np.stack([rows.layout for rows in slots])
        self._turned = (pairs.place != np.arange(MAX_RANK)).any(axis=1)

    def layouts(self, pair: Ints, left: Ints, right: Ints) -> tuple[Ints, Ints, Ints]:
        """Keys of both full layouts in the left tensor's dimensions, and how many of both are set, 0 to 2."""
        left_slot, right_slot = self.pairs.left_slot[pair], self.pairs.right_slot[pair]
        made = self._key[right_slot, right]
        turned = np.flatnonzero(self._turned[pair])
        if len(turned):
            made[turned] = layout_key(self._turn(pair[turned], self._layout[right_slot[turned], right[turned]]))
        given = self._given[left_slot, left].astype(np.int64) + self._given[right_slot, right]
        return self._key[left_slot, left], made, given

    def _turn(self, pair: Ints, layout: Ints) -> Ints:
        """Layouts of the right tensor in the dimensions of the left one."""
        back = np.argsort(self.pairs.place[pair], axis=1)  # dimension of the right tensor -> of the left one
        turned = np.take_along_axis(back, np.maximum(layout, 0), axis=1)
        return np.where(layout >= 0, turned, -1)

    def judge(self, pair: Ints, left: Ints, right: Ints) -> Floats:
        """Clash, mismatch and half, each with its bytes, and agreement: ``(combinations, 7)``."""
        wanted, made, given = self.layouts(pair, left, right)
        unlike = wanted != made
        bytes_ = self.pairs.bytes[pair]
        clash, half = unlike & (given == 2), unlike & (given == 1)
        columns = [clash, clash * bytes_, unlike, unlike * bytes_, half, half * bytes_, ~unlike & (given == 2)]
        return np.stack(columns, axis=1).astype(np.float64)

    def over(self) -> list[float]:
        """What the sums of `judge` are divided by: the number of pairs and their bytes, at least 1."""
        count, bytes_ = float(max(1, len(self.pairs))), max(1.0, float(self.pairs.bytes.sum()))
        return [count, bytes_, count, bytes_, count, bytes_, count]


def _columns(block: str, mark: str, far: str) -> dict[str, str]:
    handed = f"share of the bytes of {far}"
    return {
        f"{block}__clash{mark}__share": f"share of {far} with two different layouts set",
        f"{block}__clash{mark}_bytes__share": f"{handed} with two different layouts set",
        f"{block}__mismatch{mark}__share": f"share of {far} with different layouts, unset = default",
        f"{block}__mismatch{mark}_bytes__share": f"{handed} with different layouts, unset = default",
        f"{block}__half{mark}__share": f"share of {far} with one layout set, unlike the other's default",
        f"{block}__half{mark}_bytes__share": f"{handed} with one layout set, unlike the other's default",
        f"{block}__agree{mark}__share": f"share of {far} with one layout set on both sides",
    }


_FAR: Final = ("1 edge apart", "2 edges apart", f"3 to {FARTHEST} edges apart")


def _by_hop() -> dict[str, str]:
    columns: dict[str, str] = {}
    for hop, far in enumerate(_FAR, 1):
        columns |= _columns("disagreement", f"_{hop}hop", f"consumer-producer pairs {far}")
    return columns


class Disagreement(LayoutBlock):
    """Consumer-producer pairs whose layouts differ: share of the pairs, and of the bytes handed on.

    Pairs are connected through operations that are not configurable themselves and keep a layout
    (elementwise) or permute it (transpose). A clash has a layout set on both sides, a half on one; a
    mismatch takes the default for an unset side, so it is clash plus half plus unlike defaults. Each copy costs
    about the bytes it moves. Partial layouts are completed by the default before comparing.
    """

    columns = _by_hop()

    def prepare(self, context: LayoutContext, sums: Sums) -> Finish:
        asked = []
        for pairs in context.pairs:
            meeting = Meeting(context, pairs)
            asked.append(sums.pairs(pairs, meeting.judge, meeting.over()))

        def finish(piece: Piece) -> Floats:
            return np.concatenate([piece[hop] for hop in asked], axis=1)

        return finish


class SiblingDisagreement(LayoutBlock):
    """Operand slots reading one tensor with different wishes: share of the pairs, and of the tensor's bytes.

    The readers of a tensor stand in order of node and slot, and each is compared with the next: n different
    wishes in a row of readers need at least n - 1 copies. Terms as in `Disagreement`.
    """

    columns = _columns("siblings", "", "neighbouring readers of one tensor")

    def prepare(self, context: LayoutContext, sums: Sums) -> Asked:
        meeting = Meeting(context, context.siblings)
        return sums.pairs(context.siblings, meeting.judge, meeting.over())


class DisagreementByClass(LayoutBlock):
    """Mismatched bytes at any distance, by the opcode class of either side, over all bytes handed on."""

    columns = {
        f"disagreement__{side}_{name}_bytes__share": f"mismatched bytes whose {side} is a {name} node"
        for side in ("consumer", "producer")
        for name in OPCODE_CLASSES
    }

    def prepare(self, context: LayoutContext, sums: Sums) -> Finish:
        total = max(1.0, float(sum(pairs.bytes.sum() for pairs in context.pairs)))
        asked = [
            sums.pairs(pairs, self._judge(context, pairs), [total] * len(self.columns)) for pairs in context.pairs
        ]

        def finish(piece: Piece) -> Floats:
            summed: Floats = np.sum([piece[hop] for hop in asked], axis=0)
            return summed

        return finish

    @staticmethod
    def _judge(context: LayoutContext, pairs: Pairs) -> Judge:
        meeting = Meeting(context, pairs)
        names = np.arange(len(OPCODE_CLASSES))
        is_consumer = context.node_class[pairs.left][:, None] == names
        is_producer = context.node_class[pairs.right][:, None] == names
        member = np.concatenate([is_consumer, is_producer], axis=1)

        def judge(pair: Ints, consumer: Ints, producer: Ints) -> Floats:
            wanted, made, _ = meeting.layouts(pair, consumer, producer)
            by_class: Floats = ((wanted != made) * pairs.bytes[pair])[:, None] * member[pair]
            return by_class

        return judge
