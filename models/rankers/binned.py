"""Rows in LightGBM's bins, made once and shared by all fits on some or all of their groups.

The bounds of the bins are quantiles of the columns of *all* groups, those that a fold holds out included. They see
no label; what that does to scores is measured in docs/out-of-core.md.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Self

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.models.rankers.bin_files import BinFiles
from xlarank.models.rankers.lightgbm_data import (
    Learnable,
    bin_sample,
    binned,
    binning,
    binning_settings,
    sampled_rows,
)
from xlarank.models.rankers.row_order import dealt_orders
from xlarank.models.ranking_data import RankingData
from xlarank.models.row_digest import row_digest

#: Choices of columns and orders whose bins stay in memory.
KEPT: Final = 2


class BinnedRows:
    """The bins of a training set's rows, for each choice of columns and each order when first asked for.

    Fits of rankers on LightGBM's trees take them from `xlarank.models.fit_settings.FitSettings.bins`. Threads may
    share one; processes share the files of one folder, where whoever comes first makes what the others read.

    Attributes:
        data: the rows.
        frugal: never hold the bins of all rows beside those of some: for rows that hardly fit. Bins of some are
            then made from the rows at each call, by the bounds of all.
    """

    def __init__(
        self,
        data: RankingData,
        *,
        folder: Path | None = None,
        threads: int = 0,
        frugal: bool = False,
        kept: int = KEPT,
    ) -> None:
        """Args:
        folder: where the bins are kept as files (see `BinFiles`); None for memory alone.
        threads: 0 takes all cores.
        kept: choices of columns and orders whose bins stay in memory.
        """
        self.data = data
        self._most = kept
        self.frugal = frugal
        self._threads = threads
        self._files = None if folder is None else BinFiles(folder)
        self._number = {id(part): number for number, part in enumerate(data.parts)}
        self._kept: dict[tuple[bytes, int | None], lgb.Dataset] = {}
        self._drawn: tuple[bytes, NDArray[np.float32] | None] | None = None
        self._lock = threading.RLock()
        self._digest = ""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: it is there to be shared, by copies of settings, too."""
        return self

    def holds(self, data: RankingData) -> bool:
        """Whether these are some of the very groups, in their order."""
        if data.columns != self.data.columns:
            return False
        numbers = [self._number.get(id(part), -1) for part in data.parts]
        return min(numbers) >= 0 and all(a < b for a, b in pairwise(numbers))

    def prepare(self, used: NDArray[np.intp], *, deal: int | None = None) -> None:
        """Make the bins of some columns now, in memory and on disk: before several processes need them at once."""
        with self._lock:
            self._keep(used, deal, self._whole(used, deal))

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
            if self.frugal:
                _give_back()
            sample = self._sample(used) if self.frugal and data.groups < self.data.groups else None
            if sample is not None and len(data.cost) >= len(sample):
                orders = dealt_orders(data, deal)
                train = binned(data, used, learned, threads=self._threads, orders=orders, sample=sample)
            else:
                train = self._some(data, used, deal)
        train.set_label(learned.label)
        train.set_weight(learned.weight)
        train.set_group(learned.sizes)
        train.set_init_score(learned.start)
        return train

    def _some(self, data: RankingData, used: NDArray[np.intp], deal: int | None) -> lgb.Dataset:
        """The bins of some rows out of those of all, without labels."""
        whole = self._whole(used, deal)
        if data.groups == self.data.groups:
            self._kept.pop(_key(used, deal), None)  # handed over, not copied: who asks next reads or makes it anew
            return whole
        self._keep(used, deal, whole)
        indices: Any = self._rows_of(data)
        some = whole.subset([0])
        some.used_indices = indices  # as it is, where `subset` would make a list of numbers of it
        some.construct()
        some.reference = None  # else it keeps all rows in memory
        return some

    def _sample(self, used: NDArray[np.intp]) -> NDArray[np.float32] | None:
        """What the bounds of the bins of all rows are found from, where that is not all rows."""
        if self._drawn is None or self._drawn[0] != used.tobytes():
            self._drawn = None
            self._drawn = used.tobytes(), bin_sample(self.data, used)
        return self._drawn[1]

    def _whole(self, used: NDArray[np.intp], deal: int | None) -> lgb.Dataset:
        """The bins of all rows: kept, read or made."""
        kept = self._kept.get(_key(used, deal))
        if kept is not None:
            return kept
        params = binning_settings(self._threads)
        if self._files is None:
            return self._made(used, deal)
        identity = self._identity(used, deal)
        with self._files.turn():
            found = self._files.read(identity, params)
            if found is None:
                found = self._made(used, deal)
                self._files.write(identity, found)
                if self.frugal:  # what is read takes a quarter less: bins that were made keep room for making them
                    found = None
                    _give_back()
                    found = self._files.read(identity, params)
        return self._made(used, deal) if found is None else found

    def _made(self, used: NDArray[np.intp], deal: int | None) -> lgb.Dataset:
        nothing = Learnable(label=np.zeros(len(self.data.cost)))
        return binned(
            self.data, used, nothing, threads=self._threads, orders=dealt_orders(self.data, deal),
            sample=self._sample(used) if self.frugal else None,
        )  # fmt: skip

    def _keep(self, used: NDArray[np.intp], deal: int | None, whole: lgb.Dataset) -> None:
        if self.frugal and self._files is not None:
            return
        key = _key(used, deal)
        self._kept.pop(key, None)
        self._kept[key] = whole  # the latest comes last
        for old in list(self._kept)[: -self._most]:
            del self._kept[old]

    def _identity(self, used: NDArray[np.intp], deal: int | None) -> dict[str, Any]:
        """All that decides the bins: a file of them is used where this is the same."""
        if not self._digest:
            self._digest = row_digest(self.data)
        return {
            "lightgbm": lgb.__version__,
            "binning": binning(),
            "sampled": sampled_rows(len(self.data.cost)),
            "rows": self._digest,
            "columns": [self.data.columns[number] for number in used],
            "deal": deal,
        }

    def _rows_of(self, data: RankingData) -> NDArray[np.int32]:
        """Numbers of the rows of some groups among all."""
        starts = self.data.indptr
        numbers = [self._number[id(part)] for part in data.parts]
        return np.concatenate([np.arange(starts[g], starts[g + 1], dtype=np.int32) for g in numbers])


def _give_back() -> None:
    """Return memory that was freed to the system, where the C library can (glibc).

    It keeps what it was given in columns of less than 128 KB, and columns of the next bins are longer or shorter.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _key(used: NDArray[np.intp], deal: int | None) -> tuple[bytes, int | None]:
    return used.tobytes(), deal
