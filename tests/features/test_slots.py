"""Which operand each slot of a configurable node speaks of, case by case."""

from __future__ import annotations

from dataclasses import replace

from tests.features.helpers import layout_file, layout_of
from tests.graphs import Node, layout_row
from xlarank.features.layout.layout_context import LayoutContext

STEM = "convolution_dim_numbers"


def slots_of(nodes, *rows, edges=None):
    """(output, input, kernel) of the last node, which is the configurable one; one row a configuration."""
    arrays = layout_file(nodes, [len(nodes) - 1], [[row] for row in rows or (layout_row(),)], edges)
    return tuple(LayoutContext(layout_of(arrays)).slot_tensor[0].tolist())


def convolution(operands, *, out=(8, 32, 32, 64), window=(3, 3)):
    """A convolution of kernels [spatial, spatial, features in, features out], the output batch first."""
    numbers = {
        f"{STEM}_kernel_spatial_dims_0": 0,
        f"{STEM}_kernel_spatial_dims_1": 1,
        f"{STEM}_kernel_input_feature_dim": 2,
        f"{STEM}_kernel_output_feature_dim": 3,
        f"{STEM}_output_batch_dim": 0,
        f"{STEM}_output_feature_dim": 3,
    }
    return Node("convolution", out, operands, window=window, columns=numbers)


KERNEL = Node("parameter", (3, 3, 16, 64))
#: Features out, features in, then the spatial dimensions: what the dimension numbers are for.
CHANNELS_FIRST = {
    f"{STEM}_kernel_output_feature_dim": 0,
    f"{STEM}_kernel_input_feature_dim": 1,
    f"{STEM}_kernel_spatial_dims_0": 2,
    f"{STEM}_kernel_spatial_dims_1": 3,
    f"{STEM}_output_batch_dim": 0,
    f"{STEM}_output_feature_dim": 1,
}
#: (left or image, right or kernel, the configurable node without its operands)
ASYMMETRIC = {
    "convolution": (Node("parameter", (8, 32, 32, 16)), KERNEL, convolution(())),
    "convolution, channels first": (
        Node("parameter", (8, 16, 32, 32)),
        Node("parameter", (64, 16, 3, 3)),
        Node("convolution", (8, 64, 32, 32), (), window=(3, 3), columns=CHANNELS_FIRST),
    ),
    # an image that a kernel of [3,5,16,64] shares all but one of window and features with
    **{
        f"convolution, image {image}": (
            Node("parameter", image), Node("parameter", (3, 5, 16, 64)), convolution((), window=(3, 5)),
        )
        for image in ((3, 32, 16, 64), (32, 5, 16, 64), (3, 5, 64, 16))
    },
    # [16,32] x [32,64] -> [16,64], either operand transposed
    **{
        f"dot {left} {right}": (Node("parameter", left), Node("parameter", right), Node("dot", (16, 64), ()))
        for left in ((16, 32), (32, 16))
        for right in ((32, 64), (64, 32))
    },
    **{
        f"batch dot {right}": (
            Node("parameter", (4, 16, 32)), Node("parameter", right), Node("dot", (4, 16, 64), ()),
        )
        for right in ((4, 32, 64), (4, 64, 32))
    },
    "dot, only the 2 tells": (
        Node("parameter", (2, 16, 32)), Node("parameter", (32, 16)), Node("dot", (2, 16, 16), ()),
    ),
}  # fmt: skip


def test_shapes_tell_the_operands_apart_in_any_order():
    for case, (left, right, node) in ASYMMETRIC.items():
        for operands in ((0, 1), (1, 0)):
            assert slots_of((left, right, replace(node, operands=operands))) == (2, 0, 1), case


def test_between_operands_of_one_shape_the_order_of_the_edges_decides():
    kernel, square = Node("parameter", (3, 3, 64, 64)), Node("parameter", (32, 32))
    for operands in ((0, 1), (1, 0)):
        assert slots_of((kernel, kernel, convolution(operands, out=(3, 3, 64, 64)))) == (2, *operands)
        assert slots_of((square, square, Node("dot", (32, 32), operands))) == (2, *operands)
    # the edges of other nodes in between do not matter
    nodes = (*[Node("parameter", (8, 8))] * 2, *[Node("add", (8, 8))] * 2)
    mixed = [(2, 0), (3, 2), (2, 1), (3, 0)]
    assert slots_of(nodes, edges=mixed) == (3, 2, 0) and slots_of(nodes, edges=mixed[::-1]) == (3, 0, 2)
    nodes = (*(Node("parameter", (4, 8)),) * 3, Node("concatenate", (12, 8), (1, 0, 2)))
    assert slots_of(nodes) == (3, 1, 0), "of more than two operands the first two count"


def test_one_edge_serves_both_operands_once_a_kernel_layout_is_named():
    """x * x: the edge list has the pair once."""
    nodes = (Node("parameter", (4, 8)), Node("multiply", (4, 8), (0,)))
    assert slots_of(nodes, layout_row(kernel=(0, 1))) == (1, 0, 0)
    assert slots_of(nodes, layout_row(), layout_row(kernel=(0,))) == (1, 0, 0), "one configuration is enough"
    assert slots_of(nodes, layout_row(input=(0, 1))) == (1, 0, -1), "a unary operation has no kernel"
    assert slots_of((nodes[0], Node("multiply", (4, 8), (0, 0)))) == (1, 0, 0), "two equal edges"
    for row in (layout_row(), layout_row(input=(0, 1))):
        assert slots_of(nodes[:1], row) == (0, -1, -1), "without operands there is the output only"


def test_what_a_layout_names_outweighs_the_shapes():
    nodes = (Node("parameter", (4, 8)), Node("parameter", (2, 3, 4, 8)), Node("add", (2, 3, 4, 8), (0, 1)))
    for rows, expected in (
        ([layout_row(input=(3, 0))], (2, 1, 0)),
        ([layout_row(kernel=(3, 0))], (2, 0, 1)),
        ([layout_row(input=(1, 0))], (2, 0, 1)),  # either has it
        ([layout_row()], (2, 0, 1)),
        ([layout_row(), layout_row(input=(0,)), layout_row(input=(2,))], (2, 1, 0)),  # one configuration is enough
    ):
        assert slots_of(nodes, *rows) == expected
    # by its shape [2,16,32] is the left operand, but the kernel layout has three dimensions
    nodes = (Node("parameter", (2, 16, 32)), Node("parameter", (32, 64)), Node("dot", (2, 16, 64), (0, 1)))
    assert slots_of(nodes) == (2, 0, 1) and slots_of(nodes, layout_row(kernel=(2, 1, 0))) == (2, 1, 0)


def test_a_reduction_lays_out_its_array_whether_configured_or_not():
    """Its edges also name the computation that is applied and the initial value, both scalars, in any order."""
    for kind in ("reduce", "reduce-window"):
        for place in range(3):
            nodes = [Node("constant", ()), Node("constant", ())]
            nodes.insert(place, Node("parameter", (4, 8, 16)))
            nodes.append(Node(kind, (4, 8), (0, 1, 2)))
            for rows in ((), (layout_row(), layout_row(input=(2, 0, 1)))):
                assert slots_of(nodes, *rows)[:2] == (3, place)
