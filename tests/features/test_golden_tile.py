"""Tile columns, main nodes and loops worked out by hand, for both units of bounds.

Elements: a matrix product [96,64] x [64,256] -> [96,256] in f32, K = 64.

    configuration   output    kernel (reduction)   input (vector)
    A               32,100    16                   4,20
    B               0,0       0                    0,0             0 = the whole dimension
    C               96,256    64                   8,16            more than 12 x 2 hardware tiles
    D               48,0      24                   1,8

The bounds of C exceed the tensor's hardware tiles, so bounds count elements.

Hardware tiles: a copy of f32[32,5,5,256] to the layout {3,0,2,1}. Minor-most is dimension 3 (256 =
2 x 128 lanes), then dimension 0 (32 = 4 x 8 sublanes), then 2 and 1 (5 each): from major to minor
5, 5, 4, 2. One unit is a tile of 8 * 128 * 4 = 4096 bytes.

    configuration   output
    P               5,5,4,2
    Q               1,5,4,1
    R               2,3,3,2
    S               0,0,0,0
"""

from dataclasses import replace
from math import log2

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, graph_of, tile_file, wrong_columns
from tests.graphs import LAYOUT_PROGRAM, Node, parameter, tile_row
from xlarank.data.graph import read_graph
from xlarank.features.assembly import assemble
from xlarank.features.tile.bounds import InnerLoop
from xlarank.features.tile.tile_context import TileContext, kernel_families
from xlarank.features.tile.tpu_time import COSTS, WindowLoop

ROOT = {"is_root": 1}
MATMUL = (parameter(96, 64), parameter(64, 256), Node("dot", (96, 256), (0, 1), columns=ROOT))
MATMUL_CONFIGS = (
    tile_row(output=(32, 100), kernel=(16,), input=(4, 20)),
    tile_row(),
    tile_row(output=(96, 256), kernel=(64,), input=(8, 16)),
    tile_row(output=(48, 0), kernel=(24,), input=(1, 8)),
)
_COPIED = (32, 5, 5, 256)
COPY = (parameter(*_COPIED), Node("copy", _COPIED, (0,), layout=(3, 0, 2, 1), columns=ROOT))


def context_of(nodes, *configs) -> TileContext:
    return TileContext(graph_of(tile_file(nodes, configs)))


def output_tiles(*outputs: tuple[int, ...]) -> list[np.ndarray]:
    return [tile_row(output=output) for output in outputs]


def logs(*sizes: float) -> tuple[float, ...]:
    """log2(1 + x), the scale of sizes."""
    return tuple(log2(1 + size) for size in sizes)


# Bytes of a tile and of what it reads: m n + m K + n K elements of 4 bytes, K = 64. A: 3200 + 2048
# + 6400 = 11648;  B, C: 24576 + 6144 + 16384 = 47104;  D (48 x 256): 12288 + 3072 + 16384 = 31744
SETS = (4 * 11648, 4 * 47104, 4 * 47104, 4 * 31744)
ELEMENTS = {
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
    "kernel__contracted__log": log2(65),
    # 1572864 multiply-adds over 90112 bytes read and 98304 written
    "kernel__intensity__log": log2(1 + 96 * 64 * 256 / (90112 + 98304)),
}

# A copied tile is read and written: twice its 200, 20, 36 and 200 units of 4096 bytes.
COPIED = (2 * 200 * 4096, 2 * 20 * 4096, 2 * 36 * 4096, 2 * 200 * 4096)
HARDWARE_TILES = {
    "bounds__output_volume__log": logs(200, 20, 36, 200),
    "tiles__output_0__log": (0, log2(5), log2(3), 0),  # 5 / 2 = 2.5 -> 3
    "tiles__output_edge_waste__ratio": (0, 0, 6 * 6 * 6 * 2 / 200 - 1, 0),
    "traffic__tile_bytes__log": logs(200 * 4096, 20 * 4096, 36 * 4096, 200 * 4096),
    "traffic__working_set__log": logs(*COPIED),
    # one per element
    "traffic__flops_per_tile__log": logs(200 * 1024, 20 * 1024, 36 * 1024, 200 * 1024),
    **{"kernel__is_transpose__flag": 1, "kernel__physical__flag": 1},
}

