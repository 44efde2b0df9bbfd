"""LightGBM: binning, training, the trained trees, and checks of their text.

LightGBM copies the rows sampled for the bin edges several times in double precision: its default of
200,000 rows would take more memory than the bins of a million. This module samples 5000 rows and
bins larger data in batches.

LightGBM and XGBoost trust their text: they follow children out of range, rely on stated sizes, and
loop forever over cyclic children. So every count, index and number is checked first, and only the
form of trees that these rankers grow is accepted: one value per leaf, no categories, no linear
leaves.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Final, Self

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.params import INT_MAX, Whole
from xlarank.models.training_data import FitSettings, Task, TrainingData, in_batches

Objective = Callable[[Floats, lgb.Dataset], tuple[Floats, Floats]]
#: Booster with its training data, its custom objective if any, and its number of rounds.
Growing = tuple[lgb.Booster, Objective | None, int]

#: Parameters of trees that a loss declares.
TREE_PARAMS: Final = (
    "learning_rate",
    "num_leaves",
    "min_data_in_leaf",
    "feature_fraction",
    "bagging_fraction",
    "lambda_l2",
)
#: Rows sampled for the bin edges: a quantile's standard error is at most 0.7 % of the rows; a bin
#: has 1.6 %.
_SAMPLED: Final = 5000


@dataclass(frozen=True, eq=False)
class LightGBMBooster:
    """LightGBM trees that sum to a relevance, higher is faster.

    The first trees are those of the warm start ``base``, if any. Predictions use ``threads`` cores,
    0 for all.
    """

    trees: lgb.Booster
    threads: int = 0
    base: LightGBMBooster | None = None
    growing: Growing | None = None

    file_name = "booster.txt"

    @staticmethod
    def tree_params(params: Mapping[str, Any], settings: FitSettings) -> dict[str, Any]:
        """Return the parameters of training by LightGBM's names."""
        return {
            **{name: params[name] for name in TREE_PARAMS},
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
    def fit(
        cls, task: Task, used: Indices, settings: FitSettings, base: Self | None = None
    ) -> Self:
        """Grow a tree per round on the columns ``used``, ascending, and append them to ``base``."""
        if settings.cluster is not None:
            return cls.appended(
                settings.cluster.grow(task, used, settings.rounds), settings.threads, base
            )
        params = task.params
        train = bin_rows(task, used, settings.threads)
        objective: Objective | None = params["objective"] if callable(params["objective"]) else None
        # If no column can be split, LightGBM refuses custom objectives; built-in ones grow empty
        # stumps.
        if objective and not can_split(train):
            params = params | {"objective": "regression", "boost_from_average": False}
            objective = None
        grown = train_booster(params, train, settings)
        growing = (grown, objective, settings.rounds) if settings.grows else None
        return cls.appended(grown, settings.threads, base, growing)

    @classmethod
    def appended(
        cls,
        grown: lgb.Booster,
        threads: int,
        base: LightGBMBooster | None,
        growing: Growing | None = None,
    ) -> Self:
        """Return the trees of ``base``, if any, followed by the ``grown`` ones."""
        if base and base.rounds:
            head, trees = _split(grown.model_to_string())
            earlier_trees = _split(base.trees.model_to_string())[1]
            grown = lgb.Booster(model_str=_join(head, [*earlier_trees, *trees]))
        return cls(grown, threads, base, growing)

    @property
    def rounds(self) -> int:
        """Number of trees, excluding those of ``base``."""
        return int(self.trees.num_trees()) - (self.base.rounds if self.base else 0)

    def grow(self, settings: FitSettings) -> Self | None:
        """Return the trees after more rounds on the same data; None if `fit` must be called
        again.
        """
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
        return type(self)(
            lgb.Booster(model_str=first_trees(self.trees.model_to_string(), trees)), self.threads
        )

    def relevance(self, values: Matrix, threads: int | None = None) -> Floats:
        """Return the sum of the trees, ``(rows,)``; ``threads`` defaults to that of `fit`."""
        threads = self.threads if threads is None else threads
        return np.asarray(self.trees.predict(values, num_threads=threads), np.float64)

    def stages(
        self, values: Matrix, scores: Floats, every: int, *, from_zero: bool
    ) -> Iterator[Floats]:
        """Yield ``scores`` minus relevance every ``every`` rounds; first for 0 if ``from_zero`` or
        untrained.
        """
        predict = partial(self.trees.predict, values, num_threads=self.threads)
        base_trees = self.trees.num_trees() - self.rounds
        if base_trees:
            scores = scores - np.asarray(predict(num_iteration=base_trees))
        if from_zero or not self.rounds:
            yield scores
        for start in range(base_trees, self.trees.num_trees(), every):
            scores = scores - np.asarray(predict(start_iteration=start, num_iteration=every))
            yield scores

    def contributions(self, values: Matrix) -> Floats:
        """Return each column's contribution to `relevance`, then the constant term, ``(rows, used +
        1)``.
        """
        return np.asarray(
            self.trees.predict(values, pred_contrib=True, num_threads=self.threads), np.float64
        )

    def gains(self) -> Floats:
        """Return the total gain of the splits on each column, ``(used columns,)``."""
        return np.asarray(self.trees.feature_importance("gain"), np.float64)

    def text(self) -> str:
        """Return the trees as text for `read`, without parameters of training: equal trees give
        equal files.
        """
        text = re.sub(
            r"\nmonotone_constraints=[-01 ]*(?=\n)", "", self.trees.model_to_string(), count=1
        )
        return f"{text.partition(_END)[0]}{_END}\nparameters:\n{_LAST}"

    @classmethod
    def read(cls, text: str, features: int, base: int) -> Self:
        """Read trees on ``features`` columns, the first ``base`` trees a warm start; raises
        `ValueError`.
        """
        try:
            booster = cls(lgb.Booster(model_str=checked_text(text, features)))
        except lgb.basic.LightGBMError as error:
            raise ValueError(str(error)) from error
        count = Whole(0, booster.rounds)("start_trees", base)
        return replace(booster, base=booster.first(count)) if count else booster


def reread(booster: lgb.Booster) -> lgb.Booster:
    """Return the trees of a booster without its data, like `lightgbm.train`."""
    return lgb.Booster(model_str=booster.model_to_string())


class RowSequence(lgb.Sequence):
    """Rows computed on request: LightGBM first requests single rows for the bin edges, then slices.

    With a ``sample``, requests for single rows return its rows in turn and ignore the index.
    (LightGBM's ``reference`` would take twice the memory.)
    """

    batch_size = 1024

    def __init__(
        self, rows: int, read: Callable[[slice], Matrix], sample: Iterator[Matrix] | None = None
    ) -> None:
        self._rows = rows
        self._read = read
        self._sample = sample

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: Any) -> NDArray[Any]:
        if isinstance(index, slice):
            return self._read(index)
        row = self._read(slice(index, index + 1))[0] if self._sample is None else next(self._sample)
        return row.astype(np.float64)


