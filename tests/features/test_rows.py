"""The columns of one graph, with what is constant kept once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

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


def test_written_out_in_full() -> None:
    assert len(PART) == 4
    assert PART.matrix().dtype == np.float32
    assert PART.matrix().flags.c_contiguous
    assert np.array_equal(PART.matrix(), WHOLE)


@pytest.mark.parametrize("which", [None, slice(1, 3), np.array([3, 0]), np.array([], np.intp)])
@pytest.mark.parametrize("used", [None, [0, 1, 2, 3, 4], [1, 3], [0, 1], [2, 4], []])
def test_some_rows_and_columns(which: np.ndarray | slice | None, used: list[int] | None) -> None:
    rows = WHOLE if which is None else WHOLE[which]
    wanted = rows if used is None else rows[:, used]
    found = PART.matrix(which, None if used is None else np.array(used, np.intp))
    assert np.array_equal(found, wanted)
    assert found.flags.c_contiguous


def test_a_copy_not_a_view() -> None:
    PART.matrix()[:] = 0
    assert np.array_equal(PART.matrix(), WHOLE)


def test_names_of_columns() -> None:
    assert (PART.graph_columns, PART.config_columns) == (["g", "h"], ["x", "y", "z"])
    assert PART.constants == {"g": 7.0, "h": 8.0}


@pytest.mark.parametrize("used", [[0, 1, 2, 3, 4], [1, 3], [0], [2, 4], []])
def test_some_columns_as_rows_of_their_own(used: list[int]) -> None:
    found = PART.only(np.array(used, np.intp))
    assert found.columns == [PART.columns[number] for number in used]
    assert np.array_equal(found.matrix(), WHOLE[:, used])
    assert np.array_equal(found.row_cost, PART.row_cost)


def test_one_more_column() -> None:
    found = PART.with_column("rank", np.array([0.0, 0.25, 0.5, 1.0]))
    assert found.columns == ["g", "h", "x", "y", "z", "rank"]
    assert found.matrix().dtype == np.float32
    assert np.array_equal(found.matrix(), np.column_stack([WHOLE, [0, 0.25, 0.5, 1]]))
    assert np.array_equal(PART.matrix(), WHOLE), "the rows it came from stay as they are"


def test_rows_come_in_the_order_asked_for() -> None:
    """Row 1 stands for configurations 1 and 3, row 0 for configuration 0."""
    found = PART.take(np.array([1, 0]))
    assert np.array_equal(found.matrix(), WHOLE[[1, 0]])
    assert found.ids.tolist() == [0, 1, 3]
    assert found.group.tolist() == [1, 0, 0]
    assert found.row_cost.tolist() == [20, 50]


# Measured in part -----------------------------------------------------------------------------------------


def measured_as(*runtime: int) -> GraphRows:
    return replace(PART, runtime=np.array(runtime))


def test_a_row_costs_what_was_measured_of_it() -> None:
    """Configurations 1 and 3 are identical; one of them failed, the other tells."""
    rows = measured_as(50, 0, 0, 20, 10)
    assert rows.labelled and rows.rankable
    assert rows.cost.tolist() == [50, np.inf, np.inf, 20, 10]
    assert rows.row_cost.tolist() == [50, 20, np.inf, 10]
    known = rows.measured()
    assert np.array_equal(known.matrix(), WHOLE[[0, 1, 3]]) and known.row_cost.tolist() == [50, 20, 10]
    assert known.ids.tolist() == [0, 1, 3, 4]


def test_all_measured_is_as_it_was() -> None:
    assert PART.measured() is PART


@pytest.mark.parametrize(
    ("runtime", "labelled", "rankable"),
    [
        ((0, 0, 0, 0, 0), False, True),
        ((50, 0, 0, 0, 0), True, False),
        ((50, 0, 50, 0, 0), True, False),
        ((0, 40, 0, 20, 0), True, False),  # two of one row
        ((50, 0, 0, 20, 0), True, True),
    ],
)
def test_an_order_needs_two_measured_rows(runtime: tuple[int, ...], labelled: bool, rankable: bool) -> None:
    rows = measured_as(*runtime)
    assert (rows.labelled, rows.rankable) == (labelled, rankable)
