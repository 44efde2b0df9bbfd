"""Tile columns worked out by hand, in both conventions of what a bound counts.

Elements: a matrix product [96,64] x [64,256] -> [96,256] in f32, K = 64.

    configuration   output    kernel (reduction)   input (vector)
    A               32,100    16                   4,20
    B               0,0       0                    0,0             0 = the whole dimension
    C               96,256    64                   8,16            beyond 12 x 2 hardware tiles: elements
    D               48,0      24                   1,8

Hardware tiles: a copy of f32[32,5,5,256] to the layout {3,0,2,1}. Minor-most is dimension 3 (256 = 2 x 128
lanes), then dimension 0 (32 = 4 x 8 sublanes), then 2 and 1 (5 each): from major to minor 5, 5, 4, 2. One unit
is a tile of 8 * 128 * 4 = 4096 bytes.

    configuration   output
    P               5,5,4,2
    Q               1,5,4,1
    R               2,3,3,2
    S               0,0,0,0
"""

from math import log2

from tests.features.helpers import graph_of, tile_file, wrong_columns
from tests.graphs import Node, parameter, tile_row
from xlarank.features.rows import assemble
from xlarank.features.tile.bounds import InnerLoop
from xlarank.features.tile.tile_context import TileContext

ROOT = {"is_root": 1}
MATMUL = (Node("parameter", (96, 64)), Node("parameter", (64, 256)), Node("dot", (96, 256), (0, 1), columns=ROOT))
MATMUL_CONFIGS = (
    tile_row(output=(32, 100), kernel=(16,), input=(4, 20)),
    tile_row(),
    tile_row(output=(96, 256), kernel=(64,), input=(8, 16)),
    tile_row(output=(48, 0), kernel=(24,), input=(1, 8)),
)
SHAPE = (32, 5, 5, 256)
COPY = (Node("parameter", SHAPE), Node("copy", SHAPE, (0,), layout=(3, 0, 2, 1), columns=ROOT))
COPY_CONFIGS = [tile_row(output=output) for output in ((5, 5, 4, 2), (1, 5, 4, 1), (2, 3, 3, 2), ())]


def logs(*sizes: float) -> tuple[float, ...]:
    """log2(1 + x), the scale of sizes."""
    return tuple(log2(1 + size) for size in sizes)


# Bytes of a tile and of what it reads: m n + m K + n K elements of 4 bytes, K = 64.
#   A: 3200 + 2048 + 6400 = 11648;  B, C: 24576 + 6144 + 16384 = 47104;  D (48 x 256): 12288 + 3072 + 16384 = 31744
SETS = (4 * 11648, 4 * 47104, 4 * 47104, 4 * 31744)
ELEMENT_CONFIG = {
    # In force: 0 is the whole dimension; B gives nothing, D leaves the columns whole.
    "bounds__output_volume__log": logs(32 * 100, 96 * 256, 96 * 256, 48 * 256),
    # 96 / 32 = 3, 96 / 48 = 2; 256 / 100 = 2.56 -> 3.
    "tiles__output_0__log": (log2(3), 0, 0, 1),
    "tiles__output_edge_waste__ratio": (3 * 32 * 3 * 100 / (96 * 256) - 1, 0, 0, 0),
    # last0 is the dimension of 256, last1 that of 96.
    "shape__output_last0__ratio": (100 / 256, 1, 1, 1),
    # Registers: 4 rows of ceil(20 / 8) = 3; 96 of 32; 8 of 2; 1 of 1.
    "shape__input_registers__log": (log2(12), log2(96 * 32), log2(16), 0),
    "traffic__working_set__log": logs(*SETS),
    # 9, 1, 1 and 2 tiles; the least possible is the one tile of B and C.
    "traffic__total__log": logs(9 * SETS[0], SETS[1], SETS[2], 2 * SETS[3]),
    "traffic__total__ratio": (log2(9 * SETS[0] / SETS[1]), 0, 0, log2(2 * SETS[3] / SETS[1])),
}
ELEMENT_GRAPH = {
    "kernel__contracted__log": log2(65),
    # 1572864 multiply-adds over 90112 bytes read and 98304 written
    "kernel__intensity__log": log2(1 + 96 * 64 * 256 / (90112 + 98304)),
}

