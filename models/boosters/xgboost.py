"""XGBoost: quantisation, training, the trained trees, and checks of their JSON (see `lightgbm`)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Final, Self

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.models.arrays import Floats, Indices, Matrix
from xlarank.models.boosters.lightgbm import (
    MAX_DEPTH,
    MAX_LEAVES,
    MAX_TREES,
    Numbers,
    require,
    require_numbers,
    require_tree,
)
from xlarank.models.params import INT_MAX
from xlarank.models.training_data import FitSettings, Task, in_batches

#: Parameters of trees that a loss declares.
TREE_PARAMS: Final = (
    "learning_rate",
    "max_leaves",
    "min_child_weight",
    "colsample_bytree",
    "subsample",
    "reg_lambda",
)
#: Largest absolute value of a number in a tree, within the range of float32.
_LARGEST: Final = 1e30
_MAX_BIN: Final = 64


@dataclass(frozen=True, eq=False)
class XGBoostBooster:
    """An ``xgboost.Booster`` with the interface of `LightGBMBooster`, without ``grow`` and warm
    starts.
    """

    trees: Any

    file_name = "booster.json"

    @staticmethod
    def tree_params(params: Mapping[str, Any], settings: FitSettings) -> dict[str, Any]:
        """Return the parameters of training by XGBoost's names."""
        return {
            **{name: params[name] for name in TREE_PARAMS},
            "base_score": 0.0,
            "tree_method": "hist",
            "grow_policy": "lossguide",
            "max_depth": MAX_DEPTH,
            "seed": settings.seed,
            "nthread": settings.threads,
            "verbosity": 0,
        }

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
        """Return None: trees are fitted again for more rounds."""

    def relevance(self, values: Matrix, rounds: int = 0) -> Floats:
        total = self.trees.inplace_predict(
            values, iteration_range=(0, rounds), predict_type="margin"
        )
        return np.asarray(total, np.float64)

    def stages(
        self, values: Matrix, scores: Floats, every: int, *, from_zero: bool
    ) -> Iterator[Floats]:
        for stop in [*range(every, self.rounds, every), self.rounds]:
            yield scores - self.relevance(values, stop)

    def contributions(self, values: Matrix) -> Floats:
        return np.asarray(
            self.trees.predict(_xgboost().DMatrix(values), pred_contribs=True), np.float64
        )

    def gains(self) -> Floats:
        # XGBoost names unnamed columns f0, f1, ... and omits those without a split.
        gains = self.trees.get_score(importance_type="total_gain")
        return np.array(
            [np.sum(gains.get(f"f{column}", 0.0)) for column in range(self.trees.num_features())]
        )

    def text(self) -> str:
        return str(self.trees.save_raw("json").decode("utf-8"))

    @classmethod
    def read(cls, text: str, features: int, base: int) -> Self:
        module = _xgboost()
        content = checked_json(text, features).encode("utf-8")
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
    """Construct an XGBoost matrix of the columns ``used``; batching changes the bin edges
    slightly.
    """
    quantise = partial(module.QuantileDMatrix, max_bin=_MAX_BIN, nthread=threads)
    data = task.data
    arrays = {"label": task.label, "weight": task.weight, "base_margin": task.start}
    if not in_batches(len(data.cost), len(used)):
        return quantise(data.matrix(used), group=np.diff(data.indptr), **arrays)

    class GraphBatches(module.DataIter):  # type: ignore[misc, name-defined]
        """Rows graph by graph; XGBoost iterates over them several times."""

        def __init__(self) -> None:
            super().__init__(release_data=True)
            self.reset()

        def next(self, input_data: Any) -> bool:
            group = next(self.remaining, None)
            if group is None:
                return False
            rows = data.rows_of(group)
            matrix = data.group_matrix(group, used=used)
            index = {"label": rows, "base_margin": rows, "weight": slice(group, group + 1)}
            values = {
                name: None if array is None else array[index[name]]
                for name, array in arrays.items()
            }
            input_data(data=matrix, qid=np.full(len(matrix), group), **values)
            return True

        def reset(self) -> None:
            self.remaining = iter(range(data.groups))

    return quantise(GraphBatches())


def checked_json(text: str, features: int) -> str:
    """Return XGBoost's JSON, re-encoded; raises `ValueError` unless valid, with trees on
    ``features`` columns.
    """
    try:
        model = json.loads(text, parse_constant=lambda name: require(False, f"it holds {name}"))
        learner = _entries(model, ("learner", "version"))["learner"]
        names = (
            "feature_names",
            "feature_types",
            "gradient_booster",
            "learner_model_param",
            "objective",
        )
        _check_learner(_entries(learner, names, ("attributes",)), features)
        booster = _entries(learner["gradient_booster"], ("model", "name"))
        require(booster["name"] == "gbtree", f"its booster is {booster['name']!r}")
        _check_trees(booster["model"], features)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"it has another shape ({type(error).__name__}: {error})") from error
    return json.dumps(model)


