"""The whole job from a shell: what each step leaves and says."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Job
from tests.cli.shell import FILES, LAYOUT, ROOT, TILE, Outcome, shell


def test_every_step_of_the_job_ends_well(job: Job) -> None:
    for step, outcome in job.outcomes.items():
        assert outcome.code == 0, f"{step}: {outcome.err}"
        assert outcome.errors == []


def test_info_counts_what_is_there(job: Job) -> None:
    assert f"data: {Path('tree')} (named by --data-root)" in job.outcomes["info"].out
    parts = json.loads((job.folder / "info.json").read_text())
    assert [(part["collection"], part["split"], part["graphs"]) for part in parts] == [
        (collection, split, len(names)) for collection, splits in FILES.items() for split, names in splits.items()
    ]
    assert parts[0]["families"] == ["cnn", "dlrm"]


def test_features_lie_in_the_workspace_of_the_current_folder(job: Job) -> None:
    stored = {path.stem for path in job.work.glob("features/**/*.parquet")}
    assert stored == {name for splits in FILES.values() for names in splits.values() for name in names}
    assert re.search(rf"{TILE}\s*│\s*train\s*│\s*3\s*│\s*3\s*│\s*0\s*│\s*192", job.outcomes["build-features"].out)


def test_tuned_parameters_reach_the_models(job: Job) -> None:
    for collection in (LAYOUT, TILE):
        place = Path(*collection.split(":"))
        best = json.loads((job.work / "studies" / place / "best-lambdarank.json").read_text())
        card = json.loads((job.work / "models" / place / "model.json").read_text())
        assert card["tuned"] is True
        assert card["params"] == best["params"]
        assert len(card["seeds"]) == 1
    assert job.outcomes["train"].out.count("lambdarank (tuned)") == 2
    for name in ("tune-layout-cpu-random-lambdarank.svg", "tune-tile-cpu-lambdarank.svg"):
        assert (job.work / "reports" / name).exists()
        assert f"wrote {Path('work/reports') / name}" in job.outcomes["tune"].out


def test_scores_are_written_as_promised(job: Job) -> None:
    report = json.loads((job.folder / "scores.json").read_text())
    assert set(report) == {LAYOUT, TILE}
    for collection, metrics in report.items():
        assert set(metrics) >= {"tau", "ordered_pair_accuracy", "slowdown@1", "slowdown@5", "score"}
        for values in metrics.values():
            beside = {"baselines", "repeats_once", "seeds_std"}
            assert set(values) - beside == {"mean", "std", "low", "high", "graphs"}
            assert list(values["graphs"]) == list(FILES[collection]["valid"])
    shown = job.outcomes["evaluate"].out
    assert f"{report[LAYOUT]['tau']['mean']:.3f}" in shown
    assert re.search(rf"95 % low\s*│\s*{report[LAYOUT]['tau']['low']:.3f}", shown)


def test_the_submission_has_every_test_graph(job: Job) -> None:
    with (job.folder / "out" / "submission.csv").open(newline="") as stream:
        rows = {row["ID"]: row["TopConfigs"].split(";") for row in csv.DictReader(stream)}
    assert {row_id: len(listed) for row_id, listed in rows.items()} == {
        f"{LAYOUT}:gru__a": 64,
        f"{TILE}:swish__a": 5,
    }
    assert "2 rows, checked" in job.outcomes["submit"].out


def test_the_submission_is_found_right_and_a_spoilt_one_is_not(
    job: Job, tmp_path: Path, command: Callable[..., Outcome]
) -> None:
    written = job.folder / "out" / "submission.csv"
    right = command("check-submission", written, "--data-root", job.tree)
    assert (right.code, right.errors) == (0, []) and "2 rows, right (checked against 2 test graphs)" in right.out
    (tmp_path / "spoilt.csv").write_text(written.read_text().replace(f"{TILE}:swish__a,", f"{TILE}:swish__a,99;"))
    spoilt = command("check-submission", tmp_path / "spoilt.csv", "--sample", written, "--data-root", job.tree)
    assert spoilt.code == 1
    assert spoilt.errors[0] == f"error: {TILE}:swish__a lists configuration 99; expected 0 to 63"
    assert spoilt.errors[1].startswith("error: 1 problem in ")


def test_a_package_for_kaggle_is_made(tmp_path: Path, command: Callable[..., Outcome]) -> None:
    outcome = command("package-kaggle", "--out", tmp_path / "xlarank.zip")
    assert outcome.code == 0 and re.search(r"wrote .*xlarank\.zip: \d+ files", outcome.out)
    assert (tmp_path / "xlarank.zip").stat().st_size > 100_000


def test_a_ranking_is_shown_and_written(job: Job) -> None:
    ranking = json.loads((job.folder / "rank.json").read_text())
    assert (ranking["graph"], ranking["collection"]) == ("mlp__a", LAYOUT)
    assert sorted(ranking["order"]) == list(range(64))
    assert len(ranking["best"]) == 3
    assert ranking["best"][0]["configuration"] == ranking["order"][0]
    assert f"mlp__a: 64 configurations, ranked by the model of {LAYOUT}" in job.outcomes["rank"].out


@pytest.mark.slow
def test_the_repository_root_gives_the_same(job: Job, tmp_path: Path) -> None:
    """``python run.py`` as the README has it."""
    words = ["evaluate", "--workspace", job.work, "--json", tmp_path / "scores.json"]
    assert shell(*words, cwd=ROOT, home=tmp_path, script="run.py").code == 0
    assert (tmp_path / "scores.json").read_bytes() == (job.folder / "scores.json").read_bytes()


def test_a_second_round_does_nothing_anew(job: Job, tmp_path: Path, command: Callable[..., Outcome]) -> None:
    work = shutil.copytree(job.work, tmp_path / "work")
    again = command("build-features", "--data-root", job.tree, "--tier", "fast", "--workspace", work)
    assert again.code == 0
    assert re.search(rf"{TILE}\s*│\s*train\s*│\s*3\s*│\s*0\s*│\s*3\s*│", again.out), "0 built, 3 kept"
    tuned = command("tune", "--trials", "2", "--rounds", "10", "--workspace", work)
    assert re.search(rf"{TILE}\s*│\s*2\s*│\s*0\s*│", tuned.out), "2 trials, 0 new"


def test_naming_the_data_root_again_keeps_how_it_was_built(
    tree: Path, command: Callable[..., Outcome], tmp_path: Path
) -> None:
    """Or the columns and configurations chosen in build-features would be undone by the next command."""
    place = ["--data-root", tree, "--workspace", tmp_path / "work"]
    command("build-features", *place, "--tier", "fast", "--no-candidates", "--max-configs", "30", "-c", TILE)
    manifest = tmp_path / "work" / "features" / "tile" / "cpu" / "train" / "manifest.json"
    before = json.loads(manifest.read_text())["recipe"]
    assert before["max_configs"] == 30
    assert command("train", *place, "-c", TILE, "--seeds", "1", "--rounds", "5", "--threads", "1").code == 0
    assert json.loads(manifest.read_text())["recipe"] == before
    assert command("evaluate", *place, "-c", TILE).code == 0


def test_the_data_root_of_the_environment(
    job: Job, command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLARANK_DATA", str(job.tree))
    outcome = command("info")
    assert outcome.code == 0
    assert "named by XLARANK_DATA" in outcome.out


def test_without_any_data_root_the_sample_is_taken_and_named(command: Callable[..., Outcome]) -> None:
    outcome = command("info", "--collection", TILE)
    assert outcome.code == 0
    assert "the embedded sample" in outcome.out
