"""Operands of slots, roles of dimensions, fused and tied nodes of a program graph."""

from dataclasses import replace
from itertools import product
from math import sqrt

import numpy as np
import pytest

from tests.features.helpers import graph_of, layout_file
from tests.graphs import LAYOUT_PROGRAM, Node, layout_row, parameter, unconfigured
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.tied_nodes import TiedNode, groups_of, tied_nodes
from xlarank.features.program import slots
from xlarank.features.program.program_context import ProgramContext

STEM = "convolution_dim_numbers"


def given(*dims: tuple[int, ...]) -> list[Node]:
    return [parameter(*sizes) for sizes in dims]


def context_of(*nodes: Node) -> ProgramContext:
    return ProgramContext(graph_of(layout_file(nodes, [0], [[layout_row()]])))


def test_fusion_by_hand():
    root = {"is_root": 1.0}
    operands = given((8, 8), (8, 8), (8,))
    loops = Node("add", (8, 8), (0, 1)), Node("dot", (8, 8), (3,)), Node("abs", (8, 8), (4,))
    fused = context_of(*operands, *loops, Node("negate", (8, 8), (5,), columns=root)).fused
    # operands of a node that is no loop are stored
    assert fused[3:].tolist() == [False, False, True, False]
    readers = [Node(opcode, (8, 8), (3,), columns=root) for opcode in ("negate", "abs")]
    for opcode, read, expected in (
        *(("negate", (0,), True), ("tanh", (0,), False)),
        *(("add", (0, 1), False), ("multiply", (0, 2), True)),
    ):
        nodes = (*operands, Node(opcode, (8, 8), read), *readers)
        assert context_of(*nodes).fused[3] == expected, f"two consumers compute {opcode} twice"
    for opcode, expected in (("negate", True), ("exponential", False)):
        repeated = Node("broadcast", (64, 8), (3,)), Node("negate", (64, 8), (4,), columns=root)
        fused = context_of(*operands, Node(opcode, (8,), (2,)), *repeated).fused
        assert fused[3] == expected, "repeated by a broadcast"


def slots_of(nodes, *rows, **arrays):
    """Slots of the last node, the configurable one; one row a configuration."""
    file = layout_file(nodes, [len(nodes) - 1], [[row] for row in rows or (layout_row(),)])
    return tuple(LayoutContext(graph_of(file | arrays)).slot_tensor[0].tolist())


def convolution(operands=(), *, out=(8, 32, 32, 64), window=(3, 3), kernel=(3, 2, 0, 1), feature=3):
    """Numbers of the ``kernel``: features out and in, then spatial; the output batch is first."""
    names = ["kernel_output_feature_dim", "kernel_input_feature_dim", "kernel_spatial_dims_0"]
    names += ["kernel_spatial_dims_1", "output_batch_dim", "output_feature_dim"]
    numbers = {f"{STEM}_{name}": at for name, at in zip(names, (*kernel, 0, feature), strict=True)}
    return Node("convolution", out, operands, window=window, columns=numbers)


#: Left or image, right or kernel, the configurable node without its operands.
ASYMMETRIC = [
    ((8, 32, 32, 16), (3, 3, 16, 64), convolution()),
    ((8, 16, 32, 32), (64, 16, 3, 3), convolution(out=(8, 64, 32, 32), kernel=range(4), feature=1)),
    # an image that a kernel of [3,5,16,64] shares all but one of window and features with
    *(
        (image, (3, 5, 16, 64), convolution(window=(3, 5)))
        for image in ((3, 32, 16, 64), (32, 5, 16, 64), (3, 5, 64, 16))
    ),
    # [16,32] x [32,64] -> [16,64], either operand transposed
    *(
        (left, right, Node("dot", (16, 64)))
        for left in ((16, 32), (32, 16))
        for right in ((32, 64), (64, 32))
    ),
    *(((4, 16, 32), right, Node("dot", (4, 16, 64))) for right in ((4, 32, 64), (4, 64, 32))),
    ((2, 16, 32), (32, 16), Node("dot", (2, 16, 16))),  # only the 2 tells
]