# The innermost loop and the estimate of the time: the product above, K = 64, with its four vector
# tiles m x n. A register holds 8 elements; rows of the right side lie 256 * 4 / 64 = 16 lines
# apart. 64 of them do not fit the first cache (64 / gcd(64, 16) = 4 sets of 8), but the second
# (1024 / 16 = 64 sets of 8): 2 cycles a line.
#
#     configuration  m x n     registers a row, in all  loads    lines  spilled
#     A              4 x 20    3, 12                    4 + 3    2      12 + 3 + 1 - 16 = 0
#     B              96 x 256  32, 3072                 96 + 32  16     3072 + 32 + 1 - 16 = 3089
#     C              8 x 16    2, 16                    8 + 2    1      16 + 2 + 1 - 16 = 3
#     D              1 x 8     1, 1                     1 + 1    1      none
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
#: 98304 bytes written and 90112 read for 24576 elements at 32 bytes a cycle; a run costs another 64
#: elements.
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
    copies = output_tiles((5, 5, 4, 2), (1, 5, 4, 1), (2, 3, 3, 2), ())
    for nodes, configs, expected in (
        (MATMUL, MATMUL_CONFIGS, ELEMENTS | INNER),
        (COPY, copies, HARDWARE_TILES | dict.fromkeys(INNER, 0)),
    ):
        features = assemble(context_of(nodes, *configs).graph)
        assert wrong_columns(features, expected, absolute=1e-6) == []


def test_vector_tiles_that_do_not_divide_and_operands_that_no_element_shares():
    # 8 columns do not divide 100, 8 rows do not divide 36: 8 multiply-adds after each other, 4
    # cycles each; otherwise (8 + 1) / 2 cycles to load a step
    tiles = [tile_row(output=output, input=(8, 8)) for output in ((32, 100), (36, 64), (32, 64))]
    loop = InnerLoop(context_of(MATMUL, *tiles))
    assert (loop.divides.tolist(), loop.cycles.tolist()) == ([0, 0, 1], [32, 32, 4.5 * 8 / 64])
    # 3 x 3 weights of each of 8 features, 2 elements by 8 features at once: two registers, nine
    # steps at once, and a register of weights; then sums over 32 elements, four at once
    columns = {**ROOT, "convolution_dim_numbers_kernel_output_feature_dim": 3}
    depthwise = Node("convolution", (1, 14, 14, 8), (0, 1), window=(3, 3), columns=columns)
    nodes = (parameter(1, 16, 16, 8), parameter(3, 3, 1, 8), depthwise)
    loop = InnerLoop(context_of(nodes, tile_row((3, 3), (1, 2, 2, 8), (1, 1, 2, 8))))
    assert (loop.chains, loop.loads, loop.line_cycles, loop.spilled) == (2 * 9, 2 + 1, 0, 0)
    reduction = parameter(64, 32), Node("reduce", (64,), (0,), columns=ROOT)
    loop = InnerLoop(context_of(reduction, tile_row((4,), (8,), (8,))))
    assert (loop.chains, loop.loads, loop.depth) == (4, 1, 32)


def test_larger_kernels_move_their_bytes_more_slowly_and_rows_collide_in_the_caches():
    # an element read and one written, 8 bytes, in runs of 256 elements and the time of 64 more
    for elements, speed in ((2**16, 32), (2**18, 12), (2**22, 4)):
        nodes = parameter(elements), Node("tanh", (elements,), (0,), columns=ROOT)
        features = assemble(context_of(nodes, tile_row((), (256,), (8,))).graph)
        assert wrong_columns(features, {"estimate__memory__log": log2(8 / speed * 320 / 256)}) == []
    for k, n, cycles in (
        (16, 1024, 2.0),  # 64 lines apart all fall into one set of 8
        (8, 1024, 0.5),  # 8 rows fit it
        (512, 1024, 12.0),  # and into 16 sets of the second cache, 128 lines
        (512, 1040, 0.5),  # 65 lines apart they spread over all 64 sets
        (513, 1040, 2.0),  # 512 lines are all there are
    ):
        nodes = (parameter(64, k), parameter(k, n), Node("dot", (64, n), (0, 1), columns=ROOT))
        loop = InnerLoop(context_of(nodes, tile_row((8,), (64, 16), (8, 8))))
        assert loop.line_cycles == cycles, (k, n)


SIDES = (parameter(16, 8), parameter(8, 64))
REDUCTION = (parameter(32, 1000), Node("reduce", (32,), (0,), columns=ROOT))
_ROOTS = [Node(opcode, (64, 256), (at,), columns=ROOT) for at, opcode in enumerate(("add", "tanh"))]
THREE = (parameter(64, 256), *_ROOTS)


