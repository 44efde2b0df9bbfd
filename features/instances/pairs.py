"""Columns of pair instances: two rows that speak of one tensor, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.layout.combinations import Combinations
from xlarank.features.layout.context import LayoutContext
from xlarank.features.layout.pair_layouts import PairLayouts
from xlarank.features.layout.pairs import Pairs
from xlarank.features.program.opcode_groups import opcode_group
from xlarank.features.program.tensors import Ints, log2p, millionths

#: A graph with more combinations than this in all loses the pairs that have most: memory stays bounded.
_MOST_COMBINATIONS: Final = 1 << 21
#: Combinations are described in batches of this many.
_BATCH: Final = 1 << 16

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
    """Every combination of requested layouts that each pair of a graph can take, over all relations of pairs.

    Attributes:
        pairs: ``(pairs, 5)`` as in `xlarank.features.instances.instances.Instances`.
        first, width: ``(pairs,)`` combination = first + left request * width + right request.
        total: number of combinations.
        frequency: ``(total,)`` how often they are taken, over all pairs and configurations.
    """

    pairs: Ints
    first: Ints
    width: Ints
    total: int
    frequency: Ints
    _by_relation: tuple[Combinations, ...]

    @classmethod
    def of(cls, context: LayoutContext) -> PairCombinations:
        """The combinations of a graph's pairs; pairs whose sides never vary are left out."""
        found: list[Combinations] = []
        joined: list[Ints] = []
        first: list[Ints] = []
        width: list[Ints] = []
        total = 0
        for relation, pairs in enumerate([*context.pairs, context.siblings]):
            own = Combinations.of(context, _varying(context, pairs), _MOST_COMBINATIONS - total)
            found.append(own)
            number = np.full(len(own.pairs), relation)
            sides = own.pairs
            joined.append(np.stack([sides.left, sides.left_slot, sides.right, sides.right_slot, number], axis=1))
            first.append(own.first[own.group] + total)
            width.append(own.width[own.group])
            total += own.total
        return cls.counted(
            context, np.concatenate(joined), np.concatenate(first), np.concatenate(width), total, tuple(found)
        )

    @classmethod
    def counted(
        cls,
        context: LayoutContext,
        pairs: Ints,
        first: Ints,
        width: Ints,
        total: int,
        by_relation: tuple[Combinations, ...],
    ) -> PairCombinations:
        """With the frequencies of the configurations of the graph."""
        request = context.requested.by_row(context)
        frequency = np.zeros(total, np.int64)
        codes = context.table.codes
        step = max(1, (1 << 20) // max(1, len(pairs)))
        for at in range(0, len(codes) if total else 0, step):
            row = codes[at : at + step]
            left, right = request[row[:, pairs[:, 0]], pairs[:, 1]], request[row[:, pairs[:, 2]], pairs[:, 3]]
            frequency += np.bincount((first + left * width + right).reshape(-1), minlength=total)
        return cls(pairs, first, width, total, frequency, by_relation)

    def values(self, context: LayoutContext, taken: NDArray[np.intp]) -> NDArray[np.float32]:
        """``(taken, columns)`` float32 of `COLUMNS` for some combinations, ascending."""
        parts = [np.zeros((0, len(COLUMNS)), np.float32)]
        start = 0
        for relation, own in enumerate(self._by_relation):
            end = start + own.total
            mine = taken[(taken >= start) & (taken < end)] - start
            parts += [_values(context, own, relation, mine[at : at + _BATCH]) for at in range(0, len(mine), _BATCH)]
            start = end
        return np.concatenate(parts)


def _values(context: LayoutContext, of: Combinations, relation: int, combination: Ints) -> NDArray[np.float32]:
    """``(combinations, columns)`` of `COLUMNS` for some combinations of one set of pairs."""
    pairs = of.pairs
    pair, left, right = of.sides(combination)
    requested, made, given = PairLayouts(context, pairs).layouts(pair, left, right)
    found: dict[str, NDArray[Any]] = {
        "pair__kind__number": np.full(len(pair), relation),
        "pair__unlike__flag": requested != made,
        # the minor-most dimension is the lowest digit of a key
        "pair__minor_unlike__flag": requested % 7 != made % 7,
        "pair__given__count": given,
        "pair__slot__left": pairs.left_slot[pair],
        "pair__bytes__log2": log2p(pairs.bytes[pair]),
        "pair__bytes__share": millionths(pairs.bytes[pair], context.bytes.sum()),
        "pair__turned__flag": (pairs.permutation[pair] != np.arange(pairs.permutation.shape[1])).any(axis=1),
    }
    group = opcode_group(context.graph.opcode[context.graph.configurable])
    slots = list(context.slots.values())
    for side, slot, node, types in (
        ("left", pairs.left_slot[pair], pairs.left[pair], left),
        ("right", pairs.right_slot[pair], pairs.right[pair], right),
    ):
        for what in ("given", "changed", "minor", "distance"):
            of_slot = np.stack([getattr(rows, what) for rows in slots])[slot, types]
            found[f"pair__{what}__{side}"] = log2p(of_slot) if what == "minor" else of_slot
        found[f"pair__opcode__{side}"] = group[node]
    return np.stack([np.asarray(found[name], np.float32) for name in COLUMNS], axis=1)


def _varying(context: LayoutContext, pairs: Pairs) -> Pairs:
    """Pairs of which some side takes more than one row."""
    rows = np.diff(context.table.start)
    return pairs.take(np.flatnonzero((rows[pairs.left] > 1) | (rows[pairs.right] > 1)))
