"""Out-of-fold scores: who is held out, what is fitted, and what a reader is told beside the numbers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipelines.trees import LAYOUT, TILE, TREE, Listener, build, graph_path, model_of
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, XlarankError
from xlarank.data.root import SAMPLE
from xlarank.data.workspace import Workspace
from xlarank.models.rankers.wide_rows import LambdaRank, RankNet
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.curves import join_curves, validate_fold, validate_folds
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import summarise
from xlarank.pipelines.cross_validate import cross_validate, cross_validate_rankers
from xlarank.pipelines.support.evaluation import Evaluation
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.support.training_sets import read_training_set
from xlarank.pipelines.train import train


def run(workspace: Path, **options: Any) -> Evaluation:
    fit = FitSettings(options.pop("rounds", 300), threads=1)
    return cross_validate(Workspace(workspace), fit=fit, **options)


@pytest.fixture
def learned_from(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Names of the graphs of every fit of lambdarank or ranknet."""
    found: list[list[str]] = []
    for ranker in (LambdaRank, RankNet):
        fit = ranker.fit

        def spy(self: Any, data: Any, settings: Any, fit: Any = fit) -> Any:
            found.append(data.names)
            return fit(self, data, settings)

        monkeypatch.setattr(ranker, "fit", spy)
    return found


# Held out: families, graphs, kinds ------------------------------------------------------------------------


@pytest.mark.slow
def test_by_family_are_the_scores_that_training_kept(shared_trained: Path, learned_from: list[list[str]]) -> None:
    found = run(shared_trained)
    for collection in (LAYOUT, TILE):
        folds = model_of(shared_trained, collection).card.folds
        assert found.report[collection] == summarise(folds)
        assert list(found.report[collection]["tau"]["graphs"]) == list(folds)
    assert (found.judged, found.notes) == ("out of fold, unseen families", [])
    assert run(shared_trained, by="kind").report == run(shared_trained, collections=[LAYOUT]).report, "no kinds"
    assert learned_from == []
    fitted = run(shared_trained, model="lambdarank", rounds=30)
    assert fitted.report == found.report, "nothing of held-out graphs is in the scores of training, not even bins"


@pytest.mark.slow
def test_graphs_are_held_out_while_their_family_stays(trained: Path, learned_from: list[list[str]]) -> None:
    """At the parameters and rounds of the model; nothing is written."""
    files = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    listener = Listener()
    found = run(trained, by="graph", progress=listener)
    assert listener.jobs == [(f"cross-validating {LAYOUT}", 4), (f"cross-validating {TILE}", 2)]
    assert listener.ended == 2
    names = list(TREE[LAYOUT]["train"])
    folds = [fold for fold in learned_from if names[0] in fold or names[1] in fold]
    assert [[name for name in names if name not in fold] for fold in folds] == [[name] for name in names[:4]]
    assert found.judged == "out of fold, same families in the training set"
    assert list(found.report[LAYOUT]["tau"]["graphs"]) == names[:4]
    assert found.left_out[f"{LAYOUT} gamma__a"] == "no other graph is of its family"
    apart = model_of(trained).card.folds
    mean = np.mean([apart[name]["score"] for name in names[:4]])
    assert "so this is no score for new programs" in found.notes[0]
    assert f"these 4 graphs by folds of families: score {mean:.3f}" in found.notes[1]
    model, data = model_of(trained, TILE), read_training_set(Workspace(trained), Collection.parse(TILE)).data
    fit = FitSettings(model.card.rounds, threads=1)
    curves = validate_fold(data, [data.names.index("conv__b")], model.rankers[0], fit)
    tiles = found.report[TILE]["score"]["graphs"]
    assert list(tiles) == ["conv__a", "conv__b"] and tiles["conv__b"] == curves.at(-1)["conv__b"]["score"]
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == files


@pytest.mark.slow
def test_the_graphs_are_those_that_the_model_learned_from(tree: Path, built: Path) -> None:
    options = {"seeds": 1, "rounds": 2, "threads": 1, "allow_constant": True}
    train(Workspace(built), TrainRequest(collections=[LAYOUT], with_valid=True, **options))
    found = run(built, by="graph", collections=[LAYOUT])
    assert list(found.report[LAYOUT]["tau"]["graphs"])[-2:] == ["delta__a", "delta__b"]
    for collection, name in ((LAYOUT, "beta__b"), (TILE, "dot__a"), (TILE, "tanh__a")):
        graph_path(tree, collection, "train", name).unlink()
    build(tree, built)
    with pytest.raises(ModelError, match="are of other graphs than its model was trained on; train again"):
        run(built, by="graph", collections=[LAYOUT])

    train(Workspace(built), TrainRequest(**options))  # one family of tiles
    with pytest.raises(CollectionError, match=r"by family of the 2 graphs of tile:cpu; .*two or more program fam"):
        run(built, collections=[TILE], model="ranknet")
    found = run(built)
    assert list(found.report) == [LAYOUT]
    assert "tile:cpu was trained without folds" in found.left_out[TILE]
    graph_path(tree, LAYOUT, "train", "alpha__b").unlink()
    build(tree, built)
    with pytest.raises(CollectionError, match=f"by graph of the 3 graphs of {LAYOUT}; .*graphs of one family"):
        run(built, by="graph", collections=[LAYOUT], model="ranknet")