def _entries(value: Any, needed: Collection[str], allowed: Collection[str] = ()) -> dict[str, Any]:
    valid = isinstance(value, dict) and {*needed} <= value.keys() <= {*needed, *allowed}
    require(valid, f"it has other entries than {', '.join(needed)}")
    return dict(value)


def _check_learner(learner: dict[str, Any], features: int) -> None:
    require(
        learner["feature_names"] == [] and learner["feature_types"] == [], "its columns have names"
    )
    param = _texts(learner["learner_model_param"])
    objective = learner["objective"]
    for name, value in {"num_feature": str(features), "num_class": "0", "num_target": "1"}.items():
        require(param.get(name) == value, f"{name} is {param.get(name)!r}, not {value}")
    base = float(param["base_score"].strip("[]"))
    require(abs(base) <= _LARGEST, "its base score is larger than any score")
    require(objective["name"] == "rank:pairwise", f"its objective is {objective['name']!r}")
    for parameters in [
        learner.get("attributes", {}),
        *(v for name, v in objective.items() if name != "name"),
    ]:
        _texts(parameters)


def _texts(value: Any) -> dict[str, str]:
    """Return a mapping of short texts; raises `ValueError` for anything else."""
    require(isinstance(value, dict) and len(value) <= 60, "it has other parameters")
    for name, text in value.items():
        short = isinstance(text, str) and re.fullmatch(r"[\w.:+\-\[\] ]{0,100}", text)
        require(
            short and re.fullmatch(r"\w{1,60}", name),
            f"its parameter {name[:60]!r} is {str(text)[:60]!r}",
        )
    return dict(value)


def _check_trees(value: Any, features: int) -> None:
    model = _entries(
        value, ("gbtree_model_param", "iteration_indptr", "tree_info", "trees"), ("cats",)
    )
    cats = _entries(model.get("cats", {}), (), ("enc", "feature_segments", "sorted_idx"))
    trees = model["trees"]
    require(not any(cats.values()), "it has categories")
    require(isinstance(trees, list) and len(trees) <= MAX_TREES, "its trees are no list")
    counts = {"num_parallel_tree": "1", "num_trees": str(len(trees))}
    require(model["gbtree_model_param"] == counts, "it has another number of trees than it says")
    require_numbers(
        model,
        {"tree_info": (len(trees), 0, 0), "iteration_indptr": (len(trees) + 1, 0, len(trees))},
    )
    require(
        model["iteration_indptr"] == [*range(len(trees) + 1)], "its rounds are not one tree each"
    )
    for number, tree in enumerate(trees):
        _check_xgboost_tree(tree, number, features)


def _check_xgboost_tree(tree: Any, number: int, features: int) -> None:
    nodes = _node_count(tree["tree_param"], features)
    child = (nodes, -1, nodes - 1)
    finite = (nodes, -_LARGEST, _LARGEST)
    fields: dict[str, Numbers] = {
        "left_children": child,
        "right_children": child,
        "parents": (nodes, 0, INT_MAX),
        "split_indices": (nodes, 0, features - 1),
        "default_left": (nodes, 0, 1),
        "split_type": (nodes, 0, 0),
        "base_weights": finite,
        "loss_changes": finite,
        "split_conditions": finite,
        "sum_hessian": finite,
        **dict.fromkeys(
            ("categories", "categories_nodes", "categories_segments", "categories_sizes"), (0, 0, 0)
        ),
    }
    require_numbers(_entries(tree, ("id", "tree_param", *fields)), fields)
    require(type(tree["id"]) is int and tree["id"] == number, "it has another number")
    left, right, parents = (
        np.array(tree[name]) for name in ("left_children", "right_children", "parents")
    )
    is_split = left >= 0
    paired = np.array_equal(is_split, right >= 0)
    require(paired and (nodes == 1 or is_split[0]), "a split has one child")
    splits = np.flatnonzero(is_split)
    consistent = (parents[left[splits]] == splits).all() and (
        parents[right[splits]] == splits
    ).all()
    require(parents[0] == INT_MAX and consistent, "a child has another parent")
    # LightGBM numbers splits from 0 upwards and leaves from -1 downwards
    numbers = np.where(is_split, np.cumsum(is_split) - 1, -np.cumsum(~is_split, dtype=np.int64))
    require_tree(
        list(zip(numbers[left[splits]], numbers[right[splits]], strict=True)), nodes - len(splits)
    )


def _node_count(tree_param: Any, features: int) -> int:
    names = ("num_deleted", "num_feature", "num_nodes", "size_leaf_vector")
    texts = _entries(tree_param, names)
    digits = all(
        isinstance(text, str) and re.fullmatch("[0-9]{1,9}", text) for text in texts.values()
    )
    require(digits, "its counts are no numbers")
    deleted, columns, nodes, leaf_vector = (int(texts[name]) for name in names)
    # XGBoost's leaf vector has 1 entry, in older versions 0
    valid = deleted == 0 and leaf_vector <= 1 and 1 <= nodes < 2 * MAX_LEAVES
    require(
        valid and columns == features,
        f"it has {nodes} nodes of {columns} columns, or values of another kind",
    )
    return nodes
