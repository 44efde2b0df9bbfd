"""Rows of pairs: the columns of one configuration, and how they differ from another's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.features.rows import GraphRows
from xlarank.models import ranking_data
from xlarank.models.rankers.lightgbm_data import Batches, Learnable, binning

Indices = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class PairColumns:
    """Which columns of wide rows a pair's row is made of.

    Attributes:
        own: indices of the columns of the first configuration, ascending.
        differences: indices of those whose difference, first minus second, follows, ascending. What is constant
            within a graph has none.
    """

    own: Indices
    differences: Indices

    def __len__(self) -> int:
        return len(self.own) + len(self.differences)

    @property
    def source(self) -> Indices:
        """``(columns of a pair,)`` the column of wide rows behind each."""
        return np.concatenate([self.own, self.differences])

    def of_all(self, first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
        """``(a, b, columns of a pair)`` of each of ``(a, columns)`` with each of ``(b, columns)`` wide rows."""
        found = np.empty((len(first), len(second), len(self)), np.float32)
        found[:, :, : len(self.own)] = first[:, None, self.own]
        np.subtract(
            first[:, None, self.differences], second[None, :, self.differences], out=found[:, :, len(self.own) :]
        )
        return found


@dataclass(frozen=True, eq=False)
class PairPart:
    """Pairs of one graph, written out when they are asked for.

    Attributes:
        rows: the graph's.
        columns: of the pairs.
        first, second: ``(pairs,)`` rows of the graph.
    """

    rows: GraphRows
    columns: PairColumns
    first: Indices
    second: Indices

    def __len__(self) -> int:
        return len(self.first)

    def matrix(
        self, which: Indices | slice | None = None, used: NDArray[np.intp] | None = None
    ) -> NDArray[np.float32]:
        """``(pairs, columns of a pair)`` float32, a copy, as `GraphRows.matrix`."""
        chosen = slice(None) if which is None else which
        first, second = self.first[chosen], self.second[chosen]
        own, apart = self.columns.own, self.columns.differences
        found = np.empty((len(first), len(self.columns)), np.float32)
        found[:, : len(own)] = self.rows.matrix(first, own)
        np.subtract(self.rows.matrix(first, apart), self.rows.matrix(second, apart), out=found[:, len(own) :])
        return found if used is None or len(used) == len(self.columns) else found[:, used]


def binned_pairs(parts: Sequence[PairPart], learned: Learnable, *, threads: int) -> lgb.Dataset:
    """LightGBM's data of the pairs of all graphs, constructed.

    Args:
        parts: one or more, of the same columns.
        learned: of the pairs in their order.
    """
    used = np.arange(len(parts[0].columns))
    rows: Any
    if len(learned.label) * len(used) < ranking_data.BATCHED:
        rows = np.concatenate([part.matrix() for part in parts])
    else:
        rows = [Batches(part, None, used) for part in parts]
    params = {**binning(), "num_threads": threads, "verbose": -1}
    return lgb.Dataset(rows, learned.label, None, learned.weight, None, learned.start, params=params).construct()
