"""Configurations that did not compile have no runtime: the others are learned from, all are ranked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines.trees import LAYOUT, TILE, build, data_root, graph_path, layout_graph, stored, tile_graph
from xlarank.data.collection import Collection
from xlarank.data.workspace import Workspace
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.info import info
from xlarank.pipelines.rank import rank
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.support.training_sets import read_training_set
from xlarank.pipelines.train import train

FAILED = (3, 5, 8)


@pytest.fixture
def partly(tree: Path) -> Path:
    """The tree with three configurations of a train and of a valid graph of each collection not measured."""
    for make, collection, names in (
        (layout_graph, LAYOUT, ("alpha__a", "delta__a")),
        (tile_graph, TILE, ("conv__a", "pool__a")),
    ):
        for split, name in zip(("train", "valid"), names, strict=True):
            arrays = make(7)
            arrays["config_runtime"][list(FAILED)] = 0
            save_npz(graph_path(tree, collection, split, name), arrays)
    return tree


def test_the_measured_are_learned_from_and_all_are_ranked(partly: Path, tmp_path: Path) -> None:
    work = Workspace(tmp_path / "work")
    assert not build(partly, work.root).broken
    assert all(part.labelled == part.graphs for part in info(data_root(partly)) if part.split != "test")
    data = read_training_set(work, Collection.parse(LAYOUT))
    assert np.isfinite(data.data.cost).all()
    (graph,) = (graph for graph in data.data.parts if graph.name == "alpha__a")
    assert not set(FAILED) & set(graph.ids.tolist())
    train(work, TrainRequest(seeds=1, rounds=10, threads=1))
    report = evaluate(work).report
    assert {name: len(metrics["tau"]["graphs"]) for name, metrics in report.items()} == {LAYOUT: 2, TILE: 1}
    assert all(np.isfinite(metric["mean"]) for metrics in report.values() for metric in metrics.values())
    ranking = rank(work, graph_path(partly, LAYOUT, "valid", "delta__a"))
    assert sorted(ranking.order.tolist()) == list(range(24)), "a submission lists them all"
    assert ranking.metrics is not None and np.isfinite(ranking.metrics["tau"])
    assert {entry.configuration for entry in ranking.best() if entry.runtime_ns is None} == set(FAILED)
    assert submit(work, tmp_path / "submission.csv").rows == {LAYOUT: 2, TILE: 2}
    build(partly, tmp_path / "drawn", max_configs=6, collections=[LAYOUT], splits=["train"])
    graph = stored(tmp_path / "drawn", LAYOUT, "train")["alpha__a"]
    assert len(graph) == 6 and np.isfinite(graph.row_cost).all(), "only measured configurations are drawn"