def test_shapes_tell_the_operands_apart_in_any_order():
    orders = ((0, 1), (1, 0))
    for (left, right, node), operands in product(ASYMMETRIC, orders):
        nodes = (*given(left, right), replace(node, operands=operands))
        assert slots_of(nodes) == (2, 0, 1), (left, right)
    # between operands of one shape the order of the edges decides
    alike = convolution(out=(3, 3, 64, 64)), Node("dot", (32, 32))
    for node, operands in product(alike, orders):
        nodes = (*given(node.dims, node.dims), replace(node, operands=operands))
        assert slots_of(nodes) == (2, *operands)
    # the edges of other nodes in between do not matter
    nodes = (*given((8, 8), (8, 8)), *[Node("add", (8, 8))] * 2)
    mixed = np.array([(2, 0), (3, 2), (2, 1), (3, 0)])
    assert slots_of(nodes, edge_index=mixed) == (3, 2, 0)
    assert slots_of(nodes, edge_index=mixed[::-1]) == (3, 0, 2)
    nodes = (*given(*[(4, 8)] * 3), Node("concatenate", (12, 8), (1, 0, 2)))
    assert slots_of(nodes) == (3, 1, 0), "of more than two operands the first two count"


def test_layouts_say_more_than_shapes():
    """x * x has one edge, for both operands if any configuration names a kernel layout."""
    square = (*given((4, 8)), Node("multiply", (4, 8), (0,)))
    added = (*given((4, 8), (2, 3, 4, 8)), Node("add", (2, 3, 4, 8), (0, 1)))
    # by its shape [2,16,32] is the left operand, but the kernel layout has three dimensions
    dot = (*given((2, 16, 32), (32, 64)), Node("dot", (2, 16, 64), (0, 1)))
    for nodes, rows, expected in (
        (square, [layout_row(), layout_row(kernel=(0,))], (1, 0, 0)),
        (square, [layout_row(input=(0, 1))], (1, 0, -1)),  # a unary operation has no kernel
        ((square[0], Node("multiply", (4, 8), (0, 0))), [], (1, 0, 0)),  # two equal edges
        (square[:1], [layout_row(input=(0, 1))], (0, -1, -1)),  # without operands: the output only
        (added, [layout_row(input=(3, 0))], (2, 1, 0)),
        (added, [layout_row(kernel=(3, 0))], (2, 0, 1)),
        (added, [layout_row(input=(1, 0))], (2, 0, 1)),  # either has it
        (added, [layout_row(), layout_row(input=(0,)), layout_row(input=(2,))], (2, 1, 0)),
        (dot, [], (2, 0, 1)),
        (dot, [layout_row(kernel=(2, 1, 0))], (2, 1, 0)),
    ):
        assert slots_of(nodes, *rows) == expected


def test_a_reduction_lays_out_its_array_whether_configured_or_not():
    """Its edges also name the applied computation and the initial value, in any order."""
    rows = layout_row(), layout_row(input=(2, 0, 1))
    for kind, position in product(("reduce", "reduce-window"), range(3)):
        nodes = [Node("constant", ()), Node("constant", ()), Node(kind, (4, 8), (0, 1, 2))]
        nodes.insert(position, parameter(4, 8, 16))
        assert slots_of(nodes)[:2] == slots_of(nodes, *rows)[:2] == (3, position)


ROLES = {"dot": slots.DOT_ROLES, "convolution": slots.CONVOLUTION_ROLES}
ROLES |= dict.fromkeys(("reshape", "bitcast"), slots.RESHAPE_ROLES)


def context_and_slots(*nodes: Node) -> tuple[ProgramContext, np.ndarray]:
    """The program, and the tensors of the last node's slots, ``(1, 3)``."""
    context = context_of(*nodes)
    return context, slots.slot_tensors(context, np.array([len(nodes) - 1]))


def roles_of(*nodes: Node) -> list[str]:
    """First letters of the roles of the last node's slots; past the rank they must be -1."""
    context, tensors = context_and_slots(*nodes)
    names = ROLES[nodes[-1].opcode]
    roles = slots.slot_roles(context, tensors)[0].tolist()
    ranks = [context.rank[tensor] if tensor >= 0 else 0 for tensor in tensors[0]]
    for of_slot, rank in zip(roles, ranks, strict=True):
        assert of_slot[rank:] == [-1] * (6 - rank)
    return ["".join(names[role][0] for role in of_slot if role >= 0) for of_slot in roles]


