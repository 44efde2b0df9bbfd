"""LightGBM: binning, training and the trained trees.

LightGBM copies the rows sampled for the bin edges several times in double precision: its default of
200,000 rows would take more memory than the bins of a million. This module samples 5000 rows and
bins larger data in batches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.params import MAX_DEPTH, MAX_LEAVES, Interval, ParamSpec, Specs
from xlarank.models.training_data import Dataset, FitSettings, TrainingData

if TYPE_CHECKING:  # imported when trees are grown or read: with scikit-learn it takes 0.7 s
    import lightgbm as lgb

_SHARE: Final = Interval(0, 1, above=True)
#: Parameters of trees, with LightGBM's names. Defaults were chosen by leave-family-out folds. For
#: tiles, trees see fewer rows and columns, because a kernel's five best tiles vary from seed to
#: seed.
LIGHTGBM: Final[Specs] = {
    "learning_rate": ParamSpec(
        0.05,
        Interval(0, above=True),
        Interval(0.02, 0.2, log=True),
        "weight of each tree",
        tile=0.07,
    ),
    "num_leaves": ParamSpec(
        15,
        Interval(2, MAX_LEAVES, whole=True),
        Interval(4, 48, whole=True, log=True),
        "maximum number of leaves per tree",
    ),
    "min_data_in_leaf": ParamSpec(
        20,
        Interval(0, whole=True),
        Interval(5, 100, whole=True, log=True),
        "minimum number of rows per leaf",
    ),
    "feature_fraction": ParamSpec(
        0.5, _SHARE, Interval(0.1, 1.0), "share of the columns used for each tree", tile=0.3
    ),
    "bagging_fraction": ParamSpec(
        0.8, _SHARE, Interval(0.5, 1.0), "share of the rows used for each tree", tile=0.6
    ),
    "lambda_l2": ParamSpec(
        1.0, Interval(0), Interval(0.1, 100.0, log=True), "L2 penalty on leaf values"
    ),
}
#: Rows sampled for the bin edges: a quantile's standard error is at most 0.7 % of the rows; a bin
#: has 1.6 %.
_SAMPLED: Final = 5000
#: Number of values (rows times columns) from which another thread is used if none are requested.
_VALUES_PER_THREAD: Final = 10_000_000
#: Number of values (0.5 GB) from which rows are binned in batches; below it, one copy is faster.
_BATCHED: Final = 2**27


@dataclass(frozen=True, eq=False)
class LightGBMBooster:
    """LightGBM trees that sum to a relevance, higher is faster.

    Predictions use ``threads`` cores, 0 for all.
    """

    trees: lgb.Booster
    threads: int = 0

    file_name = "booster.txt"

    @staticmethod
    def tree_params(params: Mapping[str, Any], settings: FitSettings) -> dict[str, Any]:
        """Return the parameters of training by LightGBM's names."""
        return {
            **{name: params[name] for name in LIGHTGBM},
            "metric": "None",
            "max_depth": MAX_DEPTH,
            "bagging_freq": 1,
            "seed": settings.seed,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": settings.threads,
            "verbose": -1,
        }

    @classmethod
    def fit(cls, dataset: Dataset, used: Indices, settings: FitSettings) -> Self:
        """Grow a tree per round on the columns ``used``, ascending."""
        threads = _useful_threads(settings.threads, dataset, used)
        params = dataset.params | {"num_threads": threads}
        train = bin_rows(dataset, used, threads)
        # If no column can be split, LightGBM refuses custom objectives; built-in ones grow empty
        # stumps.
        can_split = any(map(train.feature_num_bin, range(train.num_feature())))
        if callable(params["objective"]) and not can_split:
            params = params | {"objective": "regression", "boost_from_average": False}
        return cls(train_booster(params, train, settings.rounds), threads)

    @property
    def rounds(self) -> int:
        return int(self.trees.num_trees())

    def relevance(self, values: Matrix) -> Floats:
        """Return the sum of the trees, ``(rows,)``."""
        return np.asarray(self.trees.predict(values, num_threads=self.threads), np.float64)

    def stages(
        self, values: Matrix, scores: Floats, every: int, *, from_zero: bool
    ) -> Iterator[Floats]:
        """Yield ``scores`` minus relevance every ``every`` rounds, first for 0 if ``from_zero``."""
        predict = partial(self.trees.predict, values, num_threads=self.threads)
        if from_zero or not self.rounds:
            yield scores
        for start in range(0, self.rounds, every):
            scores = scores - np.asarray(predict(start_iteration=start, num_iteration=every))
            yield scores

    def contributions(self, values: Matrix) -> Floats:
        """Return ``(rows, used + 1)`` parts of `relevance`: by column, then the constant."""
        return np.asarray(
            self.trees.predict(values, pred_contrib=True, num_threads=self.threads), np.float64
        )

    def gains(self) -> Floats:
        """Return the total gain of the splits on each column, ``(used columns,)``."""
        return np.asarray(self.trees.feature_importance("gain"), np.float64)

    def text(self) -> str:
        """Return the trees as text for `read`, without parameters of training.

        Equal trees on the same number of columns give equal texts.
        """
        end = "\nend of trees\n"
        trees = self.trees.model_to_string().partition(end)[0]
        blocks = [f"Tree={block}\n" for block in trees.split("\nTree=")[1:]]
        features = self.trees.num_feature()
        header = {
            "version": "v4",
            "num_class": 1,
            "num_tree_per_iteration": 1,
            "label_index": 0,
            "max_feature_idx": features - 1,
            "feature_names": " ".join(f"Column_{column}" for column in range(features)),
            "feature_infos": " ".join(["none"] * features),
            "tree_sizes": " ".join(str(len(block)) for block in blocks),
        }
        lines = ["tree", *(f"{name}={value}" for name, value in header.items()), "\n"]
        return ("\n".join(lines) + "".join(blocks)).removesuffix("\n") + end

    @classmethod
    def read(cls, text: str, features: int) -> Self:
        """Read trees on ``features`` columns; raises `ValueError`."""
        import lightgbm as lgb

        try:
            trees = lgb.Booster(model_str=text)
        except lgb.basic.LightGBMError as error:
            raise ValueError(str(error)) from error
        if trees.num_feature() != features:
            raise ValueError(f"its trees are on {trees.num_feature()} columns, not {features}")
        return cls(trees)


