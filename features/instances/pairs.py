"""Columns of pair instances: two rows that speak of one tensor, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.duplicates import group_codes
from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.instances.nodes import millionths
from xlarank.features.layout.context import LayoutContext
from xlarank.features.layout.copies import Meeting
from xlarank.features.layout.pairs import Pairs
from xlarank.features.program.opcode_groups import opcode_group
from xlarank.features.program.tensors import Ints, log2p

#: A pair set with more combinations than this in all loses those pairs that have most: memory stays bounded.
_MOST_COMBINATIONS: Final = 1 << 21
#: Combinations are described in pieces of this many.
_PIECE: Final = 1 << 16

_SIDE: Final = {
    "given": "whether this side sets a layout",
    "changed": "whether this side's full layout differs from its default",
    "minor": "log2 of 1 + the minor-most size on this side",
    "distance": "share of dimension pairs this side orders differently from its default",
    "opcode": "opcode group of the node on this side",
}
COLUMNS: Final[dict[str, str]] = {
    "pair__kind__number": "0-2: consumer and producer 1, 2, 3 or more edges apart; 3: two readers of one tensor",
    "pair__unlike__flag": "whether the two full layouts differ",
    "pair__minor_unlike__flag": "whether their minor-most dimensions do",
    "pair__given__count": "sides that set a layout",
    "pair__slot__left": "slot of the left side (1 input, 2 kernel)",
    "pair__bytes__log2": "log2 of 1 + bytes of the tensor handed on",
    "pair__bytes__share": "log2 of 1 + its millionths of the graph's bytes",
    "pair__turned__flag": "whether a transpose lies between",
    **{f"pair__{what}__{side}": text for side in ("left", "right") for what, text in _SIDE.items()},
}


@dataclass(frozen=True)
class PairCombinations:
    """Every combination of wishes that each pair can take.

    Like pairs (see `xlarank.features.layout.context.LayoutContext.likeness`) share theirs.

    Attributes:
        pairs: ``(pairs, 5)`` as in `xlarank.features.instances.instances.Instances`.
        first, width: ``(pairs,)`` combination = first + left wish * width + right wish.
        total: number of combinations.
        frequency: ``(total,)`` how often they are taken, over all pairs and configurations.
    """

    pairs: Ints
    first: Ints
    width: Ints
    total: int
    frequency: Ints
    _sets: tuple[_PairSet, ...]

    @classmethod
    def of(cls, context: LayoutContext) -> PairCombinations:
        """The combinations of a graph's pairs; pairs whose sides never vary are left out."""
        sets: list[_PairSet] = []
        joined: list[Ints] = []
        first: list[Ints] = []
        width: list[Ints] = []
        total = 0
        for kind, pairs in enumerate([*context.pairs, context.siblings]):
            found = _PairSet.of(context, _varying(context, pairs), kind, _MOST_COMBINATIONS - total)
            sets.append(found)
            number = np.full(len(found.pairs), kind)
            sides = found.pairs
            joined.append(np.stack([sides.left, sides.left_slot, sides.right, sides.right_slot, number], axis=1))
            first.append(found.first[found.alike] + total)
            width.append(found.width[found.alike])
            total += int(found.sizes.sum())
        return cls.counted(
            context, np.concatenate(joined), np.concatenate(first), np.concatenate(width), total, tuple(sets)
        )

    @classmethod
    def counted(
        cls, context: LayoutContext, pairs: Ints, first: Ints, width: Ints, total: int, sets: tuple[_PairSet, ...]
    ) -> PairCombinations:
        """With the frequencies of the configurations of the graph."""
        wish = row_wishes(context)
        frequency = np.zeros(total, np.int64)
        codes = context.table.codes
        step = max(1, (1 << 20) // max(1, len(pairs)))
        for at in range(0, len(codes) if total else 0, step):
            row = codes[at : at + step]
            left, right = wish[row[:, pairs[:, 0]], pairs[:, 1]], wish[row[:, pairs[:, 2]], pairs[:, 3]]
            frequency += np.bincount((first + left * width + right).reshape(-1), minlength=total)
        return cls(pairs, first, width, total, frequency, sets)

    def values(self, context: LayoutContext) -> tuple[Ints, NDArray[np.float32]]:
        """The combinations that occur, and ``(those, columns)`` float32 of `COLUMNS`."""
        taken = np.flatnonzero(self.frequency)
        parts = [np.zeros((0, len(COLUMNS)), np.float32)]
        start = 0
        for number, pair_set in enumerate(self._sets):
            end = start + int(pair_set.sizes.sum())
            mine = taken[(taken >= start) & (taken < end)] - start
            parts += [
                pair_set.values(context, number, mine[at : at + _PIECE]) for at in range(0, len(mine), _PIECE)
            ]
            start = end
        return taken, np.concatenate(parts)


@dataclass(frozen=True)
class _PairSet:
    """Pairs of one kind; ``alike`` numbers the groups of like pairs, the other arrays are per group."""

    pairs: Pairs
    alike: Ints
    example: Ints
    left: Ints
    right: Ints
    width: Ints
    sizes: Ints
    first: Ints

    @classmethod
    def of(cls, context: LayoutContext, pairs: Pairs, kind: int, most: int) -> _PairSet:
        wishes = context.wishes
        left, right = (
            slot * wishes.likes + context.likeness[node]
            for slot, node in ((pairs.left_slot, pairs.left), (pairs.right_slot, pairs.right))
        )
        alike = group_codes(np.column_stack([left, right, pairs.bytes.astype(np.int64), pairs.place]))
        sizes = wishes.count[left[alike.first]] * wishes.count[right[alike.first]]
        allowed = np.zeros(len(sizes), bool)
        ascending = np.argsort(sizes, kind="stable")
        allowed[ascending[np.cumsum(sizes[ascending]) <= most]] = True
        if not allowed.all():
            return cls.of(context, pairs.take(np.flatnonzero(allowed[alike.group])), kind, most)
        left, right = left[alike.first], right[alike.first]
        return cls(
            pairs, alike.group, alike.first, left, right, wishes.count[right], sizes, np.cumsum(sizes) - sizes
        )

    def values(self, context: LayoutContext, kind: int, combination: Ints) -> NDArray[np.float32]:
        wishes = context.wishes
        which = np.searchsorted(self.first, combination, side="right") - 1
        left, right = np.divmod(combination - self.first[which], self.width[which])
        left = wishes.types[wishes.first[self.left[which]] + left]
        right = wishes.types[wishes.first[self.right[which]] + right]
        pair, pairs = self.example[which], self.pairs
        wanted, made, given = Meeting(context, pairs).layouts(pair, left, right)
        found: dict[str, NDArray[Any]] = {
            "pair__kind__number": np.full(len(pair), kind),
            "pair__unlike__flag": wanted != made,
            # the minor-most dimension is the lowest digit of a key
            "pair__minor_unlike__flag": wanted % 7 != made % 7,
            "pair__given__count": given,
            "pair__slot__left": pairs.left_slot[pair],
            "pair__bytes__log2": log2p(pairs.bytes[pair]),
            "pair__bytes__share": millionths(pairs.bytes[pair], context.bytes.sum()),
            "pair__turned__flag": (pairs.place[pair] != np.arange(pairs.place.shape[1])).any(axis=1),
        }
        group = opcode_group(context.graph.opcode[context.graph.configurable])
        slots = list(context.slots.values())
        for side, slot, node, kinds in (
            ("left", pairs.left_slot[pair], pairs.left[pair], left),
            ("right", pairs.right_slot[pair], pairs.right[pair], right),
        ):
            for what in ("given", "changed", "minor", "distance"):
                of_slot = np.stack([getattr(rows, what) for rows in slots])[slot, kinds]
                found[f"pair__{what}__{side}"] = log2p(of_slot) if what == "minor" else of_slot
            found[f"pair__opcode__{side}"] = group[node]
        return np.stack([np.asarray(found[name], np.float32) for name in COLUMNS], axis=1)


def row_wishes(context: LayoutContext) -> Ints:
    """``(R, 3)`` which of the different layouts of each slot a row asks for (`Wishes.number`)."""
    of_types = context.wishes.number.reshape(len(LAYOUT_SLOTS), -1).T
    found: Ints = of_types[context.row_type]
    return found


def _varying(context: LayoutContext, pairs: Pairs) -> Pairs:
    """Pairs of which some side takes more than one row."""
    rows = np.diff(context.table.start)
    return pairs.take(np.flatnonzero((rows[pairs.left] > 1) | (rows[pairs.right] > 1)))
