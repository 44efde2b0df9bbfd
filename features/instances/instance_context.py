"""Context of the blocks of instances: the rows and combinations of rows that are instances, and
quantities of rows.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.pairs import Combinations
from xlarank.features.program.tensors import Ints, log2p, millionths

Values = NDArray[Any]
#: Maximum number of combinations of a graph; relations are added in order, in each the pairs with
#: the fewest first.
_MAX_COMBINATIONS: Final = 1 << 21
#: Batch size for counting combinations.
_COUNT_BATCH = 1 << 20
#: Value of a column that does not apply; all other values are 0 or more.
ABSENT: Final = -1.0


class InstanceContext:
    """Instances of a graph: rows that vary, then combinations of requested layouts that occur.

    Attributes:
        rows, present: rows of the table, and combinations, that are instances.
        by_relation: combinations of requested layouts, by the relation of a pair's slots.
        total: number of combinations.
        pairs, first, width: `Instances.pairs`, ``pair_first`` and ``pair_width``.
        frequency: ``(total,)`` number of occurrences over all pairs and configurations.
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
            pairs = combinations.pairs
            ends = (
                pairs.left,
                pairs.left_slot,
                pairs.right,
                pairs.right_slot,
                np.full(len(pairs), relation),
            )
            parts.append(
                (
                    np.stack(ends, axis=1),
                    combinations.pair_first + self.total,
                    combinations.pair_width,
                )
            )
            self.by_relation.append(combinations)
            self.total += combinations.total
        self.pairs, self.first, self.width = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        request = layout.requested.by_row(layout)
        codes = layout.table.codes
        self.frequency = np.zeros(self.total, np.int64)
        step = max(1, _COUNT_BATCH // max(1, len(self.pairs)))
        for at in range(0, len(codes) if self.total else 0, step):
            combination = pair_combinations(
                codes[at : at + step], request, self.pairs, self.first, self.width
            )
            self.frequency += np.bincount(combination.reshape(-1), minlength=self.total)
        self.present = np.flatnonzero(self.frequency)

    def __len__(self) -> int:
        return len(self.rows) + len(self.present)

    @cached_property
    def related(self) -> dict[str, Ints]:
        """Relation or slot -> related node, or producer of the slot's tensor, of each row of the
        table, ``(R,)``; -1 for none.
        """
        layout = self.layout
        consumer, operand = layout.graph.edges.T
        largest_consumer = np.full(layout.graph.nodes, -1)
        order = np.lexsort((-consumer, layout.bytes[consumer]))
        # The last one wins: most bytes, then lowest index.
        largest_consumer[operand[order]] = consumer[order]
        node = layout.graph.configurable[layout.table.node]
        tensors = dict(zip(LAYOUT_SLOTS, layout.slot_tensor[layout.table.node].T, strict=True))
        return {**tensors, "node": node, "consumer": largest_consumer[node]}

    def of_slot(self, slot: str, name: str) -> Values:
        """Return a quantity of `SlotRows` or `_SLOT`; sizes as log2(1 + size)."""
        if name == "kept":
            fused = self.layout.fused
            bytes_ = self.layout.bytes
            tensor = self.related[slot]
            unfused_bytes = np.where(self.of_slot(slot, "given") & fused[tensor], bytes_[tensor], 0)
            return millionths(unfused_bytes, float(bytes_[~fused].sum()))
        values = getattr(self.layout.slots[slot], "is_set" if name == "given" else name)[
            self.layout.row_type
        ]
        return log2p(values) if name in ("minor", "default_minor") else np.asarray(values)

    def slots_with(self, name: str) -> Values:
        slots = [(self.related[slot] >= 0) & self.of_slot(slot, name) for slot in LAYOUT_SLOTS]
        return np.asarray(np.sum(slots, axis=0))

    def same_as_input(self, slot: str) -> Values:
        present = (self.related["input"] >= 0) & (self.related[slot] >= 0)
        return np.where(present, self.of_slot("input", "key") == self.of_slot(slot, "key"), ABSENT)

    def near(self, side: str, group: int) -> Values:
        matrix = self.layout.operands if side == "up" else self.layout.consumers
        members = (self.layout.opcode_group == group).astype(np.float64)
        return np.asarray((matrix @ members > 0)[self.related["node"]])


def pair_combinations(
    rows: Values, request: Values, pairs: Values, first: Values, width: Values
) -> Values:
    """Return the combination of ``rows``, ``(configs, nodes)``, at each pair, ``(configs,
    pairs)``.
    """
    left, left_slot, right, right_slot, _ = pairs.T
    return np.asarray(
        request[rows[:, left], left_slot] * width + request[rows[:, right], right_slot] + first
    )
