"""What rankers learn of a graph's costs: relevance labels, ranks and normal scores."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.models.param_checks import OneOf

#: Ways to make labels, see `relevance`.
LABELS: Final = ("rank", "log")

#: LightGBM's limit on a query group.
MAX_GROUP: Final = 10_000
#: With labels "log", a configuration this much slower than the best gets the lowest label.
_LOG_RANGE: Final = 2.0
_LOG_STEPS: Final = 300


def relevance(cost: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    """Labels of one group, ``(rows,)``, from 0.

    ``rank``: the dense rank, so that equal costs share a label. ``log``: 300 steps of
    log(cost / smallest), cut at e^2 times the smallest, so that near ties weigh little. Raises `ModelError` for
    anything else.

    >>> relevance(np.array([30.0, 10.0, 20.0, 10.0]), "rank").tolist()
    [0.0, 2.0, 1.0, 2.0]
    >>> relevance(np.array([1.0, 100.0]), "log").tolist()
    [300.0, 0.0]
    """
    if OneOf(LABELS)("labels", how) == "rank":
        dense: NDArray[np.float64] = np.unique(-cost, return_inverse=True)[1].astype(np.float64)
        return dense
    excess = np.minimum(np.log(cost / cost.min()), _LOG_RANGE)
    steps: NDArray[np.float64] = np.rint((1 - excess / _LOG_RANGE) * _LOG_STEPS)
    return steps


def mean_rank(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks of one group, ``(rows,)``, from 0 for the smallest to 1; ties share the mean of their ranks.

    >>> mean_rank(np.array([30.0, 10.0, 20.0, 10.0, 40.0])).tolist()
    [0.75, 0.125, 0.5, 0.125, 1.0]
    """
    from scipy.stats import rankdata  # takes long to load

    ranks: NDArray[np.float64] = (rankdata(values) - 1) / max(1, len(values) - 1)
    return ranks
