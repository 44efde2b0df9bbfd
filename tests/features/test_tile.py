"""Kernels: what their bounds divide, the loop over windows, and their kind, case by case."""

from dataclasses import replace

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, graph_of, tile_file
from tests.graphs import Node, parameter, tile_row
from xlarank.data.graph import read_graph
from xlarank.features.rows import assemble
from xlarank.features.tile.tile_context import TileContext, kernel_kinds
from xlarank.features.tile.tpu_time import COSTS, WindowLoop


def context_of(nodes, *outputs) -> TileContext:
    return TileContext(graph_of(tile_file(nodes, [tile_row(output=output) for output in outputs])))


ROOT = {"is_root": 1}
SIDES = (parameter(16, 8), parameter(8, 64))
REDUCTION = (Node("parameter", (32, 1000)), Node("reduce", (32,), (0,), columns=ROOT))
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
        context = context_of(nodes, *outputs)
        assert (context.tiled_node, context.physical) == (walked, physical)
        assert [extent for extent in context.extents["output"].tolist() if extent] == extents
    # two bounds, of which one is met by the product [16,64] as by its reshape to [16,64,1]
    nodes = (*SIDES, Node("dot", (16, 64), (0, 1)), Node("reshape", (16, 64, 1), (2,), columns=ROOT))
    assert context_of(nodes, (16, 32), (4, 8)).tiled_node == 2
    # bounds up to [64,512] meet the left operand, but a vector tile cuts the result
    nodes = (parameter(64, 512), parameter(512, 1024), Node("dot", (64, 1024), (0, 1), columns=ROOT))
    assert TileContext(graph_of(tile_file(nodes, [tile_row((8,), (64, 512), (8, 8))]))).tiled_node == 2


def test_the_main_node_and_what_it_sums_over():
    """The costliest operation, then the most bytes, then the last; operands with more bytes first."""
    columns = {**ROOT, "convolution_dim_numbers_kernel_output_feature_dim": 3}
    vector, image, weights = parameter(64), parameter(9, 9, 4), parameter(3, 3, 4, 16)
    convolution = Node("convolution", (7, 7, 16), (0, 1), window=(3, 3), columns=columns)
    for nodes, main, operands, contracted in (
        ((*SIDES, Node("dot", (16, 64), (0, 1)), Node("add", (16, 16, 64), (2,))), 2, [1, 0], [8]),
        (REDUCTION, 1, [0], [1000]),
        ((image, Node("reduce-window", (7, 9, 2), (0,), window=(3, 1, 2))), 1, [0], [3, 2]),
        ((image, weights, convolution), 2, [1, 0], [3, 3, 4]),
        ((vector, Node("add", (64,), (0,)), Node("tanh", (64,), (1,)), Node("abs", (8,), (2,))), 2, [1], []),
    ):
        context = context_of(nodes, ())
        assert (context.main, context.main_operands.tolist()) == (main, operands)
        assert context.contracted[context.contracted > 0].tolist() == contracted
        assert context.depth == (np.prod(contracted) if contracted else 0)
    assert TileContext(PRODUCT).extents["kernel"].tolist() == [128, 6, 0, 0, 0, 0], "in hardware tiles"


#: 512 x 1024 times 1024 x 768: 64 x 8, 128 x 6 and 64 x 6 hardware tiles; and tanh of 512 x 256, 64 x 2 of them.
_FEATURES = {f"convolution_dim_numbers_{name}_feature_dim": 1 for name in ("input", "kernel_output", "output")}
_CONVOLUTION = Node("convolution", (512, 768), (0, 1), columns={**ROOT, **_FEATURES})
_PRODUCT_TILES = [tile_row((32, 6), (64, 6)), tile_row((32, 3), (32, 3)), tile_row((128, 6), (16, 6))]
PRODUCT = graph_of(tile_file((parameter(512, 1024), parameter(1024, 768), _CONVOLUTION), _PRODUCT_TILES))
_TANH_TILES = [tile_row(output=output) for output in ((16, 2), (16, 1), (24, 1))]
TANH = graph_of(tile_file((parameter(512, 256), Node("tanh", (512, 256), (0,), columns=ROOT)), _TANH_TILES))
MIB = 2.0**20


