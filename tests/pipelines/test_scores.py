"""Scores of configurations in files: what commands leave, and submissions of anybody's scores."""

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.pipelines.trees import LAYOUT, TILE, TREE, contents, model_of, stored
from xlarank.data.collection import Collection
from xlarank.data.errors import ScoreFileError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.trained import CARD
from xlarank.models.validation.metrics import graph_metrics
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.score_files import ScoreFiles
from xlarank.pipelines.support.workspaces import LOCK
from xlarank.pipelines.train import train
from xlarank.pipelines.training.fitting import TrainRequest

COLUMNS = ["graph", "configuration", "split", "held_out_by", "seed", "fold", "score"]


def predictions(workspace, collection):
    return pl.read_parquet(Workspace(workspace).predictions(Collection.parse(collection), "lambdarank"))


def orders(path):
    with path.open(newline="") as stream:
        return {row["ID"]: row["TopConfigs"] for row in csv.DictReader(stream)}


def scores_of(workspace, split="test", **changed):
    """Of each distinct configuration, equal to its number, for two layout graphs."""
    tables = []
    for name, graph in stored(workspace, LAYOUT, split).items():
        first = graph.ids[np.unique(graph.group, return_index=True)[1]]
        tables.append(pl.DataFrame({"graph": name, "configuration": first, "score": first.astype(float)}))
    return pl.concat(tables).with_columns(**changed)


def test_train_evaluate_and_submit_leave_their_scores(trained, tmp_path):
    """Out-of-fold scores give the metrics of the card, those of valid and test the model's order."""
    for collection in (LAYOUT, TILE):
        card = model_of(trained, collection).card
        table = predictions(trained, collection)
        assert table.columns == COLUMNS
        table = table.filter(pl.col("held_out_by") == card.folds_by)
        assert set(table["split"]) == {"train"}
        for name, graph in stored(trained, collection).items():
            of_graph = table.filter(pl.col("graph") == name)
            if name in card.folds:
                score = of_graph["score"].to_numpy()[graph.group]
                metrics = graph_metrics(Collection.parse(collection).kind, score, graph.cost, graph.group)
                assert metrics == card.folds[name] and of_graph["fold"].n_unique() == 1
    evaluate(Workspace(trained))
    submit(Workspace(trained), tmp_path / "out.csv")
    table = predictions(trained, TILE)
    assert set(table["split"]) == {"train", "valid", "test"}
    seeds = len(model_of(trained, TILE).rankers)
    for split in ("valid", "test"):
        for name, graph in stored(trained, TILE, split).items():
            rows = table.filter(pl.col("graph") == name, pl.col("split") == split)
            expected = model_of(trained, TILE).score(graph).per_seed
            assert rows["score"].to_list() == expected.ravel().tolist() and rows["seed"].n_unique() == seeds
    path = Workspace(trained).predictions(Collection.parse(LAYOUT), "lambdarank")
    files = ScoreFiles.read([path], "test")
    submit(Workspace(trained), tmp_path / "again.csv", collections=[LAYOUT], scores=files)
    first, again = orders(tmp_path / "out.csv"), orders(tmp_path / "again.csv")
    assert again == {name: order for name, order in first.items() if name.startswith(LAYOUT)}


def test_a_workspace_that_cannot_be_written_is_a_note(trained, tmp_path, monkeypatch):
    expected, before = evaluate(Workspace(trained)).report, contents(trained)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != trained)  # to root nothing is read-only
    found = evaluate(Workspace(trained))
    report = submit(Workspace(trained), tmp_path / "out.csv")
    note = f"results and scores are not kept: the workspace {trained} cannot be written (permission denied)"
    assert found.notes == report.notes == [note] and found.report == expected
    assert len(orders(tmp_path / "out.csv")) == 4 and contents(trained) == before


@pytest.mark.parametrize(("with_valid", "split"), [(False, "train"), (True, "valid")])
def test_files_that_commands_wrote_are_scored(built, with_valid, split):
    """Scores of train graphs are out of fold, those of valid graphs the model's; training drops earlier ones."""
    workspace, request = Workspace(built), TrainRequest(collections=[LAYOUT], seeds=1, rounds=10, threads=1)
    train(workspace, replace(request, with_valid=with_valid))
    model = evaluate(workspace, split=split, collections=[LAYOUT]).report[LAYOUT]
    path, table = workspace.predictions(Collection.parse(LAYOUT), "lambdarank"), predictions(built, LAYOUT)
    by_graph = table.filter(held_out_by="family").with_columns(held_out_by=pl.lit("graph"), score=0.0)
    pl.concat([by_graph, table]).write_parquet(path)
    found = evaluate(workspace, split=split, collections=[LAYOUT], scores=ScoreFiles.read([path], split))
    taus = found.report[LAYOUT]["tau"]["graphs"]
    folds = {name: metrics["tau"] for name, metrics in model_of(built).card.folds.items()}
    assert taus == (folds if split == "train" else model["tau"]["graphs"])
    train(workspace, request)
    assert set(predictions(built, LAYOUT)["held_out_by"]) == {"family"}


