"""Sums and order of contributions by key, such as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

_Key = TypeVar("_Key", int, str, tuple[int, ...])


def sum_by_key(mappings: Iterable[Mapping[_Key, float]], factor: float = 1.0) -> dict[_Key, float]:
    """Sum the values by key, multiplied by ``factor``."""
    total: dict[_Key, float] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            total[key] = total.get(key, 0.0) + value * factor
    return total


def largest_first(values: Mapping[_Key, float]) -> dict[_Key, float]:
    """Sort values by absolute size, then by key."""
    return dict(sorted(values.items(), key=lambda item: (-abs(item[1]), item[0])))
