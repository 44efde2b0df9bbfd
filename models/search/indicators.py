"""A configuration as weighted indicators of what its nodes take."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Indicators:
    """Turns codes into rows for a `xlarank.models.search.surrogate.Surrogate`.

    Attributes:
        column: per node ``(choices, shared levels)`` columns that a choice sets; column 0 stands for none.
        weight: ``(columns,)`` prior standard deviation of each column's effect.
    """

    column: tuple[NDArray[np.int64], ...]
    weight: Floats

    @property
    def columns(self) -> int:
        return len(self.weight)

    def rows(self, codes: NDArray[np.int32]) -> Floats:
        """``(configs, columns)`` of ``(configs, nodes)`` codes; several nodes of a kind add up."""
        rows = np.zeros((len(codes), self.columns))
        configs = np.arange(len(codes))
        for node, column in enumerate(self.column):
            for level in column.T:
                np.add.at(rows, (configs, level[codes[:, node]]), 1.0)
        rows[:, 0] = 0.0
        weighted: Floats = rows * self.weight
        return weighted


def indicators(traits: Sequence[Sequence[Sequence[Hashable]]], spread: Sequence[float]) -> Indicators:
    """Indicators of ``traits[node][choice]``: what a choice shares with others, one trait a level.

    ``spread`` is each level's prior standard deviation. Choice 0, the compiler's, has no traits.
    """
    number: dict[tuple[int, Hashable], int] = {}
    weight = [0.0]
    columns = []
    for choices in traits:
        column = np.zeros((len(choices), len(spread)), np.int64)
        for choice, levels in enumerate(choices[1:], 1):
            for level, trait in enumerate(levels):
                key = (level, trait)
                if key not in number:
                    number[key] = len(weight)
                    weight.append(spread[level])
                column[choice, level] = number[key]
        columns.append(column)
    return Indicators(tuple(columns), np.array(weight))
