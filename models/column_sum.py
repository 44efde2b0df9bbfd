"""Sums of columns, such as estimated times, that rank without trees, or where trees begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from xlarank.data.graph import Kind
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats, Matrix
from xlarank.models.training_data import Target, TrainingData


@dataclass(frozen=True)
class ColumnSum:
    """A score: ``weight`` times a sum of columns. For estimated times, the sum is log2 of ns."""

    columns: tuple[str, ...]
    weight: float = 1.0

    @classmethod
    def find(cls, columns: Sequence[str], weight: float, target: Target, kind: Kind) -> Self | None:
        """Return the target's estimate; None without it or a weight, or if a column is missing."""
        names = target.estimate.get(kind, ())
        return cls(names, weight) if weight and names and {*names} <= {*columns} else None

    def values(self, matrix: Matrix, columns: Sequence[str]) -> Floats:
        """Return the scores, ``(rows,)``, of a matrix with these columns."""
        used = sorted(columns.index(name) for name in self.columns)
        values = matrix[:, used].astype(np.float64)
        return np.asarray(self.weight * values.sum(axis=1))

    def score(self, rows: GraphRows | TrainingData) -> Floats:
        """Return ``(rows,)`` scores, lower is faster."""
        used = np.sort(np.array([rows.columns.index(name) for name in self.columns], np.intp))
        return self.values(rows.matrix(used=used), [rows.columns[index] for index in used])

    def contributions(self, pair: Matrix, columns: Sequence[str]) -> dict[str, float]:
        """Return the nonzero differences of the terms of a score between two rows."""
        differences = {}
        for name in self.columns:
            values = pair[:, columns.index(name)].astype(np.float64)
            if values[0] != values[1]:
                differences[name] = self.weight * float(values[0] - values[1])
        return differences
