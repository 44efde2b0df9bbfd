"""Metrics against their definitions, counted pair by pair."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.models.validation.metrics import (
    METRICS,
    judge,
    kendall_tau,
    order_of,
    ordered_pair_accuracy,
    slowdown_at,
    summarise,
    top_of,
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


# Oracles: O(configurations squared), straight from the definitions ----------------------------------------


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


def accuracy_by_pairs(score: np.ndarray, cost: np.ndarray) -> float:
    points = []
    for i, j in combinations(range(len(cost)), 2):
        if cost[i] == cost[j]:
            continue
        faster, slower = (i, j) if cost[i] < cost[j] else (j, i)
        points.append(0.5 if score[i] == score[j] else float(score[faster] < score[slower]))
    return sum(points) / len(points) if points else 0.5


def slowdown_by_sorting(k: int, score: np.ndarray, cost: np.ndarray) -> float:
    best_first = sorted(range(len(cost)), key=lambda config: (score[config], config))
    return min(cost[config] for config in best_first[:k]) / min(cost) - 1


@given(rankings())
def test_kendall_tau_equals_the_count_of_pairs(ranking: tuple[np.ndarray, np.ndarray]) -> None:
    assert kendall_tau(*ranking) == pytest.approx(tau_by_pairs(*ranking), abs=1e-12)


@pytest.mark.parametrize("few", [2, 256])
@given(ranking=rankings(smallest=3))
def test_few_and_many_configurations_are_counted_alike(few: int, ranking: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xlarank.models.validation.metrics._FEW", few)
        assert kendall_tau(*ranking) == pytest.approx(tau_by_pairs(*ranking), abs=1e-12)
        assert ordered_pair_accuracy(*ranking) == pytest.approx(accuracy_by_pairs(*ranking), abs=1e-12)


@given(rankings())
def test_ordered_pair_accuracy_equals_the_count_of_pairs(ranking: tuple[np.ndarray, np.ndarray]) -> None:
    assert ordered_pair_accuracy(*ranking) == pytest.approx(accuracy_by_pairs(*ranking), abs=1e-12)


@given(rankings(), st.integers(1, 14))
def test_slowdown_is_that_of_the_best_of_the_first_k(ranking: tuple[np.ndarray, np.ndarray], k: int) -> None:
    assert slowdown_at(k, *ranking) == pytest.approx(slowdown_by_sorting(k, *ranking), abs=1e-12)


def tries_one_by_one(k: int, score: np.ndarray, group: np.ndarray) -> list[int]:
    best_first = sorted(range(len(score)), key=lambda config: (score[config], config))
    tried: list[int] = []
    while len(tried) < min(k, len(score)):
        left = [config for config in best_first if config not in tried]
        new = [config for config in left if all(group[config] != group[other] for other in tried)]
        tried.append((new or left)[0])
    return tried


@given(rankings(), st.integers(1, 14), st.lists(st.integers(0, 4), min_size=12, max_size=12))
def test_a_second_identical_configuration_is_tried_after_all_distinct_ones(
    ranking: tuple[np.ndarray, np.ndarray], k: int, groups: list[int]
) -> None:
    score, cost = ranking
    group = np.array(groups[: len(score)])
    top = top_of(k, score, group)
    assert top.tolist() == tries_one_by_one(k, score, group)
    assert slowdown_at(k, score, cost, group) == pytest.approx(cost[top].min() / cost.min() - 1)
    assert top_of(k, score).tolist() == order_of(score)[:k].tolist()


def test_five_tries_of_a_tile_all_differ() -> None:
    """Four copies of a bad choice are scored best; the sixth configuration is the fastest."""
    score = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 3.0])
    cost = np.array([9.0, 9.0, 9.0, 9.0, 8.0, 2.0])
    group = np.array([0, 0, 0, 0, 1, 2])
    assert judge("tile", score, cost)["slowdown@5"] == 3.0
    assert judge("tile", score, cost, group)["slowdown@5"] == 0.0
    assert judge("tile", score, cost, group)["tau"] == judge("tile", score, cost)["tau"]


@given(rankings(smallest=2))
def test_metrics_look_at_the_order_of_scores_alone(ranking: tuple[np.ndarray, np.ndarray]) -> None:
    score, cost = ranking
    ranks = np.unique(score, return_inverse=True)[1].astype(np.float64)
    assert judge("layout", score, cost) == pytest.approx(judge("layout", 7 * ranks - 3, cost))


def test_values_by_hand() -> None:
    """Costs 1 < 2 < 3 = 3; scores put the best last but one.

    Pairs: (0,1) wrong, (0,2) right, (0,3) right, (1,2) right, (1,3) right, (2,3) equal cost. So S = 4 - 1 = 3,
    five pairs differ in cost, all six in score: tau = 3 / sqrt(6 * 5), accuracy 4 / 5. The best-scored
    configuration is 1: slowdown@1 = 2/1 - 1.
    """
    score, cost = np.array([2.0, 1.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0, 3.0])
    assert kendall_tau(score, cost) == pytest.approx(3 / np.sqrt(30))
    assert ordered_pair_accuracy(score, cost) == pytest.approx(0.8)
    assert slowdown_at(1, score, cost) == 1.0
    assert slowdown_at(2, score, cost) == 0.0


def test_a_perfect_and_a_reversed_ranking() -> None:
    cost = np.array([5.0, 1.0, 3.0, 2.0])
    assert (kendall_tau(cost, cost), ordered_pair_accuracy(cost, cost)) == (1.0, 1.0)
    assert (kendall_tau(-cost, cost), ordered_pair_accuracy(-cost, cost)) == (-1.0, 0.0)


def test_runtimes_one_nanosecond_apart_beyond_float32_are_not_ties() -> None:
    cost = np.array([2**31, 2**31 + 1, 2**31 + 2], np.int64).astype(np.float64)
    assert kendall_tau(np.array([0.0, 1.0, 2.0]), cost) == 1.0
    assert ordered_pair_accuracy(np.array([0.0, 2.0, 1.0]), cost) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("score", "cost"),
    [
        pytest.param([1.0], [7.0], id="one configuration"),
        pytest.param([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], id="constant score"),
        pytest.param([1.0, 2.0, 3.0], [4.0, 4.0, 4.0], id="constant cost"),
        pytest.param([0.0, 0.0], [4.0, 4.0], id="both constant"),
    ],
)
def test_no_information_scores_as_chance(score: list[float], cost: list[float]) -> None:
    values = np.array(score), np.array(cost)
    assert (kendall_tau(*values), ordered_pair_accuracy(*values)) == (0.0, 0.5)


def test_equal_scores_are_listed_in_the_order_of_ids() -> None:
    """What the top of a constant score is must not depend on the sorting algorithm."""
    assert order_of(np.zeros(50)).tolist() == list(range(50))
    assert slowdown_at(1, np.zeros(3), np.array([4.0, 1.0, 2.0])) == 3.0


def test_more_places_than_configurations_is_the_best_of_all() -> None:
    assert slowdown_at(5, np.array([1.0, 2.0]), np.array([30.0, 20.0])) == 0.0


def test_score_is_tau_for_layouts_and_the_top_five_for_tiles() -> None:
    """Seven configurations scored worst first: the five best-scored cost 7, 6, 5, 4, 3; the best costs 2."""
    cost = np.array([7.0, 6.0, 5.0, 4.0, 3.0, 2.5, 2.0])
    score = np.arange(7.0)
    layout, tile = judge("layout", score, cost), judge("tile", score, cost)
    assert tuple(layout) == tuple(tile) == METRICS
    assert layout["score"] == layout["tau"] == -1.0
    assert tile["slowdown@5"] == 0.5
    assert tile["score"] == 0.5 == 1 - tile["slowdown@5"]
    assert {**layout, "score": 0} == {**tile, "score": 0}
    best_first = judge("tile", cost, cost)
    assert (best_first["score"], best_first["slowdown@1"]) == (1.0, 0.0)


def test_judge_gives_plain_floats() -> None:
    """They go into JSON as they are."""
    values = judge("tile", np.array([1.0, 2.0]), np.array([1.0, 3.0]))
    assert {type(value) for value in values.values()} == {float}


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
