"""Which configurations of a graph are kept to learn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.rows import graph_rows
from xlarank.data.errors import XlarankError
from xlarank.features.recipe import FeatureSettings, Recipe
from xlarank.features.sampling import SAMPLES, at_most, sample_configs

_COSTS = st.lists(st.sampled_from([10.0, 11.0, 12.0, 20.0, 35.0, 50.0, 2.0**40]), min_size=1, max_size=60).map(
    np.array
)


@given(_COSTS, st.integers(1, 70), st.sampled_from(SAMPLES), st.integers(0, 3))
def test_a_sample_is_sorted_distinct_and_as_large_as_asked(
    cost: np.ndarray, most: int, how: str, seed: int
) -> None:
    kept = sample_configs(cost, most, np.random.default_rng(seed), how)
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert len(kept) == min(most, len(cost))
    assert ((kept >= 0) & (kept < len(cost))).all()
    assert np.array_equal(kept, sample_configs(cost, most, np.random.default_rng(seed), how))


@given(_COSTS, st.integers(1, 59), st.integers(0, 3))
def test_thirds_hold_the_best_and_the_worst(cost: np.ndarray, most: int, seed: int) -> None:
    kept = sample_configs(cost, most, np.random.default_rng(seed), "thirds")
    third, costs = most // 3, np.sort(cost)
    if third and most < len(cost):
        assert np.sort(cost[kept])[:third].tolist() == costs[:third].tolist()
        assert np.sort(cost[kept])[-third:].tolist() == costs[-third:].tolist()


def test_the_last_third_is_drawn_from_all_that_is_left() -> None:
    cost = np.arange(30.0)[::-1]
    drawn: set[int] = set()
    for seed in range(60):
        kept = sample_configs(cost, 9, np.random.default_rng(seed), "thirds").tolist()
        assert kept[:3] == [0, 1, 2] and kept[-3:] == [27, 28, 29]
        drawn.update(kept[3:-3])
    assert drawn == set(range(3, 27))


@given(st.integers(2, 60), st.integers(2, 60), st.integers(0, 3))
def test_uniform_keeps_both_ends_and_even_gaps_of_rank(size: int, most: int, seed: int) -> None:
    cost = np.random.default_rng(seed).permutation(size).astype(np.float64) + 1
    kept = sample_configs(cost, most, np.random.default_rng(seed), "uniform")
    ranks = np.sort(cost[kept])
    assert (ranks[0], ranks[-1]) == (1, size)
    assert np.ptp(np.diff(ranks)) <= 1


def test_a_random_draw_does_not_look_at_costs() -> None:
    rng = np.random.default_rng
    kept = sample_configs(np.arange(50.0), 10, rng(3))
    assert np.array_equal(kept, sample_configs(np.zeros(50), 10, rng(3), "random"))
    means = [sample_configs(np.arange(50.0), 10, rng(seed)).mean() for seed in range(200)]
    assert np.mean(means) == pytest.approx(24.5, abs=1.5)


def test_equal_costs_are_drawn_at_random_not_in_the_order_of_the_file() -> None:
    cost = np.ones(100)
    for how in SAMPLES:
        kept = [sample_configs(cost, 10, np.random.default_rng(seed), how) for seed in (0, 1)]
        assert not np.array_equal(*kept), how
        assert np.ptp(kept[0]) > 20, how


@pytest.mark.parametrize("how", SAMPLES)
def test_one_alone_is_the_best(how: str) -> None:
    kept = [sample_configs(np.array([3.0, 1, 2]), 1, np.random.default_rng(seed), how) for seed in range(20)]
    if how == "uniform":
        assert {int(one[0]) for one in kept} == {1}
    assert all(len(one) == 1 for one in kept)


def test_bad_requests_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(XlarankError, match=r"'halves' is not a way to sample; expected random, thirds, uniform"):
        sample_configs(np.ones(3), 2, rng, "halves")
    with pytest.raises(XlarankError, match="a sample of 0"):
        sample_configs(np.ones(3), 0, rng, "thirds")


def recipe(most: int, sampling: str = "uniform") -> Recipe:
    return Recipe.of(FeatureSettings(), "layout", max_configs=most, seed=1, sampling=sampling)


def test_a_recipe_keeps_so_many_rows_of_those_measured() -> None:
    graph = graph_rows("a", [50, 10, 40, 20, 30])
    assert at_most(graph, recipe(3)).row_cost.tolist() == [50, 10, 30], "at even steps of rank, in the file's order"
    assert at_most(graph, recipe(5)) is graph and at_most(graph, recipe(0)) is graph
    broken = replace(graph, runtime=np.where(graph.runtime > 30, 0, graph.runtime))
    assert at_most(broken, recipe(4)).row_cost.tolist() == [10, 20, 30], "the two that failed go first"
    assert at_most(broken, recipe(2)).row_cost.tolist() == [10, 30]


def test_rows_without_labels_are_drawn_at_random() -> None:
    graph = replace(graph_rows("a", range(1, 101)), runtime=np.zeros(100, np.int64))
    kept = [at_most(replace(graph, name=name), recipe(10, "thirds")).ids.tolist() for name in "aab"]
    assert len(kept[0]) == 10 and kept[0] == kept[1] != kept[2], "by the graph's name"
