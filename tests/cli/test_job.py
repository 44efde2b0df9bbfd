"""All commands in turn: what each stores and prints."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Job
from tests.cli.shell import FILES, LAYOUT, ROOT, TILE, ended, here, refused, start


def test_what_each_step_prints_and_stores(job: Job) -> None:
    assert {step: (outcome.code, outcome.errors) for step, outcome in job.outcomes.items()} == dict.fromkeys(
        job.outcomes, (0, [])
    )
    assert f"data: {Path('tree')} (named by --data-root)" in job.outcomes["info"].out
    parts = json.loads((job.folder / "info.json").read_text())
    assert [(part["collection"], part["split"], part["graphs"]) for part in parts] == [
        (collection, split, len(names)) for collection, splits in FILES.items() for split, names in splits.items()
    ]
    stored = {path.stem for path in job.work.glob("features/**/*.parquet")}
    assert stored == {name for splits in FILES.values() for names in splits.values() for name in names}
    assert re.search(rf"{TILE}\s+train\s+3\s+3\s+0\s+192", job.outcomes["build-features"].out)
    for collection in (LAYOUT, TILE):
        place = Path(*collection.split(":"))
        best = json.loads((job.work / "studies" / place / "best-lambdarank.json").read_text())
        card = json.loads((job.work / "models" / place / "model.json").read_text())
        assert (card["tuned"], card["params"], len(card["seeds"])) == (True, best["params"], 1)
        picture = Path("work/reports") / f"tune-{'-'.join(place.parts)}-lambdarank.svg"
        assert (job.folder / picture).exists() and f"wrote {picture}" in job.outcomes["tune"].out
    assert job.outcomes["train"].out.count("lambdarank (tuned)") == 2


def test_scores_submission_and_ranking_are_as_promised(job: Job) -> None:
    report = json.loads((job.folder / "scores.json").read_text())
    assert set(report) == {LAYOUT, TILE}
    for collection, metrics in report.items():
        assert set(metrics) >= {"tau", "ordered_pair_accuracy", "slowdown@1", "slowdown@5", "score"}
        for values in metrics.values():
            beside = {"baselines", "repeats_once", "seeds_std"}
            assert set(values) - beside == {"mean", "std", "low", "high", "graphs"}
            assert list(values["graphs"]) == list(FILES[collection]["valid"])
    assert re.search(rf"mean\s+{report[LAYOUT]['tau']['mean']:.3f}", job.outcomes["evaluate"].out)
    with (job.folder / "out" / "submission.csv").open(newline="") as stream:
        listed = {row["ID"]: len(row["TopConfigs"].split(";")) for row in csv.DictReader(stream)}
    assert listed == {f"{LAYOUT}:gru__a": 64, f"{TILE}:swish__a": 5}
    assert "2 rows, checked" in job.outcomes["submit"].out
    ranking = json.loads((job.folder / "rank.json").read_text())
    assert (ranking["graph"], ranking["collection"], len(ranking["best"])) == ("mlp__a", LAYOUT, 3)
    assert f"mlp__a: 64 configurations, ranked by the model of {LAYOUT}" in job.outcomes["rank"].out


@pytest.mark.slow
def test_a_real_shell_gives_the_same(job: Job, tmp_path: Path) -> None:
    """``python run.py`` in the repository's root, as the README has it."""
    words = ["evaluate", "--workspace", job.work, "--json", tmp_path / "scores.json"]
    assert ended(start(*words, cwd=ROOT, home=tmp_path)).code == 0
    assert (tmp_path / "scores.json").read_bytes() == (job.folder / "scores.json").read_bytes()
    refused(ended(start("info", "--data-root", "absent", cwd=ROOT, home=tmp_path)), "absent .*does not exist")


def test_naming_the_data_root_again_keeps_how_it_was_built(tree: Path, tmp_path: Path) -> None:
    """Or the columns and configurations chosen in build-features would be undone by the next command."""
    place = ["--data-root", tree, "--workspace", tmp_path / "work"]
    here("build-features", *place, "--tier", "fast", "--no-candidates", "--max-configs", "30", "-c", TILE)
    manifest = tmp_path / "work" / "features" / "tile" / "cpu" / "train" / "manifest.json"
    before = json.loads(manifest.read_text())["recipe"]
    assert before["max_configs"] == 30
    assert here("train", *place, "-c", TILE, "--seeds", "1", "--rounds", "5", "--threads", "1").code == 0
    assert json.loads(manifest.read_text())["recipe"] == before


def test_the_data_root_of_the_environment_or_the_sample(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the embedded sample" in here("info", "--collection", TILE).out
    monkeypatch.setenv("XLARANK_DATA", str(job.tree))
    assert "named by XLARANK_DATA" in here("info").out