def test_columns_of_other_types_and_names(shared_built, tmp_path):
    path, right = tmp_path / "scores.parquet", scores_of(shared_built)
    for more in ({"row": 1}, {"split": pl.lit("test", pl.Categorical)}, {"seed": 1.0}):
        right.with_columns(**more).write_parquet(path)
        assert submit(Workspace(shared_built), tmp_path / "out.csv", scores=ScoreFiles.read([path], "test")).rows
    for more in ({"split": 3}, {"collection": 3}):
        right.with_columns(**more).write_parquet(path)
        with pytest.raises(XlarankError):
            submit(Workspace(shared_built), tmp_path / "out.csv", scores=ScoreFiles.read([path], "test"))
    (tmp_path / "digits.csv").write_text("graph,configuration,score\n007,0,1.5\n")
    assert ScoreFiles.read([tmp_path / "digits.csv"], "test").tables[0]["graph"].to_list() == ["007"]
    right.with_columns(split=pl.concat_list("score")).write_parquet(path)
    with pytest.raises(ScoreFileError, match="cannot be read"):
        ScoreFiles.read([path], "test")


def test_only_a_collections_own_model_leaves_its_scores(trained, tmp_path):
    other = "layout:xla:random"
    for folder in ("features", "models"):
        shutil.copytree(trained / folder / "layout/cpu/random", trained / folder / "layout/xla/random")
    card = trained / "models/layout/xla/random" / CARD
    card.write_text(json.dumps({**json.loads(card.read_text()), "collection": other}))
    folder = Workspace(trained).predictions(Collection.parse(other), "lambdarank").parent
    notes = evaluate(Workspace(trained), collections=[other], model_from=LAYOUT).notes
    assert not folder.exists() and len(notes) == 1, "it is not tried to write them"
    shutil.rmtree(card.parent)
    for model_from in (LAYOUT, "shipped"):
        submit(Workspace(trained), tmp_path / "out.csv", collections=[other], model_from=model_from)
        assert not folder.exists()


def test_scores_are_written_under_the_lock(trained, tmp_path, monkeypatch):
    held = []

    def write(workspace, *_):
        with open(workspace.root / LOCK, "ab") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(True)

    fcntl = pytest.importorskip("fcntl")
    for command in ("evaluate", "submit"):
        monkeypatch.setattr(f"xlarank.pipelines.{command}.write_predictions", write)
    evaluate(Workspace(trained))
    submit(Workspace(trained), tmp_path / "out.csv")
    assert held == [True] * 4


def test_scores_are_submitted_and_blended_by_rank(shared_built, tmp_path):
    first, second = tmp_path / "one.parquet", tmp_path / "two.csv"
    scores_of(shared_built).write_parquet(first)
    scores_of(shared_built, score=-1000.0 * pl.col("configuration")).write_csv(second)
    workspace, names = Workspace(shared_built), [f"{LAYOUT}:{name}" for name in TREE[LAYOUT]["test"]]
    out = tmp_path / "out.csv"

    def first_of(*paths, weights=()):
        report = submit(workspace, out, scores=ScoreFiles.read(paths, "test", weights))
        assert report.rows == {LAYOUT: 2, TILE: 0} and report.unranked() == {"default": 2}
        return [int(orders(out)[name].split(";")[0]) for name in names]

    assert first_of(first) == [0, 0]
    assert orders(out)[names[0]].split(";")[:3] == ["0", "22", "23"], "repeats have the score of the first"
    assert first_of(second) == [21, 21]
    assert first_of(first, second, weights=(2, 1)) == [0, 0] and first_of(first, second, weights=(1, 2)) == [21, 21]
    assert first_of(first, second) == [0, 0], "all are equal: the order of the file"


def test_the_first_wrong_row_is_named(shared_built, tmp_path):
    path, right = tmp_path / "scores.csv", scores_of(shared_built)
    rows = pl.int_range(pl.len())
    for wrong, said in (
        (right.drop("score"), "scores.csv cannot be read .it has no column score.; expected parquet or csv"),
        (right.with_columns(score=pl.lit("fast")), "cannot be read"),
        (right.with_columns(score=pl.when(rows != 7).then("score")), "row 8 of .*scores.csv gives conf.*no score"),
        (
            right.with_columns(graph=pl.when(rows == 3).then(pl.lit("alpha")).otherwise("graph")),
            "row 4 of .*scores.csv scores 'alpha'; expected test graphs of layout:cpu:random, tile:cpu",
        ),
        (
            right.with_columns(configuration=pl.when(rows == 5).then(24).otherwise("configuration")),
            "row 6 of .* scores configuration 24 of omega__a; expected configurations 0 to 23",
        ),
        (pl.concat([right, right[3:]]), "row 45 of .* scores configuration 3 of omega__a again"),
        (right[1:], "has no score of configuration 0 of omega__a; expected one of it, or of a configuration ident"),
    ):
        wrong.write_csv(path)
        with pytest.raises(ScoreFileError, match=said):
            submit(Workspace(shared_built), tmp_path / "out.csv", scores=ScoreFiles.read([path], "test"))
        assert not (tmp_path / "out.csv").exists()
    for paths, weights in (([path], (1, 2)), ([path], (0,)), ([path, path], (1, float("nan"))), ([], (1,))):
        with pytest.raises(ScoreFileError, match="a weight above 0 for each of"):
            ScoreFiles.read(paths, "test", weights)
    with pytest.raises(ScoreFileError, match="cannot be read"):
        ScoreFiles.read([tmp_path], "test")
