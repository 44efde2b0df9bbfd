"""Which operand each slot of a configurable node speaks of, case by case."""

from __future__ import annotations

import pytest

from tests.features.helpers import layout_file, layout_of
from tests.graphs import Node, layout_row
from xlarank.features.layout.context import LayoutContext

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


IMAGE, KERNEL = Node("parameter", (8, 32, 32, 16)), Node("parameter", (3, 3, 16, 64))


@pytest.mark.parametrize("operands", [(0, 1), (1, 0)], ids=["image first", "kernel first"])
def test_a_convolution_tells_its_kernel_by_window_and_features(operands):
    assert slots_of((IMAGE, KERNEL, convolution(operands))) == (2, 0, 1)


@pytest.mark.parametrize("operands", [(0, 1), (1, 0)], ids=["image first", "kernel first"])
def test_a_kernel_laid_out_in_another_order_of_dimensions(operands):
    """Features out, features in, then the spatial dimensions: what the dimension numbers are for."""
    numbers = {
        f"{STEM}_kernel_output_feature_dim": 0,
        f"{STEM}_kernel_input_feature_dim": 1,
        f"{STEM}_kernel_spatial_dims_0": 2,
        f"{STEM}_kernel_spatial_dims_1": 3,
        f"{STEM}_output_batch_dim": 0,
        f"{STEM}_output_feature_dim": 1,
    }
    nodes = (
        Node("parameter", (8, 16, 32, 32)),
        Node("parameter", (64, 16, 3, 3)),
        Node("convolution", (8, 64, 32, 32), operands, window=(3, 3), columns=numbers),
    )
    assert slots_of(nodes) == (2, 0, 1)


@pytest.mark.parametrize("operands", [(0, 1), (1, 0)], ids=["image first", "kernel first"])
@pytest.mark.parametrize(
    ("image", "window"),
    [((3, 32, 16, 64), (3, 5)), ((32, 5, 16, 64), (3, 5)), ((3, 5, 64, 16), (3, 5))],
    ids=["height alike", "width alike", "features unlike"],
)
def test_all_of_the_window_and_the_features_tell(image, window, operands):
    """An image that a kernel of [3,5,16,64] shares all but one of these with."""
    nodes = (Node("parameter", image), Node("parameter", (3, 5, 16, 64)))
    assert slots_of((*nodes, convolution(operands, window=window))) == (2, 0, 1)


@pytest.mark.parametrize("operands", [(0, 1), (1, 0)])
def test_where_both_operands_could_be_the_kernel_the_order_of_the_edges_decides(operands):
    both = Node("parameter", (3, 3, 64, 64))
    assert slots_of((both, both, convolution(operands, out=(3, 3, 64, 64)))) == (2, *operands)


@pytest.mark.parametrize("operands", [(0, 1), (1, 0)], ids=["left first", "right first"])
@pytest.mark.parametrize(
    ("left", "right"),
    [((16, 32), (32, 64)), ((32, 16), (32, 64)), ((16, 32), (64, 32)), ((32, 16), (64, 32))],
    ids=["NN", "TN", "NT", "TT"],
)
def test_a_dot_lists_the_left_operand_first(left, right, operands):
    """[16,32] x [32,64] -> [16,64], either operand transposed."""
    nodes = (Node("parameter", left), Node("parameter", right), Node("dot", (16, 64), operands))
    assert slots_of(nodes) == (2, 0, 1)


@pytest.mark.parametrize("operands", [(0, 1), (1, 0)], ids=["left first", "right first"])
@pytest.mark.parametrize("right", [(4, 32, 64), (4, 64, 32)], ids=["NN", "NT"])
def test_a_batch_dot_lists_the_left_operand_first(right, operands):
    nodes = (Node("parameter", (4, 16, 32)), Node("parameter", right), Node("dot", (4, 16, 64), operands))
    assert slots_of(nodes) == (2, 0, 1)


@pytest.mark.parametrize("operands", [(0, 1), (1, 0)], ids=["left first", "right first"])
def test_the_left_operand_of_a_dot_has_the_first_dimension_of_the_output(operands):
    """[2,16,32] x [32,16] -> [2,16,16]: only the 2 tells."""
    nodes = (Node("parameter", (2, 16, 32)), Node("parameter", (32, 16)), Node("dot", (2, 16, 16), operands))
    assert slots_of(nodes) == (2, 0, 1)


