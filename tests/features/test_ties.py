"""Tied nodes: signatures, orders and groups by hand."""

from dataclasses import replace

import pytest

from tests.graphs import LAYOUT_PROGRAM, Node, parameter, unconfigured
from xlarank.features.layout.row_types import LayoutFacts
from xlarank.features.layout.ties import groups_of, tied_nodes


def facts(*nodes: Node, configurable: tuple[int, ...]) -> LayoutFacts:
    return LayoutFacts(unconfigured(*nodes, configurable=configurable))


def test_dots_are_tied_by_the_cheaper_order_of_their_output() -> None:
    program = facts(
        parameter(32, 4096), parameter(4096, 1000), parameter(32, 1000),
        Node("dot", (32, 1000), (0, 1)),   # 32 x 1024 elements with 1000 on the lanes, 128 x 1000 with 32
        Node("dot", (32, 4096), (1, 2)),   # 32 x 4096 against 128 x 4096
        Node("dot", (4096, 1000), (0, 2)),  # 4096 x 1024 against 4096 x 1000: the other way around
        configurable=(3, 4, 5),
    )  # fmt: skip
    tied = tied_nodes(program)
    assert groups_of(tied).tolist() == [0, 0, 1]
    assert (tied[0].orders, tied[2].orders) == (((1, 0), (0, 1)), ((0, 1), (1, 0)))
    # square matrices are no batch, and an outer product contracts nothing: the last two dimensions
    for operand, side in ((parameter(256, 256), 256), (parameter(64), 64)):
        program = facts(operand, operand, Node("dot", (side, side), (0, 1)), configurable=(2,))
        assert tied_nodes(program)[0].orders == ((1, 0), (0, 1))


def test_first_of_equal_sizes_of_a_dot_are_free() -> None:
    operands = parameter(16, 32, 32, 192), parameter(16, 32, 32, 192)
    (dot,) = tied_nodes(facts(*operands, Node("dot", (16, 32, 32, 32), (0, 1)), configurable=(2,)))
    assert dot.signature == ("dot", 4, (3, 2), (4, 3, 1), (4, 3, 1))


def test_a_convolution_and_a_reshape() -> None:
    convolution, reshape = tied_nodes(facts(*LAYOUT_PROGRAM, configurable=(2, 4)))
    # Image and output, batch 8 and 16 features: 8 x 128 with features on the lanes, 16 x 128 with the batch there.
    assert convolution.orders == ((3, 0), (0, 3))
    # Weights, 16 and 16: equal, so the later dimension stays on the lanes.
    assert convolution.signature == ("convolution", 4, (3, 0), (3, 0), (3, 2))
    # (8, 32, 32, 16) to (8, 16384): the batch is one block, the rest the other.
    assert reshape.signature[:5] == ("reshape", 2, 4, ((1, 0), (3, 2, 1, 0)), ((0, 1), (0, 3, 2, 1)))
    # 3 channels instead of 16: 8 on the lanes pad them less than 128, and the node is no longer tied to its like.
    for batch, alike in ((8, True), (32, False)):  # 8 x 128 either way: features on the lanes
        image, weights = parameter(batch, 32, 32, 3), parameter(3, 3, 3, 16)
        output = replace(LAYOUT_PROGRAM[2], dims=(batch, 32, 32, 16))
        other = tied_nodes(facts(image, weights, output, configurable=(2,)))[0]
        assert (other.signature == convolution.signature) == alike


@pytest.mark.parametrize(
    ("operand", "output", "into", "out"),
    [
        ((1, 128, 1024), (128, 1024), [(2, 1, 0), (1, 2, 0)], [(1, 0), (0, 1)]),
        ((32, 128, 1024), (4096, 1024), [(2, 1, 0), (1, 0, 2)], [(1, 0), (0, 1)]),
        ((32, 1, 1024), (32, 1024), [(2, 0, 1), (0, 2, 1)], [(1, 0), (0, 1)]),
        ((6656, 128), (512, 13, 128), [(1, 0), (0, 1)], [(2, 1, 0), (1, 0, 2)]),
        ((512, 27, 27), (512, 729), [(2, 1, 0), (0, 2, 1)], [(1, 0), (0, 1)]),
        ((2, 1), (2,), [(0, 1)], [(0,)]),
        ((0, 4), (4, 0), [(1, 0)], [(1, 0)]),
    ],
)
def test_reshapes_take_the_orders_of_real_files(operand, output, into, out) -> None:
    (tied,) = tied_nodes(facts(parameter(*operand), Node("reshape", output, (0,)), configurable=(1,)))
    pairs = list(zip(out, into, strict=True))
    assert list(tied.orders) == out and list(tied.signature[3 : 3 + len(pairs)]) == pairs
