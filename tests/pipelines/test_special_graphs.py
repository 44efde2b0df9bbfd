"""Through all commands: configurations without a runtime, instances, and kinds of kernels never seen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines.trees import (
    LAYOUT,
    TILE,
    TREE,
    build,
    data_root,
    graph_path,
    layout_graph,
    stored,
    tile_graph,
)
from xlarank.data.collection import Collection
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.root import SAMPLE
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import instance_table
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.targets import CPU
from xlarank.models.trained import load_model
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.curves import out_of_fold_scores
from xlarank.models.validation.folds import Fallback, Fold, kind_folds
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.calibrate import calibrate
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.explain import explain
from xlarank.pipelines.info import info
from xlarank.pipelines.rank import rank
from xlarank.pipelines.reporting.gather import gather
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.fitting import TrainRequest, TrainResult
from xlarank.pipelines.support.training_sets import read_training_set
from xlarank.pipelines.train import train
from xlarank.pipelines.tune import tune

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


@pytest.mark.slow
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


# Instances through the pipelines: stored with the rows, built again with them, read by who asks.


@pytest.fixture(scope="module")
def summed(shared_built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = Path(shutil.copytree(shared_built, tmp_path_factory.mktemp("summed") / "work"))
    train(Workspace(work), TrainRequest(model="sum-pooled", seeds=2, rounds=30, threads=1))
    return work


@pytest.mark.slow
def test_layout_graphs_are_stored_with_their_instances(shared_tree: Path, summed: Path) -> None:
    graph = read_graph(graph_path(shared_tree, LAYOUT, "train", "alpha__a"))
    assert isinstance(graph, LayoutGraph)
    expected = instance_table(LayoutContext(graph))
    found = stored(summed)["alpha__a"].instances
    assert found is not None
    assert found.value.columns == expected.columns
    assert np.array_equal(found.value.counts().toarray(), expected.counts().toarray())
    assert len(list(summed.rglob("*.instances.npz"))) == sum(map(len, TREE[LAYOUT].values()))
    assert {graph.instances for graph in stored(summed, TILE).values()} == {None}


@pytest.mark.slow
def test_nobody_reads_instances_who_needs_none(tree: Path, trained: Path) -> None:
    build(tree, trained, max_configs=20, collections=[LAYOUT], splits=["train"])
    graph = stored(trained)["alpha__a"]
    assert graph.instances is not None and graph.instances.value.configs == len(graph) == 20
    for path in trained.rglob("*.instances.npz"):
        path.write_bytes(b"nothing")
    train(Workspace(trained), TrainRequest(collections=[LAYOUT], seeds=1, rounds=3, threads=1))
    evaluate(Workspace(trained))
    submit(Workspace(trained), trained / "submission.csv")


def test_every_command_scores_with_them(shared_tree: Path, summed: Path, tmp_path: Path) -> None:
    workspace = Workspace(summed)
    report = evaluate(workspace).report[LAYOUT]["tau"]
    graph = stored(summed, split="valid")["delta__a"]
    scores = load_model(workspace.model(Collection.parse(LAYOUT))).score(graph).mean[graph.group]
    assert report["mean"] > 0.6 and report["graphs"]["delta__a"] == pytest.approx(kendall_tau(scores, graph.cost))
    found = rank(workspace, graph_path(shared_tree, LAYOUT, "valid", "delta__a"))
    assert found.scores == pytest.approx(scores)
    assert set(submit(workspace, tmp_path / "submission.csv").rows) == {LAYOUT, TILE}
    assert set(cross_validate(workspace, collections=[LAYOUT]).report) == {LAYOUT}


# Kinds of kernels from training to ranking: what is chosen by them, kept of them, and told of unseen ones.


COLLECTION = Collection.parse(TILE)
LEARNED = ("bmm__a", "matmul__d", "matmul__e", "conv3x3__b")
OTHERS = {"valid": ("expsum__b",), "test": ("transpose__b", "conv3x3_s2__a")}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, TrainResult]:
    """A workspace with a model of three kinds of kernels."""
    root, workspace = tmp_path_factory.mktemp("kernels"), Workspace(tmp_path_factory.mktemp("kernels_work"))
    for split, names in {"train": LEARNED, **OTHERS}.items():
        for name in names:
            path = graph_path(root, TILE, split, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(graph_path(SAMPLE, TILE, split, name), path)
    build(root, workspace.root)
    (result,) = train(workspace, TrainRequest(seeds=1, rounds=5, threads=1))
    return workspace, result


def first_of(workspace: Workspace, split: str, name: str) -> list[int]:
    ranking = rank(workspace, graph_path(SAMPLE, TILE, split, name))
    return [entry.configuration for entry in ranking.best(5)]


def test_training_goes_by_kinds_and_keeps_them(kernels: tuple[Workspace, TrainResult]) -> None:
    workspace, result = kernels
    assert result.chosen_by == "3 folds by kind"
    card = load_model(workspace.model(COLLECTION)).card
    assert (card.target, card.folds_by) == ("cpu", "kind")
    assert card.kinds == ["convolution", "dot", "dot batched"]
    assert set(card.folds) == set(LEARNED)
    data = read_training_set(workspace, COLLECTION).data
    assert data.target is data.take([0, 1]).target is data.join(data.take([0])).target is CPU


def test_a_kind_never_seen_falls_back_and_is_named(kernels: tuple[Workspace, TrainResult]) -> None:
    workspace, _ = kernels
    unseen = rank(workspace, graph_path(SAMPLE, TILE, "test", "transpose__b"))
    assert unseen.fallback == (
        "unseen kind of kernel (transpose): weight 0.5 on the compiler's default, the rest on the model"
    )
    assert unseen.as_json(1)["fallback"] == unseen.fallback
    assert unseen.order[0] == 0
    seen = rank(workspace, graph_path(SAMPLE, TILE, "train", "conv3x3__a"))
    assert seen.fallback == ""
    explained = explain(workspace, graph_path(SAMPLE, TILE, "test", "transpose__b"))
    assert explained.notes[0] == f"{unseen.fallback}; ranks are of both, contributions of the model alone"
    assert (explained.now, explained.ranks[0]) == (0, 1)


def test_submissions_scores_and_reports_agree(kernels: tuple[Workspace, TrainResult], tmp_path: Path) -> None:
    workspace, _ = kernels
    submit(workspace, tmp_path / "out.csv", collections=[TILE])
    lines = dict(line.split(",") for line in (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()[1:])
    for name in OTHERS["test"]:
        assert lines[f"{TILE}:{name}"] == ";".join(map(str, first_of(workspace, "test", name)))
        assert lines[f"{TILE}:{name}"].startswith("0;")
    valid = graph_path(SAMPLE, TILE, "valid", "expsum__b")
    score = evaluate(workspace, collections=[TILE]).report[TILE]["score"]["graphs"]["expsum__b"]
    assert score == rank(workspace, valid).metrics["score"]  # type: ignore[index]
    (row,) = gather(workspace, COLLECTION, explained=False).score_rows()
    report = evaluate(workspace, collections=[TILE]).report[TILE]
    assert row["1 - slowdown@5"] == score and row["slowdown@5"] == report["slowdown@5"]["mean"]
    assert {name: row[name] for name in report["score"]["baselines"]} == report["score"]["baselines"]


def test_cross_validation_by_kind_gives_the_scores_of_training(kernels: tuple[Workspace, TrainResult]) -> None:
    workspace, result = kernels
    for model in (None, "lambdarank"):
        found = cross_validate(workspace, by="kind", model=model, fit=FitSettings(5, threads=1))
        assert found.report[TILE] == result.folds
        assert f"{TILE}: fallback for unseen kinds of kernels: {Fallback()}" in found.notes
    again = cross_validate(workspace, by="kind", model="lambdarank", with_valid=True, fit=FitSettings(3))
    assert set(again.report[TILE]["score"]["graphs"]) == {*LEARNED, "expsum__b"}


def test_calibration_goes_by_kind(
    kernels: tuple[Workspace, TrainResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Workspace(shutil.copytree(kernels[0].root, tmp_path / "work"))
    train(place, TrainRequest(seeds=2, rounds=3, threads=1))
    kinds = [graph.kinds for graph in read_training_set(place, COLLECTION).data.parts]
    folds = kind_folds(kinds, 10)
    seen = []

    def spied(ranker: Any, data: Any, folds: list[Fold], *rest: Any) -> Any:
        seen.append(folds)
        return out_of_fold_scores(ranker, data, folds, *rest)

    monkeypatch.setattr("xlarank.pipelines.calibrate.out_of_fold_scores", spied)
    found, _ = calibrate(place, threads=1)
    assert seen == [folds, folds], "once for each seed"
    assert (found[TILE].by, found[TILE].graphs, found[TILE].families) == ("kind", 4, len(set(kinds)))
    assert load_model(place.model(COLLECTION)).calibration == found[TILE]


@pytest.mark.slow
def test_studies_of_tiles_go_by_kind(kernels: tuple[Workspace, TrainResult]) -> None:
    workspace, _ = kernels
    (result,) = tune(workspace, trials=1, fit=FitSettings(3, threads=1))
    assert result.trials == 1
    best = json.loads((workspace.study(COLLECTION) / "best-lambdarank.json").read_text(encoding="utf-8"))
    assert sorted(best["folds"]) == [["bmm"], ["conv3x3"], ["matmul"]]
    assert set(best["graphs"]) == set(LEARNED)
