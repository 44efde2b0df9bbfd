"""How the rows of a graph are dealt into query groups."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.models.rows import easy_graph
from xlarank.models.rankers.lambdarank import query_groups
from xlarank.models.rankers.lightgbm_data import dealt_order, dealt_orders, even_sizes
from xlarank.models.ranking_data import RankingData


@given(st.integers(1, 200), st.integers(2, 60))
def test_groups_are_the_fewest_and_even(rows: int, most: int) -> None:
    sizes = even_sizes(rows, most)
    assert sum(sizes) == rows
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == (rows + most - 1) // most


def test_rows_are_dealt_at_random() -> None:
    """Files list configurations in the order of the search: cutting it in two would pair like with like."""
    order = dealt_order(easy_graph("a__a", 100, 0), 0)
    assert sorted(order) == list(range(100))
    assert 10 < np.count_nonzero(order[:50] < 50) < 40


def test_the_order_depends_on_the_seed_and_the_graph_alone() -> None:
    """So one set of bins serves query groups of any size and folds of any graphs."""
    graphs = [easy_graph(name, 60, number) for number, name in enumerate(("a__a", "b__a", "c__a"))]
    data = RankingData.from_graphs(graphs)
    together, alone = dealt_orders(data, 3), dealt_orders(data.take([1]), 3)
    assert together is not None and alone is not None
    assert np.array_equal(together[1], alone[0])
    assert not np.array_equal(together[0], together[1])
    assert not np.array_equal(dealt_order(graphs[0], 4), together[0])
    assert dealt_orders(data, None) is None


def test_rows_stay_as_they_are_where_no_graph_is_too_large() -> None:
    data = RankingData.from_graphs([easy_graph("a__a", 60, 0), easy_graph("b__a", 30, 1)])
    assert query_groups(data, 60, seed=7) == (None, [60, 30])
    assert query_groups(data, 40, seed=7) == (7, [30, 30, 30])
