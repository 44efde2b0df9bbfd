"""Numbers of distinct configurations of a layout graph, and the noise of its labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import LayoutGraph
from xlarank.data.schema import MAX_RANK
from xlarank.features.layout.row_types import LayoutFacts
from xlarank.features.layout.time_model import TimeModel
from xlarank.features.program.tensors import complete_layout, layout_key
from xlarank.models.arrays import Floats
from xlarank.models.validation import label_noise

#: Maximum number of configurations in an additive fit.
_CONFIGS: Final = 10_000


@dataclass(frozen=True)
class LayoutLabels:
    """Noise of the labels of a layout graph; None if too few configurations are equal.

    Attributes:
        output_sets: number of distinct choices of the full layouts of all outputs.
        model_times: number of distinct times by `TimeModel`.
        repeat_std, set_std: `relative_std` of runtimes within identical configurations, and within output sets.
        run_tau, ceiling, set_tau, additive_r2: results of the functions of that name, `tau_ceiling` for ceiling.
    """

    configurations: int
    measured: int
    distinct: int
    output_sets: int
    model_times: int
    repeat_std: float | None
    set_std: float | None
    run_tau: float | None
    ceiling: float | None
    set_tau: float | None
    additive_r2: float | None


def describe_labels(graph: LayoutGraph) -> LayoutLabels:
    """Count the distinct configurations of a graph and measure the noise of its labels."""
    facts = LayoutFacts(graph)
    groups = tied_groups(_output_orders(facts))
    sets = np.unique(groups, axis=0, return_inverse=True)[1].reshape(-1)
    row_ns = TimeModel(facts).row_ns
    times = np.array([row_ns[rows].sum() for rows in facts.table.codes])  # all at once would take gigabytes
    measured = graph.measured
    group, cost = graph.duplicates.group[measured], graph.cost[measured]
    runs = np.bincount(group, minlength=len(groups))
    logs = np.bincount(group, np.log(cost), minlength=len(groups)) / np.maximum(runs, 1)
    return LayoutLabels(
        configurations=graph.configs,
        measured=int(measured.sum()),
        distinct=len(groups),
        output_sets=int(sets.max()) + 1,
        model_times=len(np.unique(np.log2(np.maximum(times, 1e-3)).round(12))),
        repeat_std=label_noise.relative_std(cost, group),
        set_std=label_noise.relative_std(cost, sets[group]),
        run_tau=label_noise.run_tau(cost, group),
        ceiling=label_noise.tau_ceiling(cost, group),
        set_tau=label_noise.set_tau(cost, group, sets),
        additive_r2=additive_r2(logs[runs > 0], groups[runs > 0]),
    )


def _output_orders(facts: LayoutFacts) -> NDArray[np.int32]:
    """Return a code of each output's full layout, ``(distinct, nodes)``."""
    default = facts.default_layout[facts.graph.configurable[facts.table.node]]
    rows = facts.table.rows[:, :MAX_RANK].astype(np.int64)
    keys = np.unique(layout_key(complete_layout(rows, default)), return_inverse=True)[1]
    return np.asarray(keys.astype(np.int32)[facts.table.codes])


def tied_groups(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the distinct partitions, ``(configs, groups)``, by columns of ``codes (configs, nodes)``."""
    partitions = {}
    for column in codes.T:
        _, first, inverse = np.unique(column, return_index=True, return_inverse=True)
        numbers = np.argsort(np.argsort(first))[inverse].astype(np.int32)  # by first appearance
        if len(first) > 1:
            partitions[numbers.tobytes()] = numbers
    return np.array([*partitions.values()], np.int32).reshape(len(partitions), len(codes)).T


def additive_r2(values: Floats, groups: NDArray[np.int32]) -> float | None:
    """Return the cross-validated R2 of an additive fit to ``values (configs,)``, a term per code of `tied_groups`.

    None if all values are equal, or if there are more terms than 1,000 or half the configurations.
    """
    order = np.random.default_rng(0).permutation(len(values))[:_CONFIGS]
    values, groups = values[order], groups[order]
    terms = 1 + int(groups.max(axis=0, initial=0).sum())
    if terms > min(1_000, len(values) / 2) or np.ptp(values) == 0:
        return None
    indicators = [group[:, None] == np.arange(1, group.max() + 1) for group in groups.T]
    design = np.hstack([np.ones((len(values), 1)), *indicators])
    fold, centred = label_noise.config_folds(len(values)), values - values.mean()
    error = np.empty(len(values))
    for number in range(label_noise.FOLDS):
        held = fold == number
        error[held] = centred[held] - design[held] @ np.linalg.lstsq(design[~held], centred[~held], rcond=None)[0]
    return 1 - float((error**2).sum() / (centred**2).sum())
