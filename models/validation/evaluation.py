"""Metrics of a graph ranked by a model or by rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.graph import Kind
from xlarank.features.rows import GraphRows
from xlarank.features.targets import target_of
from xlarank.models.arrays import Floats, Indices, Integers
from xlarank.models.validation.label_noise import tau_ceiling
from xlarank.models.validation.metrics import LAYOUTS_SET, METRICS, compiler_cost, graph_metrics, speedups

FILE_ORDER: Final = "file order"
RANDOM: Final = "random"
ESTIMATED_TIME: Final = "estimated time"
#: Single columns that rank layouts best in measured or estimated collections; smaller is faster.
_LAYOUT_RULES: Final = {
    "fewest layouts set": LAYOUTS_SET,
    "padded bytes of set outputs": "outputs__all_padded__ratio",
    "bytes of changed layouts": "change__all_bytes__ratio",
    "bytes of disagreeing layouts": "disagreement__mismatch_1hop_bytes__share",
}
_OUTPUT_VOLUME, _KERNEL_VOLUME = "bounds__output_volume__log", "bounds__kernel_volume__log"


def evaluate_graph(
    collection: Collection, rows: GraphRows, scores: Floats, picked: Indices | None = None
) -> dict[str, float]:
    """Return the metrics of ``(rows,)`` scores of a labelled graph, on all configurations or on ``picked`` ones.

    Includes `METRICS`, each also as ``<metric>_once`` with identical configurations counted once; `SPEEDUPS` if the
    cost of the compiler's default is known; and ``tau_ceiling`` if enough layouts were measured twice.
    """
    kind, compiler = collection.kind, compiler_cost(collection.kind, rows)
    chosen = slice(None) if picked is None else picked
    cost, group = rows.cost[chosen], rows.group[chosen]
    score = scores[group]
    once = graph_metrics(kind, *each_once(score, cost, group))
    ceiling = tau_ceiling(cost, group) if kind == "layout" else None
    return {
        **graph_metrics(kind, score, cost, group),
        **{f"{metric}_once": value for metric, value in once.items()},
        **({} if compiler is None else speedups(score, rows.row_cost[group], compiler, group)),
        **({} if ceiling is None else {"tau_ceiling": ceiling}),
    }


def baselines(
    collection: Collection, rows: GraphRows, picked: Indices | None = None
) -> dict[str, dict[str, float]]:
    """Return a graph's metrics under rules that need no model: ``{rule: {metric: value}}``.

    Layouts are ranked by single columns; tiles by volume and by the distance of their log bounds from the first
    configuration; both by estimated time if available. Metrics of the random order are expected values.
    """
    kind, (cost, group) = collection.kind, (rows.cost, rows.group)
    columns: dict[str, tuple[str, ...]] = {name: (column,) for name, column in _LAYOUT_RULES.items()}
    columns[ESTIMATED_TIME] = target_of(collection).estimate.get(kind, ())
    known = {name: used for name, used in columns.items() if used and set(used) <= set(rows.columns)}
    orders = {FILE_ORDER: np.arange(len(cost), dtype=np.float64)}
    orders |= {name: _values(rows, used).sum(axis=1) for name, used in known.items()}
    if {_OUTPUT_VOLUME, _KERNEL_VOLUME} <= set(rows.columns):
        orders["largest output tile"] = -_values(rows, [_OUTPUT_VOLUME])[:, 0]
        orders["largest tile"] = -_values(rows, [_OUTPUT_VOLUME, _KERNEL_VOLUME]).sum(axis=1)
        if rows.ids[0] == 0:
            bounds = _values(rows, [name for name in rows.columns if name.startswith("bounds__")])
            orders["nearest to the first configuration"] = np.abs(bounds - bounds[0]).sum(axis=1)
    if picked is not None:
        cost, group = cost[picked], group[picked]
        orders = {name: order[picked] for name, order in orders.items()}
    metrics = {name: graph_metrics(kind, order, cost, group) for name, order in orders.items()}
    return {FILE_ORDER: metrics.pop(FILE_ORDER), RANDOM: _random(kind, cost, group), **metrics}


def _values(rows: GraphRows, names: Sequence[str]) -> Floats:
    """Return ``(configs, names)`` values of columns, in the order of the rows."""
    used = np.array([i for i, name in enumerate(rows.columns) if name in names])
    return rows.matrix(used=used)[rows.group].astype(np.float64)


def _random(kind: Kind, cost: Floats, group: Integers) -> dict[str, float]:
    """Return the expected metrics of the random order."""
    known = np.isfinite(cost)
    least = np.sort(each_once(cost[known], cost[known], group[known])[1])
    first, fifth = (_expected_least(least, k) / least[0] - 1 for k in (1, 5))
    return dict(zip(METRICS, (0.0, 0.5, first, fifth, 0.0 if kind == "layout" else 1 - fifth, 0.0), strict=True))


def _expected_least(ascending: Floats, k: int) -> float:
    """Return the expected minimum of ``k`` values drawn without replacement.

    The i-th smallest of n is the minimum with probability C(n - i, k - 1) / C(n, k).

    >>> [round(_expected_least(np.array([1.0, 2.0, 4.0]), k), 6) for k in (1, 2)]
    [2.333333, 1.333333]
    """
    n = len(ascending)
    if k >= n:
        return float(ascending[0])
    after = n - np.arange(1, n - k + 1)
    chance = np.cumprod(np.concatenate([[k / n], (after - k + 1) / after]))
    return float(chance @ ascending[: len(chance)])


def each_once(score: Floats, cost: Floats, group: Integers) -> tuple[Floats, Floats, Integers]:
    """Return score, smallest cost and number of each distinct configuration."""
    numbers, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    least = np.full(len(numbers), np.inf)
    np.minimum.at(least, inverse, cost)
    return score[first], least, numbers
