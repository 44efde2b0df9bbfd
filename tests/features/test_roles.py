"""What each dimension of a convolution, dot or reshape is to it, case by case."""

from __future__ import annotations

from math import sqrt

import numpy as np

from tests.features.helpers import layout_file, layout_of
from tests.graphs import Node, layout_row
from xlarank.features.program.program_context import ProgramContext
from xlarank.features.program.slots import (
    CONVOLUTION_ROLES,
    DOT_ROLES,
    RESHAPE_ROLES,
    dot_split,
    slot_roles,
    slot_tensors,
)

ROLES = {"dot": DOT_ROLES, "reshape": RESHAPE_ROLES, "bitcast": RESHAPE_ROLES, "convolution": CONVOLUTION_ROLES}


def context_of(*nodes: Node) -> ProgramContext:
    return ProgramContext(layout_of(layout_file(nodes, [0], [[layout_row()]])))


def roles_of(*nodes: Node) -> list[str]:
    """First letters of the output's, input's and kernel's roles of the last node; past the rank they must be -1."""
    context = context_of(*nodes)
    tensors = slot_tensors(context, np.array([len(nodes) - 1]))
    found = []
    for tensor, roles in zip(tensors[0], slot_roles(context, tensors)[0].tolist(), strict=True):
        rank = context.rank[tensor] if tensor >= 0 else 0
        assert roles[rank:] == [-1] * (6 - rank)
        found.append("".join(ROLES[nodes[-1].opcode][role][0] for role in roles[:rank]))
    return found


def dot(out, left, right) -> tuple[Node, Node, Node]:
    return Node("parameter", left), Node("parameter", right), Node("dot", out, (0, 1))


def split_of(*nodes: Node) -> tuple[int, int, float]:
    context = context_of(*nodes)
    batch, rows, size = dot_split(context, slot_tensors(context, np.array([len(nodes) - 1])))
    return int(batch[0]), int(rows[0]), float(size[0])


# Dots -------------------------------------------------------------------------------------------------------


def test_a_dot():
    for out, left, right, split, roles in (
        ((16, 64), (16, 32), (32, 64), (0, 1, 32), "rc rc cr"),
        ((16, 64), (32, 16), (64, 32), (0, 1, 32), "rc cr rc"),  # both transposed
        ((16,), (16, 32), (32,), (0, 1, 32), "r rc c"),  # a matrix and a vector
        ((64,), (32,), (32, 64), (0, 0, 32), "c c cr"),
        ((), (32,), (32,), (0, 0, 32), " c c"),
        ((16, 64), (16,), (64,), (0, 1, 1), "rc r r"),  # an outer product: nothing is summed over
        ((4, 16, 64), (4, 16, 32), (4, 32, 64), (1, 1, 32), "brc brc bcr"),
        ((4, 16, 64), (4, 16, 32), (32, 64), (0, 2, 32), "rrc rrc cr"),  # a batch of the left one only is rows
        # attention: queries and keys [batch, place, head, depth], then weights and values
        ((8, 12, 128, 128), (8, 128, 12, 64), (8, 128, 12, 64), (2, 1, 64), "bbrc brbc brbc"),
        ((8, 12, 128, 64), (8, 12, 128, 128), (8, 128, 12, 64), (2, 1, 128), "bbrc bbrc bcbr"),
        ((8, 16, 512, 128), (8, 16, 512, 64), (8, 16, 64, 128), (2, 1, 64), "bbrc bbrc bbcr"),
        # projections [batch, place, features] x [features, heads, depth], and back over two dimensions
        ((8, 128, 12, 64), (8, 128, 768), (768, 12, 64), (0, 2, 768), "rrcc rrc crr"),
        ((8, 128, 768), (8, 128, 12, 64), (12, 64, 768), (0, 2, 768), "rrc rrcc ccr"),
        # weight gradients: summed over batch and place
        ((512, 2048), (8, 128, 512), (8, 128, 2048), (0, 1, 1024), "rc ccr ccr"),
        ((768, 12, 64), (8, 128, 768), (8, 128, 12, 64), (0, 1, 1024), "rcc ccr ccrr"),
        ((16, 16), (32, 16, 128, 128), (32, 16, 128, 128), (0, 1, 524288), "rc crcc crcc"),  # each has one 16
        ((512, 512), (8, 512, 512), (8, 512, 512), (0, 1, 4096), "rc crc ccr"),  # as long as it is wide
        ((512, 27, 27), (512, 27, 128), (512, 27, 128), (1, 1, 128), "brc brc brc"),
        ((12, 64, 768), (8, 128, 12, 64), (8, 128, 768), (0, 2, 1024), "rrc ccrr ccr"),
    ):
        nodes = dot(out, left, right)
        assert (split_of(*nodes), " ".join(roles_of(*nodes))) == (split, roles), (out, left, right)


