"""Candidate configurations: valid, distinct, seeded, the default first; better ones bred from good ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.hlo.programs import matmul_module
from tests.examples import examples
from tests.graphs import layout_graphs
from xlarank.data.errors import XlarankError
from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.candidates import Candidates, Codes, breed, candidate_rows, evolve, random_configurations
from xlarank.data.hlo.reading import unlabelled_arrays
from xlarank.data.writing import write_graph


def graph_of(folder: Path) -> LayoutGraph:
    """Configurable are a dot (8, 128) of (8, 64) and (64, 128), and its reshape to (8, 16, 8)."""
    graph = write_graph(folder / "matmul.npz", **unlabelled_arrays(matmul_module()))
    assert isinstance(graph, LayoutGraph)
    return graph


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_rows_are_orders_of_the_output_s_dimensions(tmp_path: Path) -> None:
    candidates = candidate_rows(graph_of(tmp_path), rng(), per_node=100)
    empty = (-1,) * 12
    dot = {tuple(row) for row in candidates.rows[0].tolist()}
    assert dot == {(-1,) * 18, (1, 0, -1, -1, -1, -1, *empty), (0, 1, -1, -1, -1, -1, *empty)}
    reshape = {tuple(row[:3]) for row in candidates.rows[1].tolist()}
    assert len(candidates.rows[1]) == len(reshape) == 7  # 3! orders and the compiler's choice
    assert candidates.space == 3 * 7
    assert all((rows[0] == -1).all() for rows in candidates.rows)
    two, one = (candidate_rows(graph_of(tmp_path), rng(), per_node=100, named=named).rows[1] for named in (2, 1))
    assert (two[:, 2:] == -1).all() and len(two) == 7  # 3 * 2 ordered pairs
    assert len(one) == 4
    small = candidate_rows(graph_of(tmp_path), rng(), min_elements=1025)  # left to the compiler
    assert small.choices.tolist() == [1, 1] and random_configurations(small, 10, rng()).tolist() == [[0, 0]]


def test_operand_slots_take_part_where_asked(tmp_path: Path) -> None:
    candidates = candidate_rows(graph_of(tmp_path), rng(), slots="all", per_node=100)
    dot, reshape = candidates.rows
    assert (dot[:, 6:8] >= 0).any() and (dot[:, 12:14] >= 0).any()
    assert (reshape[:, 6:8] >= 0).any()
    assert (reshape[:, 12:] == -1).all()  # a reshape has one operand
    with pytest.raises(XlarankError, match="slots is 'kernel'"):
        candidate_rows(graph_of(tmp_path), rng(), slots="kernel")  # type: ignore[arg-type]


@pytest.mark.slow
@examples(20)
@given(arrays=layout_graphs(relabel=True), seed=st.integers(0, 99), slots=st.sampled_from(["output", "all"]))
def test_whatever_the_program_every_configuration_is_valid(next_path, arrays, seed, slots) -> None:
    graph = write_graph(next_path(), **arrays)
    candidates = candidate_rows(graph, rng(seed), slots=slots, min_elements=0)
    codes = random_configurations(candidates, 6, rng(seed))
    assert (codes >= 0).all() and (codes < candidates.choices).all()
    path = next_path()
    arrays["node_config_ids"] = graph.configurable
    arrays["node_config_feat"] = candidates.expand(codes)
    arrays["config_runtime"] = np.zeros(len(codes), np.int64)
    read = write_graph(path, **arrays)  # refuses what is no permutation of the tensor's dimensions
    made = candidates.graph(graph, codes)
    for name in ("codes", "rows", "node", "start"):
        assert np.array_equal(getattr(read.table, name), getattr(made.table, name)), name
    assert len(read.duplicates.first) == len(codes)


def test_random_configurations_are_distinct_seeded_and_begin_with_the_default(tmp_path: Path) -> None:
    candidates = candidate_rows(graph_of(tmp_path), rng())
    codes = random_configurations(candidates, 12, rng(3))
    assert codes.shape == (12, 2) and not codes[0].any()
    assert len(np.unique(codes, axis=0)) == 12
    assert np.array_equal(codes, random_configurations(candidates, 12, rng(3)))
    assert not np.array_equal(codes, random_configurations(candidates, 12, rng(4)))
    assert len(random_configurations(candidates, 1000, rng())) == candidates.space == 21


def test_shares_of_set_nodes_follow_the_activity() -> None:
    many = Candidates(tuple(np.arange(-1, 4, dtype=np.int8).repeat(18).reshape(5, 18) for _ in range(200)))
    share = (random_configurations(many, 400, rng())[1:] > 0).mean(axis=1)
    # A fifth each at about 0.05, 0.15, 0.3, 0.6 and 1.
    assert share.min() < 0.08 and (share == 1).mean() == pytest.approx(0.2, abs=0.08)
    assert np.median(share) == pytest.approx(0.3, abs=0.1)


def test_children_are_new_and_near_a_parent() -> None:
    many = Candidates(tuple(np.arange(-1, 4, dtype=np.int8).repeat(18).reshape(5, 18) for _ in range(50)))
    parent = np.zeros((1, 50), np.int32)
    children = breed(many, parent, 40, rng())
    assert len(np.unique(children, axis=0)) == len(children) == 40
    assert children.any(axis=1).all() and ((children > 0).sum(axis=1) <= 5).all()
    again = breed(many, parent, 40, rng(), known=children)
    assert not {row.tobytes() for row in children} & {row.tobytes() for row in again}


@pytest.mark.slow
def test_evolving_finds_the_best_rows_that_a_score_prefers() -> None:
    many = Candidates(tuple(np.arange(-1, 4, dtype=np.int8).repeat(18).reshape(5, 18) for _ in range(12)))
    wanted = rng(9).integers(0, 5, 12)

    def distance(codes: Codes) -> np.ndarray:
        return (codes != wanted).sum(axis=1).astype(float)

    found = evolve(many, distance, 20, rng(), population=40, generations=25)
    assert not found[0].any() and len(np.unique(found, axis=0)) == len(found) == 20
    assert distance(found[1:2])[0] == 0  # random draws of this many would reach about 6 of 12
    assert (np.diff(distance(found[1:])) >= 0).all()
    assert np.array_equal(found, evolve(many, distance, 20, rng(), population=40, generations=25))
    few = Candidates(many.rows[:2])  # everything is seen
    assert len(evolve(few, lambda codes: np.zeros(len(codes)), 100, rng(), generations=2)) == few.space == 25


def test_a_default_layout_that_is_stated_comes_first(tmp_path: Path) -> None:
    graph = graph_of(tmp_path)
    candidates = candidate_rows(graph, rng(), per_node=2)
    assert candidates.rows[1][1, :3].tolist() == [2, 1, 0]
    columns = graph.node_feat.copy()
    columns[5, 134:137] = (1, 2, 0)
    assert candidate_rows(replace(graph, node_feat=columns), rng(), per_node=2).rows[1][1, :3].tolist() == [1, 2, 0]
