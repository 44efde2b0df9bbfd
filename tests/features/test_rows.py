"""The columns of one graph, with what is constant kept once; walks between its configurations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from tests.features.helpers import layout_of
from tests.graphs import Arrays, examples, layout_arrays, layout_graphs
from xlarank.features.assemble import assemble
from xlarank.features.attribution import place_among, walk_between, walk_codes, walk_steps
from xlarank.features.recipe import FeatureSettings
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

    for used in ([0, 1, 2, 3, 4], [1, 3], [0], [2, 4], []):
        only = PART.only(np.array(used, np.intp))
        assert only.columns == [PART.columns[number] for number in used]
        assert np.array_equal(only.matrix(), WHOLE[:, used]) and np.array_equal(only.row_cost, PART.row_cost)
    # row 1 stands for configurations 1 and 3, row 0 for configuration 0
    some = PART.take(np.array([1, 0]))
    assert np.array_equal(some.matrix(), WHOLE[[1, 0]])
    assert (some.ids.tolist(), some.group.tolist(), some.row_cost.tolist()) == ([0, 1, 3], [1, 0, 0], [20, 50])


def test_measured_in_part_and_what_can_be_ranked() -> None:
    """Configurations 1 and 3 are identical; one of them failed, the other one's runtime counts."""
    rows = replace(PART, runtime=np.array([50, 0, 0, 20, 10]))
    assert rows.cost.tolist() == [50, np.inf, np.inf, 20, 10]
    assert rows.row_cost.tolist() == [50, 20, np.inf, 10]
    known = rows.measured()
    assert np.array_equal(known.matrix(), WHOLE[[0, 1, 3]]) and known.row_cost.tolist() == [50, 20, 10]
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
    assert not replace(PART, runtime=np.zeros(5, np.int64)).take(np.array([1])).rankable, "one row, withheld"


# Walks ---------------------------------------------------------------------------------------------------------

SETTINGS = FeatureSettings()


def test_a_walk_goes_in_order_and_in_reverse() -> None:
    codes = walk_codes(np.array([0, 1, 2]), np.array([5, 1, 7]), np.array([0, 2]))
    assert codes.tolist() == [[0, 1, 2], [5, 1, 2], [5, 1, 7], [0, 1, 2], [0, 1, 7], [5, 1, 7]]
    # forward the first node brings 3 and the second 1, in reverse 2 and 2: on average 2.5 and 1.5
    assert walk_steps(np.array([0.0, 3.0, 4.0, 0.0, 2.0, 4.0])).tolist() == [2.5, 1.5]


def test_steps_by_hand() -> None:
    """Configuration 2 changes the convolution (node 2) and the reshape (node 4), 4 the reshape alone.

    Both rows set an output, so each adds 1/2 to the share of nodes with an output set. The reshape reads the
    convolution over one elementwise addition; from nothing set to two unlike layouts set (5), a clash appears only
    with the second row, whichever way is walked: half of the one pair for either.
    """
    arrays = layout_arrays()
    arrays["node_config_feat"][5] = [arrays["node_config_feat"][1][0], arrays["node_config_feat"][4][1]]
    graph = layout_of(arrays)
    rows = assemble(graph, SETTINGS)
    for now, column, steps in (
        (2, "change__output_set__share", {2: 0.5, 4: 0.5}),
        (4, "change__output_set__share", {4: 0.5}),
        (5, "disagreement__clash_2hop__share", {2: 0.5, 4: 0.5}),
    ):
        walk = walk_between(graph, rows, SETTINGS, now, 0)
        assert walk.by_node(walk.matrix[:, rows.columns.index(column)].astype(float)) == steps


@pytest.mark.slow
@examples(15)
@given(layout_graphs(min_nodes=3, min_configurable=2, max_configs=12))
def test_a_candidate_on_the_way_has_its_row_and_the_ends_have_theirs_to_the_bit(arrays: Arrays) -> None:
    graph = layout_of(arrays)
    rows, codes = assemble(graph, SETTINGS), graph.table.codes
    matrix = rows.matrix()
    for now in range(min(3, graph.configs)):
        walk = walk_between(graph, rows, SETTINGS, now, 0)
        half = len(walk.matrix) // 2
        assert half == len(walk.nodes) + 1
        for start, end in ((0, half - 1), (half, -1)):
            assert np.array_equal(walk.matrix[start], matrix[rows.group[0]])
            assert np.array_equal(walk.matrix[end], matrix[rows.group[now]])
        for step, code in enumerate(walk_codes(codes[0], codes[now], np.flatnonzero(codes[0] != codes[now]))):
            same = np.flatnonzero((codes == code).all(axis=1))
            if len(same):
                expected = matrix[rows.group[same[0]]]
                np.testing.assert_allclose(walk.matrix[step], expected, rtol=2e-4, atol=2e-4)


def test_places_among_candidates_are_those_of_the_candidates() -> None:
    values = np.array([3.0, 1.0, 3.0, 8.0])
    # ranks 0..3: 1 -> 0, both 3 -> 1.5, 8 -> 3, over 3
    assert place_among(values, values, True).tolist() == [0.5, 0.0, 0.5, 1.0]
    assert place_among(np.array([9.0, 2.0]), values, True).tolist() == [1.0, 0.5 / 3]
    assert place_among(values, np.full(4, 3.0), False).tolist() == [0.0] * 4
    assert place_among(values, np.array([3.0]), True).tolist() == [0.5] * 4