def test_dots_that_leave_a_choice():
    square = ["rc", "rc", "cr"]  # rows lead on the left, columns trail on the right
    assert roles_of(*dot((128, 128), (128, 128), (128, 128))) == square
    assert roles_of(Node("parameter", (32, 32)), Node("dot", (32, 32), (0,))) == square, "one edge for two operands"
    # 4 x 4 heads: the largest batch that fits; one batch dimension would need the other 4 twice
    assert split_of(*dot((4, 4, 8, 8), (4, 4, 8, 16), (4, 4, 16, 8))) == (2, 1, 16)
    assert split_of(*dot((4, 4), (4, 16), (16, 4))) == (0, 1, 16)
    # two batch dimensions that lead all three, or a weight's gradient summed over 4 x 8: a batch that leads
    assert split_of(*dot((4, 4), (4, 4, 8), (4, 4, 8))) == (2, 0, 8)
    assert split_of(*dot((4, 4), (8, 4, 4), (8, 4, 4))) == (0, 1, 32)
    # no sizes agree: 2 + 2 - 2 = 2 dimensions go in one contraction
    assert split_of(*dot((7, 9), (5, 6), (10, 3))) == (0, 1, sqrt(30 * 30 / 63))
    assert roles_of(*dot((7, 9), (5, 6), (10, 3))) == ["rc", "cc", "cc"]


# Reshapes and convolutions ----------------------------------------------------------------------------------


def test_a_reshape():
    for dims, out, roles in (
        ((4, 8, 16), (4, 8, 16), "kkk kkk"),
        ((4, 128), (4, 2, 64), "kss ks"),  # 128 = 2 x 64
        ((4, 2, 64), (4, 128), "km kmm"),
        ((4, 8, 16), (32, 16), "mk mmk"),
        ((4, 8, 16), (4, 128), "km kmm"),
        ((8, 128, 768), (1024, 12, 64), "mss mms"),  # two groups: 8 x 128 merged, 768 split
        ((6, 4), (4, 6), "mm mm"),  # two of two: no product meets before the end
        ((12, 10), (4, 30), "mm mm"),
        ((30,), (2, 3, 5), "sss s"),
        ((2, 3, 5), (30,), "m mmm"),
        ((2, 12), (4, 3, 2), "sss ss"),  # three of two
        ((1, 4, 1, 8), (4, 8), "kk kkkk"),  # sizes of 1 come and go
        ((4, 8), (1, 4, 1, 8, 1), "kkkkk kk"),
        ((1, 32), (2, 1, 16), "sks ks"),
        ((), (1, 1), "kk "),
        ((1,), (), " k"),
        ((4, 0, 8), (0, 32), "kk kkk"),  # nothing is in it
    ):
        for opcode in ("reshape", "bitcast"):
            found = roles_of(Node("parameter", dims), Node(opcode, out, (0,)))
            assert " ".join(found[:2]) == roles and found[2] == "", (dims, out)


def test_a_convolution_has_its_dimension_numbers():
    """Output [features, batch, height], image [height, features, batch], kernel [features out, width, in]."""
    stem = "convolution_dim_numbers"
    columns = {
        **{f"{stem}_output_batch_dim": 1, f"{stem}_output_feature_dim": 0},
        **{f"{stem}_input_batch_dim": 2, f"{stem}_input_feature_dim": 1},
        **{f"{stem}_kernel_input_feature_dim": 2, f"{stem}_kernel_output_feature_dim": 0},
        f"{stem}_kernel_spatial_dims_0": 1,
    }
    image, kernel = Node("parameter", (32, 16, 8)), Node("parameter", (64, 3, 16))
    convolution = Node("convolution", (64, 8, 32), (0, 1), window=(3,), columns=columns)
    assert roles_of(image, kernel, convolution) == ["fbs", "sfb", "fsb"]
    assert roles_of(image, Node("convolution", (64, 8, 32), (0,), window=(3,), columns=columns))[2] == ""


def test_other_operations_give_no_roles():
    context = context_of(Node("parameter", (4, 8)), Node("tanh", (4, 8), (0,)))
    assert (slot_roles(context, np.array([[1, 0, -1], [0, -1, -1]])) == -1).all()
    assert slot_roles(context, np.zeros((0, 3), np.int64)).shape == (0, 3, 6)
