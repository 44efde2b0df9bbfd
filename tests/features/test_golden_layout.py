"""Layout columns and times worked out by hand from their descriptions.

Most are of a graph of five nodes:

    0 parameter      f32[12,128]   default {1,0}   x                      6144 bytes
    1 parameter      f32[128,128]  default {0,1}   w                     65536 bytes
    2 dot(0, 1)      f32[12,128]   default {1,0}                          6144 bytes
    3 add(2, 2)      f32[12,128]   default {1,0}   one edge, used twice   6144 bytes
    4 reshape(3)     f32[1536]     default {0}     root                   6144 bytes

Nodes 0, 2, 3 and 4 are configurable: four nodes, 88 KiB in all. In units of 6144 bytes (6 KiB) the
output slots hold 4 (one of each node), the input slots 3 (x, dot, add), the kernel slots 64 KiB (w)
+ 6 KiB (dot, the second operand of the add) = 70 KiB.

    configuration  0 (parameter)  2 (dot)                   3 (add)                   4 (reshape)
    A              -              -                         -                         -
    B              -              out 0,1  in 1,0  ker 1,0  -                         -
    C              out 0,1        out 0,1  in 0,1           out 0,1  in 0,1  ker 1,0  in 0 (partial)
    D              -              -                         in 1 (partial)            out 0  in 0,1
    B again

Tiles of 8 x 128 on the tensors of shape [12,128], "wide" below:

    {1,0}: 128 lanes are full, 12 rows become 16: waste 16/12 - 1 = 1/3.
           The second minor 12 is no multiple of 8.
    {0,1}: 12 columns become 128, 128 rows are full: waste 128/12 - 1 = 29/3.
           The largest dimension (128) is not minor-most, and 12 is no multiple of 128.

w is [128,128] and fits either way; the reshape's 1536 = 12 * 128 lanes are full and it has no
second dimension.
"""

from math import hypot, log, log2, prod, sqrt

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, by_name, graph_of, layout_file, wrong_columns
from tests.graphs import Node, layout_row, parameter
from xlarank.data.graph import read_graph
from xlarank.data.schema import OPCODE
from xlarank.features.assembly import assemble
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.padding import FASTEST, OVER_FASTEST
from xlarank.features.layout.time_model import (
    BANDWIDTH,
    PEAK_FLOPS,
    TimeModel,
    config_times,
    output_padding,
)

PROGRAM = (
    parameter(12, 128),
    Node("parameter", (128, 128), layout=(0, 1)),
    Node("dot", (12, 128), (0, 1)),
    Node("add", (12, 128), (2,)),
    Node("reshape", (1536,), (3,), columns={"is_root": 1}),
)
NONE = layout_row()
A = (NONE, NONE, NONE, NONE)
B = (NONE, layout_row((0, 1), (1, 0), (1, 0)), NONE, NONE)
C = (
    layout_row((0, 1)),
    layout_row((0, 1), (0, 1)),
    layout_row((0, 1), (0, 1), (1, 0)),
    layout_row((), (0,)),
)
D = (NONE, NONE, layout_row((), (1,)), layout_row((0,), (0, 1)))

# Nanoseconds. The dot has 2 * 12 * 128 * 128 operations and moves its output, as padded, x and w,
# at 61.6 TFLOP/s and 450 GB/s. 0 and 3 have one operation for each of 1536 padded elements, the
# reshape for each of 1536.
NS = 1e9 / (2 * 2 * 128 * 128 * 940e6)


def dot_ns(padding: float) -> float:
    return hypot(393_216 * padding * NS, (6144 * padding + 6144 + 65_536) * 1e9 / 450e9)


TIME_A = dot_ns(4 / 3) + (2 * 4 / 3 + 1) * 1536 * NS
TIME_B = dot_ns(32 / 3) + (2 * 4 / 3 + 1) * 1536 * NS
TIME_C = dot_ns(32 / 3) + (2 * 32 / 3 + 1) * 1536 * NS
TRUE = (393_216 + 3 * 1536) * NS

