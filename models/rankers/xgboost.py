"""XGBoost: quantisation, training, the trained trees, and checks of their JSON, as of LightGBM's text."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Final, Self

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.rankers.lightgbm import (
    INT_MAX,
    MAX_LEAVES,
    MAX_TREES,
    Numbers,
    require,
    require_numbers,
    require_tree,
)
from xlarank.models.training_data import FitSettings, Task, in_batches

_LARGEST_FLOAT32: Final = 1e30
#: Required entries of the learner in XGBoost's JSON.
_LEARNER: Final = ("feature_names", "feature_types", "gradient_booster", "learner_model_param", "objective")

_MAX_BIN: Final = 64


@dataclass(frozen=True, eq=False)
class XGBoostBooster:
    """An ``xgboost.Booster`` with the interface of `LightGBMBooster`; it cannot be continued."""

    trees: Any

    file_name = "booster.json"

    @classmethod
    def fit(cls, task: Task, used: Indices, settings: FitSettings, base: None = None) -> Self:
        module = _xgboost()
        train = _quantised(module, task, used, settings.threads)
        with module.config_context(verbosity=0):
            return cls(module.train({**task.params, "max_bin": _MAX_BIN}, train, settings.rounds))

    @property
    def rounds(self) -> int:
        return int(self.trees.num_boosted_rounds())

    def grow(self, settings: FitSettings) -> None:
        """Return None: more rounds require another `fit`."""

    def relevance(self, values: Matrix, rounds: int = 0) -> Floats:
        total = self.trees.inplace_predict(values, iteration_range=(0, rounds), predict_type="margin")
        return np.asarray(total, np.float64)

    def stages(self, values: Matrix, scores: Floats, every: int, *, from_zero: bool) -> Iterator[Floats]:
        for stop in [*range(every, self.rounds, every), self.rounds]:
            yield scores - self.relevance(values, stop)

    def contributions(self, values: Matrix) -> Floats:
        return np.asarray(self.trees.predict(_xgboost().DMatrix(values), pred_contribs=True), np.float64)

    def gains(self) -> Floats:
        # XGBoost names unnamed columns f0, f1, ... and omits those without a split.
        gains = self.trees.get_score(importance_type="total_gain")
        return np.array([np.sum(gains.get(f"f{column}", 0.0)) for column in range(self.trees.num_features())])

    def text(self) -> str:
        return str(self.trees.save_raw("json").decode("utf-8"))

    @classmethod
    def read(cls, text: str, features: int, base: int) -> Self:
        module, content = _xgboost(), checked_json(text, features).encode("utf-8")
        with module.config_context(verbosity=0):
            return cls(module.Booster(model_file=bytearray(content)))


def _xgboost() -> ModuleType:
    try:
        import xgboost
    except ImportError as error:
        got = f"the model xgb-pairwise needs the module xgboost ({error})"
        do = "pip install xgboost-cpu (or xgboost), or choose another model"
        raise ModelError(got, expected="xgboost 3.2 or newer", do=do) from error
    return xgboost


def _quantised(module: ModuleType, task: Task, used: Indices, threads: int) -> Any:
    """Construct an XGBoost matrix of the columns ``used``; batching changes the bin edges slightly."""
    quantised = partial(module.QuantileDMatrix, max_bin=_MAX_BIN, nthread=threads)
    data, arrays = task.data, {"label": task.label, "weight": task.weight, "base_margin": task.start}
    if not in_batches(len(data.cost), len(used)):
        return quantised(data.matrix(used), group=np.diff(data.indptr), **arrays)

    class Batches(module.DataIter):  # type: ignore[misc, name-defined]
        """Rows graph by graph; XGBoost iterates over them several times."""

        def __init__(self) -> None:
            super().__init__(release_data=True)
            self.reset()

        def next(self, input_data: Any) -> bool:
            group = next(self.remaining, None)
            if group is None:
                return False
            rows, matrix = data.rows_of(group), data.group_matrix(group, used=used)
            index = {"label": rows, "base_margin": rows, "weight": slice(group, group + 1)}
            values = {name: None if array is None else array[index[name]] for name, array in arrays.items()}
            input_data(data=matrix, qid=np.full(len(matrix), group), **values)
            return True

        def reset(self) -> None:
            self.remaining = iter(range(data.groups))

    return quantised(Batches())


def checked_json(text: str, features: int) -> str:
    """Return XGBoost's JSON as it was checked; `ValueError` unless its trees are on ``features`` columns."""
    try:
        model = json.loads(text, parse_constant=lambda name: require(False, f"it holds {name}"))
        learner = _entries(model, ("learner", "version"))["learner"]
        _check_learner(_entries(learner, _LEARNER, ("attributes",)), features)
        booster = _entries(learner["gradient_booster"], ("model", "name"))
        require(booster["name"] == "gbtree", f"its booster is {booster['name']!r}")
        _check_trees(booster["model"], features)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"it has another shape ({type(error).__name__}: {error})") from error
    return json.dumps(model)