def test_the_tensor_walked_over():
    """f32[32,1000] is 4 x 8 hardware tiles: on a TPU a reduction is walked over its operand."""
    for nodes, outputs, walked, physical, extents in (
        (REDUCTION, [(4, 8), (2, 8)], 0, True, [4, 8]),
        (REDUCTION, [(32,), (8,)], 1, False, [32]),  # elsewhere over its result
        (REDUCTION, [(64, 2000)], 1, False, [32]),  # beyond every tensor: elements of the main node
        (THREE, [(8, 2), (4, 1)], 2, True, [8, 2]),  # of one shape: the last root
    ):
        context = context_of(nodes, *output_tiles(*outputs))
        assert (context.tiled_node, context.physical) == (walked, physical)
        assert [extent for extent in context.extents["output"].tolist() if extent] == extents
    # two bounds, of which one is met by the product [16,64] as by its reshape to [16,64,1]
    reshape = Node("reshape", (16, 64, 1), (2,), columns=ROOT)
    nodes = (*SIDES, Node("dot", (16, 64), (0, 1)), reshape)
    assert context_of(nodes, *output_tiles((16, 32), (4, 8))).tiled_node == 2
    # bounds up to [64,512] meet the left operand, but a vector tile cuts the result
    dot = Node("dot", (64, 1024), (0, 1), columns=ROOT)
    nodes = (parameter(64, 512), parameter(512, 1024), dot)
    assert context_of(nodes, tile_row((8,), (64, 512), (8, 8))).tiled_node == 2


def test_the_main_node_and_what_it_sums_over():
    """The costliest operation, then the most bytes, then the last; larger operands first."""
    columns = {**ROOT, "convolution_dim_numbers_kernel_output_feature_dim": 3}
    loops = (
        parameter(64),
        Node("add", (64,), (0,)),
        Node("tanh", (64,), (1,)),
        Node("abs", (8,), (2,)),
    )
    image = parameter(9, 9, 4)
    weights = parameter(3, 3, 4, 16)
    convolution = Node("convolution", (7, 7, 16), (0, 1), window=(3, 3), columns=columns)
    for nodes, main, operands, contracted in (
        ((*SIDES, Node("dot", (16, 64), (0, 1)), Node("add", (16, 16, 64), (2,))), 2, [1, 0], [8]),
        (REDUCTION, 1, [0], [1000]),
        ((image, Node("reduce-window", (7, 9, 2), (0,), window=(3, 1, 2))), 1, [0], [3, 2]),
        ((image, weights, convolution), 2, [1, 0], [3, 3, 4]),
        (loops, 2, [1], []),
    ):
        context = context_of(nodes, tile_row())
        assert (context.main, context.main_operands.tolist()) == (main, operands)
        sizes = context.extents["kernel"]
        assert context.physical or sizes[sizes > 0].tolist() == contracted
        assert context.depth == (np.prod(contracted) if contracted else 0)
    assert PRODUCT.extents["kernel"].tolist() == [128, 6, 0, 0, 0, 0], "in hardware tiles"


#: 512 x 1024 times 1024 x 768: 64 x 8, 128 x 6 and 64 x 6 hardware tiles; and tanh of 512 x 256, 64
#: x 2 of them.
_NAMES = ("input", "kernel_output", "output")
_FEATURES = {f"convolution_dim_numbers_{name}_feature_dim": 1 for name in _NAMES}
_CONVOLUTION = Node("convolution", (512, 768), (0, 1), columns={**ROOT, **_FEATURES})
_PRODUCT_TILES = tile_row((32, 6), (64, 6)), tile_row((32, 3), (32, 3)), tile_row((128, 6), (16, 6))
PRODUCT = context_of((parameter(512, 1024), parameter(1024, 768), _CONVOLUTION), *_PRODUCT_TILES)
_TANH = parameter(512, 256), Node("tanh", (512, 256), (0,), columns=ROOT)
TANH = context_of(_TANH, *output_tiles((16, 2), (16, 1), (24, 1)))
MIB = 2.0**20


def test_a_product_runs_over_kernel_tiles_for_each_output_tile():
    loop = WindowLoop(PRODUCT)
    assert (loop.kind, loop.tiles.tolist()) == ("product", [1, 4, 4])
    assert loop.steps.tolist() == [4, 16, 4]
    # 2 MiB of input and 3 MiB of kernel; in the second both halves of the output's other dimension
    # fetch them again, in the third the kernel stays where it is; 1.5 MiB of output
    assert (loop.moved / MIB).tolist() == [6.5, 11.5, 6.5]
    # blocks of 128 x 128 weights: 256 x 768, 256 x 384 and 1024 x 768 in a step
    assert loop.passes.tolist() == [4 * 12, 16 * 6, 4 * 48]
    assert loop.rows.tolist() == [48 * 512, 96 * 256, 192 * 128]
    # sums stay in vector memory from step to step, but for the third
    assert loop.summed.tolist() == [4 * 512 * 768, 16 * 256 * 384, 0]
    # a kernel tile of full width lies in one piece, half of it in a piece for each of 32 rows of
    # hardware tiles
    assert loop.kernel_runs.tolist() == [4, 16 * 32, 4]


