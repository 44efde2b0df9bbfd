"""Label noise of a graph, the tau it allows, and counts of a layout graph's distinct
configurations.

Arrays ``cost`` and ``group`` have an entry per configuration; identical configurations share a
number in ``group``.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from xlarank.data.graph import LayoutGraph
from xlarank.data.schema import MAX_RANK
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.time_model import TimeModel
from xlarank.features.program.tensors import complete_layout, layout_key
from xlarank.models.arrays import Floats, Integers
from xlarank.models.validation.metrics import kendall_tau, pair_metrics

_FOLDS: Final = 5
#: Minimum number of repeated configurations for a tau; its standard error is then 0.13.
_MIN_REPEATS: Final = 30
#: Maximum number of configurations in an additive fit.
_CONFIGS: Final = 10_000


def relative_std(cost: Floats, group: Integers) -> float | None:
    """Return the pooled within-group standard deviation of log costs; None if nothing repeats."""
    runs = np.bincount(group)
    degrees_of_freedom = len(group) - np.count_nonzero(runs)
    if not degrees_of_freedom:
        return None
    logs = np.log(cost)
    means = np.bincount(group, logs) / np.maximum(runs, 1)
    return math.sqrt(float(((logs - means[group]) ** 2).sum()) / degrees_of_freedom)


def run_tau(cost: Floats, group: Integers) -> float | None:
    """Return tau-b between the first and second runs of configurations; infinite costs (not
    measured) are ignored.

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
    return tau_b


def tau_ceiling(cost: Floats, group: Integers) -> float | None:
    """Return an upper bound of the expected tau of any order of the configurations: the root of
    `run_tau`.

    Let d be the expected sign of a pair's difference in a run. The tau of an order is at most the
    mean of abs(d); that between two independent runs is the mean of d ** 2, whose root is at least
    as large.
    """
    tau = run_tau(cost, group)
    return None if tau is None else math.sqrt(max(tau, 0.0))


def set_tau(cost: Floats, group: Integers, sets: Integers) -> float | None:
    """Return the mean tau over folds of ordering by the median cost of a configuration's set in the
    other folds.

    ``sets (distinct,)`` numbers the sets. Equal configurations share a fold. None if too few share
    a set.
    """
    measured, index = np.unique(group, return_inverse=True)
    members = np.bincount(sets[measured])
    if members[members > 1].sum() < _MIN_REPEATS:
        return None
    rows = pl.DataFrame({"set": sets[group], "cost": cost})
    taus = []
    for in_test in _folds(len(measured)):
        train = rows.filter(~in_test[index])
        test = rows.filter(in_test[index])
        medians = train.group_by("set").agg(median=pl.col("cost").quantile(0.5, "lower"))
        scored = test.join(medians, on="set", how="left", maintain_order="left")
        score = scored["median"].fill_null(train["cost"].median())
        taus.append(kendall_tau(score.to_numpy(), test["cost"].to_numpy()))
    return float(np.mean(taus))


def _folds(count: int) -> list[NDArray[np.bool_]]:
    """Return the members of each fold, ``(count,)``."""
    fold = np.random.default_rng(0).permutation(count) % _FOLDS
    return [fold == number for number in range(_FOLDS)]


def describe_labels(graph: LayoutGraph, of_tpu: bool = True) -> dict[str, float | None]:
    """Return counts of configurations, and the noise of the labels (None if too few configurations
    are equal).

    ``output_sets`` counts distinct combinations of the outputs' full layouts, ``model_times``
    distinct times by `TimeModel` (only if the labels are ``of_tpu``). ``repeat_std`` and
    ``set_std`` are the `relative_std` within identical configurations and within output sets; the
    rest are results of the functions of this module.
    """
    context = LayoutContext(graph)
    default = context.default_layout[graph.configurable[context.table.node]]
    layouts = complete_layout(context.table.rows[:, :MAX_RANK].astype(np.int64), default)
    keys = np.unique(layout_key(layouts), return_inverse=True)[1]
    groups = tied_groups(keys.astype(np.int32)[context.table.codes])
    sets = np.unique(groups, axis=0, return_inverse=True)[1].reshape(-1)
    measured = graph.measured
    group = graph.group[measured]
    cost = graph.cost[measured]
    runs = np.bincount(group, minlength=len(groups))
    logs = np.bincount(group, np.log(cost), minlength=len(groups)) / np.maximum(runs, 1)
    return {
        "configurations": graph.configs,
        "measured": int(measured.sum()),
        "distinct": len(groups),
        "output_sets": int(sets.max()) + 1,
        **({"model_times": _model_times(context)} if of_tpu else {}),
        "repeat_std": relative_std(cost, group),
        "set_std": relative_std(cost, sets[group]),
        "run_tau": run_tau(cost, group),
        "ceiling": tau_ceiling(cost, group),
        "set_tau": set_tau(cost, group, sets),
        "additive_r2": additive_r2(logs[runs > 0], groups[runs > 0]),
    }


def _model_times(context: LayoutContext) -> int:
    row_ns = TimeModel(context).row_ns
    # All at once would take gigabytes.
    times = np.array([row_ns[rows].sum() for rows in context.table.codes])
    return len(np.unique(np.log2(np.maximum(times, 1e-3)).round(12)))


def tied_groups(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the distinct partitions, ``(configs, groups)``, by varying columns of ``codes
    (configs, nodes)``.
    """
    partitions = {}
    for column in codes.T:
        _, first, inverse = np.unique(column, return_index=True, return_inverse=True)
        numbers = np.argsort(np.argsort(first))[inverse].astype(np.int32)  # by first appearance
        if len(first) > 1:
            partitions[numbers.tobytes()] = numbers
    return np.array([*partitions.values()], np.int32).reshape(len(partitions), len(codes)).T


def additive_r2(values: Floats, groups: NDArray[np.int32]) -> float | None:
    """Return the cross-validated R2 of a sum of terms, one per code of `tied_groups`, fit to
    ``values (configs,)``.

    None if all values are equal, or if there are more terms than 1,000 or half the configurations.
    """
    order = np.random.default_rng(0).permutation(len(values))[:_CONFIGS]
    values = values[order]
    groups = groups[order]
    terms = 1 + int(groups.max(axis=0, initial=0).sum())
    if terms > min(1_000, len(values) / 2) or np.ptp(values) == 0:
        return None
    indicators = [group[:, None] == np.arange(1, group.max() + 1) for group in groups.T]
    design = np.hstack([np.ones((len(values), 1)), *indicators])
    centred = values - values.mean()
    error = np.empty(len(values))
    for test in _folds(len(values)):
        error[test] = (
            centred[test]
            - design[test] @ np.linalg.lstsq(design[~test], centred[~test], rcond=None)[0]
        )
    return 1 - float((error**2).sum() / (centred**2).sum())
