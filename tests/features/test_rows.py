"""The columns of one graph, with what is constant kept once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xlarank.features.rows import GraphRows

PART = GraphRows(
    name="a",
    columns=["g", "h", "x", "y", "z"],
    graph_values=np.array([7, 8], np.float32),
    config_values=np.arange(12, dtype=np.float32).reshape(4, 3),
    group=np.array([0, 1, 2, 1, 3]),
    ids=np.arange(5),
    runtime=np.array([50, 40, 30, 20, 10]),
    normalizer=np.ones(5, np.int64),
)
WHOLE = np.array([[7, 8, 0, 1, 2], [7, 8, 3, 4, 5], [7, 8, 6, 7, 8], [7, 8, 9, 10, 11]])


def test_the_matrix_of_some_rows_and_columns() -> None:
    for which in (None, slice(1, 3), np.array([3, 0]), np.array([], np.intp)):
        rows = WHOLE if which is None else WHOLE[which]
        for used in (None, [0, 1, 2, 3, 4], [1, 3], [0, 1], [2, 4], []):
            matrix = PART.matrix(which, None if used is None else np.array(used, np.intp))
            assert np.array_equal(matrix, rows if used is None else rows[:, used]), (which, used)
            assert matrix.dtype == np.float32 and matrix.flags.c_contiguous
    PART.matrix()[:] = 0
    assert np.array_equal(PART.matrix(), WHOLE), "a copy, not a view"
    assert (PART.graph_columns, PART.config_columns) == (["g", "h"], ["x", "y", "z"])
    assert PART.constants == {"g": 7.0, "h": 8.0}


def test_fewer_columns_as_rows() -> None:
    for used in ([0, 1, 2, 3, 4], [1, 3], [0], [2, 4], []):
        only = PART.only(np.array(used, np.intp))
        assert only.columns == [PART.columns[number] for number in used]
        assert np.array_equal(only.matrix(), WHOLE[:, used]) and np.array_equal(only.row_cost, PART.row_cost)


def test_rows_come_in_the_order_asked_for() -> None:
    """Row 1 stands for configurations 1 and 3, row 0 for configuration 0."""
    some = PART.take(np.array([1, 0]))
    assert np.array_equal(some.matrix(), WHOLE[[1, 0]])
    assert (some.ids.tolist(), some.group.tolist(), some.row_cost.tolist()) == ([0, 1, 3], [1, 0, 0], [20, 50])


def test_measured_in_part() -> None:
    """Configurations 1 and 3 are identical; one of them failed, the other one's runtime counts."""
    rows = replace(PART, runtime=np.array([50, 0, 0, 20, 10]))
    assert rows.cost.tolist() == [50, np.inf, np.inf, 20, 10]
    assert rows.row_cost.tolist() == [50, 20, np.inf, 10]
    known = rows.measured()
    assert np.array_equal(known.matrix(), WHOLE[[0, 1, 3]]) and known.row_cost.tolist() == [50, 20, 10]
    assert known.ids.tolist() == [0, 1, 3, 4] and PART.measured() is PART


def test_an_order_needs_two_measured_rows_of_different_cost() -> None:
    for runtime, labelled, rankable in (
        ((0, 0, 0, 0, 0), False, True),
        ((50, 0, 0, 0, 0), True, False),
        ((50, 0, 50, 0, 0), True, False),
        ((0, 40, 0, 20, 0), True, False),  # two of one row
        ((5, 7, 5, 5, 5), True, False),  # the best of 7 and 5 is 5
        ((50, 0, 0, 20, 0), True, True),
    ):
        rows = replace(PART, runtime=np.array(runtime))
        assert (rows.labelled, rows.rankable) == (labelled, rankable), runtime
    assert not replace(PART, runtime=np.zeros(5, np.int64)).take(np.array([1])).rankable, "one row, withheld"