def test_split_and_roles_of_a_dot():
    for out, left, right, split, roles in (
        ((16, 64), (16, 32), (32, 64), (0, 1, 32), "rc rc cr"),
        ((16, 64), (32, 16), (64, 32), (0, 1, 32), "rc cr rc"),  # both transposed
        ((16,), (16, 32), (32,), (0, 1, 32), "r rc c"),  # a matrix and a vector
        ((), (32,), (32,), (0, 0, 32), " c c"),
        ((16, 64), (16,), (64,), (0, 1, 1), "rc r r"),  # an outer product: nothing is summed over
        # a batch of the left one only is rows
        ((4, 16, 64), (4, 16, 32), (32, 64), (0, 2, 32), "rrc rrc cr"),
        # attention: queries and keys [batch, place, head, depth], then weights and values
        ((8, 12, 128, 128), (8, 128, 12, 64), (8, 128, 12, 64), (2, 1, 64), "bbrc brbc brbc"),
        # a projection [batch, place, features] x [features, heads, depth], and back over two
        # dimensions
        ((8, 128, 12, 64), (8, 128, 768), (768, 12, 64), (0, 2, 768), "rrcc rrc crr"),
        ((8, 128, 768), (8, 128, 12, 64), (12, 64, 768), (0, 2, 768), "rrc rrcc ccr"),
        # weight gradients: summed over batch and place
        ((768, 12, 64), (8, 128, 768), (8, 128, 12, 64), (0, 1, 1024), "rcc ccr ccrr"),
        # each has one 16; as long as it is wide
        ((16, 16), (32, 16, 128, 128), (32, 16, 128, 128), (0, 1, 524288), "rc crcc crcc"),
        ((512, 512), (8, 512, 512), (8, 512, 512), (0, 1, 4096), "rc crc ccr"),
        ((512, 27, 27), (512, 27, 128), (512, 27, 128), (1, 1, 128), "brc brc brc"),
        # two batch dimensions that lead all three, or a weight's gradient summed over 4 x 8: a
        # batch that leads
        ((4, 4), (4, 4, 8), (4, 4, 8), (2, 0, 8), "bb bbc bbc"),
        # 4 x 4 heads: the largest batch that fits; one batch dimension would need the other 4 twice
        ((4, 4, 8, 8), (4, 4, 8, 16), (4, 4, 16, 8), (2, 1, 16), "bbrc bbrc bbcr"),
        # no sizes agree: 2 + 2 - 2 = 2 dimensions go in one contraction
        ((7, 9), (5, 6), (10, 3), (0, 1, sqrt(30 * 30 / 63)), "rc cc cc"),
        ((128, 128), (128, 128), (128, 128), (0, 1, 128), "rc rc cr"),  # rows lead, columns trail
    ):
        nodes = *given(left, right), Node("dot", out, (0, 1))
        context, tensors = context_and_slots(*nodes)
        computed = tuple(float(part[0]) for part in slots.dot_split(context, tensors))
        assert computed == split, (out, left, right)
        assert " ".join(roles_of(*nodes)) == roles, (out, left, right)
    one_edge = Node("parameter", (32, 32)), Node("dot", (32, 32), (0,))
    assert roles_of(*one_edge) == ["rc", "rc", "cr"], "one edge for two operands"


def test_roles_of_a_reshape():
    for dims, out, roles in (
        ((4, 8, 16), (4, 8, 16), "kkk kkk"),
        ((4, 128), (4, 2, 64), "kss ks"),  # 128 = 2 x 64
        ((8, 128, 768), (1024, 12, 64), "mss mms"),  # two groups: 8 x 128 merged, 768 split
        ((6, 4), (4, 6), "mm mm"),  # two of two: no product meets before the end
        ((30,), (2, 3, 5), "sss s"),
        ((2, 12), (4, 3, 2), "sss ss"),  # three of two
        ((1, 4, 1, 8), (4, 8), "kk kkkk"),  # sizes of 1 come and go
        ((), (1, 1), "kk "),
        ((1,), (), " k"),
        ((4, 0, 8), (0, 32), "kk kkk"),  # nothing is in it
    ):
        for opcode in ("reshape", "bitcast"):
            computed = roles_of(parameter(*dims), Node(opcode, out, (0,)))
            assert computed == [*roles.split(" "), ""], (dims, out)