# A copied tile is read and written: twice its 200, 20, 36 and 200 units of 4096 bytes.
COPIED = (2 * 200 * 4096, 2 * 20 * 4096, 2 * 36 * 4096, 2 * 200 * 4096)
PHYSICAL_CONFIG = {
    "bounds__output_volume__log": logs(200, 20, 36, 200),
    "tiles__output_0__log": (0, log2(5), log2(3), 0),  # 5 / 2 = 2.5 -> 3
    "tiles__output_edge_waste__ratio": (0, 0, 6 * 6 * 6 * 2 / 200 - 1, 0),
    "traffic__tile_bytes__log": logs(200 * 4096, 20 * 4096, 36 * 4096, 200 * 4096),
    "traffic__working_set__log": logs(*COPIED),
    "traffic__flops_per_tile__log": logs(200 * 1024, 20 * 1024, 36 * 1024, 200 * 1024),  # one per element
}
PHYSICAL_GRAPH = {"kernel__is_transpose__flag": 1, "kernel__physical__flag": 1}

# The innermost loop and the estimate of the time: the product above, K = 64, with its four vector tiles m x n. A
# register holds 8 elements; rows of the right side lie 256 * 4 / 64 = 16 lines apart. 64 of them do not fit the
# first cache (64 / gcd(64, 16) = 4 sets of 8), but the second (1024 / 16 = 64 sets of 8): 2 cycles a line.
#
#     configuration   m x n     registers a row, in all   loads      lines   spilled
#     A               4 x 20    3, 12                     4 + 3      2       12 + 3 + 1 < 16
#     B               96 x 256  32, 3072                  96 + 32    16      3072 + 32 + 1 - 16 = 3089
#     C               8 x 16    2, 16                     8 + 2      1       16 + 2 + 1 - 16 = 3
#     D               1 x 8     1, 1                      1 + 1      1       none
#
# Cycles for one step of the reduction, and for 8 multiply-adds of it:
#
#     A   max(12 / 2, 4, 7 / 2, 2 * 2) = 6                            6 * 8 / 80 = 0.6
#     B   max(1536, 4, 64, 32) + 1.5 * 3089 = 6169.5                  6169.5 * 8 / 24576
#     C   max(8, 4, 5, 2) + 1.5 * 3 = 12.5                            12.5 * 8 / 128
#     D   max(0.5, 4 for a single chain, 1, 2) = 4                    4 * 8 / 8 = 4

CYCLES = (0.6, 6169.5 * 8 / 24576, 12.5 * 8 / 128, 4.0)
#: 64 multiply-adds an output element, 8 of them in the cycles above.
COMPUTING = tuple(8 * cycles for cycles in CYCLES)
#: 98304 bytes written and 90112 read for 24576 elements at 32 bytes a cycle; a run costs another 64 elements.
RUNS = (100, 256 * 96, 256 * 96, 256 * 48)
MEMORY = tuple(188416 / 24576 / 32 * (1 + 64 / run) for run in RUNS)
INNER = {
    "inner__lanes__share": (20 / 24, 1, 1, 1),
    "inner__odd__log": (log2(5), 0, 0, 0),  # 20 = 4 * 5
    "inner__chains__log": (0, 0, 0, 3),
    "inner__loads__log": (log2(7 / 80), log2(128 / 24576), log2(10 / 128), log2(2 / 8)),
    "inner__lines__log": (log2(2 / 80), log2(16 / 24576), log2(1 / 128), log2(1 / 8)),
    "inner__spill__log": (0, log2(3090), 2, 0),
    "inner__cycles__log": tuple(log2(cycles) for cycles in CYCLES),
    "estimate__run__log": tuple(log2(run) for run in RUNS),
    "estimate__memory__log": tuple(log2(cycles) for cycles in MEMORY),
    "estimate__longer__log": tuple(log2(max(pair)) for pair in zip(COMPUTING, MEMORY, strict=True)),
    "estimate__sum__log": tuple(log2(sum(pair)) for pair in zip(COMPUTING, MEMORY, strict=True)),
}


