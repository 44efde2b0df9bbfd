"""LightGBM's binned data of the rows of many graphs.

LightGBM chooses the edges of its bins from a sample of rows, which it holds as doubles, several times over: its own
sample of 200,000 rows of a thousand columns would take more memory than the bins of a million. So the sample is
drawn here, and all rows are then binned piece by piece.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Final

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.training_data import TrainingData, in_batches

#: Rows sampled for the bin edges. A quantile of so many has a standard error of 0.7 % of the rows at most, where
#: one of 63 bins holds 1.6 %. Of 5000 configurations of a real graph, edges from 250 taught as much as edges from
#: all (tau of ranknet 0.849 each).
_SAMPLED: Final = 5000


class Batches(lgb.Sequence):
    """Rows that are written out when LightGBM asks for them.

    LightGBM asks for single rows, as many as it samples for the bin edges, and then for slices. It is given rows of
    ``sample``, if any, whichever it names. (With a ``reference`` it would take twice the memory.)
    """

    batch_size = 1024

    def __init__(self, rows: int, read: Callable[[slice], Matrix], sample: Iterator[Matrix] | None = None) -> None:
        self._rows, self._read, self._sample = rows, read, sample

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """A slice as ``(rows, columns)`` float32, a number as ``(columns,)`` float64."""
        if isinstance(index, slice):
            return self._read(index)
        row = self._read(slice(index, index + 1))[0] if self._sample is None else next(self._sample)
        return row.astype(np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class RowTargets:
    """What trees learn of rows, ``(rows,)`` in their order."""

    label: Floats
    weight: Floats | None = None
    start: Floats | None = None  # what trees add to
    sizes: list[int] | None = None  # of query groups, where there are any

    def binned(self, rows: Any, threads: int) -> lgb.Dataset:
        """LightGBM's data of a matrix or of `Batches`, constructed."""
        params = {**binning(), "num_threads": threads, "verbose": -1}
        return lgb.Dataset(rows, self.label, None, self.weight, self.sizes, self.start, params=params).construct()


def binning() -> dict[str, Any]:
    """LightGBM's parameters that decide the bins.

    No column is left out for the number of rows that a leaf must have (``feature_pre_filter``), a parameter of the
    trees. None is kept sparse: LightGBM 4.7 then writes beyond its memory on some subsets of real rows, such
    as those of AlexNet's file among those of two U-Nets, and bagging takes subsets.
    """
    return {
        "max_bin": 63, "bin_construct_sample_cnt": _SAMPLED, "feature_pre_filter": False, "is_enable_sparse": False,
    }  # fmt: skip


def binned(data: TrainingData, used: Indices, targets: RowTargets, threads: int) -> lgb.Dataset:
    """LightGBM's data of the columns ``used``, ascending, constructed."""
    sample = bin_sample(data, used)
    drawn = None if sample is None else iter(sample)
    if drawn is not None:
        silence_lightgbm(threads)
    if in_batches(len(data.cost), len(used)):
        read = [partial(data.group_matrix, group, used=used) for group in range(data.groups)]
        rows: Any = [Batches(len(part), one, drawn) for part, one in zip(data.parts, read, strict=True)]
    else:
        rows = data.matrix(used)
        if drawn is not None:
            rows = [Batches(len(rows), rows.__getitem__, drawn)]
    return targets.binned(rows, threads)


#: LightGBM 4.7 keeps the label gains of lambdarank once for the whole process and replaces them whenever a booster
#: is constructed. Two threads at it, with groups of different sizes, ended the process or mixed up the labels.
_CONSTRUCTION: Final = Lock()
os.register_at_fork(
    before=_CONSTRUCTION.acquire, after_in_parent=_CONSTRUCTION.release, after_in_child=_CONSTRUCTION.release
)


def train_booster(params: dict[str, Any], train: lgb.Dataset, rounds: int, **settings: Any) -> lgb.Booster:
    """Call `lightgbm.train`; only one thread of the process constructs a booster at a time, all may grow theirs."""
    with ExitStack() as construction:
        construction.enter_context(_CONSTRUCTION)

        def constructed(_: Any) -> None:
            construction.close()

        vars(constructed)["before_iteration"] = True
        return lgb.train(params, train, rounds, callbacks=[constructed], **settings)


def silence_lightgbm(threads: int) -> None:
    """Silence LightGBM in this thread: its level is set where parameters are read, too late for some messages.

    Parameters without a number of threads would set that of the whole process, and predictions that run in other
    threads would write beyond the buffers that they made for fewer.
    """
    params = {"verbose": -1, "num_threads": threads}
    lgb.Dataset(np.zeros((1, 1)), np.zeros(1), params=params).construct()


def bin_sample(data: TrainingData, used: Indices) -> Matrix | None:
    """``(rows, used columns)`` rows sampled evenly for the bin edges, whatever their order; None means all."""
    if len(data.cost) <= _SAMPLED:
        return None
    drawn = np.sort(np.random.default_rng(0).choice(len(data.cost), _SAMPLED, replace=False))
    each = np.split(drawn, np.searchsorted(drawn, data.indptr[1:-1]))
    parts = zip(data.parts, data.indptr[:-1], each, strict=True)
    return np.concatenate([part.matrix(rows - first, used) for part, first, rows in parts])