class RowSequence:
    """Rows computed on request: LightGBM first requests single rows for the bin edges, then slices.

    Requests for single rows return those of ``sample`` in turn and ignore the index. (LightGBM's
    ``reference`` would take twice the memory.) `bin_rows` registers it as a ``lightgbm.Sequence``.
    """

    batch_size = 1024

    def __init__(
        self, rows: int, read: Callable[[slice], Matrix], sample: Iterator[Matrix]
    ) -> None:
        self._rows = rows
        self._read = read
        self._sample = sample

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: Any) -> NDArray[Any]:
        if isinstance(index, slice):
            return self._read(index)
        return next(self._sample).astype(np.float64)


def bin_rows(dataset: Dataset, used: Indices, threads: int) -> lgb.Dataset:
    """Construct a LightGBM dataset of the columns ``used``, ascending."""
    import lightgbm as lgb

    lgb.Sequence.register(RowSequence)
    data = dataset.data
    sample = bin_sample(data, used)
    # without num_threads, that of the process is reset, and running predictions write out of bounds
    quiet = {"num_threads": threads, "verbose": -1}
    if sample is None:
        rows: Any = data.matrix(used)
    else:
        # silences this thread: the warning of a small sample precedes the parameters of its data
        lgb.Dataset(np.zeros((1, 1)), np.zeros(1), params=quiet).construct()
        single_rows = iter(sample)
        if len(data.cost) * len(used) < _BATCHED:
            rows = [RowSequence(len(data.cost), data.matrix(used).__getitem__, single_rows)]
        else:
            read = partial(data.group_matrix, used=used)
            rows = [
                RowSequence(len(part), partial(read, group), single_rows)
                for group, part in enumerate(data.parts)
            ]
    params = {
        "max_bin": 63,
        "bin_construct_sample_cnt": _SAMPLED,
        "feature_pre_filter": False,
        # LightGBM 4.7 writes out of bounds on some of bagging's subsets of sparse bins
        "is_enable_sparse": False,
        **quiet,
    }
    return lgb.Dataset(
        rows, dataset.label, None, dataset.weight, dataset.group, dataset.init_score, params=params
    ).construct()


def _useful_threads(threads: int, dataset: Dataset, used: Indices) -> int:
    """Return ``threads`` or, for 0, as many as the rows occupy; the trees are equal for any number.

    Threads wait for each other at every node: on two busy cores, two grew 100 trees on 1725 rows in
    7 to 35 s, and one in 0.4 s.
    """
    values = len(dataset.data.cost) * len(used)
    return threads or min(os.cpu_count() or 1, 1 + values // _VALUES_PER_THREAD)


#: LightGBM 4.7 keeps one array of lambdarank label gains per process and replaces it for each
#: booster. Constructing boosters with different group sizes in two threads crashed or mixed up the
#: labels.
_CONSTRUCTION: Final = Lock()


def train_booster(params: dict[str, Any], train: lgb.Dataset, rounds: int) -> lgb.Booster:
    """Train a booster; concurrent calls construct one at a time and grow in parallel."""
    import lightgbm as lgb

    with ExitStack() as construction:
        construction.enter_context(_CONSTRUCTION)
        if not rounds:
            return lgb.Booster(params, train)

        def unlock(_: Any) -> None:
            construction.close()

        unlock.before_iteration = True  # type: ignore[attr-defined]
        return lgb.train(params, train, rounds, callbacks=[unlock])


def bin_sample(data: TrainingData, used: Indices) -> Matrix | None:
    """Sample rows for the bin edges, ``(rows, used columns)``; None means all."""
    if len(data.cost) <= _SAMPLED:
        return None
    drawn = np.sort(np.random.default_rng(0).choice(len(data.cost), _SAMPLED, replace=False))
    by_graph = np.split(drawn, np.searchsorted(drawn, data.indptr[1:-1]))
    parts = zip(data.parts, data.indptr[:-1], by_graph, strict=True)
    return np.concatenate([part.matrix(rows - first, used) for part, first, rows in parts])
