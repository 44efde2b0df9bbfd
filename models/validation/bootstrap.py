"""How far a mean over few graphs can be trusted."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

RESAMPLES: Final = 2000
#: Share of the resampled means within the interval.
COVERAGE: Final = 0.95
_SEED: Final = 0


def bootstrap_interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Percentile bootstrap of a mean: the middle 95 % of the means of 2000 resamples, as (low, high).

    ``values`` is ``(graphs,)``, one or more: a resample draws as many graphs, with repeats. The draws depend on
    the number of graphs alone, so that the metrics of one report share them, and two reports too. One graph
    gives no width, and few graphs too little: with n of them the interval is narrower than a normal one by about
    sqrt((n - 1) / n), and graphs of one family, which resemble each other, count as if they did not.

    >>> low, high = bootstrap_interval(np.array([0.2, 0.4, 0.6]))
    >>> round(low, 3), round(high, 3)
    (0.2, 0.6)
    >>> bootstrap_interval(np.array([0.5]))
    (0.5, 0.5)
    """
    graphs = len(values)
    drawn = np.random.default_rng(_SEED).integers(graphs, size=(RESAMPLES, graphs))
    tail = (1 - COVERAGE) / 2
    low, high = np.quantile(values[drawn].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)
