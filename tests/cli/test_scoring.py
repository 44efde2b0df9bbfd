"""Scores from the command line: out of fold, and the old word for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.shell import FILES, LAYOUT, TILE, Outcome, refused


def test_out_of_fold_scores_are_shown_and_written(
    trained: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    there = ["--workspace", trained]
    done = command("cross-validate", *there, "--json", tmp_path / "scores.json")
    assert (done.code, done.errors) == (0, [])
    report = json.loads((tmp_path / "scores.json").read_text())
    for collection in (LAYOUT, TILE):
        assert set(report[collection]["score"]["graphs"]) == set(FILES[collection]["train"])
        assert f"{collection}, out of fold, families never seen: 3 graphs" in done.out
        card = json.loads((trained / "models" / Path(*collection.split(":")) / "model.json").read_text())
        if card["folds_by"] == "family":  # tiles are trained by folds of kinds
            assert report[collection]["tau"]["graphs"] == {
                name: metrics["tau"] for name, metrics in card["folds"].items()
            }


def test_another_ranker_by_kinds_of_kernels(trained: Path, command: Callable[..., Outcome]) -> None:
    words = ["--by", "kind", "--model", "ranknet", "--rounds", "5", "--threads", "1", "-c", TILE]
    done = command("cross-validate", "--workspace", trained, *words, "--json", "-")
    assert done.code == 0
    assert set(json.loads(done.out)[TILE]["score"]["graphs"]) == set(FILES[TILE]["train"])
    assert f"{TILE}: ranknet with default parameters, 5 rounds" in done.err.replace("\n", " ")


def test_rankers_side_by_side(trained: Path, command: Callable[..., Outcome]) -> None:
    words = ["--model", "ranknet", "--model", "lambdarank", "--rounds", "5", "--threads", "1", "-c", LAYOUT]
    done = command("cross-validate", "--workspace", trained, *words, "--json", "-")
    assert done.code == 0
    report = json.loads(done.out)[LAYOUT]
    assert list(report) == ["ranknet", "lambdarank"]
    between = report["lambdarank"]["slowdown@5"]["difference"]
    assert set(between) == {"mean", "low", "high", "graphs"}
    shown = command("cross-validate", "--workspace", trained, *words).out
    assert "lambdarank less ranknet" in shown and "slowdown@5" in shown
    assert f"{between['low']:+.3f} to {between['high']:+.3f}" in shown


def test_the_old_word_still_works_and_says_so(
    trained: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    there = ["--workspace", trained]
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    assert command("cross-validate", *there, "--by", "graph", "-c", LAYOUT, "--json", new).code == 0
    done = command("evaluate", *there, "--split", "folds", "--folds", "graph", "-c", LAYOUT, "--json", old)
    assert done.code == 0 and old.read_bytes() == new.read_bytes()
    assert "evaluate --split folds is the old word for cross-validate" in done.out.replace("\n", " ")


def test_words_that_mean_nothing(trained: Path, command: Callable[..., Outcome]) -> None:
    there = ["--workspace", trained]
    refused(
        command("evaluate", *there, "--folds", "graph"), "--folds without --split folds; run cross-validate --by"
    )
    refused(command("cross-validate", *there, "--by", "name"), "--by is 'name'; expected family or graph or kind")
    refused(command("cross-validate", *there, "--model", "forest"), "'forest' is not a model")