def binning() -> dict[str, Any]:
    """Return LightGBM's binning parameters."""
    return {
        "max_bin": 63,
        "bin_construct_sample_cnt": _SAMPLED,
        "feature_pre_filter": False,
        # LightGBM 4.7 writes out of bounds on some of bagging's subsets of sparse bins
        "is_enable_sparse": False,
    }


def bin_rows(task: Task, used: Indices, threads: int) -> lgb.Dataset:
    """Construct a LightGBM dataset of the columns ``used``, ascending."""
    data = task.data
    sample = bin_sample(task.data, used)
    single_rows = None
    if sample is not None:
        silence_lightgbm(threads)
        single_rows = iter(sample)
    if in_batches(len(data.cost), len(used)):
        read = partial(data.group_matrix, used=used)
        rows: Any = [
            RowSequence(len(part), partial(read, g), single_rows)
            for g, part in enumerate(data.parts)
        ]
    else:
        rows = data.matrix(used)
        if single_rows is not None:
            rows = [RowSequence(len(rows), rows.__getitem__, single_rows)]
    params = {**binning(), "num_threads": threads, "verbose": -1}
    return lgb.Dataset(
        rows, task.label, None, task.weight, task.sizes, task.start, params=params
    ).construct()


def can_split(train: lgb.Dataset) -> bool:
    """Return whether any column has more than one bin."""
    return any(train.feature_num_bin(column) for column in range(train.num_feature()))


#: LightGBM 4.7 keeps one array of lambdarank label gains per process and replaces it for each
#: booster. Constructing boosters with different group sizes in two threads crashed or mixed up the
#: labels.
_CONSTRUCTION: Final = Lock()


