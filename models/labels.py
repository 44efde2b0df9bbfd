"""Relevance labels for lambdarank: small whole numbers, higher is faster."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Labels = Literal["rank", "log"]

#: LightGBM's limit on a query group.
MAX_GROUP: Final = 10_000
#: With labels "log", a configuration this much slower than the best gets the lowest label.
_LOG_RANGE: Final = 2.0
_LOG_STEPS: Final = 300


def relevance(cost: NDArray[np.float64], how: Labels) -> NDArray[np.float64]:
    """Labels of one group, ``(rows,)``, from 0.

    ``rank``: the dense rank, so that equal costs share a label. ``log``: 300 steps of
    log(cost / smallest), cut at e^2 times the smallest, so that near ties weigh little.

    >>> relevance(np.array([30.0, 10.0, 20.0, 10.0]), "rank").tolist()
    [0.0, 2.0, 1.0, 2.0]
    >>> relevance(np.array([1.0, 100.0]), "log").tolist()
    [300.0, 0.0]
    """
    if how == "rank":
        dense: NDArray[np.float64] = np.unique(-cost, return_inverse=True)[1].astype(np.float64)
        return dense
    excess = np.minimum(np.log(cost / cost.min()), _LOG_RANGE)
    steps: NDArray[np.float64] = np.rint((1 - excess / _LOG_RANGE) * _LOG_STEPS)
    return steps


def split_group(size: int, most: int, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """Rows of a group dealt at random into the fewest parts of at most ``most``, even in size."""
    parts = -(-size // most)
    if parts <= 1:
        return [np.arange(size)]
    return [np.sort(part) for part in np.array_split(rng.permutation(size), parts)]