def _entries(value: Any, needed: Collection[str], allowed: Collection[str] = ()) -> dict[str, Any]:
    same = isinstance(value, dict) and {*needed} <= value.keys() <= {*needed, *allowed}
    require(same, f"it has other entries than {', '.join(needed)}")
    return dict(value)


def _check_learner(learner: dict[str, Any], features: int) -> None:
    require(learner["feature_names"] == [] and learner["feature_types"] == [], "its columns have names")
    param, objective = _texts(learner["learner_model_param"]), learner["objective"]
    for name, value in {"num_feature": str(features), "num_class": "0", "num_target": "1"}.items():
        require(param.get(name) == value, f"{name} is {param.get(name)!r}, not {value}")
    base = float(param["base_score"].strip("[]"))
    require(abs(base) <= _LARGEST_FLOAT32, "its base score is larger than any score")
    require(objective["name"] == "rank:pairwise", f"its objective is {objective['name']!r}")
    for part in [learner.get("attributes", {}), *(v for name, v in objective.items() if name != "name")]:
        _texts(part)


def _texts(value: Any) -> dict[str, str]:
    """Return a mapping of short texts; raises `ValueError` for other values."""
    require(isinstance(value, dict) and len(value) <= 60, "it has other parameters")
    for name, text in value.items():
        short = isinstance(text, str) and re.fullmatch(r"[\w.:+\-\[\] ]{0,100}", text)
        short = short and re.fullmatch(r"\w{1,60}", name)
        require(short, f"its parameter {name[:60]!r} is {str(text)[:60]!r}")
    return dict(value)


def _check_trees(value: Any, features: int) -> None:
    model = _entries(value, ("gbtree_model_param", "iteration_indptr", "tree_info", "trees"), ("cats",))
    cats, trees = _entries(model.get("cats", {}), (), ("enc", "feature_segments", "sorted_idx")), model["trees"]
    require(not any(cats.values()), "it has categories")
    require(isinstance(trees, list) and len(trees) <= MAX_TREES, "its trees are no list")
    counts = {"num_parallel_tree": "1", "num_trees": str(len(trees))}
    require(model["gbtree_model_param"] == counts, "it has another number of trees than it says")
    require_numbers(model, {"tree_info": (len(trees), 0, 0), "iteration_indptr": (len(trees) + 1, 0, len(trees))})
    require(model["iteration_indptr"] == [*range(len(trees) + 1)], "its rounds are not one tree each")
    for number, tree in enumerate(trees):
        _check_xgboost_tree(tree, number, features)


def _check_xgboost_tree(tree: Any, number: int, features: int) -> None:
    param = _entries(tree["tree_param"], ("num_deleted", "num_feature", "num_nodes", "size_leaf_vector"))
    texts = all(isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value) for value in param.values())
    require(texts, "its counts are no numbers")
    nodes, columns = int(param["num_nodes"]), int(param["num_feature"])
    # the leaf vector of a stump has 1 entry, 0 in older versions of XGBoost
    plain = 1 <= nodes < 2 * MAX_LEAVES and not int(param["num_deleted"]) and int(param["size_leaf_vector"]) <= 1
    require(plain and columns == features, f"it has {nodes} nodes of {columns} columns, or values of another kind")
    numbers = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
    fields: dict[str, Numbers] = {
        "left_children": (nodes, -1, nodes - 1), "right_children": (nodes, -1, nodes - 1),
        "parents": (nodes, 0, INT_MAX), "split_indices": (nodes, 0, features - 1),
        "default_left": (nodes, 0, 1), "split_type": (nodes, 0, 0),
        **dict.fromkeys(numbers, (nodes, -_LARGEST_FLOAT32, _LARGEST_FLOAT32)),
        **{f"categories{part}": (0, 0, 0) for part in ("", "_nodes", "_segments", "_sizes")},
    }  # fmt: skip
    require_numbers(_entries(tree, ("id", "tree_param", *fields)), fields)
    require(type(tree["id"]) is int and tree["id"] == number, "it has another number")
    left, right, parents = tree["left_children"], tree["right_children"], tree["parents"]
    pairs = all((left[node] < 0) == (right[node] < 0) for node in range(nodes))
    require(pairs and (nodes == 1 or left[0] >= 0), "a split has one child")
    splits, leaves = ([node for node in range(nodes) if (left[node] >= 0) == inner] for inner in (True, False))
    consistent = all(parents[child] == node for node in splits for child in (left[node], right[node]))
    require(parents[0] == INT_MAX and consistent, "a child has another parent")
    # numbered as by LightGBM: splits from 0, leaves below
    number_of = {node: i for i, node in enumerate(splits)} | {node: -1 - i for i, node in enumerate(leaves)}
    require_tree([(number_of[left[node]], number_of[right[node]]) for node in splits], len(leaves))
