"""Rows in LightGBM's bins, made once and shared by all fits on some or all of their groups.

The bounds of the bins are quantiles of the columns of *all* groups, those that a fold holds out included. They see
no label.
"""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any, Final, Self

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.models.rankers.lightgbm_data import Learnable, binned
from xlarank.models.rankers.row_order import dealt_orders
from xlarank.models.ranking_data import RankingData

#: Choices of columns and orders whose bins are kept.
_KEPT: Final = 2


class BinnedRows:
    """The bins of a training set's rows, for each choice of columns and each order when first asked for.

    Fits of rankers on LightGBM's trees take them from `xlarank.models.fit_settings.FitSettings.bins`. Threads may
    share one.

    Attributes:
        data: the rows.
    """

    def __init__(self, data: RankingData, *, threads: int = 0) -> None:
        """``threads``: 0 takes all cores."""
        self.data = data
        self._threads = threads
        self._number = {id(part): number for number, part in enumerate(data.parts)}
        self._kept: dict[tuple[bytes, int | None], lgb.Dataset] = {}
        self._lock = threading.RLock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: copies of settings share it, too."""
        return self

    def holds(self, data: RankingData) -> bool:
        """Whether these are some of the very groups, in their order."""
        if data.columns != self.data.columns:
            return False
        numbers = [self._number.get(id(part), -1) for part in data.parts]
        return min(numbers) >= 0 and all(a < b for a, b in pairwise(numbers))

    def dataset(
        self, data: RankingData, used: NDArray[np.intp], learned: Learnable, *, deal: int | None = None
    ) -> lgb.Dataset:
        """LightGBM's data of groups that are held, constructed; the caller's own.

        Args:
            used: columns, ascending.
            learned: of the rows of ``data`` in the order that ``deal`` gives.
            deal: the seed that each graph's rows are shuffled by; None: they stay as they are.
        """
        with self._lock:
            train = self._some(data, used, deal)
        train.set_label(learned.label)
        train.set_weight(learned.weight)
        train.set_group(learned.sizes)
        train.set_init_score(learned.start)
        return train

    def _some(self, data: RankingData, used: NDArray[np.intp], deal: int | None) -> lgb.Dataset:
        """The bins of some rows out of those of all, without labels."""
        key = used.tobytes(), deal
        whole = self._kept.pop(key, None)
        if whole is None:
            whole = binned(
                self.data, used, Learnable(label=np.zeros(len(self.data.cost))), threads=self._threads,
                orders=dealt_orders(self.data, deal),
            )  # fmt: skip
        if data.groups == self.data.groups:
            return whole  # handed over: a copy would take as much memory again
        self._kept[key] = whole  # the latest comes last
        for old in list(self._kept)[:-_KEPT]:
            del self._kept[old]
        indices: Any = self._rows_of(data)
        some = whole.subset([0])
        some.used_indices = indices  # as it is, where `subset` would make a list of numbers of it
        some.construct()
        some.reference = None  # else it keeps all rows in memory
        return some

    def _rows_of(self, data: RankingData) -> NDArray[np.int32]:
        """Numbers of the rows of some groups among all."""
        starts = self.data.indptr
        numbers = [self._number[id(part)] for part in data.parts]
        return np.concatenate([np.arange(starts[g], starts[g + 1], dtype=np.int32) for g in numbers])
