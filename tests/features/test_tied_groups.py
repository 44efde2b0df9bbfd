"""Columns of tied groups: four nodes in three groups by hand."""

from __future__ import annotations

from tests.features.helpers import layout_file, layout_of, wrong_columns
from tests.graphs import Node, layout_row
from xlarank.data.hlo.ties import groups_of, tied_nodes
from xlarank.features.assemble import assemble

#: Nodes 3 and 4 are tied: 1000 and 4096 along the lanes pad less than 32. Of node 5 the other order does
#: (4096 x 1000 elements against 4096 x 1024). Bytes of the outputs: 128,000, 524,288, 16,384,000, 128,000.
PROGRAM = (
    Node("parameter", (32, 4096)),
    Node("parameter", (4096, 1000)),
    Node("parameter", (32, 1000)),
    Node("dot", (32, 1000), (0, 1)),
    Node("dot", (32, 4096), (1, 2)),
    Node("dot", (4096, 1000), (0, 2)),
    Node("reshape", (32, 10, 100), (3,)),
)
TOTAL = 128_000 + 524_288 + 16_384_000 + 128_000
NONE = layout_row()
CONFIGS = (
    (NONE, NONE, NONE, NONE),
    (layout_row((0, 1)), NONE, NONE, NONE),  # half of the first group turned
    (layout_row((1, 0)), layout_row((1, 0)), layout_row((1, 0)), layout_row((2, 1, 0))),  # the second group turned
)
EXPECTED = {
    "groups__set__share": (0, (1 / 2) / 3, 1),
    "groups__turned__share": (0, (1 / 2) / 3, 1 / 3),
    "groups__turned_bytes__share": (0, 128_000 / TOTAL, 16_384_000 / TOTAL),
    "groups__dot_turned__share": (0, (1 / 2) / 2, 1 / 2),
    "groups__dot_turned_bytes__share": (0, 128_000 / TOTAL, 16_384_000 / TOTAL),
    "groups__dot_set_bytes__share": (0, 128_000 / TOTAL, (TOTAL - 128_000) / TOTAL),
    "groups__reshape_turned__share": (0, 0, 0),
    "groups__reshape_turned_bytes__share": (0, 0, 0),
    "groups__reshape_set_bytes__share": (0, 0, 128_000 / TOTAL),
    "groups__convolution_turned__share": (0, 0, 0),
    "groups__convolution_turned_bytes__share": (0, 0, 0),
    "groups__convolution_set_bytes__share": (0, 0, 0),
}


def test_three_groups_by_hand() -> None:
    graph = layout_of(layout_file(PROGRAM, (3, 4, 5, 6), CONFIGS))
    assert groups_of(tied_nodes(graph)).tolist() == [0, 0, 1, 2]
    assert not wrong_columns(assemble(graph), EXPECTED)
