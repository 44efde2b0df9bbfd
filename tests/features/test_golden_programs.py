"""More small programs worked out by hand: copies, heavy operations, outputs and their regions, tied groups."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from tests.features.helpers import layout_file, layout_of, wrong_columns
from tests.graphs import Node, layout_row
from xlarank.data.hlo.ties import groups_of, tied_nodes
from xlarank.features.assemble import assemble
from xlarank.features.layout.layout_context import ROLE_NAMES, LayoutContext

NONE = layout_row()

# Chains -------------------------------------------------------------------------------------------------------
#
#     0 parameter    f32[4,8,16]             configurable: P
#     1 tanh(0)      f32[4,8,16]
#     2 transpose(1) f32[16,4,8]             dimensions 2, 0, 1
#     3 reshape(2)   f32[16,32]              configurable: R, keeps 16 and merges 4 x 8
#     4 copy(0)      f32[4,8,16]
#     5 reshape(4)   f32[4,8,4,4]            configurable: S, keeps 4 and 8 and splits 16
#     6 reshape(0)   f32[512]                configurable: T, merges all
#
# Every tensor has 512 elements, 2048 bytes, and is row major by default. T takes what P makes (one edge), S over
# a copy (two), R over a tanh and a transpose (three). Dimensions 0, 1, 2 of R's input are 2, 0, 1 of P.
#
#     configuration   P         R (input)   S (input)   T (input)
#     A               -         -           -           -
#     B               0,1,2     1,2,0       -           -
#     C               -         0,2,1       0,1,2       2,0,1
#     D               0,1,2     2,1,0       0,2,1       0,1,2

CHAINS = (
    Node("parameter", (4, 8, 16)),
    Node("tanh", (4, 8, 16), (0,)),
    Node("transpose", (16, 4, 8), (1,), columns={"dimensions_0": 2, "dimensions_1": 0, "dimensions_2": 1}),
    Node("reshape", (16, 32), (2,)),
    Node("copy", (4, 8, 16), (0,)),
    Node("reshape", (4, 8, 4, 4), (4,)),
    Node("reshape", (512,), (0,)),
)
CHOICES = (
    (NONE, NONE, NONE, NONE),
    (layout_row((0, 1, 2)), layout_row((), (1, 2, 0)), NONE, NONE),
    (NONE, layout_row((), (0, 2, 1)), layout_row((), (0, 1, 2)), layout_row((), (2, 0, 1))),
    (layout_row((0, 1, 2)), layout_row((), (2, 1, 0)), layout_row((), (0, 2, 1)), layout_row((), (0, 1, 2))),
)

#: Column -> values of A, B, C, D.
CHAINED = {
    # T and P. B: only P is set; C: only T; D: both, alike.
    "disagreement__half_1hop__share": (0, 1, 1, 0),
    # S and P. D: 0,2,1 against 0,1,2.
    "disagreement__half_2hop_bytes__share": (0, 1, 1, 0),
    "disagreement__clash_2hop_bytes__share": (0, 0, 0, 1),
    # R and P. P's 0,1,2 are R's 1,2,0: B agrees. P's default 2,1,0 are R's 0,2,1: no mismatch in C, but one in
    # A, where R is 2,1,0 by default. D: 2,1,0 against 1,2,0.
    "disagreement__agree_3hop__share": (0, 1, 0, 0),
    "disagreement__mismatch_3hop__share": (1, 0, 0, 1),
    # The mismatches at any distance over 3 times 2048 bytes.
    "disagreement__consumer_reshape_bytes__share": (1 / 3, 2 / 3, 2 / 3, 2 / 3),
    # R does not spread through its transpose. B: T and S request nothing, P is as set. C: P takes the larger key of
    # S's 0,1,2 (1 + 2 * 7 + 3 * 49 = 162) and T's 2,0,1 (3 + 1 * 7 + 2 * 49 = 108), T is left with a copy.
    # D: S's copy of two.
    "propagation__copies__share": (0, 0, 1 / 2, 1 / 2),
    # Where a copy from 2,1,0 keeps runs of dimension 2 together: 16 of 512 elements, log 4 / 9. C: T; nothing
    # stays in R's 0,2,1 and S's 0,1,2. B: R's 1,2,0. D: S and T, while R is set to its default.
    "change__input_scattered_bytes__share": (0, 1 / 3, (1 + 1 + 5 / 9) / 3, 2 / 3),
    # By default minor-most: R's 8 is merged, S's 16 split, T's merged.
    "roles__reshape_input_merged_minor__share": (2 / 3, 2 / 3, 1 / 3, 2 / 3),
}

CHAIN_GRAPH = {
    # node_splits 0, 4, 7: computations of 4 and 3 nodes.
    "computations__all__log": log2(1 + 2),
    "work__flops__log": log2(1 + 6 * 512),  # the parameter is free
}


def test_columns_of_the_chains():
    arrays = {**layout_file(CHAINS, (0, 3, 5, 6), CHOICES), "node_splits": np.array([[0, 4, 7]])}
    assert wrong_columns(assemble(layout_of(arrays)), {**CHAINED, **CHAIN_GRAPH}) == []


# Outputs ------------------------------------------------------------------------------------------------------

#: A product of [64,32] and [32,128] in f32, doubled, then added up along its rows. Nothing of it is fused away: the
#: reduction is no loop over elements.
REDUCED = (
    Node("parameter", (64, 32)),
    Node("parameter", (32, 128)),
    Node("dot", (64, 128), (0, 1)),
    Node("add", (64, 128), (2, 2)),
    Node("reduce", (64,), (3,), columns={"is_root": 1.0, "dimensions_0": 1.0}),
)
OUT = 64 * 128 * 4
STORED = 64 * 32 * 4 + 32 * 128 * 4 + OUT + OUT + 64 * 4
#: Nothing set; rows of 128 along the lanes; 64 along the lanes, padded to 128: the bytes double.
OUTPUTS = {
    "outputs__all_set__ratio": [0, OUT / STORED, OUT / STORED],
    "outputs__all_padded__ratio": [0, 2 * OUT / STORED, 4 * OUT / STORED],
    "outputs__dot_excess__ratio": [0, 0, 2 * OUT / STORED],
    "outputs__dot_own_excess__ratio": [0, 0, OUT / STORED],
    "outputs__waste__max": [0, 0, 1],
    "outputs__made_minor_dot_rows__ratio": [0, 0, 4 * OUT / STORED],
    "outputs__read_minor_reduced__ratio": [0, 2 * OUT / STORED, 0],
}
#: Of instances: unset, and as above.
OF_OUTPUTS = {
    "output__padded__ratio": [-1, 0, 1],
    "region__excess__share": [-1, 0, log2(1 + 1e6 * 2 * OUT / STORED)],
    "region__tensors__count": [-1, 2, 2],
    "output__second__size": [-1, log2(65), log2(129)],
    "region__minor_dot_rows__made": [-1, 0, 1],
    "region__minor_reduced__read": [-1, 1, 0],
}


def test_a_set_output_and_its_region():
    graph = layout_of(layout_file(REDUCED, [2], [[NONE], [layout_row(output=(1, 0))], [layout_row(output=(0, 1))]]))
    features, regions = assemble(graph), LayoutContext(graph).regions
    assert wrong_columns(features, OUTPUTS) == []
    table = features.instances.value
    rows = table.values[table.row_instance[table.codes[:, 0].astype(int)]]
    found = {name: rows[:, table.columns.index(name)] for name in OF_OUTPUTS}
    assert {name: values.tolist() for name, values in found.items()} == {
        name: pytest.approx(values, rel=1e-6) for name, values in OF_OUTPUTS.items()
    }
    region = regions.of[2]
    assert region == regions.of[3] and len({*regions.of.tolist()}) == 4
    assert (regions.tensors[region], regions.makers[region], regions.bytes[region]) == (2, 1, 2 * OUT)
    made = {(ROLE_NAMES[role], int(dim)) for role, dim in np.argwhere(regions.made[region])}
    assert made == {("dot_rows", 0), ("dot_contracted", 1)}  # contracted stands for the right operand's
    assert regions.reduced[region].tolist() == [False, True, False, False, False, False]
    assert not regions.read[region].any(), "the reduction is not configurable"
    nodes = (Node("parameter", (64, 128)), Node("reshape", (8192,), (0,)), Node("negate", (8192,), (1,)))
    regions = LayoutContext(layout_of(layout_file(nodes, [1], [[NONE]]))).regions
    assert regions.of[0] != regions.of[1] == regions.of[2], "none crosses a change of shape"


# Tied groups --------------------------------------------------------------------------------------------------

#: Nodes 3 and 4 are tied: 1000 and 4096 along the lanes pad less than 32. Of node 5 the other order does
#: (4096 x 1000 elements against 4096 x 1024). Bytes of the outputs: 128,000, 524,288, 16,384,000, 128,000.
TIED = (
    Node("parameter", (32, 4096)),
    Node("parameter", (4096, 1000)),
    Node("parameter", (32, 1000)),
    Node("dot", (32, 1000), (0, 1)),
    Node("dot", (32, 4096), (1, 2)),
    Node("dot", (4096, 1000), (0, 2)),
    Node("reshape", (32, 10, 100), (3,)),
)
TOTAL = 128_000 + 524_288 + 16_384_000 + 128_000
TIED_CHOICES = (
    (NONE, NONE, NONE, NONE),
    (layout_row((0, 1)), NONE, NONE, NONE),  # half of the first group turned
    (layout_row((1, 0)), layout_row((1, 0)), layout_row((1, 0)), layout_row((2, 1, 0))),  # the second group turned
)
GROUPS = {
    "groups__set__share": (0, (1 / 2) / 3, 1),
    "groups__turned__share": (0, (1 / 2) / 3, 1 / 3),
    "groups__turned_bytes__share": (0, 128_000 / TOTAL, 16_384_000 / TOTAL),
    "groups__dot_turned__share": (0, (1 / 2) / 2, 1 / 2),
    "groups__reshape_set_bytes__share": (0, 0, 128_000 / TOTAL),
}


def test_three_groups_by_hand():
    graph = layout_of(layout_file(TIED, (3, 4, 5, 6), TIED_CHOICES))
    assert groups_of(tied_nodes(graph)).tolist() == [0, 0, 1, 2]
    assert wrong_columns(assemble(graph), GROUPS) == []
