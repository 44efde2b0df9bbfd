"""Checks of the text of boosters before LightGBM or XGBoost reads it.

Both trust their text: they follow children out of range, rely on stated sizes, and loop forever
over cyclic children. So every count, index and number is checked first, and only the form of trees
that these rankers grow is accepted: one value per leaf, no categories, no linear leaves.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from xlarank.models.params import INT_MAX

#: Count, minimum and maximum of the numbers of an entry; integers if the maximum is an integer.
Numbers = tuple[int, float, float]
MAX_TREES: Final = 100_000
MAX_LEAVES: Final = 131_072
#: Maximum number of splits from the root to a leaf: contributions recurse as deep and take
#: quadratic time.
MAX_DEPTH: Final = 128
#: Largest absolute value of a number in XGBoost's trees, within the range of float32.
_LARGEST: Final = 1e30
#: Largest absolute value of a leaf, far above any relevance; the sum of all trees stays finite.
_LARGEST_LEAF: Final = 1e100
END: Final = "\nend of trees\n"
#: End of the parameters; LightGBM omits it if the text that it read had none.
LAST: Final = "\nend of parameters\n"
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
    trees, end, _ = text.partition(END)
    require(end and LAST in text and trees.isascii(), "it is cut short, or no text of LightGBM")
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
    return trees + END


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
