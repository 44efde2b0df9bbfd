"""Rows on their way into LightGBM's binned data, few enough at once and as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.features.rows import GraphRows
from xlarank.models import ranking_data
from xlarank.models.ranking_data import RankingData

#: Rows that the bounds of the bins are found from; with fewer LightGBM warns. Its own 200,000 show nothing more to
#: 63 bins, and of a thousand columns they take twice the time and memory.
_SAMPLED: Final = 100_000


class _Batches(lgb.Sequence):
    """One graph's rows, written out in full when LightGBM asks for them."""

    batch_size = 4096

    def __init__(self, part: GraphRows, order: NDArray[np.intp] | None, used: NDArray[np.intp]) -> None:
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

    No column is left out for the number of rows that a leaf must have (``feature_pre_filter``): the bins serve any.
    """
    return {"max_bin": 63, "bin_construct_sample_cnt": _SAMPLED, "feature_pre_filter": False}


def binned(
    data: RankingData,
    used: NDArray[np.intp],
    learned: Learnable,
    *,
    threads: int,
    orders: Sequence[NDArray[np.intp]] | None = None,
) -> lgb.Dataset:
    """LightGBM's data of some columns, not yet constructed.

    Args:
        used: columns, ascending.
        orders: for each group the order of its rows, where they are not to stay as they are.
    """
    rows: Any
    if len(learned.label) * len(used) < ranking_data.BATCHED:
        rows = data.matrix(orders, used)
    else:
        each = orders if orders is not None else [None] * data.groups
        rows = [_Batches(part, order, used) for part, order in zip(data.parts, each, strict=True)]
    params = {**binning(), "num_threads": threads, "verbose": -1}
    return lgb.Dataset(
        rows, learned.label, group=learned.sizes, weight=learned.weight, init_score=learned.start, params=params
    )
