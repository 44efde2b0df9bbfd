"""Metrics against their definitions, counted pair by pair; speedups and intervals of means over graphs."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.rows import graph_rows
from xlarank.data.errors import ModelError
from xlarank.models.validation.metrics import (
    LAYOUTS_SET,
    METRICS,
    SPEEDUPS,
    compiler_cost,
    graph_metrics,
    kendall_tau,
    order_of,
    ordered_pair_accuracy,
    slowdown_at,
    speedups,
    summarise,
    summarise_speedups,
    top_of,
)
from xlarank.models.validation.paired import (
    Difference,
    compare_rankers,
    difference,
    graph_scores,
    objective_value,
    paired_difference,
)

#: Few values, so that ties are common on both sides; costs are above 0, as runtimes are.
_SCORES = st.sampled_from((-1.5, -0.0, 0.0, 0.25, 3.0, 1e9))
_COSTS = st.sampled_from((0.5, 1.0, 2.0, 20_000_001.0, 20_000_002.0, 2.0**40))


@st.composite
def rankings(draw: st.DrawFn, smallest: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """``(score, cost)`` of a few configurations."""
    size = draw(st.integers(smallest, 12))
    score = draw(st.lists(_SCORES, min_size=size, max_size=size))
    cost = draw(st.lists(_COSTS, min_size=size, max_size=size))
    return np.array(score), np.array(cost)


def tau_by_pairs(score: np.ndarray, cost: np.ndarray) -> float:
    surplus = untied_scores = untied_costs = 0
    for i, j in combinations(range(len(cost)), 2):
        in_score, in_cost = np.sign(score[i] - score[j]), np.sign(cost[i] - cost[j])
        surplus += in_score * in_cost
        untied_scores += in_score != 0
        untied_costs += in_cost != 0
    if not untied_scores or not untied_costs:
        return 0.0
    return float(surplus / np.sqrt(float(untied_scores) * float(untied_costs)))


def tries_one_by_one(k: int, score: np.ndarray, group: np.ndarray) -> list[int]:
    best_first = sorted(range(len(score)), key=lambda config: (score[config], config))
    tried: list[int] = []
    while len(tried) < min(k, len(score)):
        left = [config for config in best_first if config not in tried]
        new = [config for config in left if all(group[config] != group[other] for other in tried)]
        tried.append((new or left)[0])
    return tried


@pytest.mark.parametrize("few", [2, 256])
@given(ranking=rankings())
def test_few_and_many_configurations_are_counted_pair_by_pair(
    few: int, ranking: tuple[np.ndarray, np.ndarray]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xlarank.models.validation.metrics._FEW", few)
        assert kendall_tau(*ranking) == pytest.approx(tau_by_pairs(*ranking), abs=1e-12)


@given(rankings(), st.integers(1, 14), st.lists(st.integers(0, 4), min_size=12, max_size=12))
def test_the_first_k_and_identical_configurations_after_all_distinct_ones(
    ranking: tuple[np.ndarray, np.ndarray], k: int, groups: list[int]
) -> None:
    score, cost = ranking
    group = np.array(groups[: len(score)])
    top = top_of(k, score, group)
    assert top.tolist() == tries_one_by_one(k, score, group)
    assert slowdown_at(k, score, cost, group) == pytest.approx(cost[top].min() / cost.min() - 1)
    best_first = sorted(range(len(cost)), key=lambda config: (score[config], config))
    assert order_of(score).tolist() == best_first, "equal scores in the order of their ids"
    assert top_of(k, score).tolist() == best_first[:k]
    assert slowdown_at(k, score, cost) == min(cost[config] for config in best_first[:k]) / min(cost) - 1


def test_values_by_hand() -> None:
    """Costs 1 < 2 < 3 = 3; scores put the best last but one.

    Pairs: (0,1) wrong, (0,2) right, (0,3) right, (1,2) right, (1,3) right, (2,3) equal cost. So S = 4 - 1 = 3,
    five pairs differ in cost, all six in score: tau = 3 / sqrt(6 * 5), accuracy 4 / 5. The best-scored
    configuration is 1: slowdown@1 = 2/1 - 1.
    """
    score, cost = np.array([2.0, 1.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 3.0])
    assert kendall_tau(score, cost) == pytest.approx(3 / np.sqrt(30))
    assert ordered_pair_accuracy(score, cost) == pytest.approx(0.8)
    assert (slowdown_at(1, score, cost), slowdown_at(2, score, cost), slowdown_at(9, score, cost)) == (1, 0, 0)
    assert (kendall_tau(-cost, cost), ordered_pair_accuracy(-score, score)) == (-1.0, 0.0)
    near = np.array([2**31, 2**31 + 1, 2**31 + 2], np.float64)
    assert kendall_tau(np.arange(3.0), near) == 1.0, "a nanosecond apart, beyond float32"
    for told, of in (([1.0], [7.0]), ([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [4.0, 4.0]), ([0.0, 0.0], [4.0, 4.0])):
        values = np.array(told), np.array(of)
        assert (kendall_tau(*values), ordered_pair_accuracy(*values)) == (0.0, 0.5), "nothing known: as chance"


def test_score_is_tau_for_layouts_and_the_top_five_for_tiles() -> None:
    """Seven configurations scored worst first: the five best-scored cost 7, 6, 5, 4, 3; the best costs 2."""
    cost, score = np.array([7.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0]), np.arange(7.0)
    layout, tile = graph_metrics("layout", score, cost), graph_metrics("tile", score, cost)
    assert tuple(layout) == tuple(tile) == METRICS
    assert layout["score"] == layout["tau"] == -1.0
    assert tile["slowdown@5"] == 0.5 == tile["score"]
    assert {**layout, "score": 0} == {**tile, "score": 0}
    assert {type(value) for value in tile.values()} == {float}, "plain ones, for JSON"
    # four copies of a bad choice are scored best; the sixth configuration is the fastest
    score, cost = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 3.0]), np.array([9.0, 9.0, 9.0, 9.0, 8.0, 2.0])
    alone, grouped = (
        graph_metrics("tile", score, cost),
        graph_metrics("tile", score, cost, np.array([0, 0, 0, 0, 1, 2])),
    )
    assert (alone["slowdown@5"], grouped["slowdown@5"]) == (3.0, 0.0)
    assert alone["tau"] == grouped["tau"]


def test_summary_has_mean_spread_and_every_graph() -> None:
    first, second = ({metric: base + i for i, metric in enumerate(METRICS)} for base in (0.0, 2.0))
    report = summarise({"alpha": first, "beta": second})
    assert list(report) == list(METRICS)
    for number, metric in enumerate(METRICS):
        assert report[metric] == {
            "mean": 1.0 + number,
            "std": 1.0,  # of the two graphs, divided by 2: not the estimate for a larger population
            "low": float(number),  # a quarter of the resamples is alpha twice
            "high": 2.0 + number,
            "graphs": {"alpha": float(number), "beta": 2.0 + number},
        }


# The compiler's own choice -------------------------------------------------------------------------------


def test_cost_of_the_compilers_own_choice() -> None:
    rows = graph_rows("a__a", [30, 20, 40], features=np.array([[0.5], [0.0], [1.0]]), columns=["size", LAYOUTS_SET])
    assert compiler_cost("layout", rows) == 20, "it sets nothing"
    assert compiler_cost("layout", rows.take(np.array([0, 2]))) is None, "it is no candidate"
    assert compiler_cost("layout", replace(rows, runtime=np.array([30, 0, 40]))) is None, "it was not measured"
    rows = graph_rows("a__a", [30, 20])
    assert compiler_cost("layout", rows) is None, "no column tells"
    assert compiler_cost("tile", replace(rows, normalizer=np.array([25, 25]))) == 1
    assert compiler_cost("tile", rows) is None, "no normalizer"


def test_speedups_count_the_best_of_the_first_and_average_geometrically() -> None:
    score = np.arange(7.0)
    cost = np.array([np.inf, 50.0, 40.0, 80.0, 30.0, 25.0, 1.0])  # the first was never measured
    assert speedups(score, cost, 100.0) == {"speedup@1": 2.0, "speedup@5": 4.0}
    group = np.array([0, 1, 1, 2, 3, 4, 5])  # the second and third are one configuration: a sixth comes in
    assert speedups(score, cost, 100.0, group)["speedup@5"] == 100.0
    report = summarise_speedups({"a": dict.fromkeys(SPEEDUPS, 2.0), "b": dict.fromkeys(SPEEDUPS, 0.5)})
    assert report["speedup@1"]["mean"] == pytest.approx(1.0)
    assert report["speedup@1"]["std"] == pytest.approx(np.log(2))
    assert report["speedup@5"]["graphs"] == {"a": 2.0, "b": 0.5}
    assert summarise_speedups({}) == {}


# Intervals -----------------------------------------------------------------------------------------------


def test_robust_is_the_mean_less_a_quarter_of_the_spread() -> None:
    scores = np.random.default_rng(0).random((7, 3))
    assert objective_value(scores, "mean") == pytest.approx(scores.mean(axis=0))
    assert objective_value(scores, "robust") == pytest.approx(scores.mean(axis=0) - 0.25 * scores.std(axis=0))
    with pytest.raises(ModelError, match="select is 'best'; expected mean, robust"):
        objective_value(scores, "best")


def test_the_gain_in_the_mean_has_the_error_of_paired_differences() -> None:
    rng = np.random.default_rng(1)
    one, two = ({name: float(value) for name, value in zip("abcdef", rng.random(6), strict=True)} for _ in "12")
    values = np.array([two[name] - one[name] for name in one])
    assert paired_difference(two, one) == pytest.approx((values.mean(), values.std(ddof=1) / np.sqrt(6)))
    assert paired_difference({"a": 0.5}, {"a": 0.25}, "robust") == (0.25, float("inf"))


def scores(values: dict[str, float]) -> dict[str, dict[str, float]]:
    return {graph: dict.fromkeys(METRICS, value) for graph, value in values.items()}


def test_the_interval_is_that_of_the_differences_not_of_the_values() -> None:
    """Graphs differ far more than the rankers: each ranker's interval is wide, that between them is not."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0.5, 0.3, 40)
    one = scores({str(graph): value for graph, value in enumerate(hard)})
    two = scores({str(graph): value + 0.02 + rng.normal(0, 0.01) for graph, value in enumerate(hard)})
    found = difference(two, one, "tau")
    assert found is not None and found.graphs == 40
    values = np.array([two[graph]["tau"] - one[graph]["tau"] for graph in one])
    assert found.mean == pytest.approx(values.mean())
    rng = np.random.default_rng(9)
    means = [np.mean(values[rng.integers(40, size=40)]) for _ in range(4000)]  # draw graph by graph, another seed
    assert [found.low, found.high] == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=5e-4)
    assert summarise(one)["tau"]["high"] - summarise(one)["tau"]["low"] > 0.1  # type: ignore[operator]


def test_everyone_is_compared_with_the_first_on_the_graphs_of_both() -> None:
    found = difference(scores({"a": 0.5, "c": 0.0}), scores({"b": 0.9, "a": 0.25}), "slowdown@1")
    assert found == Difference(0.25, 0.25, 0.25, 1)
    of = {"first": scores({"a": 0.5, "b": 0.5}), "second": scores({"a": 0.6, "b": 0.8}), "alone": scores({"c": 1})}
    report = compare_rankers(of)
    assert list(report) == list(of) and "difference" not in report["first"]["tau"]
    second = report["second"]["slowdown@5"]
    assert second["mean"] == pytest.approx(0.7)
    assert second["difference"] == pytest.approx({"mean": 0.2, "low": 0.1, "high": 0.3, "graphs": 2})
    assert report["alone"]["tau"]["difference"] is None
    assert graph_scores(report["second"]) == of["second"]
