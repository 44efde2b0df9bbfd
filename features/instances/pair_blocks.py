"""Blocks of pair instances, and blocks common to all instances."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.block import Block, Cause, Scope
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.slot_pairs import Combinations, PairLayouts
from xlarank.features.program.tensors import Floats, Ints, log2p, millionths

#: Maximum number of combinations of a graph; to bound memory, pairs with the most combinations are dropped first.
_MAX_COMBINATIONS: Final = 1 << 21
#: Batch sizes for counting and for describing combinations.
_COUNT_BATCH, _VALUE_BATCH = 1 << 20, 1 << 16
#: Value of a column that does not apply; all others are 0 or more.
ABSENT: Final = -1.0
_SIDE: Final = {
    "given": "whether this side sets a layout",
    "changed": "whether this side's full layout differs from its default",
    "minor": "log2 of 1 + the minor-most size on this side",
    "distance": "share of dimension pairs this side orders differently from its default",
    "opcode": "opcode group of the node on this side",
}


class InstanceContext:
    """Instances of a graph: all rows, then all combinations of rows, except constant ones.

    Attributes:
        rows, taken: rows of the table, and combinations, that are instances.
        by_relation: combinations of requested layouts, by the relation of a pair's slots.
        total: number of combinations.
        pairs, first, width: as in `xlarank.features.instances.graph_instances.Instances`.
        frequency: ``(combinations,)`` number of occurrences over all pairs and configurations.
    """

    def __init__(self, layout: LayoutContext) -> None:
        self.layout = layout
        varies = np.diff(layout.table.start) > 1
        self.rows = np.flatnonzero(varies[layout.table.node])
        self.by_relation: list[Combinations] = []
        parts: list[tuple[Ints, Ints, Ints]] = []
        self.total = 0
        for relation, pairs in enumerate([*layout.pairs, layout.siblings]):
            varying = pairs.take(np.flatnonzero(varies[pairs.left] | varies[pairs.right]))
            combinations = Combinations(layout.requested, varying, _MAX_COMBINATIONS - self.total)
            kept = combinations.pairs
            ends = kept.left, kept.left_slot, kept.right, kept.right_slot, np.full(len(kept), relation)
            parts.append((np.stack(ends, axis=1), combinations.pair_first + self.total, combinations.pair_width))
            self.by_relation.append(combinations)
            self.total += combinations.total
        self.pairs, self.first, self.width = (np.concatenate(part) for part in zip(*parts, strict=True))
        left, left_slot, right, right_slot, _ = self.pairs.T
        request, codes = layout.requested.by_row(layout), layout.table.codes
        self.frequency = np.zeros(self.total, np.int64)
        step = max(1, _COUNT_BATCH // max(1, len(self.pairs)))
        for at in range(0, len(codes) if self.total else 0, step):
            row = codes[at : at + step]
            requests = request[row[:, left], left_slot], request[row[:, right], right_slot]
            combination = self.first + requests[0] * self.width + requests[1]
            self.frequency += np.bincount(combination.reshape(-1), minlength=self.total)
        self.taken = np.flatnonzero(self.frequency)

    def __len__(self) -> int:
        return len(self.rows) + len(self.taken)


class InstanceBlock(Block):
    """Columns of instances: `compute` gives ``(instances, columns)``, in the order of `InstanceContext`."""

    scope = Scope.INSTANCE


class InstancePair(InstanceBlock):
    """Two rows that lay out the same tensor; -1 for node instances."""

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
            for at in range(0, len(taken), _VALUE_BATCH):
                parts.append(self._values(context.layout, combinations, relation, taken[at : at + _VALUE_BATCH]))
            start = end
        return np.concatenate(parts)

    def _values(
        self, context: LayoutContext, combinations: Combinations, relation: int, taken: Ints
    ) -> NDArray[np.float32]:
        pairs, (pair, left, right) = combinations.pairs, combinations.sides(taken)
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
        for side, types in (("left", left), ("right", right)):
            node, slot = getattr(pairs, side)[pair], getattr(pairs, f"{side}_slot")[pair]
            for what, name in (("given", "is_set"), ("changed",) * 2, ("minor",) * 2, ("distance",) * 2):
                values = np.stack([getattr(rows, name) for rows in context.slots.values()])[slot, types]
                table[f"pair__{what}__{side}"] = log2p(values) if what == "minor" else values
            table[f"pair__opcode__{side}"] = context.opcode_group[context.graph.configurable[node]]
        return np.stack([np.asarray(table[name], np.float32) for name in self.columns], axis=1)


class InstanceGraph(InstanceBlock):
    """Sizes of the graph of an instance."""

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
    """Rarity of an instance among the graph's candidates.

    Shares of rows are of the configurations; shares of combinations are of the candidates' equal pairs.
    """

    transductive = True
    cause = Cause.CANDIDATES
    columns = {
        "candidates__rarity__log2": "-log2 of the share of the candidates' nodes (pairs) like this that take this "
        "row (combination)",
        "candidates__behind__log2": "log2 of how much more often the most frequent row of the node is taken",
    }

    def compute(self, context: InstanceContext) -> Floats:
        table = context.layout.table
        frequency = np.maximum(table.frequency, 1)  # a row that no configuration takes counts as taken once
        most = np.maximum.reduceat(frequency, table.start[:-1]) if table.nodes else frequency
        rarity, behind = max(1, table.configs) / frequency, most[table.node] / frequency
        rows = np.log2(np.stack([rarity, behind], axis=1))[context.rows]
        if not context.total:
            return rows
        # combinations are counted among equal pairs
        frequency, starts = np.maximum(context.frequency, 1), np.unique(context.first)
        group = np.searchsorted(starts, np.arange(context.total), side="right") - 1
        taken, most = np.add.reduceat(context.frequency, starts), np.maximum.reduceat(frequency, starts)
        rarity, behind = np.maximum(taken[group] / frequency, 1.0), most[group] / frequency
        return np.concatenate([rows, np.log2(np.stack([rarity, behind], axis=1))[context.taken]])
