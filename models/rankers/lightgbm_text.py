"""LightGBM's text of a booster, checked before LightGBM sees it.

LightGBM trusts its text: children out of range are followed, sizes are believed, and a loop of children never ends.
Here every count, index and number is looked at, and only trees as this project's rankers grow them are let through:
one value a leaf, no categories, no linear leaves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

_END: Final = "\nend of trees\n"
_PARAMETERS: Final = "\nparameters:\n"
#: After it nothing follows that is missed; of a booster that was read back LightGBM leaves it out.
_LAST: Final = "\nend of parameters\n"
_HEADER: Final = (
    "version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective",
    "feature_names", "feature_infos", "tree_sizes",
)  # fmt: skip
_TREE: Final = (
    "num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type", "left_child",
    "right_child", "leaf_value", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count",
    "is_linear", "shrinkage",
)  # fmt: skip
_FIXED: Final = {"num_class": "1", "num_tree_per_iteration": "1", "label_index": "0"}
_OBJECTIVES: Final = ("lambdarank", "regression", "binary sigmoid:1")
_INTEGER: Final = re.compile(r"-?[0-9]{1,10}")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?")
_NAME: Final = re.compile(r"[A-Za-z]+_?[0-9]+")
_INFO: Final = re.compile(r"none|\[[-+.0-9eE]+:[-+.0-9eE]+\]")
#: Far above what boosting makes of relevances; the sum of all trees stays a number.
_LARGEST_LEAF: Final = 1e100
_MOST_TREES: Final = 100_000
_MOST_LEAVES: Final = 131_072


def checked_text(text: str, features: int) -> str:
    """LightGBM's text of a booster on so many columns, its header and trees, as LightGBM may be given them.

    Raises `ValueError` for anything that LightGBM would not have written of this project's boosters.
    """
    if _LAST not in text:
        raise ValueError("it is cut short")
    trees, end, _ = text.partition(_END)
    if not end or not trees.isascii():
        raise ValueError("it has no end of trees")
    head, *blocks = trees.split("\nTree=")
    header = _header(head)
    names, infos = (header[name].split(" ") for name in ("feature_names", "feature_infos"))
    if int(header["max_feature_idx"]) != features - 1 or len(names) != features or len(infos) != features:
        raise ValueError(f"it is not of {features} columns")
    if not all(map(_NAME.fullmatch, names)) or not all(map(_INFO.fullmatch, infos)):
        raise ValueError("its columns have names or ranges that LightGBM does not write")
    # what LightGBM takes as a tree reaches to the next one, the blank line before the end included
    blocks = [f"Tree={block}\n" for block in blocks]
    sizes = [len(block) for block in blocks]
    if _integers(header["tree_sizes"], len(blocks), 1) != sizes or len(blocks) > _MOST_TREES:
        raise ValueError("its trees have other sizes than it says")
    for number, block in enumerate(blocks):
        try:
            _check_tree(block, number, features)
        except ValueError as error:
            raise ValueError(f"tree {number}: {error}") from error
    return trees + _END


def narrowed_text(text: str, kept: Sequence[int]) -> str:
    """The text of a booster just grown, on some of its columns alone, which all its splits are among.

    Column ``kept[i]``, ascending, becomes column i.
    """
    head, trees = _split(text)
    number = {str(column): str(place) for place, column in enumerate(kept)}

    def renumbered(line: str) -> str:
        key, _, value = line.partition("=")
        if key == "split_feature" and value:
            value = " ".join(number[column] for column in value.split(" "))
        elif key == "max_feature_idx":
            value = str(len(kept) - 1)
        elif key == "feature_names":
            value = " ".join(f"Column_{place}" for place in range(len(kept)))
        elif key == "feature_infos":
            infos = value.split(" ")
            value = " ".join(infos[column] for column in kept)
        return f"{key}={value}" if "=" in line else line

    head, *trees = ("\n".join(map(renumbered, part.split("\n"))) for part in (head, *trees))
    return _text(head, trees) + text[text.index(_PARAMETERS) :]


def whole(text: str) -> str:
    """LightGBM's text of a booster, with the end that `checked_text` looks for."""
    return text if _LAST in text else f"{text}\nparameters:\n{_LAST}"


def joined(first: str, then: str) -> str:
    """Header and trees of one booster that adds up two on the same columns, the trees of ``first`` first.

    Both are of LightGBM's own making, or were checked; raises `ValueError` where their columns differ in number.
    """
    heads, blocks = zip(*(_split(text) for text in (first, then)), strict=True)
    columns = [[line for line in head.split("\n") if line.startswith("max_feature_idx=")] for head in heads]
    if columns[0] != columns[1]:
        raise ValueError("the boosters are of different numbers of columns")
    return _text(heads[1], [*blocks[0], *blocks[1]])


def first_trees(text: str, count: int) -> str:
    """Header and the first ``count`` trees of a booster; raises `ValueError` where it has fewer."""
    head, blocks = _split(text)
    if not 0 <= count <= len(blocks):
        raise ValueError(f"it has {len(blocks)} trees, not {count}")
    return _text(head, blocks[:count])


