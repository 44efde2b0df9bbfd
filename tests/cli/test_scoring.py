"""evaluate and cross-validate from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.cli.shell import FILES, LAYOUT, TILE, Outcome, refused


def test_out_of_fold_scores_are_shown_and_written(
    trained: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    done = command("cross-validate", "--workspace", trained, "--json", tmp_path / "scores.json")
    assert (done.code, done.errors) == (0, [])
    report = json.loads((tmp_path / "scores.json").read_text())
    for collection in (LAYOUT, TILE):
        assert set(report[collection]["score"]["graphs"]) == set(FILES[collection]["train"])
        assert f"{collection}, out of fold, families never seen: 3 graphs" in done.out
    card = json.loads((trained / "models" / Path(*LAYOUT.split(":")) / "model.json").read_text())
    assert card["folds_by"] == "family"
    assert report[LAYOUT]["tau"]["graphs"] == {name: metrics["tau"] for name, metrics in card["folds"].items()}


def test_rankers_side_by_side(trained: Path, command: Callable[..., Outcome], tmp_path: Path) -> None:
    words = ["--model", "ranknet", "--model", "lambdarank", "--rounds", "5", "--threads", "1", "-c", LAYOUT]
    done = command("cross-validate", "--workspace", trained, *words, "--json", tmp_path / "scores.json")
    assert done.code == 0
    report = json.loads((tmp_path / "scores.json").read_text())[LAYOUT]
    assert list(report) == ["ranknet", "lambdarank"]
    between = report["lambdarank"]["slowdown@5"]["difference"]
    assert set(between) == {"mean", "low", "high", "graphs"}
    assert "lambdarank less ranknet" in done.out and "slowdown@5" in done.out
    assert f"{between['low']:+.3f} to {between['high']:+.3f}" in done.out


def test_one_other_ranker_by_kinds_and_words_that_mean_nothing(
    trained: Path, command: Callable[..., Outcome]
) -> None:
    there = ["--workspace", trained]
    words = ["--by", "kind", "--model", "ranknet", "--rounds", "5", "--threads", "1", "-c", TILE]
    done = command("cross-validate", *there, *words, "--json", "-")
    assert done.code == 0 and set(json.loads(done.out)[TILE]["score"]["graphs"]) == set(FILES[TILE]["train"])
    assert f"{TILE}: ranknet with default parameters, 5 rounds" in done.err.replace("\n", " ")
    refused(command("cross-validate", *there, "--by", "name"), "--by is 'name'; expected family or graph or kind")
    refused(command("cross-validate", *there, "--model", "forest"), "'forest' is not a model")
    refused(command("evaluate", *there, "--split", "folds"), "'folds' is not a split")
