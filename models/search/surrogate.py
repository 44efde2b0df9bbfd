"""Bayesian linear regression: a cost for every configuration from the few that were tried, and how unsure it is.

Rasmussen and Williams, Gaussian Processes for Machine Learning, section 2.1. A configuration is a row of weighted
indicators (node takes row, nodes of a kind take a row, ...): the larger an indicator's weight, the larger the
effect that is thought possible before anything was seen, so weights are prior standard deviations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Surrogate:
    """Linear in weighted indicators, with noise of standard deviation ``noise`` for what is not linear.

    >>> model = Surrogate(2, noise=0.01)
    >>> model.learn(np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([0.5, 0.0]))
    >>> mean, spread = model.predict(np.array([[1.0, 0.0], [0.0, 1.0]]))
    >>> mean.round(2).tolist(), spread.round(2).tolist()
    ([0.5, 0.0], [0.01, 1.0])
    """

    def __init__(self, columns: int, *, noise: float) -> None:
        self.noise = noise
        self.covariance: Floats = np.eye(columns)
        self.mean: Floats = np.zeros(columns)

    def learn(self, rows: Floats, cost: Floats) -> None:
        """Take in some configurations ``(configs, columns)`` with their costs ``(configs,)``, one by one."""
        for row, value in zip(rows, cost, strict=True):
            direction, total = self._direction(row)
            self.mean = self.mean + direction * (value - row @ self.mean) / total
            self.covariance = self.covariance - np.outer(direction, direction) / total

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation, ``(configs,)`` each, without the noise."""
        spread = np.sqrt(np.maximum(((rows @ self.covariance) * rows).sum(axis=1), 0.0))
        return rows @ self.mean, spread

    def batch(self, rows: Floats, count: int, *, bold: float, expected: Floats | float = 0.0) -> list[int]:
        """Positions of the ``count`` most promising rows: lowest mean less ``bold`` times the spread.

        ``expected`` is what was subtracted from the costs before they were learned, ``(configs,)``.

        Each choice narrows the spread around it before the next is made (Desautels, Krause and Burdick, 2014), so a
        batch does not ask the same thing twice.
        """
        mean, spread = self.predict(rows)
        mean = mean + expected
        squared = spread**2
        covariance = self.covariance
        chosen: list[int] = []
        for _ in range(min(count, len(rows))):
            promise = mean - bold * np.sqrt(np.maximum(squared, 0.0))
            promise[chosen] = np.inf
            best = int(np.argmin(promise))
            chosen.append(best)
            direction = covariance @ rows[best]
            total = self.noise**2 + rows[best] @ direction
            covariance = covariance - np.outer(direction, direction) / total
            squared = squared - (rows @ direction) ** 2 / total
        return chosen

    def _direction(self, row: Floats) -> tuple[Floats, float]:
        direction: Floats = self.covariance @ row
        return direction, float(self.noise**2 + row @ direction)