def test_kinds_of_kernels_are_held_out_together(tmp_path: Path, learned_from: list[list[str]]) -> None:
    """Kernels of the sample, of four kinds; the kind of one product is open."""
    root, workspace = tmp_path / "tree", tmp_path / "work"
    for name in ("bmm__a", "bmm__d", "matmul__d", "matmul__e", "matmul__b", "conv3x3__b"):
        path = graph_path(root, TILE, "train", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(graph_path(SAMPLE, TILE, "train", name), path)
    build(root, workspace)
    found = run(workspace, by="kind", model="ranknet", rounds=3)
    assert sorted(learned_from) == [
        ["bmm__a", "bmm__d", "conv3x3__b"],  # held out: dots, and the one that may be of two kinds
        ["bmm__a", "bmm__d", "conv3x3__b"],  # held out for that one: all that may be of either
        ["bmm__a", "bmm__d", "matmul__b", "matmul__d", "matmul__e"],
        ["conv3x3__b", "matmul__b", "matmul__d", "matmul__e"],
    ]
    assert list(found.report[TILE]["score"]["graphs"]) == [
        "bmm__a", "bmm__d", "conv3x3__b", "matmul__b", "matmul__d", "matmul__e",
    ]  # fmt: skip
    assert found.judged == "out of fold, unseen kinds of kernels"
    assert f"{TILE}: 4 kinds of kernels in 4 folds" in found.notes


# Rankers by name ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_rankers_by_name_need_no_model_and_are_compared_on_the_same_graphs(
    built: Path, learned_from: list[list[str]]
) -> None:
    alone = {name: run(built, model=name, rounds=25, collections=[LAYOUT]) for name in ("ranknet", "lambdarank")}
    data, fit = read_training_set(Workspace(built), Collection.parse(LAYOUT)).data, FitSettings(25, threads=1)
    folds = family_folds(data.families, 10)
    assert len(learned_from) == 2 * len(folds)
    curves = join_curves(list(validate_folds(data, folds, RankNet(kind="layout"), fit)))
    assert alone["ranknet"].report[LAYOUT] == summarise(curves.at(curves.best_stage()))
    assert alone["ranknet"].notes[0].startswith(f"{LAYOUT}: ranknet with default parameters, ")
    assert not (built / "models").exists()

    found = cross_validate_rankers(
        Workspace(built), ["ranknet", "lambdarank", "ranknet"], fit=fit, collections=[LAYOUT]
    )
    assert list(found.report[LAYOUT]) == list(alone)
    gap = found.report[LAYOUT]["lambdarank"]["slowdown@1"]["difference"]
    for rankers in found.report[LAYOUT].values():
        for about in rankers.values():
            about.pop("difference", None)
    assert found.report[LAYOUT] == {name: one.report[LAYOUT] for name, one in alone.items()}
    means = [one.report[LAYOUT]["slowdown@1"]["mean"] for one in alone.values()]
    assert gap["mean"] == pytest.approx(means[1] - means[0]) and gap["low"] <= gap["mean"] <= gap["high"]
    assert found.judged == "out of fold, unseen families"
    assert found.notes == [*alone["ranknet"].notes, *alone["lambdarank"].notes]


def test_bad_requests(shared_trained: Path, shared_built: Path) -> None:
    for workspace, options, error, message in (
        (shared_trained, {"by": "program"}, XlarankError, "--by is 'program'; expected family or graph or kind"),
        (shared_trained, {"model": "forest"}, ModelError, "'forest' is not a model"),
        (shared_trained, {"model": "ranknet", "rounds": 0}, XlarankError, "rounds is 0"),
        (shared_trained, {"by": "kind", "collections": [TILE]}, CollectionError, "by kind of the 4 graphs of "),
        (shared_built, {"collections": [TILE]}, ModelError, "tile:cpu has no trained model; run train first"),
        (shared_built, {}, CollectionError, "nothing could be cross-validated: .*run train first"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            run(workspace, **options)
    with pytest.raises(XlarankError, match=r"there is 1 ranker to compare; expected two or more, all different"):
        cross_validate_rankers(Workspace(shared_trained), ["ranknet", "ranknet"])
