"""From one configuration to another, node by node."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.examples import examples
from tests.features.helpers import layout_of
from tests.graphs import Arrays, layout_arrays, layout_graphs
from xlarank.features.assemble import assemble
from xlarank.features.attribution import place_among, walk_between, walk_codes, walk_steps
from xlarank.features.recipe import FeatureSettings

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
