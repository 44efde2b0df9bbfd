"""Label noise of a graph, and the tau that it allows.

Arrays ``cost`` and ``group`` have an entry per configuration; identical configurations share a
number in ``group``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from xlarank.models.arrays import Floats, Integers
from xlarank.models.validation.metrics import pair_metrics

#: Minimum number of repeated configurations for a tau; its standard error is then 0.13.
_MIN_REPEATS: Final = 30


def relative_std(cost: Floats, group: Integers) -> float | None:
    """Return the pooled within-group standard deviation of log costs; None if nothing repeats."""
    runs = np.bincount(group)
    degrees_of_freedom = len(group) - np.count_nonzero(runs)
    if not degrees_of_freedom:
        return None
    logs = np.log(cost)
    means = np.bincount(group, logs) / np.maximum(runs, 1)
    return math.sqrt(float(((logs - means[group]) ** 2).sum()) / degrees_of_freedom)


def tau_ceiling(cost: Floats, group: Integers) -> float | None:
    """Return an upper bound of the expected tau of any order of the configurations.

    It is the root of the tau-b between the first and second runs of configurations; infinite costs
    (not measured) are ignored. Let d be the expected sign of a pair's difference in a run. The tau
    of an order is at most the mean of abs(d); that between two independent runs is the mean of
    d ** 2, whose root is at least as large.

    None if fewer than `_MIN_REPEATS` configurations have two runs, or if all first and second runs
    agree (copies).
    """
    measured = np.flatnonzero(np.isfinite(cost))
    order = measured[np.argsort(group[measured], kind="stable")]
    _, start, count = np.unique(group[order], return_index=True, return_counts=True)
    first = start[count > 1]
    runs = cost[order[first]], cost[order[first + 1]]
    if len(first) < _MIN_REPEATS or np.array_equal(*runs):
        return None
    _, _, tau_b = pair_metrics(*runs)
    return math.sqrt(max(tau_b, 0.0))
