"""Checks of LightGBM's text and XGBoost's JSON before the library reads them, and joins of LightGBM's texts.

The libraries trust their texts: they follow children out of range, rely on stated sizes, and loop forever over
cyclic children. Here every count, index and number is checked, and only trees as this project's rankers grow them
are accepted: one value per leaf, no categories, no linear leaves.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

#: Count, minimum and maximum of the numbers of an entry; integers if the maximum is an integer.
Numbers = tuple[int, float, float]

_MAX_TREES: Final = 100_000
MAX_LEAVES: Final = 131_072
#: Maximum number of splits from the root to a leaf: contributions recurse as deep and take quadratic time.
MAX_DEPTH: Final = 128
_INT_MAX: Final = 2**31 - 1
#: Largest value of a leaf, far above any relevance; the sum of all trees stays finite.
_LARGEST_LEAF: Final = 1e100
_LARGEST_FLOAT32: Final = 1e30

_END: Final = "\nend of trees\n"
#: End of the text; LightGBM omits it from a booster that was read back.
_LAST: Final = "\nend of parameters\n"
#: Patterns of the entries of the header, in order.
_HEADER: Final = {
    "version": "v[34]", "num_class": "1", "num_tree_per_iteration": "1", "label_index": "0",
    "max_feature_idx": "[0-9]{1,9}", "objective": "lambdarank|regression",
    "feature_names": r"[A-Za-z]+_?[0-9]+( [A-Za-z]+_?[0-9]+)*",
    "feature_infos": r"(none|\[[-+.0-9eE]+:[-+.0-9eE]+\])( (none|\[[-+.0-9eE]+:[-+.0-9eE]+\]))*",
    "tree_sizes": "[0-9 ]*",
}  # fmt: skip
#: Required entries of the learner in XGBoost's JSON.
_LEARNER: Final = ("feature_names", "feature_types", "gradient_booster", "learner_model_param", "objective")
_INTEGER: Final = re.compile(r"-?[0-9]{1,10}")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")


def checked_text(text: str, features: int) -> str:
    """Return the header and trees of LightGBM's text; `ValueError` unless they are on ``features`` columns."""
    trees, end, _ = text.partition(_END)
    _require(end and _LAST in text and trees.isascii(), "it is cut short, or no text of LightGBM")
    head, *blocks = trees.split("\nTree=")
    first, *lines = head.rstrip("\n").split("\n")
    header = dict(line.split("=", 1) for line in lines if "=" in line)
    expected = [name for name in _HEADER if name in header or name != "objective"]
    same = [*header] == expected and len(lines) == len(expected)
    _require(first == "tree" and same, "its header has other entries")
    for name, value in header.items():
        _require(re.fullmatch(_HEADER[name], value), f"{name} is {value[:60]!r}")
    columns = {len(header["feature_names"].split(" ")), len(header["feature_infos"].split(" ")), features}
    _require(columns == {int(header["max_feature_idx"]) + 1}, f"it is not of {features} columns")
    blocks = [f"Tree={block}\n" for block in blocks]
    sizes = [len(block) for block in blocks]
    _require(_listed(header["tree_sizes"]) == sizes and len(blocks) <= _MAX_TREES, "its trees have other sizes")
    for number, block in enumerate(blocks):
        _check_lightgbm_tree(block, number, features)
    return trees + _END


def _check_lightgbm_tree(block: str, number: int, features: int) -> None:
    first, *lines = block.rstrip("\n").split("\n")
    texts = dict(line.split("=", 1) for line in lines if "=" in line)
    entries = {name: _listed(text) for name, text in texts.items()}
    leaves = (entries.get("num_leaves") or [0])[0]
    splits, finite = leaves - 1, sys.float_info.max
    # optional in a tree of one leaf
    weights, counts = (leaves if leaves > 1 or entries.get(name) else 0 for name in ("leaf_weight", "leaf_count"))
    fields: dict[str, Numbers] = {
        "num_leaves": (1, 1, MAX_LEAVES), "num_cat": (1, 0, 0), "split_feature": (splits, 0, features - 1),
        "split_gain": (splits, -finite, finite), "threshold": (splits, -finite, finite),
        "decision_type": (splits, 0, 10), "left_child": (splits, -leaves, splits - 1),
        "right_child": (splits, -leaves, splits - 1), "leaf_value": (leaves, -_LARGEST_LEAF, _LARGEST_LEAF),
        "leaf_weight": (weights, -finite, finite), "leaf_count": (counts, 0, _INT_MAX),
        "internal_value": (splits, -finite, finite), "internal_weight": (splits, -finite, finite),
        "internal_count": (splits, 0, _INT_MAX), "is_linear": (1, 0, 0), "shrinkage": (1, -finite, finite),
    }  # fmt: skip
    _require(first == f"Tree={number}" and len(lines) == len(fields) and [*entries] == [*fields], "other entries")
    _require_numbers(entries, fields)
    _require(not any(kind % 2 for kind in entries["decision_type"]), "it has categories")
    require_tree([*zip(entries["left_child"], entries["right_child"], strict=True)], leaves)


