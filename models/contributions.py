"""Contributions to the difference between the scores of two configurations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

_Key = TypeVar("_Key")


@dataclass(frozen=True)
class Contributions:
    """Contributions to the difference between two scores of a graph; negative if the first is
    faster.

    They are exact TreeSHAP contributions of columns (Lundberg et al. 2018, *Consistent
    Individualized Feature Attribution for Tree Ensembles*). Up to rounding, ``difference ==
    sum(columns)``.

    Attributes:
        columns: nonzero contributions by column of the rows.
        losses: part of the difference by loss of the members.
    """

    difference: float
    columns: dict[str, float] = field(default_factory=dict)
    losses: dict[str, float] = field(default_factory=dict)

    @classmethod
    def total(cls, parts: Iterable[Contributions], factor: float = 1.0) -> Contributions:
        """Sum the parts, scaled by ``factor``."""
        parts = list(parts)
        return cls(
            sum(part.difference * factor for part in parts),
            sum_by_key((part.columns for part in parts), factor),
            sum_by_key((part.losses for part in parts), factor),
        )

    def scaled_to(self, difference: float) -> Contributions:
        """Return the contributions scaled to another difference; all 0 if they add up to 0."""
        is_zero = abs(self.difference) <= 1e-12
        return Contributions.total([self], 0.0 if is_zero else difference / self.difference)


def sum_by_key(mappings: Iterable[Mapping[_Key, float]], factor: float = 1.0) -> dict[_Key, float]:
    """Sum the values by key, multiplied by ``factor``."""
    total: dict[_Key, float] = {}
    for mapping in mappings:
        for key, value in mapping.items():
            total[key] = total.get(key, 0.0) + value * factor
    return total


def largest_first(shares: Mapping[str, float]) -> dict[str, float]:
    """Sort shares by size, then by name."""
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))
