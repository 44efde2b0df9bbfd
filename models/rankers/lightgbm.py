"""LightGBM: binning, training and the trained trees.

LightGBM makes several double-precision copies of the rows sampled for the bin edges: its default of 200,000 would
take more memory than the bins of a million rows. This module draws a smaller sample and bins all rows in batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Final, Self

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.params import Whole
from xlarank.models.rankers.booster_text import checked_text, first_trees, joined, without_parameters
from xlarank.models.training_data import FitSettings, Task, TrainingData, in_batches

Objective = Callable[[Floats, lgb.Dataset], tuple[Floats, Floats]]
#: Booster with its training data, its custom objective if any, and its number of rounds.
Growing = tuple[lgb.Booster, Objective | None, int]

#: Rows sampled for the bin edges: the standard error of a quantile is at most 0.7 % of the rows; a bin holds 1.6 %.
_SAMPLED: Final = 5000


@dataclass(frozen=True, eq=False)
class LightGBMBooster:
    """LightGBM trees that sum to a relevance; higher is faster.

    Attributes:
        trees: all trees, beginning with those of ``base``.
        threads: number of threads for prediction, 0 for all cores.
        base: trees of the warm start, if any.
        growing: state of `grow`.
    """

    trees: lgb.Booster
    threads: int = 0
    base: LightGBMBooster | None = None
    growing: Growing | None = None

    file_name = "booster.txt"

    @classmethod
    def fit(cls, task: Task, used: Indices, settings: FitSettings, base: Self | None = None) -> Self:
        """Grow a tree per round on the columns ``used``, ascending, and append them to the trees of ``base``."""
        if settings.cluster is not None:
            return cls.appended(settings.cluster.grow(task, used, settings.rounds), settings.threads, base)
        params, train = task.params, bin_rows(task, used, settings.threads)
        objective: Objective | None = params["objective"] if callable(params["objective"]) else None
        # If no column can be split, LightGBM refuses custom objectives; built-in ones grow empty stumps.
        if objective and not can_split(train):
            params, objective = params | {"objective": "regression", "boost_from_average": False}, None
        grown = train_booster(params, train, settings)
        growing = (grown, objective, settings.rounds) if settings.grows else None
        return cls.appended(grown, settings.threads, base, growing)

    @classmethod
    def appended(
        cls, grown: lgb.Booster, threads: int, base: LightGBMBooster | None, growing: Growing | None = None
    ) -> Self:
        """Return the trees of ``base``, if any, followed by the ``grown`` ones."""
        if base and base.rounds:
            grown = lgb.Booster(model_str=joined(base.trees.model_to_string(), grown.model_to_string()))
        return cls(grown, threads, base, growing)

    @property
    def rounds(self) -> int:
        """Number of trees, excluding those of ``base``."""
        return int(self.trees.num_trees()) - (self.base.rounds if self.base else 0)

    def grow(self, settings: FitSettings) -> Self | None:
        """Return the trees after more rounds on the same data; None if `fit` must be called again."""
        if self.growing is None or settings.rounds < self.growing[2]:
            return None
        grown, objective, rounds = self.growing
        silence_lightgbm(settings.threads)
        for _ in range(settings.rounds - rounds):
            grown.update(fobj=objective)
        growing = (grown, objective, settings.rounds) if settings.grows else None
        return self.appended(grown if growing else reread(grown), self.threads, self.base, growing)

    def first(self, trees: int | None = None) -> Self:
        """Return the first ``trees`` trees, by default all, as a warm start."""
        return type(self)(lgb.Booster(model_str=first_trees(self.trees.model_to_string(), trees)), self.threads)

    def relevance(self, values: Matrix, threads: int | None = None) -> Floats:
        """Return the sum of the trees, ``(rows,)``; ``threads`` are by default those of `fit`."""
        threads = self.threads if threads is None else threads
        return np.asarray(self.trees.predict(values, num_threads=threads), np.float64)

    def stages(self, values: Matrix, scores: Floats, every: int, *, from_zero: bool) -> Iterator[Floats]:
        """Yield ``scores`` minus relevance every ``every`` rounds, from ``base`` alone if ``from_zero``."""
        predict = partial(self.trees.predict, values, num_threads=self.threads)
        first = self.trees.num_trees() - self.rounds
        if first:
            scores = scores - np.asarray(predict(num_iteration=first))
        if from_zero or self.rounds <= 0:
            yield scores
        for start in range(first, self.trees.num_trees(), every):
            scores = scores - np.asarray(predict(start_iteration=start, num_iteration=every))
            yield scores

    def contributions(self, values: Matrix) -> Floats:
        """Return each column's contribution to `relevance`, then the constant term, ``(rows, used + 1)``."""
        return np.asarray(self.trees.predict(values, pred_contrib=True, num_threads=self.threads), np.float64)

    def gains(self) -> Floats:
        """Return the total gain of the splits on each column, ``(used columns,)``."""
        return np.asarray(self.trees.feature_importance("gain"), np.float64)

    def text(self) -> str:
        """Return the trees as text for `read`."""
        return without_parameters(self.trees.model_to_string())

    @classmethod
    def read(cls, text: str, features: int, base: int) -> Self:
        """Read trees on ``features`` columns, the first ``base`` of a warm start; raises `ValueError`."""
        try:
            booster = cls(lgb.Booster(model_str=checked_text(text, features)))
        except lgb.basic.LightGBMError as error:
            raise ValueError(str(error)) from error
        count = Whole(0, booster.rounds)("start_trees", base)
        return replace(booster, base=booster.first(count)) if count else booster