@pytest.mark.parametrize("operands", [(0, 1), (1, 0)])
def test_square_operands_keep_the_order_of_the_edges(operands):
    square = Node("parameter", (32, 32))
    assert slots_of((square, square, Node("dot", (32, 32), operands))) == (2, *operands)


def test_one_edge_serves_both_operands_once_a_kernel_layout_is_named():
    """x * x: the edge list has the pair once."""
    nodes = (Node("parameter", (4, 8)), Node("multiply", (4, 8), (0,)))
    assert slots_of(nodes, layout_row(kernel=(0, 1))) == (1, 0, 0)
    assert slots_of(nodes, layout_row(), layout_row(kernel=(0,))) == (1, 0, 0), "one configuration tells"
    assert slots_of(nodes, layout_row(input=(0, 1))) == (1, 0, -1), "a unary operation has no kernel"


def test_two_equal_edges_serve_both_operands():
    nodes = (Node("parameter", (4, 8)), Node("multiply", (4, 8), (0, 0)))
    assert slots_of(nodes) == (1, 0, 0)


def test_a_node_without_operands_has_its_output_only():
    """What it says about an input is not about any tensor of the graph."""
    assert slots_of((Node("parameter", (4, 8)),)) == (0, -1, -1)
    assert slots_of((Node("parameter", (4, 8)),), layout_row(input=(0, 1))) == (0, -1, -1)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (layout_row(input=(3, 0)), (2, 1, 0)),
        (layout_row(kernel=(3, 0)), (2, 0, 1)),
        (layout_row(input=(1, 0)), (2, 0, 1)),
        (layout_row(), (2, 0, 1)),
    ],
    ids=["input", "kernel", "either", "neither"],
)
def test_a_dimension_that_only_one_operand_has_tells(row, expected):
    nodes = (Node("parameter", (4, 8)), Node("parameter", (2, 3, 4, 8)), Node("add", (2, 3, 4, 8), (0, 1)))
    assert slots_of(nodes, row) == expected


def test_one_telling_configuration_among_many_is_enough():
    nodes = (Node("parameter", (4, 8)), Node("parameter", (2, 3, 4, 8)), Node("add", (2, 3, 4, 8), (0, 1)))
    assert slots_of(nodes, layout_row(), layout_row(input=(0,)), layout_row(input=(2,))) == (2, 1, 0)


def test_what_a_layout_names_outweighs_the_shapes():
    """By its shape [2,16,32] is the left operand, but the kernel layout has three dimensions."""
    nodes = (Node("parameter", (2, 16, 32)), Node("parameter", (32, 64)), Node("dot", (2, 16, 64), (0, 1)))
    assert slots_of(nodes) == (2, 0, 1)
    assert slots_of(nodes, layout_row(kernel=(2, 1, 0))) == (2, 1, 0)


def test_the_edges_of_other_nodes_in_between_do_not_matter():
    """Edges need not stand consumer by consumer."""
    nodes = (*(Node("parameter", (8, 8)), Node("parameter", (8, 8)), Node("add", (8, 8)), Node("add", (8, 8))),)
    mixed = [(2, 0), (3, 2), (2, 1), (3, 0)]
    assert slots_of(nodes, edges=mixed) == (3, 2, 0)
    assert slots_of(nodes, edges=mixed[::-1]) == (3, 0, 2)


def test_of_more_than_two_operands_the_first_two_count():
    nodes = (*(Node("parameter", (4, 8)),) * 3, Node("concatenate", (12, 8), (1, 0, 2)))
    assert slots_of(nodes) == (3, 1, 0)


def reduction(kind, place):
    nodes = [Node("constant", ()), Node("constant", ())]
    nodes.insert(place, Node("parameter", (4, 8, 16)))
    return [*nodes, Node(kind, (4, 8), (0, 1, 2))]


@pytest.mark.parametrize("kind", ["reduce", "reduce-window"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_reduction_lays_out_its_array(kind, place):
    """Its edges also name the computation that is applied and the initial value, both scalars, in any order.

    So every reduction of the sample stands: `reduce(maximum [], constant [], exponential [4,32,28,28])`.
    """
    row = layout_row(input=(2, 0, 1))
    assert slots_of(reduction(kind, place), layout_row(), row)[:2] == (3, place)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_array_of_a_reduction_is_its_input_whether_configured_or_not(place):
    """Else its padding and the copies in front of it count for a kernel, or for nothing."""
    assert slots_of(reduction("reduce", place))[:2] == (3, place)
