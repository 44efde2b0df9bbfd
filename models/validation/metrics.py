"""Metrics of a ranking, speedups over the default, comparisons of rankers, noise of labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from xlarank.data.graph import Kind
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats, Indices, Integers
from xlarank.models.params import OneOf

#: Metrics reported per graph, in table order.
METRICS: Final = ("tau", "ordered_pair_accuracy", "slowdown@1", "slowdown@5", "score", "tau_b")
#: Speedups reported per graph: of the best among the first k configurations, for these k.
SPEEDUPS: Final = {"speedup@1": 1, "speedup@5": 5}
#: Column of layouts that is 0 for the compiler's default.
LAYOUTS_SET: Final = "change__nodes_set__share"
#: ``mean``: the mean score over graphs. ``robust``: the mean minus 0.25 standard deviations over
#: graphs.
SELECTIONS: Final = ("mean", "robust")
require_selection: Final = OneOf(SELECTIONS)
#: Minimum number of repeated configurations for a `tau_ceiling`, whose standard error is then 0.13.
_MIN_REPEATS: Final = 30


def bootstrap_interval(values: Floats) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean of ``(graphs,)`` values.

    The seed is fixed, so metrics and reports agree. For n graphs the interval is too narrow by a
    factor of about sqrt((n - 1) / n); graphs of one family are treated as independent.

    >>> [round(end, 3) for end in bootstrap_interval(np.array([0.2, 0.4, 0.6]))]
    [0.2, 0.6]
    """
    drawn = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    tail = (1 - 0.95) / 2
    low, high = np.quantile(values[drawn].mean(axis=1), [tail, 1 - tail])
    return float(low), float(high)


def kendall_tau(score: Floats, cost: Floats) -> float:
    """Return Kendall's tau of two ``(configs,)`` arrays, expected with tied scores in random order.

    Computed as S / sqrt(n0 (n0 - n2)): S is concordant minus discordant pairs, n0 all pairs and
    n0 - n2 those with different costs. 0 if an array is constant. Tau-b divides by fewer pairs if
    scores tie, which flatters ties.

    >>> kendall_tau(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0]))
    1.0
    >>> kendall_tau(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0]))  # tau-b is 0.816
    0.6666666666666666
    """
    tau, _, _ = pair_metrics(score, cost)
    return tau


def pair_metrics(score: Floats, cost: Floats) -> tuple[float, float, float]:
    """Return `kendall_tau`, accuracy and tau-b of two ``(configs,)`` arrays.

    Accuracy is the share of concordant among pairs of different costs; tied scores count half.
    """
    pairs = len(cost) * (len(cost) - 1) // 2
    score_rank = np.unique(score, return_inverse=True)[1]
    cost_rank = np.unique(cost, return_inverse=True)[1]
    score_pairs = pairs - _tied_pairs(score_rank)
    cost_pairs = pairs - _tied_pairs(cost_rank)
    if not (score_pairs and cost_pairs):
        return 0.0, 0.5, 0.0
    both_tied = _tied_pairs(score_rank * len(cost) + cost_rank)
    discordant = _inversions(cost_rank[np.lexsort((cost_rank, score_rank))])
    concordant = score_pairs + cost_pairs + both_tied - pairs - discordant
    surplus = concordant - discordant
    tau, tau_b = (surplus / math.sqrt(count * cost_pairs) for count in (pairs, score_pairs))
    return tau, (1 + surplus / cost_pairs) / 2, tau_b