def _use_one_thread() -> None:
    """Limit the boosters to one thread in a forked child: more would wait for the parent's OpenMP
    threads.
    """
    lgb.basic._LIB.LGBM_SetMaxThreads(1)  # type: ignore[attr-defined]
    if xgboost := sys.modules.get("xgboost"):
        xgboost.set_config(nthread=1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_CONSTRUCTION.acquire,
        after_in_parent=_CONSTRUCTION.release,
        after_in_child=_CONSTRUCTION.release,
    )
    os.register_at_fork(after_in_child=_use_one_thread)


def train_booster(params: dict[str, Any], train: lgb.Dataset, settings: FitSettings) -> lgb.Booster:
    """Train a booster; concurrent calls construct boosters one at a time and grow them in
    parallel.
    """
    with ExitStack() as construction:
        construction.enter_context(_CONSTRUCTION)
        if not settings.rounds:
            return lgb.Booster(params, train)

        def unlock(_: Any) -> None:
            construction.close()

        vars(unlock)["before_iteration"] = True
        keep = settings.grows
        return lgb.train(
            params, train, settings.rounds, callbacks=[unlock], keep_training_booster=keep
        )


def silence_lightgbm(threads: int) -> None:
    """Silence LightGBM in this thread; the parameters of a training are read too late for some
    messages.
    """
    # without num_threads, the process's number of threads is reset, and running predictions write
    # out of bounds
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


#: Count, minimum and maximum of the numbers of an entry; integers if the maximum is an integer.
Numbers = tuple[int, float, float]
MAX_TREES: Final = 100_000
MAX_LEAVES: Final = 131_072
#: Maximum number of splits from the root to a leaf: contributions recurse as deep and take
#: quadratic time.
MAX_DEPTH: Final = 128
#: Largest absolute value of a leaf, far above any relevance; the sum of all trees stays finite.
_LARGEST_LEAF: Final = 1e100
_END: Final = "\nend of trees\n"
#: End of the parameters; LightGBM omits it if the text that it read had none.
_LAST: Final = "\nend of parameters\n"
#: Patterns of the header's entries, in order.
_HEADER: Final = {
    "version": "v[34]",
    "num_class": "1",
    "num_tree_per_iteration": "1",
    "label_index": "0",
    "max_feature_idx": "[0-9]{1,9}",
    "objective": "lambdarank|regression",
    "feature_names": r"[A-Za-z]+_?[0-9]+( [A-Za-z]+_?[0-9]+)*",
    "feature_infos": r"(none|\[[-+.0-9eE]+:[-+.0-9eE]+\])( (none|\[[-+.0-9eE]+:[-+.0-9eE]+\]))*",
    "tree_sizes": "[0-9 ]*",
}
_INTEGER: Final = re.compile(r"-?[0-9]{1,10}")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")


def checked_text(text: str, features: int) -> str:
    """Return the header and trees of LightGBM's text; raises `ValueError` unless valid, on
    ``features`` columns.
    """
    trees, end, _ = text.partition(_END)
    require(end and _LAST in text and trees.isascii(), "it is cut short, or no text of LightGBM")
    head, *blocks = trees.split("\nTree=")
    first, *lines = head.rstrip("\n").split("\n")
    header = dict(line.split("=", 1) for line in lines if "=" in line)
    expected = [name for name in _HEADER if name in header or name != "objective"]
    matches = [*header] == expected and len(lines) == len(expected)
    require(first == "tree" and matches, "its header has other entries")
    for name, value in header.items():
        require(re.fullmatch(_HEADER[name], value), f"{name} is {value[:60]!r}")
    columns = {
        len(header["feature_names"].split(" ")),
        len(header["feature_infos"].split(" ")),
        features,
    }
    require(columns == {int(header["max_feature_idx"]) + 1}, f"it is not of {features} columns")
    blocks = [f"Tree={block}\n" for block in blocks]
    sizes = [len(block) for block in blocks]
    require(
        _numbers(header["tree_sizes"]) == sizes and len(blocks) <= MAX_TREES,
        "its trees have other sizes",
    )
    for number, block in enumerate(blocks):
        _check_lightgbm_tree(block, number, features)
    return trees + _END


