"""Noise of the labels of a graph, and the tau that it allows; ``group`` numbers identical configurations."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from xlarank.models.arrays import Floats, Integers
from xlarank.models.validation.metrics import kendall_tau, pair_counts

FOLDS: Final = 5
#: Minimum number of repeated configurations for a tau, whose standard error is then 0.13.
FEWEST: Final = 30


def relative_std(cost: Floats, group: Integers) -> float | None:
    """Return the standard deviation of log costs from the means of their groups; None if nothing repeats."""
    runs = np.bincount(group)
    freedom = len(group) - np.count_nonzero(runs)
    if not freedom:
        return None
    logs = np.log(cost)
    means = np.bincount(group, logs) / np.maximum(runs, 1)
    return math.sqrt(float(((logs - means[group]) ** 2).sum()) / freedom)


def run_tau(cost: Floats, group: Integers) -> float | None:
    """Return tau-b of the first and second runs of configurations; infinite costs were not measured.

    None for fewer than `FEWEST` configurations with two runs, and if all runs are equal: labels were copied.
    """
    known = np.flatnonzero(np.isfinite(cost))
    order = known[np.argsort(group[known], kind="stable")]
    _, start, count = np.unique(group[order], return_index=True, return_counts=True)
    first = start[count > 1]
    runs = cost[order[first]], cost[order[first + 1]]
    return None if len(first) < FEWEST or np.array_equal(*runs) else pair_counts(*runs).tau_b


def tau_ceiling(cost: Floats, group: Integers) -> float | None:
    """Return a tau that no order of the configurations can exceed in expectation: the root of `run_tau`.

    Let d be the expected sign of a pair's difference in a run. The tau of an order is at most the mean of abs(d);
    that of two independent runs is the mean of d ** 2, whose root is not less.
    """
    tau = run_tau(cost, group)
    return None if tau is None else math.sqrt(max(tau, 0.0))


def set_tau(cost: Floats, group: Integers, sets: Integers) -> float | None:
    """Return the mean tau over folds of ``sets (distinct,)`` ordered by their median cost in other folds.

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
    """Return the lower median of every set, ``(count,)``; that of all costs for a set without any."""
    order = np.lexsort((cost, sets))
    members = np.bincount(sets, minlength=count)
    middle = np.cumsum(members) - members + np.maximum(members - 1, 0) // 2
    return np.where(members > 0, cost[order[np.minimum(middle, len(order) - 1)]], np.median(cost))


def config_folds(count: int) -> Integers:
    return np.random.default_rng(0).permutation(count) % FOLDS
