"""Tied nodes: golden signatures, groups of real files; candidates: valid, distinct, seeded, the default first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.hlo.programs import matmul_module
from tests.graphs import LAYOUT_PROGRAM, Node, examples, layout_graphs, program_arrays
from xlarank.data.config_table import ConfigTable
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo import candidates as drawn
from xlarank.data.hlo.candidates import Candidates, breed, evolve, random_configurations, tied_candidates
from xlarank.data.hlo.reading import module_graph
from xlarank.data.hlo.ties import groups_of, tied_nodes
from xlarank.data.writing import write_graph

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


def real_groups(graph: LayoutGraph) -> np.ndarray:
    """``(configurable nodes,)`` groups of nodes whose rows change together in every configuration of a file."""
    _, group = np.unique([first_places(codes) for codes in graph.table.codes.T], axis=0, return_inverse=True)
    return group


def first_places(codes: np.ndarray) -> np.ndarray:
    """Where each of some numbers stands first: equal for numbers that repeat alike."""
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    return first[inverse]


def exact_groups(real: np.ndarray, ruled: np.ndarray) -> int:
    """Number of groups that are the same sets of nodes."""
    sets = [
        {frozenset(np.flatnonzero(group == number)) for number in set(group.tolist())} for group in (real, ruled)
    ]
    return len(sets[0] & sets[1])


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
    assert (real.max() + 1, ruled.max() + 1, exact_groups(real, ruled)) == REAL[place]


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


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def graph() -> LayoutGraph:
    """Configurable are a dot (8, 128) of (8, 64) and (64, 128), and its reshape to (8, 16, 8)."""
    return module_graph(matmul_module(), Path("matmul.pb"))


def free(nodes: int) -> Candidates:
    """Nodes with five rows each."""
    return Candidates((np.arange(-1, 4, dtype=np.int8).repeat(18).reshape(5, 18),) * nodes)


def test_rows_are_orders_of_the_output_s_dimensions(graph: LayoutGraph) -> None:
    candidates = drawn.candidate_rows(graph, rng(), per_node=100)
    dot, reshape = candidates.rows
    assert sorted(dot[:, :2].tolist()) == [[-1, -1], [0, 1], [1, 0]]
    assert len({tuple(row[:3]) for row in reshape.tolist()}) == len(reshape) == 7  # 3! and the compiler's choice
    assert all((rows[0] == -1).all() and (rows[:, 3:] == -1).all() for rows in candidates.rows)
    assert candidates.space == 3 * 7
    small = drawn.candidate_rows(graph, rng(), min_elements=1025)  # left to the compiler
    assert small.choices.tolist() == [1, 1] and random_configurations(small, 10, rng()).tolist() == [[0, 0]]
    # a default layout that is stated comes first
    columns = graph.node_feat.copy()
    columns[5, 134:137] = (1, 2, 0)
    for one, order in ((graph, [2, 1, 0]), (replace(graph, node_feat=columns), [1, 2, 0])):
        assert drawn.candidate_rows(one, rng(), per_node=2).rows[1][1, :3].tolist() == order


@examples(20)
@given(arrays=layout_graphs(relabel=True), seed=st.integers(0, 99), tie=st.booleans())
def test_whatever_the_program_every_configuration_is_valid(next_path, arrays, seed, tie) -> None:
    graph = write_graph(next_path(), **arrays)
    made = tied_candidates(graph, min_elements=0) if tie else drawn.candidate_rows(graph, rng(seed), min_elements=0)
    codes = random_configurations(made, 6, rng(seed))
    assert (codes >= 0).all() and (codes < made.choices).all() and not codes[0].any()
    rows = made.expand(codes)
    for node, group in enumerate(made.of_node.tolist()):
        expected = np.full((len(codes), 18), -1) if group < 0 else made.rows[group][codes[:, group]]
        assert np.array_equal(rows[:, node], expected), "nodes of a group change together"
    arrays |= {"node_config_ids": graph.configurable, "node_config_feat": rows}
    arrays["config_runtime"] = np.zeros(len(codes), np.int64)
    read = write_graph(next_path(), **arrays)  # refuses what is no permutation of the tensor's dimensions
    assert np.array_equal(made.graph(graph, codes).table.codes, read.table.codes)


def test_random_configurations_are_distinct_seeded_and_begin_with_the_default(graph: LayoutGraph) -> None:
    candidates = drawn.candidate_rows(graph, rng())
    codes = random_configurations(candidates, 12, rng(3))
    assert codes.shape == (12, 2) and not codes[0].any() and len(np.unique(codes, axis=0)) == 12
    assert np.array_equal(codes, random_configurations(candidates, 12, rng(3)))
    assert not np.array_equal(codes, random_configurations(candidates, 12, rng(4)))
    assert len(random_configurations(candidates, 1000, rng())) == candidates.space == 21
    share = (random_configurations(free(200), 400, rng())[1:] > 0).mean(axis=1)
    # A fifth each at about 0.05, 0.15, 0.3, 0.6 and 1.
    assert share.min() < 0.08 and (share == 1).mean() == pytest.approx(0.2, abs=0.08)
    assert np.median(share) == pytest.approx(0.3, abs=0.1)


def test_children_are_new_and_near_a_parent() -> None:
    parent = np.zeros((1, 50), np.int32)
    children = breed(free(50), parent, 40, rng())
    assert len(np.unique(children, axis=0)) == len(children) == 40
    assert children.any(axis=1).all() and ((children > 0).sum(axis=1) <= 5).all()
    again = breed(free(50), parent, 40, rng(), known=children)
    assert not {row.tobytes() for row in children} & {row.tobytes() for row in again}


@pytest.mark.slow
def test_evolving_finds_the_best_rows_that_a_score_prefers() -> None:
    wanted = rng(9).integers(0, 5, 12)

    def distance(codes: np.ndarray) -> np.ndarray:
        return (codes != wanted[: codes.shape[1]]).sum(axis=1).astype(float)

    found = evolve(free(12), distance, 20, rng(), population=40, generations=25)
    assert not found[0].any() and len(np.unique(found, axis=0)) == len(found) == 20
    assert distance(found[1:2])[0] == 0  # random draws of this many would reach about 6 of 12
    assert (np.diff(distance(found[1:])) >= 0).all()
    assert np.array_equal(found, evolve(free(12), distance, 20, rng(), population=40, generations=25))
    assert len(evolve(free(2), distance, 100, rng(), generations=2)) == 25, "everything is seen"
