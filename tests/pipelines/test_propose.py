"""Proposing configurations: distinct, seeded, the default first, and guided by a model where asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.data.hlo.programs import matmul_module
from tests.pipelines.trees import LAYOUT, graph_path
from xlarank.data.errors import GraphFileError, ModelError, XlarankError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.workspace import Workspace
from xlarank.pipelines.propose import propose
from xlarank.pipelines.rank import rank


def program(folder: Path) -> Path:
    path = folder / "matmul.pb"
    path.write_bytes(matmul_module().SerializeToString())
    return path


def test_random_configurations_are_a_graph_file(tmp_path: Path) -> None:
    found = propose(program(tmp_path), tmp_path / "p.npz", configs=10)
    assert (found.graph, found.search, found.configs, found.configurable, found.free) == (
        "matmul", "random", 10, 2, 2
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


def test_the_program_of_a_graph_file_stays_as_it_was(shared_tree: Path, tmp_path: Path) -> None:
    path = next((shared_tree / "npz" / "layout").rglob("test/*.npz"))
    propose(path, tmp_path / "p.npz", configs=5, min_elements=0, slots="all")
    before, after = read_graph(path), read_graph(tmp_path / "p.npz")
    assert isinstance(before, LayoutGraph) and isinstance(after, LayoutGraph)
    for name in ("node_feat", "opcode", "edges", "splits", "configurable"):
        assert np.array_equal(getattr(before, name), getattr(after, name)), name


def test_a_seed_gives_the_same_configurations(tmp_path: Path) -> None:
    saved = []
    for number, seed in enumerate((1, 1, 2)):
        propose(program(tmp_path), tmp_path / f"{number}.npz", configs=12, seed=seed)
        with np.load(tmp_path / f"{number}.npz") as arrays:
            saved.append(arrays["node_config_feat"])
    assert np.array_equal(saved[0], saved[1]) and not np.array_equal(saved[0], saved[2])


def test_evolving_finds_what_the_model_likes_better(
    shared_tree: Path, shared_trained: Path, tmp_path: Path
) -> None:
    path = graph_path(shared_tree, LAYOUT, "valid", "delta__a")
    words = {"configs": 20, "min_elements": 0, "workspace": Workspace(shared_trained), "collection": LAYOUT}
    found = propose(path, tmp_path / "e.npz", search="evolve", population=30, generations=4, **words)
    assert found.guided_by == LAYOUT and found.default_place is not None
    again = propose(path, tmp_path / "f.npz", search="evolve", population=30, generations=4, **words)
    assert again.configs == found.configs and (tmp_path / "e.npz").read_bytes() == (tmp_path / "f.npz").read_bytes()
    ranking = rank(Workspace(shared_trained), tmp_path / "e.npz", collection=LAYOUT)
    assert int((ranking.scores < ranking.scores[0]).sum()) == found.default_place
    propose(path, tmp_path / "r.npz", **words)
    both = [np.load(tmp_path / name)["node_config_feat"] for name in ("e.npz", "r.npz")]
    assert len(both[0]) == 20 and not np.array_equal(*both)


def test_requests_that_cannot_be_met_are_refused(shared_tree: Path, tmp_path: Path) -> None:
    path, out = program(tmp_path), tmp_path / "p.npz"
    with pytest.raises(XlarankError, match="the search is 'anneal'; expected random or evolve"):
        propose(path, out, search="anneal")  # type: ignore[arg-type]
    with pytest.raises(XlarankError, match="0 configurations"):
        propose(path, out, configs=0)
    with pytest.raises(XlarankError, match="slots is 'input'"):
        propose(path, out, slots="input")  # type: ignore[arg-type]
    with pytest.raises(GraphFileError, match=r"none of 2 configurable nodes has a choice.*--min-elements"):
        propose(path, out, min_elements=10**9)
    with pytest.raises(ModelError, match="no trained model"):
        empty = Workspace(tmp_path)
        propose(path, out, search="evolve", workspace=empty, collection="layout:cpu:random")
    tile = next((shared_tree / "npz" / "tile").rglob("*.npz"))
    with pytest.raises(GraphFileError, match="kernel with tile sizes"):
        propose(tile, out)
    assert not out.exists()
