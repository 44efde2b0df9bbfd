"""Segments: connected nodes that pull the same way."""

from __future__ import annotations

from tests.features.helpers import layout_file, layout_of
from tests.graphs import Node, layout_row
from xlarank.pipelines.ranking.score_difference import Segment, program_graph, segments_of

#: 0 and 1 hang together over a matrix, 2 and 3 over a scalar only; 4 reads 1.
NODES = [
    Node("parameter", (8, 128)),
    Node("add", (8, 128), (0, 0)),
    Node("reduce", (), (1,)),
    Node("broadcast", (4, 4), (2,)),
    Node("multiply", (8, 128), (1, 1)),
]
GRAPH = layout_of(layout_file(NODES, [0], [[layout_row()]]))


def test_connected_nodes_of_one_sign_are_one_segment() -> None:
    assert set(program_graph(GRAPH).edges) == {(0, 1), (1, 2), (1, 4)}, "a scalar passes no layout on"
    expected = (Segment((0, 1), -3.0), Segment((3,), -0.9))
    assert segments_of(GRAPH, {0: -1.0, 1: -2.0, 3: -0.9, 4: 0.8}) == expected
    # 5 of 5.2 is more than four fifths: the rest is left out
    assert segments_of(GRAPH, {0: 5.0, 1: 0.1, 4: -0.1}) == (Segment((0,), 5.0),)
    assert segments_of(GRAPH, {}) == () and segments_of(GRAPH, {0: 0.0}) == ()