#: Column -> values of A, B, C, D, or of the graph.
COLUMNS = {
    # Slots set: B sets all three of node 2; C sets the outputs of 0, 2, 3, the inputs of 2, 3, 4,
    # the kernel of 3; D sets the input of 3 and 4 and the output of 4.
    "change__output_set__share": (0, 1 / 4, 3 / 4, 1 / 4),
    # Unlike the default: B's input 1,0 is the default; D's output 0 is all there is of rank 1, its
    # input 1 is completed to {1,0}, the default; C's kernel 1,0 of the add is the default, B's 1,0
    # of w is not.
    "change__output_changed__share": (0, 1 / 4, 3 / 4, 0),
    "change__nodes_set__share": (0, 1 / 4, 1, 2 / 4),
    "change__all_bytes__ratio": (0, 70 / 88, 36 / 88, 6 / 88),  # KiB
    # Pairs one edge apart (consumer's slot <- producer), all wide, 6144 bytes each:
    #   dot's input <- 0, add's input <- dot, add's kernel <- dot, reshape's input <- add
    #   B: the add's slots are unset ({1,0}), the dot makes 0,1: two mismatches, no clash.
    #      The dot's input 1,0 is what 0 makes by default, but 0 is unset: no agreement.
    #   C: add's kernel 1,0 against the dot's 0,1 is a clash; the other three agree on 0,1.
    #   D: reshape's input 0,1 against the add's unset {1,0}.
    "disagreement__clash_1hop__share": (0, 0, 1 / 4, 0),
    "disagreement__mismatch_1hop__share": (0, 2 / 4, 1 / 4, 1 / 4),
    "disagreement__agree_1hop__share": (0, 0, 3 / 4, 0),
    # A half has a layout on one side only. B: the add's two slots under the dot's 0,1; D: reshape's
    # input.
    "disagreement__half_1hop__share": (0, 2 / 4, 0, 1 / 4),
    # Waste of the outputs: 1/3 for each of three wide ones as {1,0}, 29/3 as {0,1}, 0 for the
    # reshape.
    "padding__output_waste__mean": (1 / 4, (1 / 3 + 29 / 3 + 1 / 3) / 4, 29 / 4, 1 / 4),
    # 29/3 - 1/3 = 28/3
    "padding__output_waste_change__mean": (0, (28 / 3) / 4, 3 * (28 / 3) / 4, 0),
    # The dot is [12 rows] x [128]: of its output dimension 0 is rows and 1 the right operand's, of
    # x dimension 0 rows and 1 contracted, of w [128,128] the last is its own. Defaults {1,0}, {1,0}
    # and {0,1}.
    "roles__dot_output_rows_minor__share": (0, 1, 1, 0),
    "roles__dot_input_contracted_minor_bytes__share": (1, 1, 0, 1),
    "violation__output_sublanes__share": (3 / 4, 2 / 4, 0, 3 / 4),  # 12 rows, where still {1,0}
    # Time: as {1,0} wide outputs are padded by 4/3, as {0,1} by 32/3; the default is the fastest.
    # B turns the dot, C the dot, 0 and 3.
    "time__over_default__log": (0, log2(TIME_B / TIME_A), log2(TIME_C / TIME_A), 0),
    "time__dot_change__ratio": (0, (TIME_B - TIME_A) / TIME_A, (TIME_B - TIME_A) / TIME_A, 0),
    "time__other_change__ratio": (0, 0, (TIME_C - TIME_B) / TIME_A, 0),
    "time__node_change__ratio": (0, (TIME_B - TIME_A) / TIME_A, (TIME_B - TIME_A) / TIME_A, 0),
    "time__idle__share": tuple(1 - TRUE / time for time in (TIME_A, TIME_B, TIME_C, TIME_A)),
    # 0 and 3 lose 1536 * 28/3 operations each, 0.23 ns or 0.13 % of the 177.8 ns that the default
    # takes.
    "time__slower_nodes__log": (0, 1, 2, 0),
    # C's row is its own alone at every node, B's at 2 and D's at 3 and 4: one of four.
    "candidates__log_frequency__min": (log(1 / 2), log(1 / 4), log(1 / 4), log(1 / 4)),
    # 0, 1/4, 1, 2/4 are ranks 0, 1, 3 and 2 over 3.
    "rank__change_nodes_set__share": (0, 1 / 3, 1, 2 / 3),
    # In sixteenths: 0, 4, 16, 8 with mean 7; the mean of squares is 84, less 49 is 35.
    "zscore__change_nodes_set__share": (-7 / sqrt(35), -3 / sqrt(35), 9 / sqrt(35), 1 / sqrt(35)),
    "size__depth__log": log2(1 + 3),  # 4 -> 3 -> 2 -> 0
    "size__bytes__log": log2(1 + 88 * 1024),
    # Operands of a node: 0, 0, 2, 1, 1; sorted 0, 0, 1, 1, 2; quantile q stands at place 4 q.
    "degrees__in__std": sqrt((0 + 0 + 4 + 1 + 1) / 5 - (4 / 5) ** 2),
    # The dot multiplies and adds 12 * 128 * 128 times; add and reshape touch 1536 elements each.
    "work__flops__log": log2(1 + 2 * 12 * 128 * 128 + 2 * 1536),
}


