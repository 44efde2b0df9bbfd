"""Rows of pairs."""

from __future__ import annotations

import numpy as np

from tests.models.rows import graph_rows
from xlarank.models.rankers.pair_vote import PairColumns, PairPart

COLUMNS = PairColumns(own=np.array([0, 1, 3]), differences=np.array([1, 3]))
#: Columns size (constant, the number of rows), waste, clash, noise.
GRAPH = graph_rows("a", [1, 2, 3], features=np.array([[1, 10, 100], [2, 20, 300], [4, 30, 700]]))


def test_a_row_is_one_configuration_and_its_difference_to_another() -> None:
    found = COLUMNS.of_all(GRAPH.matrix()[[2, 0]], GRAPH.matrix()[[1]])
    assert found.shape == (2, 1, len(COLUMNS))
    assert found[0, 0].tolist() == [3, 4, 700, 4 - 2, 700 - 300]
    assert found[1, 0].tolist() == [3, 1, 100, 1 - 2, 100 - 300]
    assert COLUMNS.source.tolist() == [0, 1, 3, 1, 3]


def test_pairs_of_a_graph_are_the_same_rows() -> None:
    part = PairPart(GRAPH, COLUMNS, np.array([2, 0, 1]), np.array([1, 1, 1]))
    all_pairs = COLUMNS.of_all(GRAPH.matrix(), GRAPH.matrix())
    assert len(part) == 3
    assert np.array_equal(part.matrix(), all_pairs[[2, 0, 1], [1, 1, 1]])
    assert np.array_equal(part.matrix(slice(1, 3), np.arange(5)), part.matrix()[1:])
    assert np.array_equal(part.matrix(np.array([2]), np.array([0, 4])), part.matrix()[2:][:, [0, 4]])