def test_roles_of_a_convolution_are_its_dimension_numbers_and_other_operations_have_none():
    """Output [features, batch, height], image and kernel in other orders."""
    columns = {
        **{f"{STEM}_output_batch_dim": 1, f"{STEM}_output_feature_dim": 0},
        **{f"{STEM}_input_batch_dim": 2, f"{STEM}_input_feature_dim": 1},
        f"{STEM}_kernel_spatial_dims_0": 1,
        **{f"{STEM}_kernel_input_feature_dim": 2, f"{STEM}_kernel_output_feature_dim": 0},
    }
    node = Node("convolution", (64, 8, 32), (0, 1), window=(3,), columns=columns)
    assert roles_of(*given((32, 16, 8), (64, 3, 16)), node) == ["fbs", "sfb", "fsb"]
    assert roles_of(*given((32, 16, 8)), replace(node, operands=(0,)))[2] == ""
    context = context_of(parameter(4, 8), Node("tanh", (4, 8), (0,)))
    assert (slots.slot_roles(context, np.array([[1, 0, -1], [0, -1, -1]])) == -1).all()
    assert slots.slot_roles(context, np.zeros((0, 3), np.int64)).shape == (0, 3, 6)


def tied_to(*nodes: Node, configurable: tuple[int, ...]) -> list[TiedNode]:
    return tied_nodes(LayoutContext(unconfigured(*nodes, configurable=configurable)))


def test_dots_are_tied_by_the_cheaper_order_of_their_output():
    dots = (
        Node("dot", (32, 1000), (0, 1)),  # 32 x 1024 with 1000 on the lanes, 128 x 1000 with 32
        Node("dot", (32, 4096), (1, 2)),  # 32 x 4096 against 128 x 4096
        Node("dot", (4096, 1000), (0, 2)),  # 4096 x 1024 against 4096 x 1000: the other way around
    )
    tied = tied_to(*given((32, 4096), (4096, 1000), (32, 1000)), *dots, configurable=(3, 4, 5))
    assert groups_of(tied).tolist() == [0, 0, 1]
    assert (tied[0].orders, tied[2].orders) == (((1, 0), (0, 1)), ((0, 1), (1, 0)))
    # square matrices are no batch, and an outer product contracts nothing: the last two dimensions
    for dims, side in (((256, 256), 256), ((64,), 64)):
        (dot,) = tied_to(*given(dims, dims), Node("dot", (side, side), (0, 1)), configurable=(2,))
        assert dot.orders == ((1, 0), (0, 1))
    # the first of equal sizes are free; in the second dot two are, and the second is not the first
    # again
    batched = (16, 32, 32, 192)
    for left, right, out, signature in (
        (batched, batched, (16, 32, 32, 32), ("dot", 4, (3, 2), (4, 3, 1), (4, 3, 1))),
        ((32, 32, 192), (192, 8), (32, 32, 8), ("dot", 3, (1, 2), (2, 0, 1), (3, 2, 1))),
    ):
        (dot,) = tied_to(*given(left, right), Node("dot", out, (0, 1)), configurable=(2,))
        assert dot.signature == signature


def test_a_convolution_and_a_reshape_are_tied_by_their_cheaper_orders() -> None:
    convolution, reshape = tied_to(*LAYOUT_PROGRAM, configurable=(2, 4))
    # Image and output, batch 8 and 16 features: 8 x 128 with features on the lanes, 16 x 128 with
    # the batch there.
    assert convolution.orders == ((3, 0), (0, 3))
    # Weights, 16 and 16: equal, so the later dimension stays on the lanes.
    assert convolution.signature == ("convolution", 4, (3, 0), (3, 0), (3, 2))
    # (8, 32, 32, 16) to (8, 16384): the batch is one block, the rest the other.
    orders = ((1, 0), (3, 2, 1, 0)), ((0, 1), (0, 3, 2, 1))
    assert reshape.signature[:5] == ("reshape", 2, 4, *orders)
    # 3 channels instead of 16: 8 on the lanes pad them less than 128, and the node is no longer
    # tied to its like.
    for batch, alike in ((8, True), (32, False)):  # 8 x 128 either way: features on the lanes
        output = replace(LAYOUT_PROGRAM[2], dims=(batch, 32, 32, 16))
        (other,) = tied_to(*given((batch, 32, 32, 3), (3, 3, 3, 16)), output, configurable=(2,))
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
    (tied,) = tied_to(parameter(*operand), Node("reshape", output, (0,)), configurable=(1,))
    pairs = list(zip(out, into, strict=True))
    assert list(tied.orders) == out and list(tied.signature[3 : 3 + len(pairs)]) == pairs
