"""Outputs and their regions on a graph that can be worked through by hand."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from tests.features.helpers import layout_file, layout_of, wrong_columns
from tests.graphs import Node, layout_row
from xlarank.features.assemble import assemble, instance_table
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.regions import ROLE_NAMES

#: A product of [64,32] and [32,128] in f32, doubled, then added up along its rows. Nothing of it is fused away: the
#: reduction is no loop over elements.
NODES = (
    Node("parameter", (64, 32)),
    Node("parameter", (32, 128)),
    Node("dot", (64, 128), (0, 1)),
    Node("add", (64, 128), (2, 2)),
    Node("reduce", (64,), (3,), columns={"is_root": 1.0, "dimensions_0": 1.0}),
)
#: Nothing set; rows of 128 along the lanes; 64 along the lanes, which pads them to 128.
CONFIGS = [[layout_row()], [layout_row(output=(1, 0))], [layout_row(output=(0, 1))]]
OUT = 64 * 128 * 4
STORED = 64 * 32 * 4 + 32 * 128 * 4 + OUT + OUT + 64 * 4


def context() -> LayoutContext:
    return LayoutContext(layout_of(layout_file(NODES, [2], CONFIGS)))


def test_the_region_holds_what_shares_the_layout() -> None:
    regions = context().regions
    assert regions.of[2] == regions.of[3]
    assert len({*regions.of.tolist()}) == 4
    region = regions.of[2]
    assert (regions.tensors[region], regions.makers[region], regions.bytes[region]) == (2, 1, 2 * OUT)
    made = {(ROLE_NAMES[role], int(dim)) for role, dim in np.argwhere(regions.made[region])}
    # of an output, contracted stands for the right operand's
    assert made == {("dot_rows", 0), ("dot_contracted", 1)}
    assert regions.reduced[region].tolist() == [False, True, False, False, False, False]
    assert not regions.read[region].any(), "the reduction is not configurable"


def test_columns_of_a_set_output() -> None:
    features = assemble(layout_of(layout_file(NODES, [2], CONFIGS)))
    expected = {  # 64 lanes are padded to 128, so the bytes double; 128 is a multiple of the 8 sublanes
        "outputs__all_set__ratio": [0, OUT / STORED, OUT / STORED],
        "outputs__all_padded__ratio": [0, 2 * OUT / STORED, 4 * OUT / STORED],
        "outputs__dot_excess__ratio": [0, 0, 2 * OUT / STORED],
        "outputs__dot_own_excess__ratio": [0, 0, OUT / STORED],
        "outputs__reshape_excess__ratio": [0, 0, 0],
        "outputs__waste__max": [0, 0, 1],
        "outputs__made_minor_dot_rows__ratio": [0, 0, 4 * OUT / STORED],
        "outputs__made_second_dot_rows__ratio": [0, 2 * OUT / STORED, 0],
        "outputs__read_minor_reduced__ratio": [0, 2 * OUT / STORED, 0],
    }
    assert wrong_columns(features, expected) == []


def test_instances_of_an_output() -> None:
    table = instance_table(context())
    rows = {name: table.values[:, table.columns.index(name)] for name in table.columns}
    unset, lanes, across = table.row_instance[table.codes[:, 0].astype(int)]
    assert {rows[name][unset] for name in rows if name.startswith("region__")} == {-1.0}
    assert rows["output__padded__ratio"][[lanes, across]].tolist() == [0, 1]
    assert rows["output__excess__ratio"][[lanes, across]].tolist() == [0, 1]
    assert rows["region__excess__share"][across] == pytest.approx(log2(1 + 1e6 * 2 * OUT / STORED), rel=1e-6)
    assert rows["region__tensors__count"][across] == 2
    assert rows["output__second__size"][[lanes, across]] == pytest.approx([log2(65), log2(129)])
    assert rows["region__minor_dot_rows__made"][[lanes, across]].tolist() == [0, 1]
    assert rows["region__minor_reduced__read"][[lanes, across]].tolist() == [1, 0]


def test_a_region_crosses_no_change_of_shape() -> None:
    nodes = (Node("parameter", (64, 128)), Node("reshape", (8192,), (0,)), Node("negate", (8192,), (1,)))
    regions = LayoutContext(layout_of(layout_file(nodes, [1], [[layout_row()], [layout_row(output=(0,))]]))).regions
    assert regions.of[0] != regions.of[1] == regions.of[2]
