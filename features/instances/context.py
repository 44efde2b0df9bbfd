"""Shared intermediate results of the instances of one graph, before equal ones become one."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from xlarank.features.instances.pairs import PairCombinations
from xlarank.features.layout.context import LayoutContext
from xlarank.features.program.tensors import Ints


class InstanceContext:
    """Which rows and combinations of rows of a graph are instances: first all rows, then all combinations.

    Rows of nodes that have no other row, and combinations of pairs that have no other, are no instances.

    Attributes:
        layout: the graph's context.
    """

    def __init__(self, layout: LayoutContext) -> None:
        self.layout = layout

    @cached_property
    def combinations(self) -> PairCombinations:
        """What the pairs can take."""
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
