"""Evaluations side by side: the tidy table of the workspace, and the leaderboard made of it."""

import numpy as np
import polars as pl
import pytest

import xlarank
from tests.pipelines.trees import LAYOUT, TILE, model_of, stored
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, WorkspaceError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.metrics import graph_metrics
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.leaderboard import leaderboard
from xlarank.pipelines.support.results import results_table, write_results

COLUMNS = ["collection", "split", "held_out_by", "ranker", "tuned", "seed", "graph", "family", "metric", "value",
           "seconds", "version", "time"]  # fmt: skip


def results(workspace):
    return pl.read_parquet(workspace / "results.parquet")


def test_every_evaluation_is_in_the_table(trained):
    """Training leaves the out-of-fold metrics of the card; a second evaluation replaces the first."""
    table = results(trained)
    assert table.columns == COLUMNS and set(table["version"]) == {xlarank.__version__}
    for collection in (LAYOUT, TILE):
        card = model_of(trained, collection).card
        folds = table.filter(pl.col("collection") == collection, pl.col("held_out_by") == card.folds_by)
        assert {
            (graph, metric): value for graph, metric, value in folds["graph", "metric", "value"].iter_rows()
        } == {(graph, metric): value for graph, values in card.folds.items() for metric, value in values.items()}
        assert set(folds["split"]) == {"train"} and folds["seconds"].min() > 0
    found = evaluate(Workspace(trained))
    evaluate(Workspace(trained))
    table = results(trained).filter(pl.col("split") == "valid", pl.col("collection") == LAYOUT)
    of_model = table.filter(pl.col("ranker") == "lambdarank", pl.col("seed").is_null(), pl.col("metric") == "tau")
    assert dict(of_model["graph", "value"].iter_rows()) == found.report[LAYOUT]["tau"]["graphs"]
    rules = table.filter(pl.col("ranker").str.starts_with("rule: "), pl.col("metric") == "tau")
    means = dict(rules.group_by("ranker").agg(pl.col("value").mean()).iter_rows())
    baselines = found.report[LAYOUT]["tau"]["baselines"]
    assert means == {f"rule: {name}": pytest.approx(value) for name, value in baselines.items()}
    seeds = len(model_of(trained).rankers)
    assert table["seed"].n_unique() == (seeds + 1 if seeds > 1 else 1)


def test_the_leaderboard_is_paired_by_hand(tmp_path):
    workspace = Workspace(tmp_path)
    scores = {"x": [0.5, 0.6, 0.1], "y": [0.6, 0.7, 0.8], "z": [0.4, 0.8]}
    tables = [
        results_table(
            {graph: {"score": value, "slowdown@1": 1 - value} for graph, value in zip("abc", values, strict=False)},
            ranker, place=(TILE, "valid", None), tuned=False, seconds={"a": 0.5, "b": 1.0, "c": 1.5},
        )
        for ranker, values in scores.items()
    ]  # fmt: skip
    write_results(workspace, tables)
    write_results(
        workspace, [results_table({"a": {"score": 0.1}}, "y", place=(TILE, "train", "kind"), tuned=False)]
    )
    board = leaderboard(workspace)
    assert board["split", "ranker", "graphs"].rows() == [
        ("train", "y", 1), ("valid", "y", 3), ("valid", "z", 2), ("valid", "x", 3)
    ]  # fmt: skip
    assert board["mean"].to_list() == pytest.approx([0.1, 0.7, 0.6, 0.4])
    assert board["standard_error"].to_list()[1:3] == pytest.approx([0.1 / np.sqrt(3), 0.2])
    assert board["difference"].to_list() == pytest.approx([0.0, 0.0, -0.05, -0.3])
    assert board["difference_error"].to_list()[2] == pytest.approx(np.std([-0.2, 0.1], ddof=1) / np.sqrt(2))
    assert board["seconds"].to_list() == [None, 3.0, 1.5, 3.0]
    assert leaderboard(workspace, metric="slowdown@1")["ranker"].to_list() == ["y", "z", "x"]


@pytest.mark.slow
def test_cross_validation_leaves_results_and_scores(built):
    fit = FitSettings(20, threads=1)
    evaluation = cross_validate(Workspace(built), ["lambdarank", "ranknet"], collections=[LAYOUT], fit=fit)
    board = leaderboard(Workspace(built), collections=[LAYOUT]).filter(pl.col("held_out_by") == "family")
    means = {name: report["score"]["mean"] for name, report in evaluation.comparison[LAYOUT].items()}
    assert dict(board["ranker", "mean"].iter_rows()) == pytest.approx(means)
    assert evaluation.report[LAYOUT] == evaluation.comparison[LAYOUT]["lambdarank"], "the shape of one ranker"
    report = cross_validate(Workspace(built), "lambdarank", by="graph", collections=[LAYOUT], fit=fit).report
    table = pl.read_parquet(Workspace(built).predictions(Collection.parse(LAYOUT), "lambdarank"))
    scores = table.filter(held_out_by="graph").partition_by("graph", as_dict=True)
    for (name,), rows in scores.items():
        graph = stored(built)[name]
        metrics = graph_metrics("layout", rows["score"].to_numpy()[graph.group], graph.cost, graph.group)
        assert report[LAYOUT]["tau"]["graphs"][name] == metrics["tau"]
    assert {"family", "graph"} == set(table["held_out_by"]) == set(leaderboard(Workspace(built))["held_out_by"])


def test_without_results(built, tmp_path):
    with pytest.raises(CollectionError, match="has no results; run train, evaluate or cross-validate first"):
        leaderboard(Workspace(tmp_path))
    workspace = Workspace(tmp_path)
    write_results(workspace, [results_table({"a": {"score": 0.1}}, "y", place=(TILE, "valid", None))])
    with pytest.raises(XlarankError, match="`metric` is 'taw'; expected tau, "):
        leaderboard(workspace, metric="taw")
    with pytest.raises(CollectionError, match="did you mean tile:cpu"):
        leaderboard(workspace, collections=["tile:cpus"])
    (tmp_path / "results.parquet").write_bytes(b"PAR1 half")
    with pytest.raises(WorkspaceError, match=r"results\.parquet cannot be read"):
        leaderboard(workspace)