def test_columns_of_kernels_in_elements_and_in_hardware_tiles():
    for arrays, expected in (
        (tile_file(MATMUL, MATMUL_CONFIGS), {**ELEMENT_CONFIG, **ELEMENT_GRAPH, **INNER}),
        (tile_file(COPY, COPY_CONFIGS), {**PHYSICAL_CONFIG, **PHYSICAL_GRAPH, **dict.fromkeys(INNER, 0)}),
    ):
        assert wrong_columns(assemble(graph_of(arrays)), expected, absolute=1e-6) == []


def loop_of(nodes, *configs) -> InnerLoop:
    return InnerLoop(TileContext(graph_of(tile_file(nodes, configs))))


def test_vector_tiles_that_do_not_divide_and_operands_that_no_element_shares():
    # 8 columns do not divide 100, 8 rows do not divide 36: 8 multiply-adds after each other, 4 cycles each;
    # otherwise (8 + 1) / 2 cycles to load a step
    tiles = [tile_row(output=output, input=(8, 8)) for output in ((32, 100), (36, 64), (32, 64))]
    loop = loop_of(MATMUL, *tiles)
    assert (loop.divides.tolist(), loop.cycles.tolist()) == ([0, 0, 1], [32, 32, 4.5 * 8 / 64])
    # 3 x 3 weights of each of 8 features, 2 elements by 8 features at once: two registers, nine steps at once,
    # and a register of weights; then sums over 32 elements, four at once
    columns = {**ROOT, "convolution_dim_numbers_kernel_output_feature_dim": 3}
    depthwise = Node("convolution", (1, 14, 14, 8), (0, 1), window=(3, 3), columns=columns)
    nodes = (parameter(1, 16, 16, 8), parameter(3, 3, 1, 8), depthwise)
    loop = loop_of(nodes, tile_row((3, 3), (1, 2, 2, 8), (1, 1, 2, 8)))
    assert (loop.chains, loop.loads, loop.line_cycles, loop.spilled) == (2 * 9, 2 + 1, 0, 0)
    reduction = Node("parameter", (64, 32)), Node("reduce", (64,), (0,), columns=ROOT)
    loop = loop_of(reduction, tile_row((4,), (8,), (8,)))
    assert (loop.chains, loop.loads, loop.depth) == (4, 1, 32)


def test_kernels_that_outgrow_the_caches_move_their_bytes_more_slowly():
    """An element read and one written, 8 bytes, in runs of 256 elements and the time of 64 more."""
    for elements, speed in ((2**16, 32), (2**18, 12), (2**22, 4)):
        nodes = Node("parameter", (elements,)), Node("tanh", (elements,), (0,), columns=ROOT)
        features = assemble(graph_of(tile_file(nodes, [tile_row((), (256,), (8,))])))
        assert wrong_columns(features, {"estimate__memory__log": log2(8 / speed * 320 / 256)}) == []


def test_rows_a_power_of_two_apart_do_not_fit_a_cache():
    for k, n, cycles in (
        (16, 1024, 2.0),  # 64 lines apart all fall into one set of 8
        (8, 1024, 0.5),  # 8 rows fit it
        (512, 1024, 12.0),  # and into 16 sets of the second cache, 128 lines
        (512, 1040, 0.5),  # 65 lines apart they spread over all 64 sets
        (513, 1040, 2.0),  # 512 lines are all there are
    ):
        nodes = (parameter(64, k), parameter(k, n), Node("dot", (64, n), (0, 1), columns=ROOT))
        assert loop_of(nodes, tile_row((8,), (64, 16), (8, 8))).line_cycles == cycles, (k, n)
