"""Noise of the labels of a graph, and what an order of its configurations can reach in spite of it.

``cost`` and ``group`` are ``(configs,)``: equal numbers of ``group`` are identical configurations.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from xlarank.models.arrays import Floats, Integers
from xlarank.models.validation.metrics import kendall_tau, pair_counts

FOLDS: Final = 5
#: Configurations with an equal one that a tau needs: its standard error is 0.13.
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
    """Return tau-b of the first and second runs of configurations.

    Costs of infinity were not measured. None for fewer than `FEWEST` configurations with two runs, and if both runs
    are equal for all: labels were copied.
    """
    known = np.flatnonzero(np.isfinite(cost))
    order = known[np.argsort(group[known], kind="stable")]
    _, start, runs = np.unique(group[order], return_index=True, return_counts=True)
    first = start[runs > 1]
    one, other = cost[order[first]], cost[order[first + 1]]
    if len(first) < FEWEST or np.array_equal(one, other):
        return None
    return pair_counts(one, other).tau_b


def tau_ceiling(cost: Floats, group: Integers) -> float | None:
    """Return a tau that no order of the configurations can exceed in expectation: the root of `run_tau`.

    Let d be the expected sign of a pair's difference in a run. An order reaches the mean of abs(d) at most; two
    independent runs agree by the mean of d ** 2, whose root is not less. Only repeated configurations are seen, and
    a search may repeat those that are hard to tell apart.
    """
    tau = run_tau(cost, group)
    return None if tau is None else math.sqrt(max(tau, 0.0))


def set_tau(cost: Floats, group: Integers, sets: Integers) -> float | None:
    """Return the tau of sets, ``(distinct,)``, ordered by their median cost in other folds: the mean over folds.

    Identical configurations share a fold, and those of one set are ties. Left one out, the mean of the others would
    order each set backwards: it falls with the cost left out. None if fewer than `FEWEST` share a set.
    """
    measured, number = np.unique(group, return_inverse=True)
    members = np.bincount(sets[measured])
    if members[members > 1].sum() < FEWEST:
        return None
    fold, of_config = config_folds(len(measured))[number], sets[group]
    taus = []
    for held in (fold == number for number in range(FOLDS)):
        rest = ~held
        middle = _medians(cost[rest], of_config[rest], len(members))
        taus.append(kendall_tau(middle[of_config[held]], cost[held]))
    return float(np.mean(taus))


def _medians(cost: Floats, sets: Integers, count: int) -> Floats:
    """Return the lower median of every set, ``(count,)``; that of all for one without costs."""
    order = np.lexsort((cost, sets))
    members = np.bincount(sets, minlength=count)
    at = np.cumsum(members) - members + np.maximum(members - 1, 0) // 2
    return np.where(members > 0, cost[order[np.minimum(at, len(order) - 1)]], np.median(cost))


def config_folds(count: int) -> Integers:
    """Return the fold of each of ``count`` configurations."""
    return np.random.default_rng(0).permutation(count) % FOLDS
