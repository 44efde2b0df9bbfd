"""Proposing configurations: distinct, seeded, the default first, and guided by a model where asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.hlo.programs import matmul_module
from tests.pipelines.trees import LAYOUT, graph_path
from xlarank.data.errors import GraphFileError, ModelError, XlarankError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.workspace import Workspace
from xlarank.pipelines.propose import Proposal, ProposeSettings, propose
from xlarank.pipelines.rank import rank


def program(folder: Path) -> Path:
    path = folder / "matmul.pb"
    path.write_bytes(matmul_module().SerializeToString())
    return path


def proposed(path: Path, folder: Path, **settings: Any) -> tuple[Proposal, LayoutGraph]:
    """A proposal for a program, and the graph that was written."""
    out, place = folder / "p.npz", Workspace(folder)
    found = propose(path, out, ProposeSettings(**settings), workspace=place, collection=LAYOUT)
    graph = read_graph(out)
    assert isinstance(graph, LayoutGraph)
    return found, graph


def test_random_configurations_are_a_graph_file(tmp_path: Path) -> None:
    found, graph = proposed(program(tmp_path), tmp_path, configs=10, tie="none")
    assert (found.graph, found.search, found.configs) == ("matmul", "random", 10)
    assert (found.configurable, found.free, found.groups, found.choices) == (2, 2, 2, (3, 7))
    assert found.space == pytest.approx(np.log10(3 * 7))
    assert found.guided_by is None and found.default_place is None
    assert graph.configs == graph.duplicates.distinct == 10 and not graph.labelled
    rows = graph.table.rows[graph.table.codes]
    assert (rows[0] == -1).all() and (rows[1:] >= 0).any(axis=(1, 2)).all()
    assert (rows[:, :, 6:] == -1).all()  # outputs only


def test_the_program_of_a_graph_file_stays_as_it_was(shared_tree: Path, tmp_path: Path) -> None:
    path = next((shared_tree / "npz" / "layout").rglob("test/*.npz"))
    before, (_, after) = read_graph(path), proposed(path, tmp_path, configs=5, min_elements=0)
    for name in ("node_feat", "opcode", "edges", "splits", "configurable"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name


@pytest.mark.slow
def test_evolving_finds_what_the_model_ranks_higher(shared_tree, shared_trained, tmp_path) -> None:
    path, place = graph_path(shared_tree, LAYOUT, "valid", "delta__a"), Workspace(shared_trained)
    settings = ProposeSettings(search="evolve", configs=20, min_elements=0, population=30, generations=4)
    random = ProposeSettings(configs=20, min_elements=0)
    content, found = {}, {}
    for name, one in {"e": settings, "f": settings, "r": random, "s": random, "t": replace(random, seed=1)}.items():
        found[name] = propose(path, tmp_path / f"{name}.npz", one, workspace=place, collection=LAYOUT)
        content[name] = (tmp_path / f"{name}.npz").read_bytes()
    assert found["e"].guided_by == LAYOUT and found["e"].default_place is not None
    ranking = rank(place, tmp_path / "e.npz", collection=LAYOUT)
    assert int((ranking.scores < ranking.scores[0]).sum()) == found["e"].default_place
    assert content["e"] == content["f"] and content["r"] == content["s"], "the same seed, the same configurations"
    assert len({content[name] for name in ("e", "r", "t")}) == 3


def test_requests_that_cannot_be_met_are_refused(shared_tree: Path, tmp_path: Path) -> None:
    path, tile = program(tmp_path), next((shared_tree / "npz" / "tile").rglob("*.npz"))
    for source, settings, error, said in (
        (path, {"search": "anneal"}, XlarankError, "the search is 'anneal'; expected random or evolve"),
        (path, {"configs": 0}, XlarankError, "0 configurations"),
        (path, {"tie": "all"}, XlarankError, "the tie is 'all'; expected rule or none"),
        (path, {"min_elements": 10**9}, GraphFileError, "none of 2 configurable nodes has a choice.*--min-elem"),
        (path, {"search": "evolve"}, ModelError, "no trained model"),
        (tile, {}, GraphFileError, "kernel with tile sizes"),
    ):
        with pytest.raises(error, match=said):
            proposed(source, tmp_path, **settings)
    assert not (tmp_path / "p.npz").exists()
