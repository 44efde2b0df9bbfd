"""What the bounds of a tile file divide, case by case."""

from __future__ import annotations

from tests.features.helpers import tile_file, tile_of
from tests.graphs import Node, tile_row
from xlarank.features.tile.tile_context import TileContext


def context_of(nodes, *outputs) -> TileContext:
    return TileContext(tile_of(tile_file(nodes, [tile_row(output=output) for output in outputs])))


REDUCTION = (Node("parameter", (32, 1000)), Node("reduce", (32,), (0,), columns={"is_root": 1}))


def test_what_is_walked_over():
    """f32[32,1000] is 4 x 8 hardware tiles: on a TPU a reduction is walked over its operand."""
    for nodes, outputs, walked, physical, extents in (
        (REDUCTION, [(4, 8), (2, 8)], 0, True, [4, 8]),
        (REDUCTION, [(32,), (8,)], 1, False, [32]),  # elsewhere over its result
        (REDUCTION, [(64, 2000)], 1, False, [32]),  # beyond every tensor: elements of the main node
    ):
        context = context_of(nodes, *outputs)
        assert (context.walked, context.physical) == (walked, physical)
        assert [extent for extent in context.extents["output"].tolist() if extent] == extents
    # all three have one shape; the bounds divide what the kernel writes, the root
    root = {"is_root": 1}
    nodes = (
        Node("parameter", (64, 256)),
        Node("add", (64, 256), (0,)),
        Node("tanh", (64, 256), (1,), columns=root),
    )
    assert context_of(nodes, (8, 2), (4, 1)).walked == 2
    # two bounds, of which one is met by the product [16,64] as by its reshape to [16,64,1]
    nodes = (*SIDES, Node("dot", (16, 64), (0, 1)), Node("reshape", (16, 64, 1), (2,), columns=root))
    assert context_of(nodes, (16, 32), (4, 8)).walked == 2


SIDES = (Node("parameter", (16, 8)), Node("parameter", (8, 64)))
NUMBERS = {
    "convolution_dim_numbers_kernel_output_feature_dim": 0,
    "convolution_dim_numbers_kernel_spatial_dims_0": 1,
    "convolution_dim_numbers_kernel_spatial_dims_1": 2,
    "convolution_dim_numbers_output_feature_dim": 3,
}


def test_which_operand_is_the_kernel():
    """[2048,1024] x [1024,1024]: both have the output's last size, only one the rows; in either order.

    Kernels [features out, height, width, features in]; an image as small as the window has its size too.
    """
    for operands in ((0, 1), (1, 0)):
        product = Node("dot", (2048, 1024), operands)
        context = context_of((Node("parameter", (2048, 1024)), Node("parameter", (1024,) * 2), product), (256, 8))
        assert (context.physical, context.kernel_tensor) == (True, 1)
        assert context.extents["kernel"].tolist() == [128, 8, 0, 0, 0, 0]
    for image in ((8, 28, 28, 16), (8, 3, 3, 16)):
        out = (*image[:3], 64)
        convolution = Node("convolution", out, (0, 1), window=(3, 3), columns=NUMBERS)
        nodes = (Node("parameter", image), Node("parameter", (64, 3, 3, 16)), convolution)
        assert context_of(nodes, out).kernel_tensor == 1


def test_the_main_node():
    """By class, then by bytes, then the last one."""
    large, square = Node("parameter", (1000, 1000)), Node("parameter", (32, 32))
    for nodes, main in (
        ((large, Node("convolution", (2, 2), (0,)), Node("dot", (1000, 1000), (0,))), 1),
        (
            (Node("parameter", (4,)), Node("parameter", (64,)), Node("add", (64,), (1,)), Node("tanh", (8,), (2,))),
            2,
        ),
        ((square, Node("dot", (32, 32), (0,)), Node("dot", (32, 32), (0, 1))), 2),
    ):
        assert context_of(nodes, (2,)).main == main


def test_what_is_summed_over():
    """Neither a batch nor dimensions of one operand count as contracted; a reduce-window sums over its window."""
    for left, right, out in (
        ((4, 16, 32), (4, 32, 64), (4, 16, 64)),
        ((4, 16, 32), (32, 2, 64), (4, 16, 2, 64)),
    ):
        nodes = (Node("parameter", left), Node("parameter", right), Node("dot", out, (0, 1)))
        assert context_of(nodes, out).contracted.tolist() == [32, 0, 0, 0, 0, 0]
    window = Node("reduce-window", (8, 16, 16, 16), (0,), window=(1, 2, 3, 1))
    context = context_of((Node("parameter", (8, 32, 32, 16)), window), (8, 16, 16, 16))
    assert context.contracted.tolist() == [2, 3, 0, 0, 0, 0]
