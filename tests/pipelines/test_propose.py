"""Proposing configurations: distinct, seeded, the default first, and guided by a model where asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.data.hlo.programs import matmul_module
from tests.pipelines.trees import LAYOUT, graph_path
from xlarank.data.errors import GraphFileError, ModelError, XlarankError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.workspace import Workspace
from xlarank.pipelines.propose import ProposeSettings, propose
from xlarank.pipelines.rank import rank


def program(folder: Path) -> Path:
    path = folder / "matmul.pb"
    path.write_bytes(matmul_module().SerializeToString())
    return path


def test_random_configurations_are_a_graph_file(tmp_path: Path) -> None:
    found = propose(program(tmp_path), tmp_path / "p.npz", ProposeSettings(configs=10, tie="none"))
    assert (found.graph, found.search, found.configs, found.configurable, found.free, found.groups) == (
        "matmul", "random", 10, 2, 2, 2
    )  # fmt: skip
    assert found.choices == (3, 7) and found.space == pytest.approx(np.log10(3 * 7))
    assert found.guided_by is None and found.default_place is None
    graph = read_graph(tmp_path / "p.npz")
    assert isinstance(graph, LayoutGraph)
    assert graph.configs == graph.duplicates.distinct == 10 and not graph.labelled
    with np.load(tmp_path / "p.npz") as arrays:
        feat = arrays["node_config_feat"]
    assert feat.dtype == np.float32 and (feat[0] == -1).all()
    assert (feat[:, :, 6:] == -1).all()  # outputs only
    assert (feat[1:] >= 0).any(axis=(1, 2)).all()


def test_tied_nodes_take_the_rows_of_real_files(tmp_path: Path) -> None:
    found = propose(program(tmp_path), tmp_path / "p.npz", ProposeSettings(configs=10))
    # two orders of the dot's (8, 128); of the reshape to (8, 16, 8) the compiler's choice and two of its blocks
    assert (found.configs, found.groups, found.choices) == (1 + 2 * 3, 2, (3, 3))
    graph = read_graph(tmp_path / "p.npz")
    assert isinstance(graph, LayoutGraph)
    rows = graph.table.rows[graph.table.codes[1:]]
    assert {tuple(row[:2]) for row in rows[:, 0].tolist()} == {(1, 0), (0, 1)}
    assert {tuple(row[:3]) for row in rows[:, 1].tolist()} == {(-1, -1, -1), (2, 1, 0), (0, 2, 1)}


def test_the_program_of_a_graph_file_stays_as_it_was(shared_tree: Path, tmp_path: Path) -> None:
    path = next((shared_tree / "npz" / "layout").rglob("test/*.npz"))
    propose(path, tmp_path / "p.npz", ProposeSettings(configs=5, min_elements=0, slots="all"))
    before, after = read_graph(path), read_graph(tmp_path / "p.npz")
    assert isinstance(before, LayoutGraph) and isinstance(after, LayoutGraph)
    for name in ("node_feat", "opcode", "edges", "splits", "configurable"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name


@pytest.mark.slow
def test_evolving_finds_what_the_model_ranks_higher(
    shared_tree: Path, shared_trained: Path, tmp_path: Path
) -> None:
    path, place = graph_path(shared_tree, LAYOUT, "valid", "delta__a"), Workspace(shared_trained)
    settings = ProposeSettings("evolve", 20, min_elements=0, population=30, generations=4)
    random = ProposeSettings(configs=20, min_elements=0)
    files = {"e": settings, "f": settings, "r": random, "s": random, "t": replace(random, seed=1)}
    found = {
        name: propose(path, tmp_path / f"{name}.npz", one, workspace=place, collection=LAYOUT)
        for name, one in files.items()
    }
    assert found["e"].guided_by == LAYOUT and found["e"].default_place is not None
    ranking = rank(place, tmp_path / "e.npz", collection=LAYOUT)
    assert int((ranking.scores < ranking.scores[0]).sum()) == found["e"].default_place
    content = {name: (tmp_path / f"{name}.npz").read_bytes() for name in files}
    assert content["e"] == content["f"] and content["r"] == content["s"], "the same seed, the same configurations"
    assert len({content[name] for name in ("e", "r", "t")}) == 3


def test_requests_that_cannot_be_met_are_refused(shared_tree: Path, tmp_path: Path) -> None:
    path, out = program(tmp_path), tmp_path / "p.npz"
    tile = next((shared_tree / "npz" / "tile").rglob("*.npz"))
    for source, settings, error, said in (
        (path, {"search": "anneal"}, XlarankError, "the search is 'anneal'; expected random or evolve"),
        (path, {"configs": 0}, XlarankError, "0 configurations"),
        (path, {"slots": "input"}, XlarankError, "slots is 'input'"),
        (path, {"tie": "all"}, XlarankError, "tie is 'all'; expected rule or none"),
        (path, {"min_elements": 10**9}, GraphFileError, "none of 2 configurable nodes has a choice.*--min-elem"),
        (path, {"search": "evolve"}, ModelError, "no trained model"),
        (tile, {}, GraphFileError, "kernel with tile sizes"),
    ):
        with pytest.raises(error, match=said):
            propose(
                source, out, ProposeSettings(**settings),  # type: ignore[arg-type]
                workspace=Workspace(tmp_path), collection=LAYOUT,
            )  # fmt: skip
    assert not out.exists()
