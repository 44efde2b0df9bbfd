"""Rows on their way into LightGBM's binned data, few enough at once and as they are.

LightGBM chooses the bounds of its bins from a sample of rows, which it holds as doubles, several times over: its
own sample of 200,000 rows of a thousand columns would take more memory than the bins of a million. So the bounds
are found from a sample that is drawn here, and all rows are then sorted into them piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.features.rows import GraphRows
from xlarank.features.sampling import draw_of_graph
from xlarank.models.ranking_data import RankingData

#: Rows that the bounds of the bins are found from. A quantile of so many has a standard error of 0.7 % of the rows
#: at most, where one of 63 bins holds 1.6 %. Of 5000 configurations of a real graph, bounds from 250 taught as much
#: as bounds from all (tau of ranknet 0.849 each).
_SAMPLED: Final = 5000


class Part(Protocol):
    """Rows of one graph, as `xlarank.features.rows.GraphRows` has them."""

    def __len__(self) -> int:
        """Number of rows."""

    def matrix(
        self, which: NDArray[np.intp] | slice | None = None, used: NDArray[np.intp] | None = None
    ) -> NDArray[np.float32]:
        """``(rows, columns)`` float32, a copy: all rows or ``which``, all columns or ``used``, ascending."""


class Batches(lgb.Sequence):
    """One graph's rows, written out in full when LightGBM asks for them."""

    batch_size = 1024

    def __init__(self, part: Part, order: NDArray[np.intp] | None, used: NDArray[np.intp]) -> None:
        self._part, self._order, self._used = part, order, used

    def __len__(self) -> int:
        return len(self._part)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """A slice as ``(rows, columns)`` float32; a number as ``(columns,)`` float64, as LightGBM samples them."""
        if isinstance(index, slice):
            return self._part.matrix(index if self._order is None else self._order[index], self._used)
        row = index if self._order is None else self._order[index]
        wide = self._part.matrix(np.array([row]), self._used).astype(np.float64)
        return wide.reshape(-1)


@dataclass(frozen=True, eq=False, kw_only=True)
class Learnable:
    """What trees learn of rows, in the order that the rows have.

    Attributes:
        label, weight, start: ``(rows,)``; trees add to ``start``.
        sizes: rows of each query group, where the objective has them.
    """

    label: NDArray[np.float64]
    weight: NDArray[np.float64] | None = None
    start: NDArray[np.float64] | None = None
    sizes: list[int] | None = None


def binning() -> dict[str, Any]:
    """All that decides the bins, LightGBM's parameters.

    No column is left out for the number of rows that a leaf must have (``feature_pre_filter``), a parameter of the
    trees. None is kept sparse: LightGBM 4.7 then writes beyond its memory on some subsets of real rows, such
    as those of AlexNet's file among those of two U-Nets, and bagging takes subsets.
    """
    return {
        "max_bin": 63,
        "bin_construct_sample_cnt": _SAMPLED,
        "feature_pre_filter": False,
        "is_enable_sparse": False,
    }


def binning_settings(threads: int) -> dict[str, Any]:
    """LightGBM's parameters of binned data."""
    return {**binning(), "num_threads": threads, "verbose": -1}


def sampled_rows(rows: int) -> int:
    """How many of so many rows the bounds of the bins are found from.

    >>> [sampled_rows(rows) for rows in (1000, 145_000)]
    [1000, 5000]
    """
    return min(rows, _SAMPLED)


def binned(
    data: RankingData,
    used: NDArray[np.intp],
    learned: Learnable,
    *,
    threads: int,
    orders: Sequence[NDArray[np.intp]] | None = None,
) -> lgb.Dataset:
    """LightGBM's data of some columns, constructed.

    Args:
        used: columns, ascending.
        orders: for each group the order of its rows, where they are not to stay as they are.
    """
    sample = bin_sample(data, used)
    if data.batched(len(used)):
        each = orders if orders is not None else [None] * data.groups
        rows: Any = [Batches(part, order, used) for part, order in zip(data.parts, each, strict=True)]
    else:
        rows = data.matrix(orders, used)
    if sample is not None:
        hush()
        drawn = iter(sample)
        rows = [_Drawn(one, drawn) for one in (rows if isinstance(rows, list) else [rows])]
    return lgb.Dataset(
        rows, learned.label, None, learned.weight, learned.sizes, learned.start, params=binning_settings(threads)
    ).construct()


def hush() -> None:
    """Keep LightGBM silent in this thread, from the first: its level is one of each thread.

    It is set where parameters are read, which comes too late for some of what it says of sampled rows, and never
    where data are saved.
    """
    lgb.Dataset(np.zeros((1, 1)), np.zeros(1), params={"verbose": -1}).construct()


class _Drawn(lgb.Sequence):
    """Rows that are binned by bounds from other rows.

    LightGBM asks for single rows, as many as it finds bounds from, and then for slices: it is given rows of the
    sample, whichever it names, and the slices. (Data that are told their bounds by a ``reference`` would take twice
    the memory: LightGBM keeps what was pushed of each column that is mostly zero.)
    """

    batch_size = Batches.batch_size

    def __init__(self, rows: Any, drawn: Iterator[NDArray[np.float32]]) -> None:
        self._rows, self._drawn = rows, drawn

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        found: NDArray[Any] = (
            self._rows[index] if isinstance(index, slice) else next(self._drawn).astype(np.float64)
        )
        return found


def bin_sample(data: RankingData, used: NDArray[np.intp]) -> NDArray[np.float32] | None:
    """``(rows, used columns)`` rows drawn evenly to find the bounds of the bins from; None where it would be all.

    They are the same ones in whatever order the rows are to stand.
    """
    count = sampled_rows(len(data.cost))
    if count == len(data.cost):
        return None
    drawn = np.sort(np.random.default_rng(0).choice(len(data.cost), count, replace=False))
    bounds = np.searchsorted(drawn, data.indptr)
    found = np.empty((count, len(used)), np.float32)
    for part, first, a, b in zip(data.parts, data.indptr[:-1], bounds[:-1], bounds[1:], strict=True):
        if a < b:
            found[a:b] = part.matrix(drawn[a:b] - first, used)
    return found


def dealt_order(part: GraphRows, seed: int) -> NDArray[np.intp]:
    """``(rows,)`` a graph's rows shuffled; it depends on the seed and the graph alone.

    So the same rows serve query groups of any size, cut one after the other, and any choice of graphs.
    """
    return draw_of_graph(seed, part.name).permutation(len(part))


def dealt_orders(data: RankingData, seed: int | None) -> list[NDArray[np.intp]] | None:
    """`dealt_order` of each graph; None, as the rows are, without a seed."""
    return None if seed is None else [dealt_order(part, seed) for part in data.parts]


def even_sizes(rows: int, most: int) -> list[int]:
    """Rows of the fewest query groups of at most ``most`` that a graph can be cut into, even in size.

    >>> even_sizes(10, 4)
    [4, 3, 3]
    """
    parts = -(-rows // most)
    size, larger = divmod(rows, parts)
    return [size + 1] * larger + [size] * (parts - larger)
