"""Checks of the trees of boosters before LightGBM or XGBoost reads them.

Both trust their text: they follow children out of range, rely on stated sizes, and loop forever
over cyclic children. So every count, index and number of a tree is checked first, and only the form
of trees that these rankers grow is accepted: one value per leaf, no categories, no linear leaves.
Everything around the trees is written anew.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
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
_INTEGER: Final = re.compile(r"-?[0-9]{1,10}")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")


def lightgbm_text(text: str, features: int) -> str:
    """Return LightGBM's text with its trees and a new header, without parameters of training.

    Equal trees on the same number of columns give equal texts. Raises `ValueError` if the text is
    cut short.
    """
    trees, end, _ = text.partition(END)
    require(end and trees.isascii(), "it is cut short, or no text of LightGBM")
    blocks = [f"Tree={block}\n" for block in trees.split("\nTree=")[1:]]
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
    return ("\n".join(lines) + "".join(blocks)).removesuffix("\n") + END


def checked_text(text: str, features: int) -> str:
    """Return `lightgbm_text` if all trees are valid, on ``features`` columns; raises
    `ValueError`.
    """
    text = lightgbm_text(text, features)
    _, *blocks = text.removesuffix(END).split("\nTree=")
    require(len(blocks) <= MAX_TREES, f"it has more than {MAX_TREES:,} trees")
    for number, block in enumerate(blocks):
        _check_lightgbm_tree(f"Tree={block}", number, features)
    return text


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


def checked_json(text: str, empty: str) -> str:
    """Return XGBoost's JSON with the trees of ``text`` in place of those of ``empty``, a booster
    without trees; raises `ValueError` unless the trees are valid, on as many columns.
    """
    model = json.loads(empty)
    features = int(model["learner"]["learner_model_param"]["num_feature"])
    try:
        given = json.loads(text, parse_constant=lambda name: require(False, f"it holds {name}"))
        trees = given["learner"]["gradient_booster"]["model"]["trees"]
        require(isinstance(trees, list) and len(trees) <= MAX_TREES, "its trees are no list")
        trees = [_xgboost_tree(tree, number, features) for number, tree in enumerate(trees)]
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"it has another shape ({type(error).__name__}: {error})") from error
    model["learner"]["gradient_booster"]["model"] |= {
        "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(len(trees))},
        "iteration_indptr": [*range(len(trees) + 1)],
        "tree_info": [0] * len(trees),
        "trees": trees,
    }
    return json.dumps(model)


def _xgboost_tree(tree: Mapping[str, Any], number: int, features: int) -> dict[str, Any]:
    """Return a tree of the checked nodes; raises `ValueError` if any is invalid."""
    nodes = len(tree["left_children"])
    require(1 <= nodes < 2 * MAX_LEAVES, f"it has {nodes} nodes")
    child = (nodes, -1, nodes - 1)
    finite = (nodes, -_LARGEST, _LARGEST)
    fields: dict[str, Numbers] = {
        "left_children": child,
        "right_children": child,
        "split_indices": (nodes, 0, features - 1),
        "default_left": (nodes, 0, 1),
        "base_weights": finite,
        "loss_changes": finite,
        "split_conditions": finite,
        "sum_hessian": finite,
    }
    require_numbers(tree, fields)
    left = np.array(tree["left_children"])
    right = np.array(tree["right_children"])
    is_split = left >= 0
    paired = np.array_equal(is_split, right >= 0)
    require(paired and (nodes == 1 or is_split[0]), "a split has one child")
    splits = np.flatnonzero(is_split)
    # LightGBM numbers splits from 0 upwards and leaves from -1 downwards
    numbers = np.where(is_split, np.cumsum(is_split) - 1, -np.cumsum(~is_split, dtype=np.int64))
    children = [*zip(numbers[left[splits]], numbers[right[splits]], strict=True)]
    require_tree(children, nodes - len(splits))
    parents = np.full(nodes, INT_MAX)
    parents[left[splits]] = splits
    parents[right[splits]] = splits
    counts = {"num_deleted": 0, "num_feature": features, "num_nodes": nodes, "size_leaf_vector": 1}
    categories = ("categories", "categories_nodes", "categories_segments", "categories_sizes")
    return {
        "id": number,
        "tree_param": {name: str(count) for name, count in counts.items()},
        **{name: tree[name] for name in fields},
        "parents": parents.tolist(),
        "split_type": [0] * nodes,
        **{name: [] for name in categories},
    }


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
