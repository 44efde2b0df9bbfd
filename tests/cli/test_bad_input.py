"""Bad input ends in one clear line and an exit code that tells."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import polars as pl
import pytest

from tests.cli.conftest import LAYOUT, ROOT, TILE, Outcome, environment, here, refused
from tests.graphs import save_npz
from tests.pipelines.trees import graph_path, layout_graph

#: Commands that read the data root and write to the workspace.
VERBS = ("build-features", "tune", "train", "evaluate", "submit")


@pytest.mark.slow
def test_data_roots_that_hold_nothing(tmp_path, monkeypatch):
    work, absent = ["--workspace", tmp_path / "work"], tmp_path / "absent"
    for words in (["info"], *([verb, *work] for verb in VERBS)):
        said = r"absent \(--data-root\) does not exist; .*pass --data-root or set XLARANK_DATA"
        refused([*words, "--data-root", absent], said)
    assert not (tmp_path / "work").exists()
    monkeypatch.setenv("XLARANK_DATA", str(absent))
    refused(["info"], r"absent \(XLARANK_DATA\) does not exist")


@pytest.mark.slow
def test_names_and_places_that_cannot_be_used(job, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("in the way")
    root, there, result = ["--data-root", job.tree], ["--workspace", trained], tmp_path / "file" / "result"
    for verb in VERBS:
        refused([verb, *root, "--workspace", "file"], r"the workspace .*file cannot be written .*pass another")
        if verb != "build-features":
            said = rf"'layout:cpu:randm' is not in .*did you mean {LAYOUT}"
            refused([verb, *there, "--collection", "layout:cpu:randm"], said)
    long, bytes_ = ([*root, "--tier", "fast", "--workspace", name] for name in ("w" * 300, "w\udcff"))
    for words, said in (
        (["build-features", *long], "File name too long"),
        (["build-features", *bytes_], r"the path '.*w.udcff.*' is not valid UTF-8"),
        (["build-features", "--tier", "nonsense"], "--tier is 'nonsense'; expected fast or full"),
        (["info", *root, "--json", result], r"cannot write .*result"),
        (["submit", *there, "--out", result], r"cannot write .*result"),
        (["leaderboard", "--csv", "-"], "--csv is -; expected the name of a file"),
        (["explain", "x.npz", "--svg", "-"], "--svg is -"),
        (["submit", "--workspace", "wrok"], "the workspace wrok does not exist"),
        (["tune", *there, "--storage", "nonsense://x"], "storage .*cannot be used .*check --storage"),
    ):
        refused(words, said)


@pytest.mark.slow
def test_usage_errors_exit_with_2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (
        "bild-features", "info --nonsense", "tune --trials 0", "tune --trials many", "tune --timeout -1",
        "tune --timeout nan", "run-all --budget-hours nan", "run-all --budget-ram-gb nan", "train --seeds 0",
        "build-features --max-configs -1", "build-features --jobs -1", "rank", "rank a.npz --top 0",
        "rank a.npz b.npz", "submit --out", "info --quiet --verbose", "train --threads -2",
        *(f"{verb} --seed {seed}" for verb in ("build-features", "train", "run-all") for seed in (-1, 2**31)),
        *(f"{verb} --threads 100000" for verb in ("tune", "train", "cross-validate")),
    ):  # fmt: skip
        outcome = here(*words.split())
        assert (outcome.code, outcome.out) == (2, "") and "Error" in outcome.err, words
        assert ("No such option" in outcome.err) == ("nonsense" in words), words
    assert list(tmp_path.iterdir()) == []


def test_broken_files_are_named_while_the_others_are_done(tree, tmp_path):
    """A file name must not be able to forge a line of the output."""
    path = graph_path(tree, TILE, "train", "bmm__a")
    path.write_bytes(path.read_bytes()[:-100])
    evil = graph_path(tree, TILE, "valid", "expsum__a")
    evil.rename(evil.with_name("evil\nerror: all is lost.npz"))
    work = tmp_path / "work"
    outcome = here("build-features", "--data-root", tree, "--workspace", work, "--tier", "fast")
    assert outcome.code == 1
    named, other, summary = outcome.errors
    assert re.search(rf"{TILE} train bmm__a: cannot be opened", named) and "evil\\nerror" in other
    assert "2 broken files; the others were dealt with" in summary
    assert "\nerror: all is lost" not in outcome.out + outcome.err
    rows = [pl.read_parquet(path)["graph"].n_unique() for path in work.rglob("*.parquet")]
    assert sum(rows) == 8
    assert here("info", "--data-root", tree).code == 1


def test_a_broken_test_file_makes_a_submission_fail_after_writing_it(tree, trained, tmp_path):
    graph_path(tree, TILE, "test", "swish__a").write_bytes(b"no zip")
    here("build-features", "--data-root", tree, "--workspace", trained, "--tier", "fast")
    outcome = here("submit", "--workspace", trained, "--out", tmp_path / "out.csv")
    assert outcome.code == 1 and "swish__a" in outcome.errors[0]
    assert f"{LAYOUT}:gru__a" in (tmp_path / "out.csv").read_text()


def test_names_are_not_markup_of_the_terminal(job, trained, tmp_path):
    for name in ("data[bold]", "data[/old]"):
        tree = Path(shutil.copytree(job.tree, tmp_path / name))
        outcome = here("info", "--data-root", tree, "--json", tmp_path / "out[dim].json")
        assert outcome.code == 0 and f"data: {tree} " in outcome.out and "out[dim].json" in outcome.out
    graph = save_npz(tmp_path / "[red]graph.npz", layout_graph(1))
    assert "[red]graph: 24 configurations" in here("rank", graph, "--workspace", trained).out


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="limits of a process are POSIX's")
def test_a_disk_that_is_full_while_a_library_writes(trained, tmp_path):
    """Optuna's journal is written by Optuna. A limit on the size of files fails as a full disk does."""
    kilobytes = max(journal.stat().st_size for journal in trained.glob("studies/**/journal.log")) // 1024 + 1
    tune = [sys.executable, str(ROOT / "run.py"), "tune", "--trials=9", "--rounds=10", "--threads=1", "--workspace"]
    done = subprocess.run(
        ["bash", "-c", f'ulimit -f {kilobytes}; exec "$@"', "-", *tune, str(trained)],
        cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    refused(Outcome(done.returncode, done.stdout, done.stderr), r"cannot be written .*make room and run")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")])
def test_too_little_memory_is_said_in_one_line(monkeypatch, capfd, error):
    outer = ValueError("what a library makes of it")
    outer.__cause__ = error
    monkeypatch.setattr("xlarank.data.root.find_data_root", mock.Mock(side_effect=outer))
    assert here("info").code == 1
    assert capfd.readouterr().err.startswith("error: not enough memory; ")


def test_a_closed_standard_output_is_an_error_and_no_columns_are_those_of_a_file(tree, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    assert TILE in here("info", "--data-root", tree).out

    # as Python finds it with `>&-`
    monkeypatch.setattr(contextlib, "redirect_stdout", lambda _: mock.patch.object(sys, "stdout", None))
    refused(["info", "--data-root", tree], "standard output is closed")