def reread(booster: lgb.Booster) -> lgb.Booster:
    """Return the trees of a booster without its data, like `lightgbm.train`."""
    return lgb.Booster(model_str=booster.model_to_string())


class Batches(lgb.Sequence):
    """Rows computed on request.

    LightGBM first requests single rows to sample the bin edges, then slices. If ``sample`` is given, each request
    for a single row returns its next row, for any index. (A ``reference`` would take twice the memory.)
    """

    batch_size = 1024

    def __init__(self, rows: int, read: Callable[[slice], Matrix], sample: Iterator[Matrix] | None = None) -> None:
        self._rows, self._read, self._sample = rows, read, sample

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Return a slice as ``(rows, columns)`` float32, a single row as ``(columns,)`` float64."""
        if isinstance(index, slice):
            return self._read(index)
        row = self._read(slice(index, index + 1))[0] if self._sample is None else next(self._sample)
        return row.astype(np.float64)


def binning() -> dict[str, Any]:
    """Return LightGBM's binning parameters.

    Sparse bins are disabled: with them LightGBM 4.7 writes out of bounds on some of bagging's subsets of rows.
    """
    sampled = {"bin_construct_sample_cnt": _SAMPLED, "feature_pre_filter": False}
    return {"max_bin": 63, **sampled, "is_enable_sparse": False}


def bin_rows(task: Task, used: Indices, threads: int) -> lgb.Dataset:
    """Construct a LightGBM dataset of the columns ``used``, ascending."""
    data, sample = task.data, bin_sample(task.data, used)
    single_rows = None if sample is None else iter(sample)
    if single_rows is not None:
        silence_lightgbm(threads)
    if in_batches(len(data.cost), len(used)):
        readers = [partial(data.group_matrix, group, used=used) for group in range(data.groups)]
        rows: Any = [Batches(len(part), read, single_rows) for part, read in zip(data.parts, readers, strict=True)]
    else:
        rows = data.matrix(used)
        if single_rows is not None:
            rows = [Batches(len(rows), rows.__getitem__, single_rows)]
    params = {**binning(), "num_threads": threads, "verbose": -1}
    return lgb.Dataset(rows, task.label, None, task.weight, task.sizes, task.start, params=params).construct()


def can_split(train: lgb.Dataset) -> bool:
    """Return whether any column has more than one bin."""
    return any(train.feature_num_bin(column) for column in range(train.num_feature()))


#: LightGBM 4.7 keeps one array of lambdarank label gains per process and replaces it for each booster. Constructing
#: boosters with different group sizes in two threads crashed or mixed up the labels.
_CONSTRUCTION: Final = Lock()
os.register_at_fork(
    before=_CONSTRUCTION.acquire, after_in_parent=_CONSTRUCTION.release, after_in_child=_CONSTRUCTION.release
)


def train_booster(params: dict[str, Any], train: lgb.Dataset, settings: FitSettings) -> lgb.Booster:
    """Call `lightgbm.train`; concurrent calls construct boosters one at a time and grow them in parallel."""
    if not settings.rounds:
        return lgb.Booster(params, train)
    with ExitStack() as construction:
        construction.enter_context(_CONSTRUCTION)

        def constructed(_: Any) -> None:
            construction.close()

        vars(constructed)["before_iteration"] = True
        keep = settings.grows
        return lgb.train(params, train, settings.rounds, callbacks=[constructed], keep_training_booster=keep)


def silence_lightgbm(threads: int) -> None:
    """Silence LightGBM in this thread; its own parameters are read too late for some messages."""
    # omitting num_threads would reset that of the process, and running predictions would write out of bounds
    params = {"verbose": -1, "num_threads": threads}
    lgb.Dataset(np.zeros((1, 1)), np.zeros(1), params=params).construct()


def bin_sample(data: TrainingData, used: Indices) -> Matrix | None:
    """Sample rows for the bin edges, ``(rows, used columns)``; None means all."""
    if len(data.cost) <= _SAMPLED:
        return None
    drawn = np.sort(np.random.default_rng(0).choice(len(data.cost), _SAMPLED, replace=False))
    by_graph = np.split(drawn, np.searchsorted(drawn, data.indptr[1:-1]))
    parts = zip(data.parts, data.indptr[:-1], by_graph, strict=True)
    return np.concatenate([part.matrix(rows - first, used) for part, first, rows in parts])