def _tied_pairs(values: Integers) -> int:
    counts = np.unique(values, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _inversions(ranks: Integers) -> int:
    """Return the number of pairs in descending order of ``(n,)`` ranks below n, by merge sort.

    Each pass merges the sorted halves of all blocks at once.

    >>> _inversions(np.array([2, 0, 1, 1]))
    3
    """
    size = 1 << (len(ranks) - 1).bit_length()
    blocks = np.full((size, 1), len(ranks), np.int32)  # padded at the end: adds no inversion
    blocks[: len(ranks), 0] = ranks
    inversions = 0
    while len(blocks) > 1:
        width = blocks.shape[1]
        blocks = blocks.reshape(-1, 2 * width)
        order = np.argsort(blocks, axis=1, kind="stable")
        of_left = order < width
        left_before = np.cumsum(of_left, axis=1, dtype=np.int64)
        inversions += int((width - left_before)[~of_left].sum())
        blocks = np.take_along_axis(blocks, order, axis=1)
    return inversions


def top_of(k: int, score: Floats, group: Integers) -> Indices:
    """Return the top k configurations, duplicates within a ``group`` after all distinct ones.

    >>> top_of(2, np.array([1.0, 1.0, 2.0]), np.array([0, 0, 1])).tolist()
    [0, 2]
    """
    order = order_of(score)
    first = np.zeros(len(order), bool)
    first[np.unique(group[order], return_index=True)[1]] = True
    return np.concatenate([order[first], order[~first]])[:k]


def best_of_top(k: int, score: Floats, cost: Floats, group: Integers) -> tuple[Floats, Floats]:
    """Return possible lowest costs among the first k (up to 5), and their probabilities.

    As in `top_of`, duplicates within a ``group`` come after all distinct configurations. Distinct
    configurations with tied scores are in random order, each before a random one of its duplicates.

    >>> costs, probabilities = best_of_top(2, np.zeros(3), np.array([1.0, 2.0, 4.0]), np.arange(3))
    >>> costs.tolist(), probabilities.round(3).tolist()
    ([1.0, 2.0, 4.0], [0.667, 0.333, 0.0])
    """
    code = np.unique(group, return_inverse=True)[1]
    lowest = np.full(code.max() + 1, np.inf)
    np.minimum.at(lowest, code, score)
    distinct = min(k, len(lowest))
    last = np.partition(lowest, distinct - 1)[distinct - 1]  # ties are drawn from
    first = score == lowest[code]
    costs = np.sort(cost[first & (score <= last)] if k <= len(lowest) else cost)
    above = np.ones(len(costs))  # probability that all drawn so far cost more
    ahead = np.flatnonzero(lowest < last)
    for member in ahead:
        duplicates = cost[first & (code == member)]
        above *= _count_above(duplicates, costs) / len(duplicates)
    tied = first & (score == last)
    above *= _all_above(distinct - len(ahead), cost[tied], code[tied], costs)
    missing: int = min(k, len(score)) - distinct
    for value in np.unique(score) if missing else ():
        block = score == value
        drawn = np.count_nonzero(lowest == value)
        size = np.count_nonzero(block) - drawn
        take = min(missing, int(size))
        left = np.maximum(_count_above(cost[block], costs) - drawn, 0)
        for place in range(take):
            above *= np.maximum(left - place, 0) / (size - place)
        missing -= take
    return costs, 0.0 - np.diff(above, prepend=1.0)


def _count_above(values: Floats, limits: Floats) -> Integers:
    return len(values) - np.searchsorted(np.sort(values), limits, side="right")


def _all_above(draws: int, cost: Floats, code: Integers, limits: Floats) -> Floats:
    """Return the probability that random members of random groups all cost more than each limit.

    It is the elementary symmetric polynomial of the groups' shares of members above the limit,
    divided by the number of choices; Newton's identities give it from sums of powers.
    """
    order = np.lexsort((cost, code))
    sizes = np.unique(code, return_counts=True)[1]
    size = np.repeat(sizes, sizes)
    rank = np.arange(len(cost)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    by_cost = np.argsort(cost[order], kind="stable")
    passed = np.searchsorted(np.sort(cost), limits, side="right")
    sums = [np.empty(0)]
    polynomials = [np.ones(len(limits))]
    for power in range(1, draws + 1):
        drops = ((size - rank) / size) ** power - ((size - rank - 1) / size) ** power
        sums.append(len(sizes) - np.concatenate([[0.0], np.cumsum(drops[by_cost])])[passed])
        terms = [
            (-1) ** (at - 1) * polynomials[power - at] * sums[at] for at in range(1, power + 1)
        ]
        polynomials.append(sum(terms) / power)
    return np.clip(polynomials[draws] / math.comb(len(sizes), draws), 0, 1)


def order_of(score: Floats) -> Indices:
    """Return the configurations, best first; tied scores keep their order."""
    return np.argsort(score, kind="stable")


def graph_metrics(kind: Kind, score: Floats, cost: Floats, group: Integers) -> dict[str, float]:
    """Return `METRICS` of a graph, ignoring configurations that were not measured (infinite cost).

    slowdown@k is the lowest cost among the first k over the lowest of all, minus 1, expected with
    tied scores in random order (`best_of_top`). The metric ``score`` is Kaggle's: tau for layouts,
    1 - slowdown@5 for tiles.
    """
    measured = np.isfinite(cost)
    score = score[measured]
    cost = cost[measured]
    group = group[measured]
    tau, accuracy, tau_b = pair_metrics(score, cost)
    first, fifth = (
        float(np.dot(*best_of_top(k, score, cost, group)) / cost.min() - 1) for k in (1, 5)
    )
    kaggle = tau if kind == "layout" else 1 - fifth
    return dict(zip(METRICS, (tau, accuracy, first, fifth, kaggle, tau_b), strict=True))


def summarise(per_graph: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """Return ``{metric: summary}`` of ``{graph: {metric: value}}``."""
    graphs: dict[str, dict[str, float]] = {}
    for graph, values in per_graph.items():
        for metric, value in values.items():
            graphs.setdefault(metric, {})[graph] = value
    return {metric: summary(values, metric) for metric, values in graphs.items()}


def summary(graphs: dict[str, float], metric: str = "score") -> dict[str, Any]:
    """Return ``{mean, std, low, high, graphs}``, with the `bootstrap_interval` of the mean.

    For speedups, the mean is geometric and the std is computed from logarithms.
    """
    values = np.array(list(graphs.values()))
    values, inverse = (np.log(values), np.exp) if metric in SPEEDUPS else (values, np.float64)
    low, high = bootstrap_interval(values)
    mean, low, high = (float(inverse(value)) for value in (values.mean(), low, high))
    return {"mean": mean, "std": float(values.std()), "low": low, "high": high, "graphs": graphs}


def compiler_cost(kind: Kind, rows: GraphRows) -> float | None:
    """Return the cost of the compiler's default configuration; None if unknown.

    For layouts the default is the configuration that sets nothing; for tiles it is the normalizer,
    with cost 1.
    """
    if kind == "tile":
        return 1.0 if (rows.normalizer > 1).all() else None
    if LAYOUTS_SET not in rows.columns:
        return None
    cost = rows.row_cost[rows.matrix(used=np.array([rows.columns.index(LAYOUTS_SET)]))[:, 0] == 0]
    return float(cost[0]) if len(cost) and np.isfinite(cost[0]) else None


def speedups(score: Floats, cost: Floats, compiler: float, group: Integers) -> dict[str, float]:
    """Return `SPEEDUPS` of a graph: the compiler's cost over the lowest among the first k.

    They are expected with tied scores in random order (`best_of_top`). Costs are
    `GraphRows.row_cost`, the lowest among identical configurations.

    >>> speedups(np.array([1.0, 2.0, 3.0]), np.array([30.0, 10.0, 20.0]), 20.0, np.arange(3))
    {'speedup@1': 0.6666666666666666, 'speedup@5': 2.0}
    """
    measured = np.isfinite(cost)
    score = score[measured]
    cost = cost[measured]
    group = group[measured]
    values = {}
    for name, k in SPEEDUPS.items():
        costs, probabilities = best_of_top(k, score, cost, group)
        values[name] = float((compiler / costs) @ probabilities)
    return values


def objective_value(scores: Floats, how: str) -> Floats:
    """Reduce ``(graphs, ...)`` scores to ``(...)`` by one of `SELECTIONS`, or raise `ModelError`.

    >>> [objective_value(np.array([[0.2], [0.6]]), how).round(3).tolist() for how in SELECTIONS]
    [[0.4], [0.35]]
    """
    require_selection("select", how)
    mean: Floats = scores.mean(axis=0)
    return mean - 0.25 * scores.std(axis=0) if how == "robust" else mean


class Difference(NamedTuple):
    """Difference of two rankers, its standard error and 95 % interval, and the number of graphs."""

    mean: float
    error: float
    low: float
    high: float
    graphs: int


def paired_difference(
    challenger: Mapping[str, float], incumbent: Mapping[str, float], how: str = "mean"
) -> Difference:
    """Return the challenger's `objective_value` minus the incumbent's, both ``{graph: score}``.

    The standard error is the jackknife's, infinite for a single graph; the interval is the
    `bootstrap_interval` of the mean difference.

    >>> gain = paired_difference({"a": 0.5, "b": 0.7}, {"a": 0.4, "b": 0.4})
    >>> [round(value, 2) for value in gain]
    [0.2, 0.1, 0.1, 0.3, 2]
    """
    both = np.array([[score, incumbent[graph]] for graph, score in challenger.items()])
    graphs = len(both)
    total = objective_value(both, how)
    error = math.inf
    if graphs > 1:
        without = np.array(
            [objective_value(np.delete(both, graph, axis=0), how) for graph in range(graphs)]
        )
        pseudo_values = graphs * total - (graphs - 1) * without  # (graphs, 2)
        error = float((pseudo_values[:, 0] - pseudo_values[:, 1]).std(ddof=1) / np.sqrt(graphs))
    low, high = bootstrap_interval(both[:, 0] - both[:, 1])
    return Difference(float(total[0] - total[1]), error, low, high, graphs)


def relative_std(cost: Floats, group: Integers) -> float | None:
    """Return the pooled within-group standard deviation of log costs; None if nothing repeats.

    Costs and groups are by configuration; identical configurations are a group.
    """
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
