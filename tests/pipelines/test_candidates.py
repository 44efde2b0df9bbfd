"""Candidate configurations: valid, distinct, seeded, the default first."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.hlo.programs import matmul_module
from tests.features.helpers import SCRAMBLED_GRAPHS
from tests.graphs import Node, examples, parameter, unconfigured
from xlarank.data.hlo.reading import module_graph
from xlarank.data.writing import write_graph
from xlarank.pipelines.programs import candidates as drawn
from xlarank.pipelines.programs.candidates import Candidates, breed, evolve, random_configurations, tied_candidates


def test_random_tied_configurations_set_dots_always_and_reshapes_sometimes():
    graph = unconfigured(
        parameter(256, 512), parameter(512, 1024), Node("dot", (256, 1024), (0, 1)),
        Node("reshape", (4, 64, 1024), (2,)), Node("dot", (256, 1024), (0, 1)), Node("reshape", (4, 2), (3,)),
        configurable=(2, 3, 4, 5),
    )  # fmt: skip
    candidates = tied_candidates(graph)
    assert candidates.of_node.tolist() == [0, 1, 0, -1]  # 8 elements: left alone
    assert candidates.free.tolist() == [0, 1] and candidates.nodes == 4
    codes = random_configurations(candidates, 100, np.random.default_rng(0))
    assert len(codes) == 1 + 2 * 3  # two orders of the dots, three rows of the reshape, and the compiler's choice
    assert (codes[1:, 0] > 0).all() and set(codes[1:, 1].tolist()) == {0, 1, 2}
    children = breed(candidates, codes[:1], 100, np.random.default_rng(0))
    assert len(children) == candidates.space - 1 == 8


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def graph():
    """Configurable are a dot (8, 128) of (8, 64) and (64, 128), and its reshape to (8, 16, 8)."""
    return module_graph(matmul_module(), Path("matmul.pb"))


def free(nodes):
    """Nodes with five rows each."""
    return Candidates((np.arange(-1, 4, dtype=np.int8).repeat(18).reshape(5, 18),) * nodes)


def test_rows_are_orders_of_the_output_s_dimensions(graph):
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
    for program, order in ((graph, [2, 1, 0]), (replace(graph, node_feat=columns), [1, 2, 0])):
        assert drawn.candidate_rows(program, rng(), per_node=2).rows[1][1, :3].tolist() == order


@examples(20)
@given(arrays=SCRAMBLED_GRAPHS, seed=st.integers(0, 99), tie=st.booleans())
def test_whatever_the_program_every_configuration_is_valid(next_path, arrays, seed, tie):
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


def test_random_configurations_are_distinct_seeded_and_begin_with_the_default(graph):
    candidates = drawn.candidate_rows(graph, rng())
    codes = random_configurations(candidates, 12, rng(3))
    assert codes.shape == (12, 2) and not codes[0].any() and len(np.unique(codes, axis=0)) == 12
    assert np.array_equal(codes, random_configurations(candidates, 12, rng(3)))
    assert not np.array_equal(codes, random_configurations(candidates, 12, rng(4)))
    assert len(random_configurations(candidates, 1000, rng())) == candidates.space == 21


def test_children_are_new_and_near_a_parent():
    parent = np.zeros((1, 50), np.int32)
    children = breed(free(50), parent, 40, rng())
    assert len(np.unique(children, axis=0)) == len(children) == 40
    assert children.any(axis=1).all() and ((children > 0).sum(axis=1) <= 5).all()
    again = breed(free(50), parent, 40, rng(), known=children)
    assert not {row.tobytes() for row in children} & {row.tobytes() for row in again}


@pytest.mark.slow
def test_evolving_finds_the_best_rows_that_a_score_prefers():
    wanted = rng(9).integers(0, 5, 12)

    def distance(codes):
        return (codes != wanted[: codes.shape[1]]).sum(axis=1).astype(float)

    evolved = evolve(free(12), distance, 20, rng(), population=40, generations=25)
    assert not evolved[0].any() and len(np.unique(evolved, axis=0)) == len(evolved) == 20
    assert distance(evolved[1:2])[0] == 0  # random draws of this many would reach about 6 of 12
    assert (np.diff(distance(evolved[1:])) >= 0).all()
    assert np.array_equal(evolved, evolve(free(12), distance, 20, rng(), population=40, generations=25))
    assert len(evolve(free(2), distance, 100, rng(), population=64, generations=2)) == 25, "everything is seen"
