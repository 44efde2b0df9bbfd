"""Whether the two sides of a pair lay out their tensor alike."""

from __future__ import annotations

import numpy as np

from xlarank.data.schema import MAX_RANK
from xlarank.features.layout.context import LayoutContext
from xlarank.features.layout.pairs import Pairs
from xlarank.features.program.tensors import Floats, Ints, layout_key


class PairLayouts:
    """The layouts that both sides of a pair have of the tensor between them."""

    def __init__(self, context: LayoutContext, pairs: Pairs) -> None:
        slots = context.slots.values()
        self.pairs = pairs
        self._key = np.stack([rows.key for rows in slots])
        self._given = np.stack([rows.given for rows in slots])
        self._layout = np.stack([rows.layout for rows in slots])
        self._turned = (pairs.permutation != np.arange(MAX_RANK)).any(axis=1)

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
        back = np.argsort(self.pairs.permutation[pair], axis=1)  # dimension of the right tensor -> of the left one
        turned = np.take_along_axis(back, np.maximum(layout, 0), axis=1)
        return np.where(layout >= 0, turned, -1)

    def disagreement(self, pair: Ints, left: Ints, right: Ints) -> Floats:
        """Clash, mismatch and half, each with its bytes, and agreement: ``(combinations, 7)``."""
        wanted, made, given = self.layouts(pair, left, right)
        unlike = wanted != made
        bytes_ = self.pairs.bytes[pair]
        clash, half = unlike & (given == 2), unlike & (given == 1)
        columns = [clash, clash * bytes_, unlike, unlike * bytes_, half, half * bytes_, ~unlike & (given == 2)]
        return np.stack(columns, axis=1).astype(np.float64)

    def over(self) -> list[float]:
        """What sums of `disagreement` are divided by: the number of pairs and their bytes, at least 1."""
        count, bytes_ = float(max(1, len(self.pairs))), max(1.0, float(self.pairs.bytes.sum()))
        return [count, bytes_, count, bytes_, count, bytes_, count]
