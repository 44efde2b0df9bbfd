"""Ctrl-C and SIGTERM: what is finished is kept, one line is said."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import LAYOUT, TILE, ended, here, start
from tests.graphs import save_npz
from tests.pipelines.conftest import need
from tests.pipelines.trees import graph_path, layout_graph, tile_graph, write_tree
from xlarank.cli import app

pytestmark = pytest.mark.slow

KEPT = "error: interrupted; finished work is kept, run the same command again to resume"
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


def interrupt(process, when, number=signal.SIGINT):
    """Send the signal to the whole group, as Ctrl-C does."""
    deadline = time.monotonic() + 240
    try:
        while not when():
            assert process.poll() is None, "it was over too early"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.killpg(process.pid, number)
        return ended(process, timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def many_graphs(root):
    first = save_npz(graph_path(root, LAYOUT, "train", "family0__0"), layout_graph(0))
    for number in range(1, 400):
        os.link(first, graph_path(root, LAYOUT, "train", f"family{number % 7}__{number}"))
    return root


@posix_only
def test_a_terminated_build_keeps_what_is_done(tmp_path):
    many_graphs(tmp_path / "tree")
    folder = tmp_path / "work" / "features" / "layout" / "cpu" / "random" / "train"
    process = start("build-features", "--data-root", "tree", "--jobs", "1", cwd=tmp_path)
    outcome = interrupt(process, lambda: len(list(folder.glob("[!.]*.parquet"))) >= 3, signal.SIGTERM)
    assert (outcome.code, outcome.errors) == (143, [KEPT])
    assert 3 <= len(list(folder.glob("[!.]*.parquet"))) < 400
    assert list(folder.glob(".partial-*")) == []


@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for worker processes in /proc")
def test_ctrl_c_while_workers_start(tmp_path):
    """The workers hear it too, in the middle of their imports."""
    many_graphs(tmp_path / "tree")
    process = start("build-features", "--data-root", "tree", "--jobs", "2", cwd=tmp_path)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def workers_are_importing():
        if len(children.read_text().split()) < 3:  # two workers and the tracker of resources
            return False
        time.sleep(0.25)
        return True

    outcome = interrupt(process, workers_are_importing)
    assert outcome.code == 130 and len(outcome.errors) == 1


@posix_only
def test_ctrl_c_while_tuning_keeps_the_best(job, tmp_path):
    shutil.copytree(job.work, tmp_path / "work")
    shutil.rmtree(tmp_path / "work" / "studies")
    best = tmp_path / "work" / "studies" / "tile" / "cpu" / "best-lambdarank.json"
    process = start("tune", "--trials", "100000", "--rounds", "10", "--threads", "1", "-c", TILE, cwd=tmp_path)
    outcome = interrupt(process, best.exists)
    assert (outcome.code, outcome.errors) == (130, [KEPT])
    assert json.loads(best.read_text())["model"] == "lambdarank"
    again = here("tune", "--trials", "1", "--rounds", "10", "--workspace", tmp_path / "work", "-c", TILE)
    assert again.code == 0
    assert re.search(rf"{TILE}\s+\d+\s+0", again.out), "nothing left to do"


@posix_only
def test_an_interruption_that_a_library_hides_is_still_one(monkeypatch, capfd):
    """The exception that Ctrl-C raises may turn up in the middle of any library; a second press is final."""

    def hides_it(*_, **named):  # as a finally block with an error of its own does
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise UnboundLocalError("made up")

    def loses_it(*_, **named):  # as a destructor or a library's bare except does
        with contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("a second press ends the program")

    monkeypatch.setattr(app, "_GRACE", 1000.0)
    monkeypatch.setattr(os, "_exit", sys.exit)
    for library in (hides_it, loses_it):
        monkeypatch.setattr("xlarank.pipelines.info.info", library)
        monkeypatch.setattr(app, "_received", [])
        assert here("info", "--collection", TILE).code == 130
        assert "error: interrupted" in capfd.readouterr().err


@posix_only
def test_an_interruption_of_a_cluster_is_one_line(tmp_path):
    need("distributed")
    for number in range(150):
        save_npz(graph_path(tmp_path / "data", TILE, "train", f"family__{number}"), tile_graph(number))
    process = start(
        "build-features", "--data-root", "data", "--workspace", "work", "--tier", "fast", "--scheduler", "local",
        "--jobs", 2, cwd=tmp_path,
    )  # fmt: skip
    # a busy machine takes its time to start workers
    done = interrupt(process, lambda: any(tmp_path.glob("work/**/[!.]*.parquet")))
    assert done.code == 128 + signal.SIGINT and len(done.errors) == 1


KILLS = int(os.environ.get("XLARANK_KILLS", "2"))
TREE = ("--data-root", "tree", "--workspace", "work")
SMALL = ("--rounds", "10", "--threads", "1")
#: Command -> its words; the last stands alone, in a workspace of its own.
COMMANDS = {
    "build-features": ["build-features", *TREE, "--tier", "fast"],
    "tune": ["tune", *TREE, "--trials", "3", *SMALL],
    "train": ["train", *TREE, "--seeds", "1", *SMALL],
    "evaluate": ["evaluate", *TREE, "--json", "out.json"],
    "submit": ["submit", *TREE, "--out", "out.csv"],
    "run-all": ["run-all", *TREE[:3], "all", "--budget-hours", "0.05", "--seeds", "1", "--trials", "0"],
}


def finish(words, folder):
    outcome = ended(start(*words, cwd=folder))
    assert outcome.code == 0, outcome.err


def result(command, folder):
    """Return the result of the command, without times."""
    work = folder / "work"
    if command == "build-features":
        # A parquet file holds the time of its npz file, which is another in each copy of the tree. What a SIGKILL
        # left half written has a hidden name beside it, is read by nobody and swept away when it is a day old.
        files = [path for path in work.rglob("*.parquet") if not path.name.startswith(".")]
        return sorted((str(path.relative_to(work)), path.stat().st_size) for path in files)
    if command == "tune":
        best = [json.loads(path.read_text()) for path in sorted(work.rglob("best-*.json"))]
        return [(params["params"], params["mean"], params["graphs"]) for params in best]
    if command == "train":
        return [path.read_text() for path in sorted(work.rglob("booster.txt"))]
    name = {"evaluate": "out.json", "submit": "out.csv", "run-all": "submission.csv"}[command]
    return sorted((folder / name).read_text().splitlines())


@pytest.mark.exhaustive
def test_killed_at_random_moments_and_run_again_every_command_gives_the_same(tmp_path):
    """As if nobody had disturbed it. `XLARANK_KILLS` says how often each signal kills each command (2)."""
    place, before = tmp_path / "place", tmp_path / "before"  # in another place all graphs would be built again
    write_tree(place / "tree")
    for command, words in COMMANDS.items():
        rng, seconds, expected = random.Random(command), 0.0, None
        shutil.copytree(place, before)
        for which in (None, *(signal.SIGKILL, signal.SIGTERM) * KILLS):
            shutil.rmtree(place)
            shutil.copytree(before, place)
            began = time.monotonic()
            if which is not None:
                process = start(*words, cwd=place)
                time.sleep(rng.uniform(0.2, 1.0) * seconds)
                os.killpg(process.pid, which)
                ended(process, timeout=60)
            finish(words, place)
            if which is None:
                seconds, expected = time.monotonic() - began, result(command, place)
            assert result(command, place) == expected, (command, which)
        shutil.rmtree(before)
