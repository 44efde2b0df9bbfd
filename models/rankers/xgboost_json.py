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
    """What XGBoost may be given of the JSON of a booster on so many columns.

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


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}")


def _entries(value: Any, needed: AbstractSet[str], allowed: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    if not isinstance(value, dict) or not needed <= value.keys() <= needed | allowed:
        raise ValueError(f"it has other entries than {', '.join(sorted(needed))}")
    return value


def _check_learner(learner: dict[str, Any], features: int) -> None:
    _require(learner["feature_names"] == [] and learner["feature_types"] == [], "its columns have names")
    param, objective = _texts(learner["learner_model_param"]), learner["objective"]
    for name, value in {"num_feature": str(features), "num_class": "0", "num_target": "1"}.items():
        _require(param.get(name) == value, f"{name} is {param.get(name)!r}, not {value}")
    _require(_is_number(float(param["base_score"].strip("[]"))), "its base score is larger than any score")
    _require(objective["name"] == "rank:pairwise", f"its objective is {objective['name']!r}")
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
    _require(booster["name"] == "gbtree", f"its booster is {booster['name']!r}")
    cats = _entries(model.get("cats", {}), set(), {"enc", "feature_segments", "sorted_idx"})
    _require(not any(cats.values()), "it has categories")
    trees = model["trees"]
    _require(isinstance(trees, list) and len(trees) <= _MOST_TREES, "its trees are no list")
    counts = {"num_parallel_tree": "1", "num_trees": str(len(trees))}
    _require(
        _entries(model["gbtree_model_param"], {*counts}) == counts, "it has another number of trees than it says"
    )
    _whole(model["tree_info"], len(trees), 0, 0)
    rounds = _whole(model["iteration_indptr"], len(trees) + 1, 0, len(trees))
    _require(rounds == [*range(len(trees) + 1)], "its rounds are not one tree each")
    for number, tree in enumerate(trees):
        try:
            _check_tree(tree, number, features)
        except ValueError as error:
            raise ValueError(f"tree {number}: {error}") from error


def _check_tree(tree: Any, number: int, features: int) -> None:
    _entries(tree, {*_TREE_NUMBERS, *_TREE_INDICES, *_TREE_EMPTY, "id", "tree_param"})
    same = tree["id"] == number and not isinstance(tree["id"], bool)
    _require(same and all(tree[name] == [] for name in _TREE_EMPTY), "it has another number, or categories")
    param = _entries(tree["tree_param"], {"num_deleted", "num_feature", "num_nodes", "size_leaf_vector"})
    texts = all(isinstance(value, str) and _COUNT.fullmatch(value) for value in param.values())
    _require(texts, "its counts are no numbers")
    nodes = int(param["num_nodes"])
    # a stump that XGBoost writes has a leaf vector of 1, older versions of 0
    plain = 1 <= nodes <= _MOST_NODES and not int(param["num_deleted"]) and int(param["size_leaf_vector"]) <= 1
    _require(plain, f"it has {nodes} nodes or values of another kind")
    _require(int(param["num_feature"]) == features, f"it is of {param['num_feature']} columns")
    left, right = (_whole(tree[f"{side}_children"], nodes, -1, nodes - 1) for side in ("left", "right"))
    parents = _whole(tree["parents"], nodes, 0, _NO_PARENT)
    for name, high in (("split_indices", features - 1), ("default_left", 1), ("split_type", 0)):
        _whole(tree[name], nodes, 0, high)
    for name in _TREE_NUMBERS:
        values = tree[name]
        _require(isinstance(values, list) and len(values) == nodes, f"it has not {nodes} entries of {name}")
        numbers = all(type(entry) in (int, float) and _is_number(entry) for entry in values)
        _require(numbers, "it lists other things than numbers")
    splits = [node for node in range(nodes) if left[node] >= 0]
    pairs = all((left[node] < 0) == (right[node] < 0) for node in range(nodes))
    _require(pairs and (nodes == 1 or left[0] >= 0), "a split has one child")
    known = all(parents[child] == node for node in splits for child in (left[node], right[node]))
    _require(parents[0] == _NO_PARENT and known, "a child has another parent")
    # the same numbering as LightGBM's: splits from 0, leaves below it
    leaves = [node for node in range(nodes) if left[node] < 0]
    number_of = {node: at for at, node in enumerate(splits)} | {node: -1 - at for at, node in enumerate(leaves)}
    require_tree([(number_of[left[node]], number_of[right[node]]) for node in splits], len(leaves))


def _whole(value: Any, count: int, low: int, high: int) -> list[int]:
    if not isinstance(value, list) or len(value) != count:
        raise ValueError(f"it has not {count} entries where so many are due")
    if not all(type(entry) is int and low <= entry <= high for entry in value):
        raise ValueError(f"it lists other things than whole numbers from {low} to {high}")
    return value


def _is_number(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= _LARGEST
