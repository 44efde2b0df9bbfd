"""Layout columns of a graph of five nodes, worked out by hand from what the columns are said to mean.

    0 parameter      f32[12,128]   default {1,0}   x                      6144 bytes
    1 parameter      f32[128,128]  default {0,1}   w                     65536 bytes
    2 dot(0, 1)      f32[12,128]   default {1,0}                          6144 bytes
    3 add(2, 2)      f32[12,128]   default {1,0}   one edge, used twice   6144 bytes
    4 reshape(3)     f32[1536]     default {0}     root                   6144 bytes

Nodes 0, 2, 3 and 4 are configurable: four nodes, 88 KiB in all. In units of 6144 bytes (6 KiB) the output
slots hold 4 (one of each node), the input slots 3 (x, dot, add), the kernel slots 64 KiB (w) + 6 KiB (dot,
the second operand of the add) = 70 KiB.

    configuration   0 (parameter)   2 (dot)                     3 (add)                     4 (reshape)
    A               -               -                           -                           -
    B               -               out 0,1  in 1,0  ker 1,0    -                           -
    C               out 0,1         out 0,1  in 0,1             out 0,1  in 0,1  ker 1,0    in 0 (partial)
    D               -               -                           in 1 (partial)              out 0  in 0,1
    B again

Tiles of 8 x 128 on the tensors of shape [12,128], "wide" below:
    {1,0}: 128 lanes are full, 12 rows become 16: waste 16/12 - 1 = 1/3. The second minor 12 is no multiple of 8.
    {0,1}: 12 columns become 128, 128 rows are full: waste 128/12 - 1 = 29/3. The largest dimension (128) is
           not minor-most, and 12 is no multiple of 128.
w is [128,128] and fits either way; the reshape's 1536 = 12 * 128 lanes are full and it has no second dimension.
"""

from __future__ import annotations

from math import log, log2, sqrt

import numpy as np
import pytest

from features.assemble import assemble
from tests.features.helpers import by_name, layout_file, layout_of
from tests.graphs import Node, layout_row

