"""Kinds of kernels from training to ranking: what is chosen by them, kept of them, and told of those never seen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.trees import TILE, build, graph_path
from xlarank.data.collection import Collection
from xlarank.data.root import SAMPLE
from xlarank.data.workspace import Workspace
from xlarank.features.targets import CPU
from xlarank.models.fallback import Fallback
from xlarank.models.fit_settings import FitSettings
from xlarank.models.trained import load_model
from xlarank.models.validation.curves import out_of_fold_scores
from xlarank.models.validation.folds import Fold, kind_folds
from xlarank.pipelines.calibrate import calibrate
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.explain import explain
from xlarank.pipelines.rank import rank
from xlarank.pipelines.reporting.gather import MODEL, gather
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.fitting import TrainRequest, TrainResult
from xlarank.pipelines.support.training_sets import read_training_set
from xlarank.pipelines.train import train
from xlarank.pipelines.tune import tune

COLLECTION = Collection.parse(TILE)
LEARNED = ("bmm__a", "matmul__d", "matmul__e", "conv3x3__b")
OTHERS = {"valid": ("expsum__b",), "test": ("transpose__b", "conv3x3_s2__a")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workspace, TrainResult]:
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


def test_training_goes_by_kinds_and_keeps_them(trained: tuple[Workspace, TrainResult]) -> None:
    workspace, result = trained
    assert result.chosen_by == "3 folds by kind"
    card = load_model(workspace.model(COLLECTION)).card
    assert (card.target, card.folds_by) == ("cpu", "kind")
    assert card.kinds == ["convolution", "dot", "dot batched"]
    assert set(card.folds) == set(LEARNED)
    data = read_training_set(workspace, COLLECTION).data
    assert data.target is data.take([0, 1]).target is data.join(data.take([0])).target is CPU


def test_a_kind_never_seen_falls_back_and_is_named(trained: tuple[Workspace, TrainResult]) -> None:
    workspace, _ = trained
    unseen = rank(workspace, graph_path(SAMPLE, TILE, "test", "transpose__b"))
    assert unseen.fallback == (
        "kind of kernel never seen (transpose): weight 0.5 on the compiler's own choice, the rest on the model"
    )
    assert unseen.as_json(1)["fallback"] == unseen.fallback
    assert unseen.order[0] == 0
    seen = rank(workspace, graph_path(SAMPLE, TILE, "train", "conv3x3__a"))
    assert seen.fallback == ""
    explained = explain(workspace, graph_path(SAMPLE, TILE, "test", "transpose__b"))
    assert explained.notes[0] == f"{unseen.fallback}; ranks are of both, contributions of the model alone"
    assert (explained.now, explained.ranks[0]) == (0, 1)


def test_submissions_scores_and_reports_agree(trained: tuple[Workspace, TrainResult], tmp_path: Path) -> None:
    workspace, _ = trained
    submit(workspace, tmp_path / "out.csv", collections=[TILE])
    lines = dict(line.split(",") for line in (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()[1:])
    for name in OTHERS["test"]:
        assert lines[f"{TILE}:{name}"] == ";".join(map(str, first_of(workspace, "test", name)))
        assert lines[f"{TILE}:{name}"].startswith("0;")
    valid = graph_path(SAMPLE, TILE, "valid", "expsum__b")
    score = evaluate(workspace, collections=[TILE]).report[TILE]["score"]["graphs"]["expsum__b"]
    assert score == rank(workspace, valid).metrics["score"]  # type: ignore[index]
    (graph,) = gather(workspace, COLLECTION, explained=False).graphs
    for name, about in evaluate(workspace, collections=[TILE]).report[TILE].items():
        assert about["graphs"] == {graph.name: graph.metrics[MODEL][name]}, "the report shows what evaluate prints"
        baselines = {ranking: found[name] for ranking, found in graph.metrics.items() if ranking != MODEL}
        assert about["baselines"] == baselines


def test_cross_validation_by_kind_gives_the_scores_of_training(trained: tuple[Workspace, TrainResult]) -> None:
    workspace, result = trained
    for model in (None, "lambdarank"):
        found = cross_validate(workspace, by="kind", model=model, fit=FitSettings(5, threads=1))
        assert found.report[TILE] == result.folds
        assert f"{TILE}: kinds never seen fall back, {Fallback()}" in found.notes
    again = cross_validate(workspace, by="kind", model="lambdarank", with_valid=True, fit=FitSettings(3))
    assert set(again.report[TILE]["score"]["graphs"]) == {*LEARNED, "expsum__b"}


def test_calibration_goes_by_kind(
    trained: tuple[Workspace, TrainResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Workspace(shutil.copytree(trained[0].root, tmp_path / "work"))
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


def test_studies_of_tiles_go_by_kind(trained: tuple[Workspace, TrainResult]) -> None:
    workspace, _ = trained
    (result,) = tune(workspace, trials=1, fit=FitSettings(3, threads=1))
    assert result.trials == 1
    best = json.loads((workspace.study(COLLECTION) / "best-lambdarank.json").read_text(encoding="utf-8"))
    assert sorted(best["folds"]) == [["bmm"], ["conv3x3"], ["matmul"]]
    assert set(best["graphs"]) == set(LEARNED)
