"""Tied nodes: golden signatures, and the groups of real files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ties import agreement, real_groups
from tests.graphs import LAYOUT_PROGRAM, Node, program_arrays
from xlarank.data.config_table import ConfigTable
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.candidates import breed, random_configurations, tied_candidates
from xlarank.data.hlo.ties import groups_of, tied_nodes

#: Place in the tree: groups of the file, groups of the rule, groups that are equal.
REAL = {
    "nlp/default/test/3a0c5517a87df8d82fd637b83298a3ba": (26, 25, 24),
    "nlp/random/test/23559853d9702baaaacbb0c83fd32266": (15, 14, 13),
    "xla/default/test/cd708819d3f5103afd6460b15e74eaf3": (16, 15, 10),
    "xla/random/test/cd708819d3f5103afd6460b15e74eaf3": (16, 15, 10),
    "xla/default/train/alexnet_train_batch_32": (9, 9, 9),
    "xla/default/train/unet3d": (7, 6, 5),
    "xla/default/valid/unet_3d.4x4.bf16": (8, 7, 6),
    "xla/random/valid/unet_3d.4x4.bf16": (8, 7, 6),
}


def program(*nodes: Node, configurable: tuple[int, ...]) -> LayoutGraph:
    """A graph of these nodes without configurations."""
    arrays = program_arrays(nodes)
    table = ConfigTable.from_blocks([], configs=0, nodes=len(configurable))
    return LayoutGraph(
        "p", arrays["node_feat"], arrays["node_opcode"].astype(np.int64), arrays["edge_index"],
        np.zeros(0, np.int64), np.array([0, len(nodes)]), np.array(configurable), table,
    )  # fmt: skip


def parameter(*dims: int) -> Node:
    return Node("parameter", dims)


def test_dots_are_tied_by_the_cheaper_order_of_their_output() -> None:
    graph = program(
        parameter(32, 4096), parameter(4096, 1000), parameter(32, 1000),
        Node("dot", (32, 1000), (0, 1)),   # 32 x 1024 elements with 1000 on the lanes, 128 x 1000 with 32
        Node("dot", (32, 4096), (1, 2)),   # 32 x 4096 against 128 x 4096
        Node("dot", (4096, 1000), (0, 2)),  # 4096 x 1024 against 4096 x 1000: the other way around
        configurable=(3, 4, 5),
    )  # fmt: skip
    tied = tied_nodes(graph)
    assert groups_of(tied).tolist() == [0, 0, 1]
    assert (tied[0].orders, tied[2].orders) == (((1, 0), (0, 1)), ((0, 1), (1, 0)))
    # square matrices are no batch, and an outer product contracts nothing: the last two dimensions
    for operand, side in ((parameter(256, 256), 256), (parameter(64), 64)):
        graph = program(operand, operand, Node("dot", (side, side), (0, 1)), configurable=(2,))
        assert tied_nodes(graph)[0].orders == ((1, 0), (0, 1))


def test_a_convolution_and_a_reshape() -> None:
    convolution, reshape = tied_nodes(program(*LAYOUT_PROGRAM, configurable=(2, 4)))
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
        other = tied_nodes(program(image, weights, output, configurable=(2,)))[0]
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
    (tied,) = tied_nodes(program(parameter(*operand), Node("reshape", output, (0,)), configurable=(1,)))
    pairs = list(zip(out, into, strict=True))
    assert list(tied.orders) == out and list(tied.signature[3 : 3 + len(pairs)]) == pairs


@pytest.mark.parametrize("place", REAL)
def test_groups_of_real_files_are_reproduced(real_data: Path, place: str) -> None:
    graph = read_graph(real_data / "npz" / "layout" / f"{place}.npz", "layout")
    assert isinstance(graph, LayoutGraph)
    real, ruled = real_groups(graph), groups_of(tied_nodes(graph))
    exact, precision, recall = agreement(real, ruled)
    assert (real.max() + 1, ruled.max() + 1, exact) == REAL[place]
    assert precision > 0.88 and recall > 0.98


def test_agreement_is_of_whole_groups_and_of_pairs() -> None:
    assert agreement(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 2])) == (1, 1.0, 1 / 3)
    assert agreement(np.array([0, 1, 1]), np.array([0, 0, 0])) == (0, 1 / 3, 1.0)


def test_random_tied_configurations_set_dots_always_and_reshapes_sometimes() -> None:
    graph = program(
        parameter(256, 512), parameter(512, 1024), Node("dot", (256, 1024), (0, 1)),
        Node("reshape", (4, 64, 1024), (2,)), Node("dot", (256, 1024), (0, 1)), Node("reshape", (4, 2), (3,)),
        configurable=(2, 3, 4, 5),
    )  # fmt: skip
    candidates = tied_candidates(graph)
    assert candidates.of_node.tolist() == [0, 1, 0, -1]  # 8 elements: left alone
    assert candidates.free_nodes.tolist() == [0, 1, 2] and candidates.nodes == 4
    codes = random_configurations(candidates, 100, np.random.default_rng(0))
    assert len(codes) == 1 + 2 * 3  # two orders of the dots, three rows of the reshape, and the compiler's choice
    assert (codes[1:, 0] > 0).all() and set(codes[1:, 1].tolist()) == {0, 1, 2}
    children = breed(candidates, codes[:1], 100, np.random.default_rng(0))
    assert len(children) == candidates.space - 1 == 8
