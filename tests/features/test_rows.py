"""Rows of a graph, with constant columns stored once; walks between its configurations."""

from dataclasses import replace

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, graph_of
from tests.graphs import layout_arrays
from xlarank.data.errors import GraphFileError
from xlarank.features.assembly import assemble
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
    assert (PART.graph_columns, PART.config_columns) == (["g", "h"], ["x", "y", "z"])
    for used in ([0, 1, 2, 3, 4], [1, 3], [0], [2, 4], []):
        columns = np.array(used, np.intp)
        only = PART.only(columns)
        assert only.columns == [PART.columns[number] for number in used]
        for which in (slice(None), slice(1, 3), np.array([3, 0]), np.array([], np.intp)):
            chosen = PART.matrix(which, columns)
            for matrix in (chosen, only.matrix(which), PART.matrix(which)[:, used]):
                assert np.array_equal(matrix, WHOLE[which][:, used]), (which, used)
            assert chosen.dtype == np.float32 and chosen.flags.c_contiguous
    PART.matrix()[:] = 0
    assert np.array_equal(PART.matrix(), WHOLE), "a copy, not a view"
    # row 1 stands for configurations 1 and 3, row 0 for configuration 0
    some = PART.take(np.array([1, 0]))
    assert np.array_equal(some.matrix(), WHOLE[[1, 0]])
    assert (some.ids.tolist(), some.group.tolist()) == ([0, 1, 3], [1, 0, 0])
    assert some.row_cost.tolist() == [20, 50]


def test_measured_in_part_and_what_can_be_ranked() -> None:
    """Configurations 1 and 3 are identical; one of them failed, the other one's runtime counts."""
    rows = replace(PART, runtime=np.array([50, 0, 0, 20, 10]))
    assert rows.cost.tolist() == [50, np.inf, np.inf, 20, 10]
    assert rows.row_cost.tolist() == [50, 20, np.inf, 10]
    known = rows.measured()
    assert np.array_equal(known.matrix(), WHOLE[[0, 1, 3]])
    assert known.row_cost.tolist() == [50, 20, 10]
    assert known.ids.tolist() == [0, 1, 3, 4] and PART.measured() is PART
    for runtime, labelled, rankable in (  # an order needs two measured rows of different cost
        ((0, 0, 0, 0, 0), False, True),
        ((50, 0, 50, 0, 0), True, False),
        ((0, 40, 0, 20, 0), True, False),  # two of one row
        ((5, 7, 5, 5, 5), True, False),  # the best of 7 and 5 is 5
        ((50, 0, 0, 20, 0), True, True),
    ):
        rows = replace(PART, runtime=np.array(runtime))
        assert (rows.labelled, rows.rankable) == (labelled, rankable), runtime
    withheld = replace(PART, runtime=np.zeros(5, np.int64))
    assert not withheld.take(np.array([1])).rankable, "one row"


def test_a_rank_is_computed_with_the_column_that_it_ranks() -> None:
    graph = graph_of(layout_arrays())
    complete = assemble(graph)
    source, rank = "change__nodes_set__share", "rank__change_nodes_set__share"
    for only in ([source], [rank]):
        rows = assemble(graph, only=only)
        kept = [complete.columns.index(name) for name in rows.columns]
        assert only[0] in rows.columns
        assert np.array_equal(rows.matrix(), complete.matrix()[:, kept])
    assert rank not in assemble(graph, only=[source]).columns


def test_an_infinite_column_of_a_file_is_named() -> None:
    arrays = dict(np.load(SAMPLE / "tile/cpu/train/bmm__a.npz"))
    arrays["config_feat"] = np.linspace(1e17, 1e18, 64)[:, None] * np.ones(24, np.float32)
    said = "its column tiles__output_edge_waste__ratio holds inf; expected smaller sizes"
    with pytest.raises(GraphFileError, match=said):
        assemble(graph_of(arrays))