PROGRAM = (
    Node("parameter", (12, 128)),
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

# How common a row is among the four distinct configurations, node by node:
#   node 0: unset in A, B, D (3/4), set in C (1/4)
#   node 2: unset in A, D (2/4), B's and C's row 1/4 each
#   node 3: unset in A, B (2/4), C's and D's row 1/4 each
#   node 4: unset in A, B (2/4), C's and D's row 1/4 each
LOG_A = (log(3 / 4) + 3 * log(1 / 2)) / 4
LOG_B = (log(3 / 4) + log(1 / 4) + 2 * log(1 / 2)) / 4
LOG_C = log(1 / 4)
LOG_D = (log(3 / 4) + log(1 / 2) + 2 * log(1 / 4)) / 4

#: Column -> values of A, B, C, D.
CONFIG = {
    # Slots set: B sets all three of node 2; C sets the outputs of 0, 2, 3, the inputs of 2, 3, 4, the kernel
    # of 3; D sets the input of 3 and 4 and the output of 4.
    "change__output_set__share": (0, 1 / 4, 3 / 4, 1 / 4),
    "change__input_set__share": (0, 1 / 4, 3 / 4, 2 / 4),
    "change__kernel_set__share": (0, 1 / 4, 1 / 4, 0),
    # Unlike the default: B's input 1,0 is the default; D's output 0 is all there is of rank 1, its input 1 is
    # completed to {1,0}, the default; C's kernel 1,0 of the add is the default, B's 1,0 of w is not.
    "change__output_changed__share": (0, 1 / 4, 3 / 4, 0),
    "change__input_changed__share": (0, 0, 3 / 4, 1 / 4),
    "change__kernel_changed__share": (0, 1 / 4, 0, 0),
    "change__output_changed_bytes__share": (0, 1 / 4, 3 / 4, 0),  # 1 and 3 of 4 equal outputs
    "change__input_changed_bytes__share": (0, 0, 1, 1 / 3),  # 3 and 1 of 3 equal inputs
    "change__kernel_changed_bytes__share": (0, 64 / 70, 0, 0),  # w of w and dot, KiB
    # Two dimensions swapped: 1 of 1 pairs is in another order.
    "change__output_distance__mean": (0, 1 / 4, 3 / 4, 0),
    "change__input_distance__mean": (0, 0, 3 / 4, 1 / 4),
    "change__kernel_distance__mean": (0, 1 / 4, 0, 0),
    "change__nodes_set__share": (0, 1 / 4, 1, 2 / 4),
    "change__nodes_changed__share": (0, 1 / 4, 1, 1 / 4),
    "change__nodes_changed__log": (0, log2(1 + 1), log2(1 + 4), log2(1 + 1)),
    # B: output and kernel of 2; C: three outputs and three inputs; D: the input of 4.
    "change__slots_changed__log": (0, log2(1 + 2), log2(1 + 6), log2(1 + 1)),
    "change__all_bytes__log": (0, log2(1 + 6144 + 65536), log2(1 + 6 * 6144), log2(1 + 6144)),
    "change__all_bytes__share": (0, 70 / 88, 36 / 88, 6 / 88),  # KiB
    "change__dot_output_bytes__share": (0, 1 / 4, 1 / 4, 0),
    "change__dot_input_bytes__share": (0, 0, 1 / 3, 0),
    "change__dot_kernel_bytes__share": (0, 64 / 70, 0, 0),
    "change__elementwise_output_bytes__share": (0, 0, 1 / 4, 0),
    "change__elementwise_kernel_bytes__share": (0, 0, 0, 0),  # C sets it to the default
    "change__reshape_input_bytes__share": (0, 0, 1 / 3, 1 / 3),
    "change__reshape_output_bytes__share": (0, 0, 0, 0),
    "change__other_output_bytes__share": (0, 0, 1 / 4, 0),  # the parameter
    "change__convolution_output_bytes__share": (0, 0, 0, 0),  # there is none
    # One shape, two layouts. The dot: output and input are wide (its kernel w is not); B: out 0,1 in 1,0.
    # The add: output, input and kernel are wide; C: out 0,1, in 0,1, kernel 1,0.
    "change__output_unlike_input__share": (0, 1 / 4, 0, 0),
    "change__output_unlike_input_bytes__share": (0, 1 / 4, 0, 0),
    "change__output_unlike_kernel__share": (0, 0, 1 / 4, 0),
    "change__input_unlike_kernel__share": (0, 0, 1 / 4, 0),
    # Pairs one edge apart (consumer's slot <- producer), all wide, 6144 bytes each:
    #   dot's input <- 0, add's input <- dot, add's kernel <- dot, reshape's input <- add
    #   B: the add's slots are unset ({1,0}), the dot makes 0,1: two mismatches, no clash.
    #      The dot's input 1,0 is what 0 makes by default, but 0 is unset: no agreement.
    #   C: add's kernel 1,0 against the dot's 0,1 is a clash; the other three agree on 0,1.
    #   D: reshape's input 0,1 against the add's unset {1,0}.
    "disagreement__clash_1hop__share": (0, 0, 1 / 4, 0),
    "disagreement__clash_1hop_bytes__share": (0, 0, 1 / 4, 0),
    "disagreement__mismatch_1hop__share": (0, 2 / 4, 1 / 4, 1 / 4),
    "disagreement__mismatch_1hop_bytes__share": (0, 2 / 4, 1 / 4, 1 / 4),
    "disagreement__agree_1hop__share": (0, 0, 3 / 4, 0),
    # Two edges apart: add's input <- 0, add's kernel <- 0, reshape's input <- dot. (w has another shape.)
    #   B: reshape's {1,0} against the dot's 0,1. C: add's kernel 1,0 against 0's 0,1, the others agree.
    #   D: reshape's 0,1 against the dot's {1,0}; the add's input 1 is {1,0} like 0's default.
    "disagreement__clash_2hop__share": (0, 0, 1 / 3, 0),
    "disagreement__mismatch_2hop__share": (0, 1 / 3, 1 / 3, 1 / 3),
    "disagreement__mismatch_2hop_bytes__share": (0, 1 / 3, 1 / 3, 1 / 3),
    "disagreement__agree_2hop__share": (0, 0, 2 / 3, 0),
    # Three edges apart: reshape's input <- 0. B: both {1,0}. C: both set to 0,1. D: 0,1 against {1,0}.
    "disagreement__clash_3hop__share": (0, 0, 0, 0),
    "disagreement__mismatch_3hop__share": (0, 0, 0, 1),
    "disagreement__mismatch_3hop_bytes__share": (0, 0, 0, 1),
    "disagreement__agree_3hop__share": (0, 0, 1, 0),
    # The mismatches one edge apart again, by the two sides.
    "disagreement__consumer_elementwise_bytes__share": (0, 2 / 4, 1 / 4, 0),
    "disagreement__producer_dot_bytes__share": (0, 2 / 4, 1 / 4, 0),
    "disagreement__consumer_reshape_bytes__share": (0, 0, 0, 1 / 4),
    "disagreement__producer_elementwise_bytes__share": (0, 0, 0, 1 / 4),
    "disagreement__consumer_dot_bytes__share": (0, 0, 0, 0),
    "disagreement__producer_other_bytes__share": (0, 0, 0, 0),
    # Changed nodes: B {2}, C {0, 2, 3, 4}, D {4}. KiB one edge around 0: 6 (dot); 2: 6 + 64 + 6; 3: 6 + 6;
    # 4: 6; 100 in all. Dots one edge around: 0 has one, 3 has one.
    "neighbourhood__bytes_1hop__share": (0, 76 / 100, 1, 6 / 100),
    "neighbourhood__dot_1hop__share": (0, 0, 1, 0),
    "neighbourhood__convolution_1hop__share": (0, 0, 0, 0),
    # KiB two edges around 0: 64 + 6 (w, add); 2: 6 (reshape); 3: 6 + 64 (0, w); 4: 6 (dot); 152 in all.
    # The only dot at two edges is that of 4.
    "neighbourhood__bytes_2hop__share": (0, 6 / 152, 1, 6 / 152),
    "neighbourhood__dot_2hop__share": (0, 0, 1, 1),
    # Configurable pairs one edge apart: 0-2, 2-3, 3-4; two edges: 0-3, 2-4.
    "neighbourhood__cut_1hop__share": (0, 2 / 3, 0, 1 / 3),
    "neighbourhood__inside_1hop__share": (0, 0, 1, 0),
    "neighbourhood__cut_2hop__share": (0, 1 / 2, 0, 1 / 2),
    "neighbourhood__inside_2hop__share": (0, 0, 1, 0),
    # Waste of the outputs: 1/3 for each of three wide ones as {1,0}, 29/3 as {0,1}, 0 for the reshape.
    "padding__output_waste__mean": (1 / 4, (1 / 3 + 29 / 3 + 1 / 3) / 4, 29 / 4, 1 / 4),
    "padding__output_waste__max": (1 / 3, 29 / 3, 29 / 3, 1 / 3),
    "padding__output_waste_bytes__ratio": (1 / 4, 31 / 12, 29 / 4, 1 / 4),  # the outputs are equally large
    "padding__output_waste_change__mean": (0, (28 / 3) / 4, 3 * (28 / 3) / 4, 0),  # 29/3 - 1/3 = 28/3
    "padding__output_waste_change_bytes__ratio": (0, 7 / 3, 7, 0),
    # Inputs: three wide ones. The mean is over all four configurable nodes, the ratio over three inputs.
    "padding__input_waste__mean": (1 / 4, 1 / 4, 29 / 4, (1 / 3 + 1 / 3 + 29 / 3) / 4),
    "padding__input_waste_bytes__ratio": (1 / 3, 1 / 3, 29 / 3, (1 / 3 + 1 / 3 + 29 / 3) / 3),
    # Kernels: w wastes nothing, the dot as the add's kernel stays {1,0}.
    "padding__kernel_waste__mean": (1 / 12,) * 4,
    "padding__kernel_waste__max": (1 / 3,) * 4,
    "padding__kernel_waste_bytes__ratio": (2 / 70,) * 4,  # a third of 6 KiB over 70 KiB
    "padding__kernel_waste_change__mean": (0, 0, 0, 0),
    # Violations: a wide tensor as {0,1}; the default violates nothing.
    "violation__output_largest__share": (0, 1 / 4, 3 / 4, 0),
    "violation__output_largest_bytes__share": (0, 1 / 4, 3 / 4, 0),
    "violation__output_largest_change__share": (0, 1 / 4, 3 / 4, 0),
    "violation__output_lanes__share": (0, 1 / 4, 3 / 4, 0),
    "violation__output_sublanes__share": (3 / 4, 2 / 4, 0, 3 / 4),  # 12 rows, where still {1,0}
    "violation__output_sublanes_change__share": (0, -1 / 4, -3 / 4, 0),
    "violation__input_largest__share": (0, 0, 3 / 4, 1 / 4),
    "violation__input_largest_bytes__share": (0, 0, 1, 1 / 3),
    "violation__input_sublanes_bytes__share": (1, 1, 0, 2 / 3),
    "violation__kernel_largest__share": (0, 0, 0, 0),  # w is square
    "violation__kernel_sublanes_bytes__share": (6 / 70,) * 4,
    # Candidates: see LOG_A ... above. Another candidate differs at a node of frequency n/4 with
    # probability (4 - n) / 3: A (1 + 2 + 2 + 2) / 3, B (1 + 3 + 2 + 2) / 3, C 4, D (1 + 2 + 3 + 3) / 3.
    "candidates__log_frequency__mean": (LOG_A, LOG_B, LOG_C, LOG_D),
    "candidates__log_frequency__min": (log(1 / 2), log(1 / 4), log(1 / 4), log(1 / 4)),
    "candidates__hamming__mean": (7 / 12, 8 / 12, 1, 9 / 12),
    "candidates__log_frequency__rank": (1, 2 / 3, 0, 1 / 3),  # -0.59, -0.77, -1.39, -0.94
    # Ranks 0, 1, 2, 3 over 3; ties get the mean of their places.
    "rank__change_nodes_set__share": (0, 1 / 3, 1, 2 / 3),  # 0, 1/4, 1, 2/4
    "rank__change_nodes_changed__share": (0, 0.5, 1, 0.5),  # 0, 1/4, 1, 1/4: places 1 and 2 are shared
    "rank__change_all_bytes__share": (0, 1, 2 / 3, 1 / 3),  # 0, 70, 36, 6
    "rank__change_output_changed_bytes__share": (1 / 6, 2 / 3, 1, 1 / 6),  # 0, 1/4, 3/4, 0
    "rank__disagreement_mismatch_1hop_bytes__share": (0, 1, 0.5, 0.5),  # 0, 2/4, 1/4, 1/4
    "rank__disagreement_clash_1hop_bytes__share": (1 / 3, 1 / 3, 1, 1 / 3),  # 0, 0, 1/4, 0: places 0, 1, 2
    "rank__padding_output_waste_bytes__ratio": (1 / 6, 2 / 3, 1, 1 / 6),  # 1/4, 31/12, 29/4, 1/4
    "rank__padding_input_waste_bytes__ratio": (1 / 6, 1 / 6, 1, 2 / 3),  # 1/3, 1/3, 29/3, 31/9
    "rank__violation_output_largest_bytes__share": (1 / 6, 2 / 3, 1, 1 / 6),  # 0, 1/4, 3/4, 0
}

#: Column -> value of the graph.
GRAPH = {
    "size__nodes__log": log2(1 + 5),
    "size__edges__log": log2(1 + 4),  # 2-0, 2-1, 3-2, 4-3
    "size__depth__log": log2(1 + 3),  # 4 -> 3 -> 2 -> 0
    "size__depth__ratio": 3 / 5,
    "size__width__max": 2 / 5,  # both parameters stand on level 0
    "size__roots__share": 1 / 5,
    "size__bytes__log": log2(1 + 88 * 1024),
    "size__bytes__max": 64 / 88,
    "size__rank__mean": (2 + 2 + 2 + 2 + 1) / 5,
    "size__narrow__share": 0,  # all f32
    "size__dot_bytes__share": 6 / 88,
    "size__reshape_bytes__share": 6 / 88,
    "size__elementwise_bytes__share": 6 / 88,
    "size__other_bytes__share": 70 / 88,  # the parameters
    "size__convolution_bytes__share": 0,
    # Operands of a node: 0, 0, 2, 1, 1; sorted 0, 0, 1, 1, 2; quantile q stands at place 4 q.
    "degrees__in__mean": 4 / 5,
    "degrees__in__std": sqrt((0 + 0 + 4 + 1 + 1) / 5 - (4 / 5) ** 2),
    "degrees__in__max": 2,
    "degrees__in__q25": 0,  # place 1
    "degrees__in__q75": 1,  # place 3
    "degrees__in__q90": 1.6,  # place 3.6, between 1 and 2
    "degrees__in__q99": 1.96,
    # Consumers of a node: 1, 1, 1, 1, 0.
    "degrees__out__mean": 4 / 5,
    "degrees__out__std": sqrt(4 / 5 - (4 / 5) ** 2),
    "degrees__out__q25": 1,
    # Both: 1, 1, 3, 2, 1; sorted 1, 1, 1, 2, 3.
    "degrees__total__mean": 8 / 5,
    "degrees__total__max": 3,
    "degrees__total__q50": 1,
    "degrees__total__q90": 2.6,
    "opcodes__parameter__share": 2 / 5,
    "opcodes__dot__share": 1 / 5,
    "opcodes__add__share": 1 / 5,
    "opcodes__reshape__share": 1 / 5,
    "opcodes__convolution__share": 0,
    "configurable__nodes__log": log2(1 + 4),
    "configurable__nodes__share": 4 / 5,
    "configurable__dot__share": 1 / 4,
    "configurable__reshape__share": 1 / 4,
    "configurable__elementwise__share": 1 / 4,
    "configurable__other__share": 1 / 4,  # the parameter
    "configurable__convolution__share": 0,
    "configurable__within_1hop__share": 1,  # w is one edge from the dot
}


@pytest.fixture(scope="module")
def features():
    return assemble(layout_of(layout_file(PROGRAM, (0, 2, 3, 4), (A, B, C, D, B))))


def test_the_repeated_configuration_has_no_row_of_its_own(features):
    assert features.rows.shape[0] == 4


@pytest.mark.parametrize("column", CONFIG)
def test_column_of_a_configuration(features, column):
    np.testing.assert_allclose(by_name(features)[column], CONFIG[column], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("column", GRAPH)
def test_column_of_the_graph(features, column):
    assert features.graph_columns[column] == pytest.approx(GRAPH[column], rel=1e-6, abs=1e-7)


def test_the_matrix_repeats_graph_columns_in_front(features):
    matrix = features.matrix()
    names = [*features.graph_columns, *features.config_columns]
    assert (matrix.shape, matrix.dtype) == ((4, len(names)), np.float32)
    assert matrix[:, names.index("size__depth__ratio")].tolist() == [np.float32(0.6)] * 4
    assert matrix[:, names.index("change__nodes_set__share")].tolist() == [0.0, 0.25, 1.0, 0.5]
