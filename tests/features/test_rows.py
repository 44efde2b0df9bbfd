"""Rows of a graph, with constant columns stored once; walks between its configurations."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.features.helpers import SAMPLE, SCRAMBLED_GRAPHS, graph_of
from tests.graphs import Arrays, examples, layout_arrays
from xlarank.data.errors import GraphFileError
from xlarank.features.assembly import assemble
from xlarank.features.attribution import position_among, walk_between, walk_codes, walk_steps
from xlarank.features.rows import GraphRows
from xlarank.features.settings import FeatureSettings

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


SETTINGS = FeatureSettings()


def test_a_walk_goes_in_order_and_in_reverse() -> None:
    codes = walk_codes(np.array([0, 1, 2]), np.array([5, 1, 7]), np.array([0, 2]))
    assert codes.tolist() == [[0, 1, 2], [5, 1, 2], [5, 1, 7], [0, 1, 2], [0, 1, 7], [5, 1, 7]]
    # forward the first node brings 3 and the second 1, in reverse 2 and 2: on average 2.5 and 1.5
    assert walk_steps(np.array([0.0, 3.0, 4.0, 0.0, 2.0, 4.0])).tolist() == [2.5, 1.5]
    rank = position_among(np.array([2 + 1e-6]), np.array([1.0, 2.0, 3.0]), True)
    assert rank == 0.5, "equal up to rounding"


def test_steps_by_hand() -> None:
    """Configuration 2 changes the convolution (node 2) and the reshape (node 4), 4 the reshape
    alone.

    The reshape reads the convolution over an addition: a clash appears only with the second of two
    unlike layouts, whichever way is walked, so each brings half of it.
    """
    arrays = layout_arrays()
    rows = arrays["node_config_feat"]
    rows[2] = rows[1][0], rows[4][1]
    graph = graph_of(arrays)
    rows = assemble(graph, SETTINGS)
    clash = "disagreement__clash_2hop__share"
    changed = "change__output_set__share"
    for now, column, steps in ((2, clash, {2: 0.5, 4: 0.5}), (4, changed, {4: 0.5})):
        walk = walk_between(graph, rows, SETTINGS, now, 0)
        assert walk.by_node(walk.matrix[:, rows.columns.index(column)].astype(float)) == steps


@pytest.mark.slow
@examples(15)
@given(SCRAMBLED_GRAPHS.filter(lambda arrays: len(arrays["node_config_ids"]) > 1))
def test_a_candidate_on_the_way_has_its_row_and_the_ends_have_theirs_to_the_bit(
    arrays: Arrays,
) -> None:
    graph = graph_of(arrays)
    rows = assemble(graph, SETTINGS)
    codes = graph.table.codes
    matrix = rows.matrix()
    for now in range(min(3, graph.configs)):
        walk = walk_between(graph, rows, SETTINGS, now, 0)
        half = len(walk.matrix) // 2
        assert half == len(walk.nodes) + 1
        assert (walk.matrix[[0, half]] == matrix[rows.group[0]]).all()
        assert (walk.matrix[[half - 1, -1]] == matrix[rows.group[now]]).all()
        changed = np.flatnonzero(codes[0] != codes[now])
        for step, code in enumerate(walk_codes(codes[0], codes[now], changed)):
            for candidate in np.flatnonzero((codes == code).all(axis=1))[:1]:
                expected = matrix[rows.group[candidate]]
                np.testing.assert_allclose(walk.matrix[step], expected, rtol=2e-4, atol=2e-4)


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