def _check_lightgbm_tree(block: str, number: int, features: int) -> None:
    first, *lines = block.rstrip("\n").split("\n")
    texts = dict(line.split("=", 1) for line in lines if "=" in line)
    entries = {name: _numbers(text) for name, text in texts.items()}
    leaves = (entries.get("num_leaves") or [0])[0]
    splits = leaves - 1
    largest = sys.float_info.max
    # these entries are optional in a tree of one leaf
    weights, counts = (
        leaves if leaves > 1 or entries.get(name) else 0 for name in ("leaf_weight", "leaf_count")
    )
    child = (splits, -leaves, splits - 1)
    finite = (splits, -largest, largest)
    fields: dict[str, Numbers] = {
        "num_leaves": (1, 1, MAX_LEAVES),
        "num_cat": (1, 0, 0),
        "split_feature": (splits, 0, features - 1),
        "split_gain": finite,
        "threshold": finite,
        "decision_type": (splits, 0, 10),
        "left_child": child,
        "right_child": child,
        "leaf_value": (leaves, -_LARGEST_LEAF, _LARGEST_LEAF),
        "leaf_weight": (weights, -largest, largest),
        "leaf_count": (counts, 0, INT_MAX),
        "internal_value": finite,
        "internal_weight": finite,
        "internal_count": (splits, 0, INT_MAX),
        "is_linear": (1, 0, 0),
        "shrinkage": (1, -largest, largest),
    }
    require(
        first == f"Tree={number}" and len(lines) == len(fields) and [*entries] == [*fields],
        "other entries",
    )
    require_numbers(entries, fields)
    require(not any(kind % 2 for kind in entries["decision_type"]), "it has categories")
    require_tree([*zip(entries["left_child"], entries["right_child"], strict=True)], leaves)


def _numbers(text: str) -> list[Any]:
    """Return the numbers of a line as int or float."""
    entries = text.split(" ") if text else []
    require(all(map(_NUMBER.fullmatch, entries)), f"it lists {text[:40]!r} where numbers are due")
    return [int(entry) if _INTEGER.fullmatch(entry) else float(entry) for entry in entries]


def first_trees(text: str, count: int | None) -> str:
    """Return the text of the first ``count`` trees, None for all; LightGBM itself takes 0 for
    all.
    """
    head, trees = _split(text)
    return _join(head, trees[:count])


def _split(text: str) -> tuple[str, list[str]]:
    """Return the header, and each tree without its number."""
    head, *blocks = text.partition(_END)[0].split("\nTree=")
    return head, [block.partition("\n")[2] for block in blocks]


def _join(head: str, trees: list[str]) -> str:
    blocks = [f"Tree={number}\n{tree}\n" for number, tree in enumerate(trees)]
    sizes = f"tree_sizes={' '.join(str(len(block)) for block in blocks)}"
    lines = [sizes if line.startswith("tree_sizes=") else line for line in head.split("\n")]
    return "\n".join([*lines, *(block.removesuffix("\n") for block in blocks)]) + _END


def require(condition: object, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def require_numbers(entries: Mapping[str, Any], fields: Mapping[str, Numbers]) -> None:
    for name, (count, low, high) in fields.items():
        values = entries[name]
        types = (int,) if type(high) is int else (int, float)
        require(
            isinstance(values, list) and len(values) == count, f"{name} has not {count} entries"
        )
        in_range = all(type(value) in types and low <= value <= high for value in values)
        require(
            in_range, f"{name} lists other things than {types[-1].__name__}s from {low} to {high}"
        )


def require_tree(children: Sequence[tuple[int, int]], leaves: int) -> None:
    """Raise `ValueError` unless every split and leaf is reached from split 0, once, within
    `MAX_DEPTH` splits.

    Each split has two ``children``: split ``i`` is written as ``i``, leaf ``i`` as ``-1 - i``.
    """
    visited = {0}
    pending = [(0, 1)] if children else []
    while pending:
        split, depth = pending.pop()
        require(depth <= MAX_DEPTH, f"it is deeper than {MAX_DEPTH} splits")
        for child in children[split]:
            require(
                child not in visited, f"{'split' if child >= 0 else 'leaf'} {child} has two parents"
            )
            visited.add(child)
            if child >= 0:
                pending.append((child, depth + 1))
    require(
        not children or len(visited) == len(children) + leaves,
        "its splits and leaves do not form one tree",
    )
