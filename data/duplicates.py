"""Identical configurations: the same choice measured several times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Duplicates:
    """Groups of identical configurations, numbered by first appearance.

    Attributes:
        first: ``(distinct,)`` int64; the first configuration of each group.
        group: ``(configs,)`` int64; the group of each configuration.
    """

    first: NDArray[np.int64]
    group: NDArray[np.int64]

    @property
    def distinct(self) -> int:
        return len(self.first)


def group_minimum(values: NDArray[Any], group: NDArray[np.int64], groups: int) -> NDArray[Any]:
    """Return the smallest value of each group, ``(groups,)``; the largest possible number for an empty group.

    The cost of a configuration that was measured several times is that of its fastest repeat, because noise only
    ever adds to a runtime.

    >>> group_minimum(np.array([30, 10, 20]), np.array([0, 1, 0]), 2).tolist()
    [20, 10]
    """
    largest = np.inf if values.dtype.kind == "f" else np.iinfo(values.dtype).max
    smallest = np.full(groups, largest, values.dtype)
    np.minimum.at(smallest, group, values)
    return smallest


def group_codes(codes: NDArray[np.integer]) -> Duplicates:
    """Group equal rows of whole numbers, ``(configs, nodes)``.

    Rows are compared by a 64-bit random projection first; the groups are then checked exactly, and a
    collision (never seen) falls back to sorting whole rows.

    >>> groups = group_codes(np.array([[5, 5], [1, 2], [5, 5]]))
    >>> groups.first.tolist(), groups.group.tolist()
    ([0, 1], [0, 1, 0])
    """
    configs, nodes = codes.shape
    if codes.size == 0:
        return _number(np.zeros(configs, np.int64))
    weights = np.random.default_rng(0).integers(1, 2**63, size=nodes, dtype=np.int64) | 1
    step = max(1, (1 << 19) // nodes)
    with np.errstate(over="ignore"):
        hashes = np.concatenate(
            [codes[at : at + step].astype(np.int64) @ weights for at in range(0, configs, step)]
        )
    groups = _number(np.unique(hashes, return_inverse=True)[1])
    for at in range(0, configs, step):
        if not np.array_equal(codes[at : at + step], codes[groups.first[groups.group[at : at + step]]]):
            return _number(np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1))
    return groups


def _number(labels: NDArray[Any]) -> Duplicates:
    """Renumber labels ``0..n-1`` by first appearance."""
    distinct, first = np.unique(labels, return_index=True)
    order = np.argsort(first)
    number = np.empty(len(distinct), np.int64)
    number[order] = np.arange(len(distinct))
    return Duplicates(first[order].astype(np.int64), number[labels].astype(np.int64))
