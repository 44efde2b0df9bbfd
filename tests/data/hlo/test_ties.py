"""Tied nodes: golden signatures, the groups of real files, a slow reference for comparing partitions."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ties import agreement, real_groups
from tests.examples import examples
from tests.graphs import LAYOUT_PROGRAM, Node, layout_arrays, layout_graphs, layout_row, program_arrays
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.candidates import breed, random_configurations, tied_candidates
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


def program(path: Path, *nodes: Node, configurable: tuple[int, ...]) -> LayoutGraph:
    """A graph of these nodes with the compiler's choice as its only configuration."""
    arrays = {
        **program_arrays(nodes),
        "node_splits": np.array([[0, len(nodes)]], np.int64),
        "node_config_ids": np.array(configurable, np.int64),
        "node_config_feat": np.full((1, len(configurable), 18), -1, np.float32),
        "config_runtime": np.zeros(1, np.int64),
    }
    graph = write_graph(path, **arrays)
    assert isinstance(graph, LayoutGraph)
    return graph


def test_dots_are_tied_by_the_cheaper_order_of_their_output(tmp_path: Path) -> None:
    graph = program(
        tmp_path / "dots.npz",
        Node("parameter", (32, 4096)), Node("parameter", (4096, 1000)), Node("parameter", (32, 1000)),
        Node("dot", (32, 1000), (0, 1)),   # 32 x 1024 elements with 1000 on the lanes, 128 x 1000 with 32
        Node("dot", (32, 4096), (1, 2)),   # 32 x 4096 against 128 x 4096
        Node("dot", (4096, 1000), (0, 2)),  # 4096 x 1024 against 4096 x 1000: the other way around
        configurable=(3, 4, 5),
    )  # fmt: skip
    tied = tied_nodes(graph)
    assert groups_of(tied).tolist() == [0, 0, 1]
    none = (-1,) * 18
    assert tied[0].rows(operands=False).tolist() == [
        list(none), layout_row((1, 0)).tolist(), layout_row((0, 1)).tolist()
    ]  # fmt: skip
    assert tied[2].rows(operands=False)[1:, :2].tolist() == [[0, 1], [1, 0]]
    assert len(tied[0].rows(operands=True)) == 1 + 2 * 2 * 2


def test_square_matrices_are_no_batch(tmp_path: Path) -> None:
    square = Node("parameter", (256, 256))
    graph = program(tmp_path / "d.npz", square, square, Node("dot", (256, 256), (0, 1)), configurable=(2,))
    assert tied_nodes(graph)[0].rows(operands=False)[1:, :2].tolist() == [[1, 0], [0, 1]]
    # an outer product contracts nothing: the last two dimensions
    vector = Node("parameter", (64,))
    graph = program(tmp_path / "o.npz", vector, vector, Node("dot", (64, 64), (0, 1)), configurable=(2,))
    assert tied_nodes(graph)[0].rows(operands=False)[1:, :2].tolist() == [[1, 0], [0, 1]]


def test_a_convolution_and_a_reshape(tmp_path: Path) -> None:
    graph = write_graph(tmp_path / "block.npz", **layout_arrays())
    assert isinstance(graph, LayoutGraph)
    convolution, reshape = tied_nodes(graph)
    # Image and output, batch 8 and 16 features: 8 x 128 with features on the lanes, 16 x 128 with the batch there.
    # Weights, 16 and 16: equal, so the later dimension stays on the lanes.
    assert convolution.rows(operands=True)[1].tolist() == layout_row((3, 0), (3, 0), (3, 2)).tolist()
    assert {tuple(row) for row in convolution.rows(operands=False)[:, :2].tolist()} == {(-1, -1), (3, 0), (0, 3)}
    # (8, 32, 32, 16) to (8, 16384): the batch is one block, the rest the other.
    assert reshape.rows(operands=True).tolist()[1:] == [
        layout_row((1, 0), (3, 2, 1, 0)).tolist(), layout_row((0, 1), (0, 3, 2, 1)).tolist()
    ]  # fmt: skip
    # 3 channels instead of 16: 8 on the lanes pad them less than 128, and the node is no longer tied to its like.
    nodes = list(LAYOUT_PROGRAM)
    nodes[0], nodes[1] = Node("parameter", (8, 32, 32, 3)), Node("parameter", (3, 3, 3, 16))
    other = program(tmp_path / "first.npz", *nodes, configurable=(2, 4))
    assert tied_nodes(other)[0].signature == convolution.signature  # 8 x 128 either way: features on the lanes
    nodes[0] = replace(nodes[0], dims=(32, 32, 32, 3))
    nodes[2] = replace(nodes[2], dims=(32, 32, 32, 16))
    batch = program(tmp_path / "batch.npz", *nodes[:3], configurable=(2,))
    assert tied_nodes(batch)[0].signature != convolution.signature


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
def test_reshapes_take_the_rows_of_real_files(tmp_path: Path, operand, output, into, out) -> None:
    graph = program(
        tmp_path / "r.npz", Node("parameter", operand), Node("reshape", output, (0,)), configurable=(1,)
    )
    rows = tied_nodes(graph)[0].rows(operands=True)
    assert rows[1:].tolist() == [layout_row(a, b).tolist() for a, b in zip(out, into, strict=True)]


