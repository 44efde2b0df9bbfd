"""Identical configurations: the same choice measured several times."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
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

    >>> groups = group_codes(np.array([[5, 5], [1, 2], [5, 5]]))
    >>> groups.first.tolist(), groups.group.tolist()
    ([0, 1], [0, 1, 0])
    """
    number: dict[bytes, int] = {}  # digests, as whole rows would take as much memory as the codes
    rows = np.ascontiguousarray(codes)
    group = [number.setdefault(blake2b(row, digest_size=16).digest(), len(number)) for row in rows]
    first = np.unique(group, return_index=True)[1]
    return Duplicates(first.astype(np.int64), np.array(group, np.int64))
