"""Blocks of pair instances, and those that all instances of a graph share."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.block import Block, Cause, Scope
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.slot_pairs import Combinations, PairLayouts
from xlarank.features.program.opcode_classes import opcode_group
from xlarank.features.program.tensors import Floats, Ints, log2p, millionths

#: A graph with more combinations than this in all loses the pairs that have most: memory stays bounded.
_MOST_COMBINATIONS: Final = 1 << 21
#: Combinations are counted, and described, in batches of this many.
_COUNTED, _BATCH = 1 << 20, 1 << 16
#: What a column holds where it does not apply; all others are 0 or more.
ABSENT: Final = -1.0


class InstanceContext:
    """Instances of a graph: first all rows, then all combinations of rows.

    Rows of nodes that have no other row, and combinations of pairs that have no other, are no instances.
    """

    def __init__(self, layout: LayoutContext) -> None:
        self.layout = layout
        varies = np.diff(layout.table.start) > 1
        self.rows = np.flatnonzero(varies[layout.table.node])  # rows of the table that are instances
        self.by_relation: list[Combinations] = []  # of requested layouts, by how the two slots of a pair stand
        sides: list[Ints] = []
        starts: list[Ints] = []
        self.total = 0  # number of combinations
        for relation, every in enumerate([*layout.pairs, layout.siblings]):
            varying = every.take(np.flatnonzero(varies[every.left] | varies[every.right]))
            combinations = Combinations(layout.requested, varying, _MOST_COMBINATIONS - self.total)
            pairs = combinations.pairs
            number = np.full(len(pairs), relation)
            sides.append(np.stack([pairs.left, pairs.left_slot, pairs.right, pairs.right_slot, number], axis=1))
            starts.append(combinations.pair_first + self.total)
            self.by_relation.append(combinations)
            self.total += combinations.total
        # as in `Instances`: ``(pairs, 5)``, ``(pairs,)`` and ``(pairs,)``; combination = first + left * width +
        # right
        self.pairs, self.first = np.concatenate(sides), np.concatenate(starts)
        self.width = np.concatenate([combinations.pair_width for combinations in self.by_relation])
        self.frequency = self._frequency()  # ``(combinations,)`` how often they are taken, in all pairs and rows
        self.taken = np.flatnonzero(self.frequency)  # combinations that are instances: those that occur

    def _frequency(self) -> Ints:
        left, left_slot, right, right_slot, _ = self.pairs.T
        request, codes = self.layout.requested.by_row(self.layout), self.layout.table.codes
        frequency = np.zeros(self.total, np.int64)
        step = max(1, _COUNTED // max(1, len(self.pairs)))
        for at in range(0, len(codes) if self.total else 0, step):
            row = codes[at : at + step]
            requests = request[row[:, left], left_slot], request[row[:, right], right_slot]
            combination = self.first + requests[0] * self.width + requests[1]
            frequency += np.bincount(combination.reshape(-1), minlength=self.total)
        return frequency

    def __len__(self) -> int:
        return len(self.rows) + len(self.taken)


class InstanceBlock(Block):
    """Columns of instances: `compute` gives ``(instances, columns)``, in the order of `InstanceContext`."""

    scope = Scope.INSTANCE


_SIDE: Final = {
    "given": "whether this side sets a layout",
    "changed": "whether this side's full layout differs from its default",
    "minor": "log2 of 1 + the minor-most size on this side",
    "distance": "share of dimension pairs this side orders differently from its default",
    "opcode": "opcode group of the node on this side",
}


class InstancePair(InstanceBlock):
    """Two rows that speak of one tensor, and what follows from both: -1 for nodes."""

    cause = Cause.COPIES
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
        for relation, combinations in enumerate(context.by_relation):
            end = start + combinations.total
            taken = context.taken[(context.taken >= start) & (context.taken < end)] - start
            batches = (taken[first : first + _BATCH] for first in range(0, len(taken), _BATCH))
            parts += [self._values(context.layout, combinations, relation, batch) for batch in batches]
            start = end
        return np.concatenate(parts)

    @staticmethod
    def _values(context: LayoutContext, of: Combinations, relation: int, combination: Ints) -> NDArray[np.float32]:
        """Return the columns of combinations of one set of pairs, ``(combinations, columns)``."""
        pairs = of.pairs
        pair, left, right = of.sides(combination)
        requested, made, sides_set = PairLayouts(context, pairs).layouts(pair, left, right)
        table: dict[str, NDArray[Any]] = {
            "pair__kind__number": np.full(len(pair), relation),
            "pair__unlike__flag": requested != made,
            # the minor-most dimension is the lowest digit of a key
            "pair__minor_unlike__flag": requested % 7 != made % 7,
            "pair__given__count": sides_set,
            "pair__slot__left": pairs.left_slot[pair],
            "pair__bytes__log2": log2p(pairs.bytes[pair]),
            "pair__bytes__share": millionths(pairs.bytes[pair], context.bytes.sum()),
            "pair__turned__flag": ~pairs.straight[pair],
        }
        group = opcode_group(context.graph.opcode[context.graph.configurable])
        slots = list(context.slots.values())
        for side, slot, node, types in (
            ("left", pairs.left_slot[pair], pairs.left[pair], left),
            ("right", pairs.right_slot[pair], pairs.right[pair], right),
        ):
            for what in ("given", "changed", "minor", "distance"):
                name = "is_set" if what == "given" else what
                of_slot = np.stack([getattr(rows, name) for rows in slots])[slot, types]
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
    cause = Cause.CANDIDATES
    columns = {
        "candidates__rarity__log2": "-log2 of the share of the candidates' nodes (pairs) like this that take this "
        "row (combination)",
        "candidates__behind__log2": "log2 of how much more often the most frequent row of the node is taken",
    }

    def compute(self, context: InstanceContext) -> Floats:
        rows, combinations = self._of_rows(context.layout), self._of_combinations(context)
        return np.concatenate([rows[context.rows], combinations[context.taken]])

    @staticmethod
    def _of_rows(context: LayoutContext) -> Floats:
        """Return the columns of rows, ``(R, 2)``; a row that no configuration takes counts as taken once."""
        frequency = np.maximum(context.table.frequency, 1)
        most = np.zeros(context.table.nodes, np.int64)
        np.maximum.at(most, context.table.node, frequency)
        share = np.log2(max(1, context.table.configs) / frequency)
        return np.stack([share, np.log2(most[context.table.node] / frequency)], axis=1)

    @staticmethod
    def _of_combinations(context: InstanceContext) -> Floats:
        """Return the columns of combinations, ``(combinations, 2)``, over equal pairs between equal nodes."""
        if not context.total:
            return np.zeros((0, 2))
        frequency, starts = np.maximum(context.frequency, 1), np.unique(context.first)
        group = np.searchsorted(starts, np.arange(context.total), side="right") - 1
        taken, most = np.add.reduceat(context.frequency, starts), np.maximum.reduceat(frequency, starts)
        share = np.log2(np.maximum(taken[group] / frequency, 1.0))
        return np.stack([share, np.log2(most[group] / frequency)], axis=1)
