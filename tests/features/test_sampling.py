"""Which configurations of a graph are kept to learn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.models.rows import graph_rows
from xlarank.features.recipe import FeatureSettings, Recipe
from xlarank.features.sampling import at_most, even_ranks


@given(st.integers(2, 60), st.integers(2, 60), st.integers(0, 3))
def test_both_ends_and_even_gaps_of_rank_are_kept(size: int, most: int, seed: int) -> None:
    cost = np.random.default_rng(seed).permutation(size).astype(np.float64) + 1
    kept = even_ranks(cost, most, np.random.default_rng(seed))
    assert kept.tolist() == sorted(set(kept.tolist())) and len(kept) == min(most, size)
    ranks = np.sort(cost[kept])
    assert (ranks[0], ranks[-1]) == (1, size)
    assert np.ptp(np.diff(ranks)) <= 1


def test_equal_costs_are_drawn_at_random_not_in_the_order_of_the_file() -> None:
    kept = [even_ranks(np.ones(100), 10, np.random.default_rng(seed)) for seed in (0, 1)]
    assert not np.array_equal(*kept)
    assert np.ptp(kept[0]) > 20


def recipe(most: int) -> Recipe:
    return Recipe.of(FeatureSettings(), "layout", max_configs=most, seed=1)


def test_a_recipe_draws_of_the_measured_rows_by_the_graphs_name() -> None:
    graph = graph_rows("a", [50, 10, 40, 20, 30])
    assert at_most(graph, recipe(5)) is graph and at_most(graph, recipe(0)) is graph
    broken = replace(graph, runtime=np.where(graph.runtime > 30, 0, graph.runtime))
    assert at_most(broken, recipe(4)).row_cost.tolist() == [10, 20, 30], "the two that failed go first"
    assert len(at_most(broken, recipe(2))) == 2 and np.isfinite(at_most(broken, recipe(2)).row_cost).all()
    unlabelled = replace(graph_rows("a", range(1, 101)), runtime=np.zeros(100, np.int64))
    kept = [at_most(replace(unlabelled, name=name), recipe(10)).ids.tolist() for name in "aab"]
    assert len(kept[0]) == 10 and kept[0] == sorted(kept[0]) and kept[0] == kept[1] != kept[2]