def test_columns_are_as_computed_by_hand():
    features = assemble(graph_of(layout_file(PROGRAM, (0, 2, 3, 4), (A, B, C, D, B))))
    assert len(features) == 4, "the repeated configuration has no row"
    assert wrong_columns(features, COLUMNS) == []


#: A product of [64,32] and [32,128] in f32, doubled, then added up along its rows. Nothing of it is
#: fused away: the reduction is no loop over elements.
REDUCED = (
    *(parameter(64, 32), parameter(32, 128)),
    Node("dot", (64, 128), (0, 1)),
    Node("add", (64, 128), (2, 2)),
    Node("reduce", (64,), (3,), columns={"is_root": 1.0, "dimensions_0": 1.0}),
)
OUT = 64 * 128 * 4
STORED = 64 * 32 * 4 + 32 * 128 * 4 + OUT + OUT + 64 * 4
#: Values with nothing set, rows of 128 along the lanes, and 64 along the lanes, padded to 128: the
#: bytes double.
OUTPUTS = {
    "outputs__all_padded__ratio": [0, 2 * OUT / STORED, 4 * OUT / STORED],
    "outputs__dot_excess__ratio": [0, 0, 2 * OUT / STORED],
    "outputs__made_minor_dot_rows__ratio": [0, 0, 4 * OUT / STORED],
    "outputs__read_minor_reduced__ratio": [0, 2 * OUT / STORED, 0],
}


def test_a_set_output_and_its_region():
    rows = [[NONE], [layout_row(output=(1, 0))], [layout_row(output=(0, 1))]]
    assert wrong_columns(assemble(graph_of(layout_file(REDUCED, [2], rows))), OUTPUTS) == []


ROLES = (
    "output_batch output_feature input_batch input_feature kernel_input_feature "
    "kernel_output_feature"
).split()
FORWARD = (0, 3, 0, 3, 2, 3)
GRADIENT = (2, 3, 3, 0, 0, 3)