def _listed(text: str) -> list[Any]:
    """Return the numbers of a line as int or float."""
    entries = text.split(" ") if text else []
    _require(all(map(_NUMBER.fullmatch, entries)), f"it lists {text[:40]!r} where numbers are due")
    return [int(entry) if _INTEGER.fullmatch(entry) else float(entry) for entry in entries]


def without_parameters(text: str) -> str:
    """Return LightGBM's text without the parameters of training, which would change the files of equal trees."""
    text = re.sub(r"\nmonotone_constraints=[-01 ]*(?=\n)", "", text, count=1)
    return f"{text.partition(_END)[0]}{_END}\nparameters:\n{_LAST}"


def joined(first: str, second: str) -> str:
    """Return the trees of two boosters on the same columns as one text."""
    head, trees = _split(second)
    return _text(head, [*_split(first)[1], *trees])


def first_trees(text: str, count: int | None) -> str:
    """Return the text of the first ``count`` trees, None for all; LightGBM itself takes 0 for all."""
    head, trees = _split(text)
    return _text(head, trees[:count])


def _split(text: str) -> tuple[str, list[str]]:
    """Return the header, and each tree without its number."""
    head, *blocks = text.partition(_END)[0].split("\nTree=")
    return head, [block.partition("\n")[2] for block in blocks]


def _text(head: str, trees: list[str]) -> str:
    blocks = [f"Tree={number}\n{tree}\n" for number, tree in enumerate(trees)]
    sizes = f"tree_sizes={' '.join(str(len(block)) for block in blocks)}"
    lines = [sizes if line.startswith("tree_sizes=") else line for line in head.split("\n")]
    return "\n".join([*lines, *(block.removesuffix("\n") for block in blocks)]) + _END


def checked_json(text: str, features: int) -> str:
    """Return XGBoost's JSON as it was checked; `ValueError` unless its trees are on ``features`` columns."""
    try:
        model = json.loads(text, parse_constant=lambda name: _require(False, f"it holds {name}"))
        learner = _entries(model, ("learner", "version"))["learner"]
        _check_learner(_entries(learner, _LEARNER, ("attributes",)), features)
        booster = _entries(learner["gradient_booster"], ("model", "name"))
        _require(booster["name"] == "gbtree", f"its booster is {booster['name']!r}")
        _check_trees(booster["model"], features)
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"it has another shape ({type(error).__name__}: {error})") from error
    return json.dumps(model)


def _entries(value: Any, needed: Collection[str], allowed: Collection[str] = ()) -> dict[str, Any]:
    same = isinstance(value, dict) and {*needed} <= value.keys() <= {*needed, *allowed}
    _require(same, f"it has other entries than {', '.join(needed)}")
    return dict(value)


def _check_learner(learner: dict[str, Any], features: int) -> None:
    _require(learner["feature_names"] == [] and learner["feature_types"] == [], "its columns have names")
    param, objective = _texts(learner["learner_model_param"]), learner["objective"]
    for name, value in {"num_feature": str(features), "num_class": "0", "num_target": "1"}.items():
        _require(param.get(name) == value, f"{name} is {param.get(name)!r}, not {value}")
    base = float(param["base_score"].strip("[]"))
    _require(abs(base) <= _LARGEST_FLOAT32, "its base score is larger than any score")
    _require(objective["name"] == "rank:pairwise", f"its objective is {objective['name']!r}")
    for part in [learner.get("attributes", {}), *(v for name, v in objective.items() if name != "name")]:
        _texts(part)


def _texts(value: Any) -> dict[str, str]:
    """Return a mapping of short texts; raises `ValueError` for other values."""
    _require(isinstance(value, dict) and len(value) <= 60, "it has other parameters")
    for name, text in value.items():
        short = isinstance(text, str) and re.fullmatch(r"[\w.:+\-\[\] ]{0,100}", text)
        short = short and re.fullmatch(r"\w{1,60}", name)
        _require(short, f"its parameter {name[:60]!r} is {str(text)[:60]!r}")
    return dict(value)


