"""The report: one page that needs nothing from elsewhere and tells what is in the workspace."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.pipelines.trees import LAYOUT, TILE
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError
from xlarank.data.workspace import Workspace
from xlarank.pipelines.calibrate import calibrate
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.report import report
from xlarank.pipelines.reporting.gather import compared, gather, mean_row, paired_test


def read(page: Path) -> tuple[str, str]:
    """The page, and its words; fails where tags are not closed."""
    text = page.read_text(encoding="utf-8")
    plain = re.sub(r"<!doctype html>|<(meta|link)[^>]*>|<(style|script)>.*?</\2>", "", text, flags=re.S)
    return text, re.sub(r"\s+", " ", " ".join(ElementTree.fromstring(plain).itertext()))


@pytest.fixture(scope="module")
def page(shared_trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(Workspace(shared_trained), tmp_path_factory.mktemp("report") / "report.html").out


@pytest.mark.slow
def test_the_page_needs_nothing_from_elsewhere(page: Path) -> None:
    text, _ = read(page)
    assert set(re.findall(r"https?://[^\s\"'<>)/]+", text)) == {"http://www.w3.org"}, "names of XML, never fetched"
    assert not re.search(r"<(script|img|iframe|link)[^>]+(src|href)=\"(?!data:)", text)
    assert "prefers-color-scheme:dark" in text and "width=device-width" in text
    assert page.stat().st_size < 1_000_000
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and set(re.findall(r'href="#([^"]+)"', text)) <= set(ids)


def test_the_page_shows_the_scores_of_evaluate_and_why_the_best_is_first(page: Path, shared_trained: Path) -> None:
    text, words = read(page)
    assert str(shared_trained.parent) not in text.split("Time and memory")[0], "no local path"
    assert "Not calibrated" in words and "withheld" in words, "labels of the test split"
    assert "Beside the best rule without learning, of 2 models: " in words
    assert re.search(r"configuration \d+ against \d+, segment 1", words)
    found = evaluate(Workspace(shared_trained), split="valid")
    for collection in (LAYOUT, TILE):
        assert found.verdicts[collection] in words
        facts = gather(Workspace(shared_trained), Collection.parse(collection), explained=False)
        assert sum(facts.importance.values()) == pytest.approx(1.0)
        rows, metrics = facts.score_rows(), found.report[collection]
        assert {row["graph"]: row["slowdown@1"] for row in rows} == metrics["slowdown@1"]["graphs"]
        for rule, mean in metrics["score"]["baselines"].items():
            assert np.mean([row[rule] for row in rows]) == pytest.approx(mean)
        for value in metrics["score"]["graphs"].values():
            assert f"{value:.3f}" in words


def test_what_a_model_knows_from_elsewhere_is_in_its_training_set(trained: Path, tmp_path: Path) -> None:
    """Graphs of other collections, and of a model that it went on from."""
    place, collection = Workspace(trained), Collection.parse(LAYOUT)
    path = place.model(collection) / "model.json"
    card = json.loads(path.read_text())
    path.write_text(json.dumps(card | {"also_from": {"layout:cpu:default": ["delta__z"]}}))
    assert "Valid graphs, 0 of 2 of families outside" in read(report(place, tmp_path / "a.html").out)[1]
    first = {"where": "shipped", "collection": "layout:tpu-estimate:all", "fingerprint": "", "rate": 1.0}
    path.write_text(json.dumps(card | {"continues": {**first, "graphs": ["delta__b"]}}))
    facts = gather(place, collection)
    assert facts.left_out == {"delta__b": "in the training set of the model"} and [*facts.scores] == ["delta__a"]
    notes = evaluate(place, split="valid", collections=[LAYOUT]).notes
    assert notes == [f"{LAYOUT}: the model was trained on 1 of the 2 graphs scored here"]


def test_without_models_and_with_names_that_look_like_html(built: Path, tmp_path: Path) -> None:
    manifest = Workspace(built).features(Collection.parse(LAYOUT), "train") / "manifest.json"
    broken = {"broken": {"<script>alert(1)</script>": "a & b <i>"}}
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | broken))
    found = report(Workspace(built), tmp_path / "report.html")
    assert found.left_out == {LAYOUT: "no model was trained", TILE: "no model was trained"} and not found.judged
    text, words = read(found.out)
    assert f"Without a model: {LAYOUT}; {TILE}." in words
    assert "<script>alert" not in text and "<script>alert(1)</script>" in words
    with pytest.raises(CollectionError):
        report(Workspace(tmp_path), tmp_path / "empty.html")
    assert not (tmp_path / "empty.html").exists()


@pytest.mark.slow
def test_calibrated_and_compared(trained: Path, shared_trained: Path, tmp_path: Path) -> None:
    calibrate(Workspace(trained), collections=[LAYOUT], threads=1)
    other = Workspace(shared_trained)
    _, words = read(report(Workspace(trained), tmp_path / "a.html", compare=other, collections=[LAYOUT]).out)
    assert "Measured out of fold on 5 graphs of 3 families" in words
    assert "0 of 2 graphs ranked better than in" in words
    assert "Too few graphs differ for a test: 0." in words


def test_intervals_and_the_paired_test(shared_trained: Path) -> None:
    ours = gather(Workspace(shared_trained), Collection.parse(LAYOUT), explained=False)
    swapped = dict(zip(ours.scores, reversed(ours.scores.values()), strict=True))
    one, other = (row["Kendall tau"] for row in ours.score_rows())
    assert compared(ours, replace(ours, scores=swapped))[1].tolist() == [one - other, other - one]
    # all of 10 differences of one sign: p = 2 / 2**10
    assert "p = 0.00195, more than chance" in paired_test(np.linspace(0.01, 0.1, 10))
    assert "no more than chance" in paired_test(np.array([0.1, -0.1, 0.2, -0.2, 0.3, -0.3, 0.05]))
    assert paired_test(np.array([0.1, 0.0, 0.2])) == "Too few graphs differ for a test: 2."
    rows = [{"graph": "a", "n": 3, "tau": 0.5}, {"graph": "b", "n": 4, "tau": 0.5}]
    assert mean_row(rows) == {"graph": "mean, 95 % interval", "n": None, "tau": "0.500 (0.500 to 0.500)"}
