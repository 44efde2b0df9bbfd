"""XGBoost's JSON of a booster, checked and written anew before XGBoost sees it.

XGBoost checks the shape of its JSON, not what the trees point to. Here every count, index and number is looked at,
and only trees as this project's ranker grows them are let through: one value a leaf, no categories.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Set as AbstractSet
from typing import Any, Final, NoReturn

from xlarank.models.rankers.lightgbm_text import require_tree

_LEARNER: Final = {"feature_names", "feature_types", "gradient_booster", "learner_model_param", "objective"}
_TREE_NUMBERS: Final = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
_TREE_INDICES: Final = ("left_children", "right_children", "parents", "split_indices", "default_left", "split_type")
_TREE_EMPTY: Final = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
_NO_PARENT: Final = 2**31 - 1
_MOST_TREES: Final = 100_000
_MOST_NODES: Final = 262_143
_LARGEST: Final = 1e30
_SHORT: Final = re.compile(r"[\w.:+\-\[\] ]{0,100}")
_WORD: Final = re.compile(r"\w{1,60}")
#: Entries of a tree and of the model that hold a whole number as text.
_COUNT: Final = re.compile(r"[0-9]{1,9}")


def checked_json(text: str, features: int) -> str:
    """What XGBoost may be given of a booster's JSON.

    Args:
        features: columns that the booster was grown on.

    Raises `ValueError` for anything that XGBoost would not have written of this project's boosters.
    """
    try:
        model = json.loads(text, parse_constant=_no_number)
        learner = _entries(model, {"learner", "version"})["learner"]
        _entries(learner, _LEARNER, {"attributes"})
        _check_learner(learner, features)
        _check_trees(_entries(learner["gradient_booster"], {"model", "name"}), features)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"it has another shape ({type(error).__name__}: {error})") from error
    return json.dumps(model)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}")


def _entries(value: Any, needed: AbstractSet[str], allowed: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    if not isinstance(value, dict) or not needed <= value.keys() <= needed | allowed:
        raise ValueError(f"it has other entries than {', '.join(sorted(needed))}")
    return value


def _check_learner(learner: dict[str, Any], features: int) -> None:
    if learner["feature_names"] != [] or learner["feature_types"] != []:
        raise ValueError("its columns have names")
    param = _texts(learner["learner_model_param"])
    wanted = {"num_feature": str(features), "num_class": "0", "num_target": "1"}
    for name, value in wanted.items():
        if param.get(name) != value:
            raise ValueError(f"{name} is {param.get(name)!r}, not {value}")
    if abs(_finite(float(param["base_score"].strip("[]")))) > _LARGEST:
        raise ValueError("its base score is larger than any score")
    objective = learner["objective"]
    if objective["name"] != "rank:pairwise":
        raise ValueError(f"its objective is {objective['name']!r}")
    for part in [learner.get("attributes", {}), *(v for name, v in objective.items() if name != "name")]:
        _texts(part)


def _texts(value: Any) -> dict[str, str]:
    """An object of short words; raises `ValueError` for another."""
    if not isinstance(value, dict) or len(value) > 60:
        raise ValueError("it has other parameters")
    for name, text in value.items():
        if not _WORD.fullmatch(name) or not isinstance(text, str) or not _SHORT.fullmatch(text):
            raise ValueError(f"its parameter {name[:60]!r} is {str(text)[:60]!r}")
    return value


def _check_trees(booster: dict[str, Any], features: int) -> None:
    model = _entries(booster["model"], {"gbtree_model_param", "iteration_indptr", "tree_info", "trees"}, {"cats"})
    if booster["name"] != "gbtree":
        raise ValueError(f"its booster is {booster['name']!r}")
    if any(_entries(model.get("cats", {}), set(), {"enc", "feature_segments", "sorted_idx"}).values()):
        raise ValueError("it has categories")
    trees = model["trees"]
    if not isinstance(trees, list) or len(trees) > _MOST_TREES:
        raise ValueError("its trees are no list")
    if _entries(model["gbtree_model_param"], {"num_parallel_tree", "num_trees"}) != {
        "num_parallel_tree": "1",
        "num_trees": str(len(trees)),
    }:
        raise ValueError("it has another number of trees than it says")
    if _whole(model["tree_info"], len(trees), 0, 0) is None or _whole(
        model["iteration_indptr"], len(trees) + 1, 0, len(trees)
    ) != list(range(len(trees) + 1)):
        raise ValueError("its rounds are not one tree each")
    for number, tree in enumerate(trees):
        try:
            _check_tree(tree, number, features)
        except ValueError as error:
            raise ValueError(f"tree {number}: {error}") from error


def _check_tree(tree: Any, number: int, features: int) -> None:
    _entries(tree, {*_TREE_NUMBERS, *_TREE_INDICES, *_TREE_EMPTY, "id", "tree_param"})
    if tree["id"] != number or isinstance(tree["id"], bool) or any(tree[name] != [] for name in _TREE_EMPTY):
        raise ValueError("it has another number, or categories")
    param = _entries(tree["tree_param"], {"num_deleted", "num_feature", "num_nodes", "size_leaf_vector"})
    if not all(isinstance(value, str) and _COUNT.fullmatch(value) for value in param.values()):
        raise ValueError("its counts are no numbers")
    nodes = int(param["num_nodes"])
    # a stump that XGBoost writes has a leaf vector of 1, older versions of 0
    if not 1 <= nodes <= _MOST_NODES or int(param["num_deleted"]) or int(param["size_leaf_vector"]) > 1:
        raise ValueError(f"it has {nodes} nodes or values of another kind")
    if int(param["num_feature"]) != features:
        raise ValueError(f"it is of {param['num_feature']} columns")
    left = _whole(tree["left_children"], nodes, -1, nodes - 1)
    right = _whole(tree["right_children"], nodes, -1, nodes - 1)
    parents = _whole(tree["parents"], nodes, 0, _NO_PARENT)
    _whole(tree["split_indices"], nodes, 0, features - 1)
    _whole(tree["default_left"], nodes, 0, 1)
    _whole(tree["split_type"], nodes, 0, 0)
    for name in _TREE_NUMBERS:
        _floats(tree[name], nodes)
    splits = [node for node in range(nodes) if left[node] >= 0]
    if any((left[node] < 0) != (right[node] < 0) for node in range(nodes)) or (nodes > 1 and left[0] < 0):
        raise ValueError("a split has one child")
    if parents[0] != _NO_PARENT or any(
        parents[child] != node for node in splits for child in (left[node], right[node])
    ):
        raise ValueError("a child has another parent")
    # the same numbering as LightGBM's: splits from 0, leaves below it
    place = {node: at for at, node in enumerate(splits)}
    leaves = {node: -1 - at for at, node in enumerate(node for node in range(nodes) if left[node] < 0)}
    number_of = place | leaves
    require_tree([(number_of[left[node]], number_of[right[node]]) for node in splits], len(leaves))


def _whole(value: Any, count: int, low: int, high: int) -> list[int]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"it has not {count} entries where so many are due")
    if not all(type(entry) is int and low <= entry <= high for entry in value):
        raise ValueError(f"it lists other things than whole numbers from {low} to {high}")
    return value


def _floats(value: Any, count: int) -> None:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"it has not {count} entries where so many are due")
    if not all(type(entry) in (int, float) and abs(_finite(entry)) <= _LARGEST for entry in value):
        raise ValueError("it lists other things than numbers")


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("it holds a number that is not finite")
    return value