def _split(text: str) -> tuple[str, list[str]]:
    """The header, and the lines of each tree below its number."""
    head, *blocks = text.partition(_END)[0].split("\nTree=")
    return head, [block.partition("\n")[2] for block in blocks]


def _text(head: str, trees: list[str]) -> str:
    blocks = [f"Tree={number}\n{tree}\n" for number, tree in enumerate(trees)]
    lines = [
        f"tree_sizes={' '.join(str(len(block)) for block in blocks)}" if line.startswith("tree_sizes=") else line
        for line in head.split("\n")
    ]
    return "\n".join([*lines, *(block.removesuffix("\n") for block in blocks)]) + _END


def _header(head: str) -> dict[str, str]:
    first, *lines = head.rstrip("\n").split("\n")
    pairs = [line.split("=", 1) for line in lines]
    keys = [pair[0] for pair in pairs]
    wanted = [key for key in _HEADER if key in keys or key != "objective"]
    if first != "tree" or keys != wanted or any(len(pair) != 2 for pair in pairs):
        raise ValueError(f"its header has the entries {', '.join(map(repr, keys[:12]))}")
    header = {pair[0]: pair[1] for pair in pairs}
    for key, value in _FIXED.items():
        if header[key] != value:
            raise ValueError(f"{key} is {header[key]!r}")
    if not re.fullmatch("v[34]", header["version"]) or header.get("objective", "regression") not in _OBJECTIVES:
        raise ValueError(f"it is of version {header['version']!r} and objective {header.get('objective')!r}")
    if not _INTEGER.fullmatch(header["max_feature_idx"]):
        raise ValueError(f"max_feature_idx is {header['max_feature_idx']!r}")
    return header


def _check_tree(block: str, number: int, features: int) -> None:
    first, *lines = block.rstrip("\n").split("\n")
    entries = dict(line.split("=", 1) for line in lines if "=" in line)
    if first != f"Tree={number}" or tuple(entries) != _TREE or len(lines) != len(_TREE):
        raise ValueError(f"it has the entries {', '.join(list(entries)[:20])}")
    if entries["num_cat"] != "0" or entries["is_linear"] != "0":
        raise ValueError("it has categories or linear leaves")
    (leaves,) = _integers(entries["num_leaves"], 1, 1, _MOST_LEAVES)
    splits = leaves - 1
    _integers(entries["split_feature"], splits, 0, features - 1)
    for kind in _integers(entries["decision_type"], splits, 0, 10):
        if kind % 2:
            raise ValueError("it has categories")
    for name in ("split_gain", "threshold", "internal_value", "internal_weight"):
        _numbers(entries[name], splits)
    _integers(entries["internal_count"], splits, 0)
    if max(map(abs, _numbers(entries["leaf_value"], leaves))) > _LARGEST_LEAF:
        raise ValueError("a leaf is larger than any score")
    if leaves > 1 or entries["leaf_weight"]:
        _numbers(entries["leaf_weight"], leaves)
    if leaves > 1 or entries["leaf_count"]:
        _integers(entries["leaf_count"], leaves, 0)
    _numbers(entries["shrinkage"], 1)
    left = _integers(entries["left_child"], splits, -leaves, splits - 1)
    right = _integers(entries["right_child"], splits, -leaves, splits - 1)
    require_tree([(a, b) for a, b in zip(left, right, strict=True)], leaves)


def require_tree(children: Sequence[tuple[int, int]], leaves: int) -> None:
    """Raise `ValueError` unless every split and leaf is reached from split 0, once.

    ``children`` of each split are splits (0 or more) or leaves, leaf ``i`` as ``-1 - i``.
    """
    seen, waiting = {0}, [0] if children else []
    reached = 0
    while waiting:
        for child in children[waiting.pop()]:
            if child in seen:
                raise ValueError(f"{'split' if child >= 0 else 'leaf'} {child} has two parents")
            seen.add(child)
            reached += 1
            if child >= 0:
                waiting.append(child)
    if children and reached != len(children) - 1 + leaves:
        raise ValueError("its splits and leaves do not form one tree")


def _integers(text: str, count: int, low: int, high: int = 2**31 - 1) -> list[int]:
    words = text.split(" ") if text else []
    if len(words) != count or not all(map(_INTEGER.fullmatch, words)):
        raise ValueError(f"it lists {text[:40]!r} where {count} whole numbers are due")
    found = [int(word) for word in words]
    if any(not low <= value <= high for value in found):
        raise ValueError(f"it lists a number outside {low} to {high}")
    return found


def _numbers(text: str, count: int) -> list[float]:
    words = text.split(" ") if text else []
    if len(words) != count or not all(map(_NUMBER.fullmatch, words)):
        raise ValueError(f"it lists {text[:40]!r} where {count} numbers are due")
    found = [float(word) for word in words]
    if not all(map(math.isfinite, found)):
        raise ValueError("it lists a number that is not finite")
    return found