@pytest.mark.parametrize(
    ("roles", "image", "kernel", "output", "rows"),
    [
        # Feature-minor {3,0}: 96 lanes take 128, the batch of 30 along the sublanes is not padded:
        # 4/3. The kernel supplies the lanes: with its 64 input features in lanes it takes 128 x 96,
        # with the 96 output features 128 x 64, so these lie there and the 64 contracted ones stay
        # as they are. Batch-minor {0,3}: 30 take 128 lanes. The input supplies them: its features
        # in lanes take 128 x 32, its batch 128 x 64, so the features lie there and are rounded up
        # to 128: twice.
        (
            *(FORWARD, (30, 28, 28, 64), (3, 3, 64, 96), (30, 28, 28, 96)),
            [(layout_row((3, 0)), 4 / 3, 4 / 3), (layout_row((0, 3)), 128 / 30 * 2, 128 / 30)],
        ),
        # 3 input features take 8; the 64 output features lie along half of the lanes of output and
        # kernel.
        (
            *(FORWARD, (32, 32, 32, 3), (3, 3, 3, 64), (32, 32, 32, 64)),
            [(layout_row((3, 0)), 2 * 8 / 3, 2)],
        ),
        # The minor-most dimension of size 1 is skipped: the batch of 32 lies along the lanes as
        # above, 4 * 2.
        (
            *(FORWARD, (32, 1, 30, 64), (1, 3, 64, 96), (32, 1, 28, 96)),
            [(layout_row((1, 0, 3, 2)), 8, 4)],
        ),
        # But a batch of 1 that is supplied by features in lanes is not: 128 lanes, and the features
        # rounded up. The output itself has 96 features in 128 lanes and 28 positions in 32
        # sublanes.
        (
            *(FORWARD, (1, 30, 30, 64), (3, 3, 64, 96), (1, 28, 28, 96)),
            [(layout_row((0, 3)), 128 * 2, 4 / 3 * 32 / 28)],
        ),
        # The gradient of a kernel: the batch of 36 is contracted, the window is 14 x 14. {3,2}: 64
        # take 128 lanes, 3 take 8 sublanes. The lanes come from the second operand, which holds 64
        # features and the batch: batch in lanes takes 128 x 64, features 128 x 40, so the batch is
        # not rounded. {2,3}: 3 take 128 lanes, and the input that supplies them lays 36 images
        # along lanes (128 x 4 against 128 x 40): 36 become 128.
        (
            *(GRADIENT, (36, 16, 16, 3), (36, 14, 14, 64), (3, 3, 3, 64)),
            [
                (layout_row((3, 2)), 2 * 8 / 3, 2 * 8 / 3),
                (layout_row((2, 3)), 128 / 3 * 128 / 36, 128 / 3),
            ],
        ),
        # Both orders of the input pad alike, so its own layout decides whether 64 contracted images
        # take 128 lanes.
        (
            *(GRADIENT, (64, 16, 16, 64), (64, 14, 14, 64), (3, 3, 64, 64)),
            [(layout_row((2, 3), (0, 3)), 2 * 2, 2), (layout_row((2, 3), (3, 0)), 2, 2)],
        ),
    ],
    ids=["forward", "few features", "size 1", "batch of 1", "gradient", "layout of the operand"],
)
def test_a_convolution_by_hand(roles, image, kernel, output, rows) -> None:
    """Each row has a layout, the padding of the work, the padding of the output."""
    window = kernel[:2] if roles is FORWARD else kernel[1:3]
    names = [f"convolution_dim_numbers_{name}_dim" for name in ROLES]
    columns = {**dict(zip(names, roles, strict=True)), "is_root": 1}
    convolution = Node("convolution", output, (0, 1), window=window, columns=columns)
    nodes = (parameter(*image), parameter(*kernel), convolution)
    graph = graph_of(layout_file(nodes, (2,), [[row] for row, _, _ in rows]))
    flops = 2 * prod(output) * prod(window) * image[roles[3]]
    for config, (_, work, padding) in enumerate(rows):
        moved = 4 * (prod(image) + prod(kernel) + prod(output) * padding)
        expected = 1e9 * hypot(flops * work / PEAK_FLOPS, moved / BANDWIDTH)
        assert config_times(graph, config) == pytest.approx([expected])


def test_times_of_nodes_add_up_to_the_estimated_time_and_none_is_below_the_fastest() -> None:
    graph = read_graph(SAMPLE / "layout/tpu-estimate/random/valid/unet__a.npz", "layout")
    rows = assemble(graph, only=[OVER_FASTEST, FASTEST])
    columns = by_name(rows)
    estimates = 2 ** (columns[OVER_FASTEST].astype(float) + columns[FASTEST])
    fastest_ns = TimeModel(LayoutContext(graph)).fastest_ns
    others = graph.opcode[graph.configurable] != OPCODE["convolution"]
    for config in range(graph.configs):
        times = config_times(graph, config)
        assert times.sum() == pytest.approx(estimates[rows.group[config]], rel=1e-5)
        assert others.any() and (fastest_ns <= times * (1 + 1e-12))[others].all()
    assert len(columns) < 20
    every = by_name(assemble(graph))
    assert all(np.array_equal(values, every[name]) for name, values in columns.items())


def test_the_default_layout_is_the_fastest_if_no_other_is_faster() -> None:
    """Both orders of f32[128,128] fill all tiles; a single element takes one row of lanes."""
    program = (parameter(128, 128), parameter(128, 128), Node("dot", (128, 128), (0, 1)))
    graph = graph_of(layout_file(program, (2,), [[layout_row((0, 1))]]))
    assert config_times(graph, 0) == TimeModel(LayoutContext(graph)).fastest_ns
    single = np.array([[1, 1, 0, 0, 0, 0]]), np.array([[1, 0, -1, -1, -1, -1]])
    assert output_padding(*single, np.array([4.0]), np.array([-1])) == 128