def test_rows_of_weights_that_only_fill_up_a_tile_are_not_multiplied():
    """A window of 3 x 3 and 28 features: 252 of the 288 rows, blocks of 128 by 128."""
    convolution = replace(LAYOUT_PROGRAM[2], dims=(8, 16, 16, 128))
    nodes = parameter(8, 16, 16, 28), parameter(3, 3, 28, 128), convolution
    loop = WindowLoop(context_of(nodes, tile_row((3, 3, 4, 1), (8, 16, 2, 1))))
    assert loop.kind == "product"
    assert loop.passes.tolist() == [2]


def test_tiles_of_a_strided_convolution_share_a_part_of_the_input():
    """Two tiles of 2 positions read 2 + 3 of 9 each; one position of 8 x 128 takes 4096 bytes."""
    names = {"output_feature_dim": 2, "input_feature_dim": 2, "input_spatial_dims_0": 1}
    names |= {"kernel_input_feature_dim": 1, "kernel_output_feature_dim": 2}
    columns = {f"convolution_dim_numbers_{name}": number for name, number in names.items()}
    columns |= {**ROOT, "window_stride_0": 2}
    image = Node("parameter", (8, 9, 128), layout=(2, 0, 1))
    convolution = replace(image, opcode="convolution", dims=(8, 4, 128), operands=(0, 1))
    convolution = replace(convolution, window=(3,), columns=columns)
    nodes = image, parameter(3, 128, 128), convolution
    loop = WindowLoop(context_of(nodes, tile_row((3, 16, 1), (2, 1, 1))))
    assert loop.kind == "product" and loop.tiles == 2
    assert loop.moved == 2 * 5 * 4096 + 3 * 128 * 128 * 4 + 4 * 4096


def test_other_kernels_stream_their_operands_through():
    loop = WindowLoop(TANH)
    assert loop.kind == "elementwise"
    assert loop.steps.tolist() == loop.tiles.tolist() == [4, 8, 3 * 2]  # 64 / 24 = 2.67 -> 3
    assert (loop.moved / MIB).tolist() == [1, 1, 1]
    assert loop.runs.tolist() == [4 * 2, 8 * 2 * 16, 6 * 2 * 24]
    assert loop.computed.tolist() == [512 * 256] * 3 and not loop.copied.any()
    assert loop.tile.tolist() == [128 * 256, 128 * 128, 192 * 128]


@pytest.mark.parametrize("context", [PRODUCT, TANH], ids=["product", "tanh"])
def test_the_time_is_the_longer_of_moving_and_computing_and_a_step_of_the_other(context):
    loop = WindowLoop(context)
    costs = COSTS[loop.kind]
    moving = costs.moving(loop)
    computing = costs.computing(loop)
    bare = replace(costs, fixed=0, step=0, fused=0, tile=0, packed=0, drain=0)
    expected = np.maximum(moving, computing) + np.minimum(moving, computing) / loop.steps
    assert bare.cycles(loop) == pytest.approx(expected)
    rows = assemble(context.graph)
    logs = rows.matrix(used=np.array([rows.columns.index("tpu__cycles__log")]))[:, 0]
    assert logs == pytest.approx(np.log2(costs.cycles(loop)), rel=1e-6)
    assert (np.diff(logs[:2]) > 0).all()


#: Families of the sample -> the kind of kernel that they were written as.
KINDS = {
    **dict.fromkeys(("conv3x3", "conv3x3_bias_relu"), "convolution"),
    **dict.fromkeys(("dwconv3x3", "dwconv3x3_bias_relu"), "convolution depthwise"),
    **{"conv3x3_s2": "convolution strided", "conv1x1_s2": "convolution strided pointwise"},
    **dict.fromkeys(("matmul", "matmul_bias_relu"), "dot"),
    **{"matmul_ta": "dot left-transposed", "matmul_tb": "dot right-transposed"},
    **{"bmm": "dot batched", "bmm_tb": "dot batched right-transposed"},
    **{"maxpool": "reduce-window", "reduce_mid": "reduce", "expsum": "reduce minor"},
    **{"swish": "elementwise", "transpose": "transpose"},
}


def test_the_sample_is_of_the_kinds_that_it_was_written_as():
    paths = [*SAMPLE.glob("tile/cpu/*/*.npz")]
    families_of = {
        path.stem: kernel_families(TileContext(read_graph(path, "tile"))) for path in paths
    }
    assert families_of and all(
        KINDS[name.split("__")[0]] in families_of[name] for name in families_of
    )
    # kernels with a square operand or result, in which either dimension could be the contracted one
    assert sum(len(families) > 1 for families in families_of.values()) == 13
