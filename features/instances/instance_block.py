"""Which rows and combinations of rows of one graph are instances, before equal ones become one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.block import Block, Scope
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.slot_pairs import Combinations
from xlarank.features.program.tensors import Ints

#: A graph with more combinations than this in all loses the pairs that have most: memory stays bounded.
_MOST_COMBINATIONS: Final = 1 << 21


@dataclass(frozen=True)
class PairCombinations:
    """Every combination of requested layouts that each pair of a graph can take, over all relations of pairs."""

    pairs: Ints  # ``(pairs, 5)`` as in `xlarank.features.instances.graph_instances.Instances`
    # first, width: ``(pairs,)`` combination = first + left request * width + right request.
    first: Ints
    width: Ints
    total: int  # number of combinations
    frequency: Ints  # ``(total,)`` how often they are taken, over all pairs and configurations
    by_relation: tuple[Combinations, ...]  # the same by the relation of the two slots

    @classmethod
    def of(cls, context: LayoutContext) -> PairCombinations:
        """The combinations of a graph's pairs; pairs whose sides never vary are left out."""
        by_relation: list[Combinations] = []
        sides: list[Ints] = []
        starts: list[Ints] = []
        total = 0
        varies = np.diff(context.table.start) > 1
        for relation, every in enumerate([*context.pairs, context.siblings]):
            varying = every.take(np.flatnonzero(varies[every.left] | varies[every.right]))
            one = Combinations.of(context.requested, varying, _MOST_COMBINATIONS - total)
            pairs = one.pairs
            number = np.full(len(pairs), relation)
            sides.append(np.stack([pairs.left, pairs.left_slot, pairs.right, pairs.right_slot, number], axis=1))
            starts.append(one.first[one.group] + total)
            by_relation.append(one)
            total += one.total
        joined, first = np.concatenate(sides), np.concatenate(starts)
        width = np.concatenate([one.width[one.group] for one in by_relation])
        left, left_slot, right, right_slot, _ = joined.T
        request, codes = context.requested.by_row(context), context.table.codes
        frequency = np.zeros(total, np.int64)
        step = max(1, (1 << 20) // max(1, len(joined)))
        for at in range(0, len(codes) if total else 0, step):
            row = codes[at : at + step]
            combination = first + request[row[:, left], left_slot] * width + request[row[:, right], right_slot]
            frequency += np.bincount(combination.reshape(-1), minlength=total)
        return cls(joined, first, width, total, frequency, tuple(by_relation))


class InstanceContext:
    """Which rows and combinations of rows of a graph are instances: first all rows, then all combinations.

    Rows of nodes that have no other row, and combinations of pairs that have no other, are no instances.
    """

    def __init__(self, layout: LayoutContext) -> None:
        self.layout = layout

    @cached_property
    def combinations(self) -> PairCombinations:
        return PairCombinations.of(self.layout)

    @cached_property
    def rows(self) -> Ints:
        """Rows of the table that are instances."""
        table = self.layout.table
        return np.flatnonzero((np.diff(table.start) > 1)[table.node])

    @cached_property
    def taken(self) -> NDArray[np.intp]:
        """Combinations that are instances: those that occur."""
        return np.flatnonzero(self.combinations.frequency)

    def __len__(self) -> int:
        return len(self.rows) + len(self.taken)


#: What a column holds where it does not apply; all others are 0 or more.
ABSENT: Final = -1.0


class InstanceBlock(Block, abstract=True):
    """Columns of instances: `compute` gives ``(instances, columns)``, in the order of `InstanceContext`."""

    kinds = ("layout",)
    scope = Scope.INSTANCE


class NodeBlock(InstanceBlock, abstract=True):
    """Columns of nodes and the rows they take; `ABSENT` for pairs."""

    @abstractmethod
    def of_rows(self, context: LayoutContext) -> Sequence[NDArray[Any]]:
        """``(R,)`` each column, in order, for every distinct row of the table."""

    def compute(self, context: InstanceContext) -> NDArray[np.float32]:
        columns = np.full((len(context), len(self.columns)), ABSENT, np.float32)
        for number, values in zip(range(len(self.columns)), self.of_rows(context.layout), strict=True):
            columns[: len(context.rows), number] = values[context.rows]
        return columns
