"""Instances through the pipelines: stored with the rows, built again with them, read by who asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.trees import LAYOUT, TILE, TREE, build, graph_path, stored, write_tree
from xlarank.data.collection import Collection
from xlarank.data.errors import FeatureStoreError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import instance_table
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.models.trained import load_model
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.rank import rank
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.train import train


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    write_tree(root)
    return root


@pytest.fixture(scope="module")
def trained(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("work")
    build(tree, work)
    train(Workspace(work), TrainRequest(model="sum-pooled", seeds=2, rounds=30, threads=1))
    return work


def place(work: Path, name: str = "alpha__a") -> Path:
    return Workspace(work).graph_instances(Collection.parse(LAYOUT), "train", name)


def totals(tree: Path, work: Path) -> tuple[int, int]:
    report = build(tree, work, collections=[LAYOUT], splits=["train"])
    return report.splits[0].built, report.splits[0].kept


def test_layout_graphs_are_stored_with_their_instances(tree: Path, trained: Path) -> None:
    graph = read_graph(graph_path(tree, LAYOUT, "train", "alpha__a"))
    assert isinstance(graph, LayoutGraph)
    expected = instance_table(LayoutContext(graph))
    found = stored(trained)["alpha__a"].instances
    assert found is not None
    assert found.value.columns == expected.columns
    assert np.array_equal(found.value.counts().toarray(), expected.counts().toarray())
    assert len(list(trained.rglob("*.instances.npz"))) == sum(map(len, TREE[LAYOUT].values()))
    assert all(graph.instances is None for graph in stored(trained, TILE).values())


def test_a_missing_or_damaged_file_is_built_again(tree: Path, tmp_path: Path) -> None:
    assert totals(tree, tmp_path) == (5, 0)
    before = place(tmp_path).read_bytes()
    place(tmp_path).unlink()
    place(tmp_path, "beta__b").write_bytes(before[:100])
    rows = stored(tmp_path)
    for name in ("alpha__a", "beta__b"):
        with pytest.raises(FeatureStoreError, match=r"instances\.npz cannot be read"):
            _ = rows[name].instances.value  # type: ignore[union-attr]
    assert totals(tree, tmp_path) == (2, 3)
    assert place(tmp_path).read_bytes() == before
    assert totals(tree, tmp_path) == (0, 5)


def test_nobody_reads_instances_who_needs_none(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path, max_configs=20)
    graph = stored(tmp_path)["alpha__a"]
    assert graph.instances is not None and graph.instances.value.configs == len(graph) == 20
    for path in tmp_path.rglob("*.instances.npz"):
        path.write_bytes(b"nothing")
    train(Workspace(tmp_path), TrainRequest(seeds=1, rounds=3, threads=1))
    evaluate(Workspace(tmp_path))
    submit(Workspace(tmp_path), tmp_path / "submission.csv")


def test_every_command_scores_with_them(tree: Path, trained: Path, tmp_path: Path) -> None:
    workspace = Workspace(trained)
    report = evaluate(workspace).report
    assert report[LAYOUT]["tau"]["mean"] > 0.6
    model = load_model(workspace.model(Collection.parse(LAYOUT)))
    graph = stored(trained, split="valid")["delta__a"]
    scores = model.score(graph).mean
    assert report[LAYOUT]["tau"]["graphs"]["delta__a"] == pytest.approx(
        kendall_tau(scores[graph.group], graph.cost)
    )
    found = rank(workspace, graph_path(tree, LAYOUT, "valid", "delta__a"))
    assert found.scores == pytest.approx(scores[graph.group])
    assert set(submit(workspace, tmp_path / "submission.csv").rows) == {LAYOUT, TILE}
    assert set(cross_validate(workspace, collections=[LAYOUT]).report) == {LAYOUT}