def test_a_product_runs_over_kernel_tiles_for_each_output_tile():
    loop = WindowLoop(TileContext(PRODUCT))
    assert loop.kind == "product"
    assert loop.tiles.tolist() == [1, 4, 4]
    assert loop.steps.tolist() == [4, 16, 4]
    # 2 MiB of input and 3 MiB of kernel; in the second both halves of the output's other dimension fetch them
    # again, in the third the kernel stays where it is; 1.5 MiB of output
    assert (loop.moved / MIB).tolist() == [6.5, 11.5, 6.5]
    # blocks of 128 x 128 weights: 256 x 768, 256 x 384 and 1024 x 768 in a step
    assert loop.passes.tolist() == [4 * 12, 16 * 6, 4 * 48]
    assert loop.rows.tolist() == [48 * 512, 96 * 256, 192 * 128]
    # sums stay in vector memory from step to step, but for the third
    assert loop.summed.tolist() == [4 * 512 * 768, 16 * 256 * 384, 0]
    # a kernel tile of full width lies in one piece, half of it in a piece for each of 32 rows of hardware tiles
    assert loop.kernel_runs.tolist() == [4, 16 * 32, 4]


def test_other_kernels_stream_their_operands_through():
    loop = WindowLoop(TileContext(TANH))
    assert loop.kind == "elementwise"
    assert loop.steps.tolist() == loop.tiles.tolist() == [4, 8, 3 * 2]  # 64 / 24 = 2.67 -> 3
    assert (loop.moved / MIB).tolist() == [1, 1, 1]
    assert loop.runs.tolist() == [4 * 2, 8 * 2 * 16, 6 * 2 * 24]
    assert loop.computed.tolist() == [512 * 256] * 3 and not loop.copied.any()
    assert loop.tile.tolist() == [128 * 256, 128 * 128, 192 * 128]


@pytest.mark.parametrize("graph", [PRODUCT, TANH])
def test_the_time_is_the_longer_of_moving_and_computing_and_a_step_of_the_other(graph):
    loop = WindowLoop(TileContext(graph))
    costs = COSTS[loop.kind]
    moving, computing = costs.moving(loop), costs.computing(loop)
    bare = replace(costs, fixed=0, step=0, fused=0, tile=0, packed=0, drain=0)
    expected = np.maximum(moving, computing) + np.minimum(moving, computing) / loop.steps
    assert bare.cycles(loop) == pytest.approx(expected)
    rows = assemble(graph)
    logs = rows.matrix(used=np.array([rows.columns.index("tpu__cycles__log")]))[:, 0]
    assert logs == pytest.approx(np.log2(costs.cycles(loop)), rel=1e-6)
    assert (np.diff(logs[:2]) > 0).all()


#: What the families of the sample were written as.
_FAMILIES = {
    **{"convolution": "conv3x3 conv3x3_bias_relu", "convolution depthwise": "dwconv3x3 dwconv3x3_bias_relu"},
    **{"convolution strided": "conv3x3_s2", "convolution strided pointwise": "conv1x1_s2"},
    **{"dot": "matmul matmul_bias_relu", "dot left-transposed": "matmul_ta", "dot right-transposed": "matmul_tb"},
    **{"dot batched": "bmm", "dot batched right-transposed": "bmm_tb"},
    **{"reduce-window": "maxpool", "reduce": "reduce_mid", "reduce minor": "expsum"},
    **{"elementwise": "swish", "transpose": "transpose"},
}
KINDS = {family: kind for kind, families in _FAMILIES.items() for family in families.split()}


def test_the_sample_is_of_the_kinds_that_it_was_written_as():
    paths = SAMPLE.glob("tile/cpu/*/*.npz")
    kinds_of = {path.stem: kernel_kinds(TileContext(read_graph(path, "tile"))) for path in paths}
    wrong = {name: kinds for name, kinds in kinds_of.items() if KINDS[name.split("__")[0]] not in kinds}
    assert kinds_of and wrong == {}
    # kernels with a square operand or result, in which either dimension could be the contracted one
    assert sum(len(kinds) > 1 for kinds in kinds_of.values()) == 13