@pytest.mark.parametrize("place", REAL)
def test_groups_of_real_files_are_reproduced(real_data: Path, place: str) -> None:
    graph = read_graph(real_data / "npz" / "layout" / f"{place}.npz", "layout")
    assert isinstance(graph, LayoutGraph)
    real, ruled = real_groups(graph), groups_of(tied_nodes(graph))
    exact, precision, recall = agreement(real, ruled)
    assert (real.max() + 1, ruled.max() + 1, exact) == REAL[place]
    assert precision > 0.88 and recall > 0.98


@examples(50)
@given(pairs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_agreement_is_that_of_all_pairs(pairs: list[tuple[int, int]]) -> None:
    real, ruled = np.array(pairs).T

    def groups(labels: np.ndarray) -> set[frozenset[int]]:
        return {frozenset(np.flatnonzero(labels == label).tolist()) for label in labels}

    def tied(labels: np.ndarray) -> set[tuple[int, int]]:
        return {(a, b) for a, b in combinations(range(len(labels)), 2) if labels[a] == labels[b]}

    both = len(tied(real) & tied(ruled))
    exact, precision, recall = agreement(real, ruled)
    assert exact == len(groups(real) & groups(ruled))
    assert precision == both / max(1, len(tied(ruled))) and recall == both / max(1, len(tied(real)))


@examples(20)
@given(arrays=layout_graphs(relabel=True), seed=st.integers(0, 99), slots=st.sampled_from(["output", "all"]))
def test_tied_configurations_are_valid_and_nodes_of_a_group_change_together(next_path, arrays, seed, slots) -> None:
    graph = write_graph(next_path(), **arrays)
    candidates = tied_candidates(graph, slots=slots, min_elements=0)
    codes = random_configurations(candidates, 6, np.random.default_rng(seed))
    assert not codes[0].any()
    rows = candidates.expand(codes)
    assert rows.shape == (len(codes), len(graph.configurable), 18)
    arrays |= {"node_config_ids": graph.configurable, "node_config_feat": rows}
    write_graph(
        next_path(), **{**arrays, "config_runtime": np.zeros(len(codes), np.int64)}
    )  # refuses invalid orders
    assert candidates.group is not None
    for node, group in enumerate(candidates.group.tolist()):
        expected = rows[:, 0] * 0 - 1 if group < 0 else candidates.rows[group][codes[:, group]]
        assert np.array_equal(rows[:, node], expected)


def test_random_tied_configurations_set_dots_always_and_reshapes_sometimes(tmp_path: Path) -> None:
    graph = program(
        tmp_path / "p.npz",
        Node("parameter", (256, 512)), Node("parameter", (512, 1024)), Node("dot", (256, 1024), (0, 1)),
        Node("reshape", (4, 64, 1024), (2,)), Node("dot", (256, 1024), (0, 1)), Node("reshape", (4, 2), (3,)),
        configurable=(2, 3, 4, 5),
    )  # fmt: skip
    candidates = tied_candidates(graph)
    assert candidates.group is not None and candidates.group.tolist() == [0, 1, 0, -1]  # 8 elements: left alone
    assert candidates.free_nodes.tolist() == [0, 1, 2] and candidates.nodes == 4
    codes = random_configurations(candidates, 100, np.random.default_rng(0))
    assert len(codes) == 1 + 2 * 3  # two orders of the dots, three rows of the reshape, and the compiler's choice
    assert (codes[1:, 0] > 0).all() and set(codes[1:, 1].tolist()) == {0, 1, 2}
    children = breed(candidates, codes[:1], 100, np.random.default_rng(0))
    assert len(children) == candidates.space - 1 == 8
    rows = candidates.expand(children)
    assert np.array_equal(rows[:, 0], rows[:, 2]) and (rows[:, 3] == -1).all()
