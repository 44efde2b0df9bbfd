"""Blocks of pair instances, and those that all instances of a graph share."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.instances.instance_block import ABSENT, InstanceBlock, InstanceContext, PairCombinations
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.slot_pairs import Combinations, PairLayouts
from xlarank.features.program.opcode_classes import opcode_group
from xlarank.features.program.tensors import Floats, Ints, log2p, millionths

#: Combinations are described in batches of this many.
_BATCH: Final = 1 << 16

_SIDE: Final = {
    "given": "whether this side sets a layout",
    "changed": "whether this side's full layout differs from its default",
    "minor": "log2 of 1 + the minor-most size on this side",
    "distance": "share of dimension pairs this side orders differently from its default",
    "opcode": "opcode group of the node on this side",
}


class InstancePair(InstanceBlock):
    """Two rows that speak of one tensor, and what follows from both: -1 for nodes."""

    columns = {
        "pair__kind__number": "0-2: consumer and producer 1, 2, 3 or more edges apart; "
        "3: two readers of one tensor",
        "pair__unlike__flag": "whether the two full layouts differ",
        "pair__minor_unlike__flag": "whether their minor-most dimensions do",
        "pair__given__count": "sides that set a layout",
        "pair__slot__left": "slot of the left side (1 input, 2 kernel)",
        "pair__bytes__log2": "log2 of 1 + bytes of the tensor handed on",
        "pair__bytes__share": "log2 of 1 + its millionths of the graph's bytes",
        "pair__turned__flag": "whether a transpose lies between",
        **{f"pair__{what}__{side}": text for side in ("left", "right") for what, text in _SIDE.items()},
    }

    def compute(self, context: InstanceContext) -> NDArray[np.float32]:
        parts = [np.full((len(context.rows), len(self.columns)), ABSENT, np.float32)]
        start = 0
        for relation, combinations in enumerate(context.combinations.by_relation):
            end = start + combinations.total
            taken = context.taken[(context.taken >= start) & (context.taken < end)] - start
            batches = (taken[first : first + _BATCH] for first in range(0, len(taken), _BATCH))
            parts += [self._values(context.layout, combinations, relation, batch) for batch in batches]
            start = end
        return np.concatenate(parts)

    @staticmethod
    def _values(context: LayoutContext, of: Combinations, relation: int, combination: Ints) -> NDArray[np.float32]:
        """``(combinations, columns)`` for some combinations of one set of pairs."""
        pairs = of.pairs
        pair, left, right = of.sides(combination)
        requested, made, given = PairLayouts(context, pairs).layouts(pair, left, right)
        table: dict[str, NDArray[Any]] = {
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
                table[f"pair__{what}__{side}"] = log2p(of_slot) if what == "minor" else of_slot
            table[f"pair__opcode__{side}"] = group[node]
        return np.stack([np.asarray(table[name], np.float32) for name in InstancePair.columns], axis=1)


class InstanceGraph(InstanceBlock):
    """Sizes of the graph that an instance is of."""

    columns = {
        "graph__bytes__log2": "log2 of 1 + bytes of all outputs",
        "graph__nodes__log2": "log2 of 1 + nodes",
        "graph__configurable__log2": "log2 of 1 + configurable nodes",
    }

    def compute(self, context: InstanceContext) -> Floats:
        graph = context.layout.graph
        sizes = np.array([context.layout.bytes.sum(), graph.nodes, len(graph.configurable)], np.float64)
        return np.broadcast_to(log2p(sizes), (len(context), len(self.columns)))


class InstanceRarity(InstanceBlock):
    """How rare an instance is among the graph's candidates.

    The share is that of the configurations for a row, and of the candidates' equal pairs for a combination.
    """

    transductive = True
    columns = {
        "candidates__rarity__log2": "-log2 of the share of the candidates' nodes (pairs) like this that take this "
        "row (combination)",
        "candidates__behind__log2": "log2 of how much more often the most frequent row of the node is taken",
    }

    def compute(self, context: InstanceContext) -> Floats:
        rows, combinations = _rarity_of_rows(context.layout), _rarity_of_combinations(context.combinations)
        return np.concatenate([rows[context.rows], combinations[context.taken]])


def _rarity_of_rows(context: LayoutContext) -> Floats:
    """``(R, 2)`` of `InstanceRarity` for rows; rows that no distinct configuration takes count as one."""
    frequency = np.maximum(context.table.frequency, 1)
    most = np.zeros(context.table.nodes, np.int64)
    np.maximum.at(most, context.table.node, frequency)
    share = np.log2(max(1, context.table.configs) / frequency)
    return np.stack([share, np.log2(most[context.table.node] / frequency)], axis=1)


def _rarity_of_combinations(combinations: PairCombinations) -> Floats:
    """``(combinations, 2)`` of `InstanceRarity` for combinations, over equal pairs between equal nodes."""
    if not combinations.total:
        return np.zeros((0, 2))
    frequency, starts = np.maximum(combinations.frequency, 1), np.unique(combinations.first)
    group = np.searchsorted(starts, np.arange(combinations.total), side="right") - 1
    taken, most = np.add.reduceat(combinations.frequency, starts), np.maximum.reduceat(frequency, starts)
    share = np.log2(np.maximum(taken[group] / frequency, 1.0))
    return np.stack([share, np.log2(most[group] / frequency)], axis=1)
