"""Rows of many graphs as one matrix."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.rows import COLUMNS, easy_graph, graph_rows
from xlarank.data.errors import ModelError
from xlarank.features.rows import GraphRows
from xlarank.models.ranking_data import RankingData


def unlabelled(name: str) -> GraphRows:
    return graph_rows(name, [0, 0, 0])


def test_graphs_are_stacked_in_order_with_the_smallest_cost_of_each_row() -> None:
    first = graph_rows("cnn__a", [30, 10], copies=[2, 0])
    first.runtime[:] = [30, 10, 25, 31]  # configurations 2 and 3 repeat 0
    second = graph_rows("mlp__b", [7, 9, 8])
    data = RankingData.from_graphs([first, second])
    assert data.indptr.tolist() == [0, 2, 5]
    assert data.cost.tolist() == [25, 10, 7, 9, 8]
    assert (data.names, data.families) == (["cnn__a", "mlp__b"], ["cnn", "mlp"])
    assert (data.groups, data.columns) == (2, COLUMNS)
    assert data.rows.dtype == np.float32
    assert data.rows[:, 0].tolist() == [2, 2, 3, 3, 3], "the graph column, repeated"
    assert np.array_equal(data.rows[2:, 1:], second.config_values)


def test_costs_stay_exact_beyond_float32() -> None:
    data = RankingData.from_graphs([graph_rows("a", [2**33 + 1, 2**33])])
    assert data.cost.tolist() == [2.0**33 + 1, 2.0**33]


def test_tiles_are_compared_by_runtime_over_normalizer() -> None:
    graph = graph_rows("a", [20, 30])
    graph.normalizer[:] = [10, 60]
    assert RankingData.from_graphs([graph]).cost.tolist() == [2.0, 0.5]


@pytest.mark.parametrize(
    "useless",
    [
        pytest.param(unlabelled("x"), id="withheld labels"),
        pytest.param(graph_rows("x", [5, 5]), id="all cost the same"),
        pytest.param(graph_rows("x", [5], copies=[3]), id="one distinct configuration"),
    ],
)
def test_what_cannot_be_learned_from_is_left_out(useless: GraphRows) -> None:
    good = graph_rows("good", [1, 2])
    assert RankingData.from_graphs([useless, good, useless]).names == ["good"]
    with pytest.raises(ModelError, match="none of 1 graph can be learned from"):
        RankingData.from_graphs([useless])


def test_no_graphs_at_all_is_an_error() -> None:
    with pytest.raises(ModelError, match="none of 0 graphs"):
        RankingData.from_graphs([])


def test_graphs_with_other_columns_are_named() -> None:
    other = graph_rows("two", [1, 2], columns=["size", "waste", "clash", "noise2"])
    with pytest.raises(ModelError, match="two and one have different columns"):
        RankingData.from_graphs([graph_rows("one", [1, 2]), other])


def test_some_of_the_groups() -> None:
    graphs = [easy_graph(f"f{i}__a", 4 + i, seed=i) for i in range(4)]
    data = RankingData.from_graphs(graphs)
    taken = data.take([3, 1])
    expected = RankingData.from_graphs([graphs[3], graphs[1]])
    assert np.array_equal(taken.rows, expected.rows)
    assert np.array_equal(taken.cost, expected.cost)
    assert taken.indptr.tolist() == [0, 7, 12]
    assert (taken.names, taken.families, taken.columns) == (["f3__a", "f1__a"], ["f3", "f1"], COLUMNS)


def test_a_function_is_applied_to_each_group_on_its_own() -> None:
    data = RankingData.from_graphs([graph_rows("a", [30, 10]), graph_rows("b", [7, 9, 8])])
    assert data.per_group(lambda cost: cost - cost.min()).tolist() == [20, 0, 0, 2, 1]