def _check_trees(value: Any, features: int) -> None:
    model = _entries(value, ("gbtree_model_param", "iteration_indptr", "tree_info", "trees"), ("cats",))
    cats, trees = _entries(model.get("cats", {}), (), ("enc", "feature_segments", "sorted_idx")), model["trees"]
    _require(not any(cats.values()), "it has categories")
    _require(isinstance(trees, list) and len(trees) <= _MAX_TREES, "its trees are no list")
    counts = {"num_parallel_tree": "1", "num_trees": str(len(trees))}
    _require(model["gbtree_model_param"] == counts, "it has another number of trees than it says")
    _require_numbers(model, {"tree_info": (len(trees), 0, 0), "iteration_indptr": (len(trees) + 1, 0, len(trees))})
    _require(model["iteration_indptr"] == [*range(len(trees) + 1)], "its rounds are not one tree each")
    for number, tree in enumerate(trees):
        _check_xgboost_tree(tree, number, features)


def _check_xgboost_tree(tree: Any, number: int, features: int) -> None:
    param = _entries(tree["tree_param"], ("num_deleted", "num_feature", "num_nodes", "size_leaf_vector"))
    texts = all(isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value) for value in param.values())
    _require(texts, "its counts are no numbers")
    nodes, columns = int(param["num_nodes"]), int(param["num_feature"])
    # the leaf vector of a stump has 1 entry, 0 in older versions of XGBoost
    plain = 1 <= nodes < 2 * MAX_LEAVES and not int(param["num_deleted"]) and int(param["size_leaf_vector"]) <= 1
    _require(plain and columns == features, f"it has {nodes} nodes of {columns} columns, or values of another kind")
    numbers = ("base_weights", "loss_changes", "split_conditions", "sum_hessian")
    fields: dict[str, Numbers] = {
        "left_children": (nodes, -1, nodes - 1), "right_children": (nodes, -1, nodes - 1),
        "parents": (nodes, 0, _INT_MAX), "split_indices": (nodes, 0, features - 1),
        "default_left": (nodes, 0, 1), "split_type": (nodes, 0, 0),
        **dict.fromkeys(numbers, (nodes, -_LARGEST_FLOAT32, _LARGEST_FLOAT32)),
        **{f"categories{part}": (0, 0, 0) for part in ("", "_nodes", "_segments", "_sizes")},
    }  # fmt: skip
    _require_numbers(_entries(tree, ("id", "tree_param", *fields)), fields)
    _require(type(tree["id"]) is int and tree["id"] == number, "it has another number")
    left, right, parents = tree["left_children"], tree["right_children"], tree["parents"]
    pairs = all((left[node] < 0) == (right[node] < 0) for node in range(nodes))
    _require(pairs and (nodes == 1 or left[0] >= 0), "a split has one child")
    splits, leaves = ([node for node in range(nodes) if (left[node] >= 0) == inner] for inner in (True, False))
    consistent = all(parents[child] == node for node in splits for child in (left[node], right[node]))
    _require(parents[0] == _INT_MAX and consistent, "a child has another parent")
    # numbered as by LightGBM: splits from 0, leaves below
    number_of = {node: i for i, node in enumerate(splits)} | {node: -1 - i for i, node in enumerate(leaves)}
    require_tree([(number_of[left[node]], number_of[right[node]]) for node in splits], len(leaves))


def _require(condition: object, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _require_numbers(entries: Mapping[str, Any], fields: Mapping[str, Numbers]) -> None:
    for name, (count, low, high) in fields.items():
        values, types = entries[name], (int,) if type(high) is int else (int, float)
        _require(isinstance(values, list) and len(values) == count, f"{name} has not {count} entries")
        fit = all(type(value) in types and low <= value <= high for value in values)
        _require(fit, f"{name} lists other things than {types[-1].__name__}s from {low} to {high}")


def require_tree(children: Sequence[tuple[int, int]], leaves: int) -> None:
    """Raise `ValueError` unless every split and leaf is reached from split 0, once, within `MAX_DEPTH` splits.

    ``children`` are splits (0 or more) or leaves, leaf ``i`` as ``-1 - i``.
    """
    visited, pending = {0}, [(0, 1)] if children else []
    while pending:
        split, depth = pending.pop()
        _require(depth <= MAX_DEPTH, f"it is deeper than {MAX_DEPTH} splits")
        for child in children[split]:
            _require(child not in visited, f"{'split' if child >= 0 else 'leaf'} {child} has two parents")
            visited.add(child)
            if child >= 0:
                pending.append((child, depth + 1))
    _require(not children or len(visited) == len(children) + leaves, "its splits and leaves do not form one tree")
