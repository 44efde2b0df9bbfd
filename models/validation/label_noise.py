"""Label noise of a graph and the tau it allows; identical configurations share a number in ``group``."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from xlarank.models.arrays import Floats, Integers
from xlarank.models.validation.metrics import kendall_tau, pair_counts

FOLDS: Final = 5
#: Minimum number of repeated configurations for a tau; its standard error is then 0.13.
FEWEST: Final = 30


def relative_std(cost: Floats, group: Integers) -> float | None:
    """Return the pooled within-group standard deviation of log costs; None if nothing repeats."""
    runs = np.bincount(group)
    freedom = len(group) - np.count_nonzero(runs)
    if not freedom:
        return None
    logs = np.log(cost)
    means = np.bincount(group, logs) / np.maximum(runs, 1)
    return math.sqrt(float(((logs - means[group]) ** 2).sum()) / freedom)


def run_tau(cost: Floats, group: Integers) -> float | None:
    """Return tau-b between the first and second runs of configurations; infinite costs (not measured) are ignored.

    None for fewer than `FEWEST` configurations with two runs, or if all runs are equal, i.e. labels were copied.
    """
    known = np.flatnonzero(np.isfinite(cost))
    order = known[np.argsort(group[known], kind="stable")]
    _, start, count = np.unique(group[order], return_index=True, return_counts=True)
    first = start[count > 1]
    runs = cost[order[first]], cost[order[first + 1]]
    return None if len(first) < FEWEST or np.array_equal(*runs) else pair_counts(*runs).tau_b


def tau_ceiling(cost: Floats, group: Integers) -> float | None:
    """Return an upper bound of the expected tau of any order of the configurations: the root of `run_tau`.

    Let d be the expected sign of a pair's difference in a run. The tau of an order is at most the mean of abs(d);
    that between two independent runs is the mean of d ** 2, whose root is at least as large.
    """
    tau = run_tau(cost, group)
    return None if tau is None else math.sqrt(max(tau, 0.0))


def set_tau(cost: Floats, group: Integers, sets: Integers) -> float | None:
    """Return the mean tau over folds if ``sets (distinct,)`` are ordered by their median cost in the other folds.

    Identical configurations share a fold. None if fewer than `FEWEST` share a set.
    """
    measured, number = np.unique(group, return_inverse=True)
    members = np.bincount(sets[measured])
    if members[members > 1].sum() < FEWEST:
        return None
    fold, config_set = config_folds(len(measured))[number], sets[group]
    taus = []
    for held in (fold == number for number in range(FOLDS)):
        median = _medians(cost[~held], config_set[~held], len(members))
        taus.append(kendall_tau(median[config_set[held]], cost[held]))
    return float(np.mean(taus))


def _medians(cost: Floats, sets: Integers, count: int) -> Floats:
    """Return the lower median of each set, ``(count,)``; the median of all costs for empty sets."""
    order = np.lexsort((cost, sets))
    members = np.bincount(sets, minlength=count)
    middle = np.cumsum(members) - members + np.maximum(members - 1, 0) // 2
    return np.where(members > 0, cost[order[np.minimum(middle, len(order) - 1)]], np.median(cost))


def config_folds(count: int) -> Integers:
    return np.random.default_rng(0).permutation(count) % FOLDS
