"""Every command killed at random moments and run again: the same result as if nobody had disturbed it.

`XLARANK_KILLS` says how often each command is killed by each signal (2 by default).
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.cli.shell import ended, start
from tests.pipelines.trees import write_tree

KILLS = int(os.environ.get("XLARANK_KILLS", "2"))
TREE = ("--data-root", "tree", "--workspace", "work")
SMALL = ("--rounds", "10", "--threads", "1")
#: Command -> its words, and what must have been done before.
COMMANDS = {
    "build-features": (["build-features", *TREE, "--tier", "fast"], []),
    "tune": (["tune", *TREE, "--trials", "3", *SMALL], ["build-features"]),
    "train": (["train", *TREE, "--seeds", "1", *SMALL], ["build-features"]),
    "evaluate": (["evaluate", *TREE, "--json", "out.json"], ["build-features", "train"]),
    "submit": (["submit", *TREE, "--out", "out.csv"], ["build-features", "train"]),
    "run-all": (["run-all", *TREE, "--budget-hours", "0.05", "--seeds", "1", "--trials", "0"], []),
}


def finish(words: list[str], folder: Path) -> None:
    outcome = ended(start(*words, cwd=folder))
    assert outcome.code == 0, outcome.err


def result(command: str, folder: Path) -> object:
    """What the command is for, without times."""
    work = folder / "work"
    if command == "build-features":
        # A parquet file holds the time of its npz file, which is another in each copy of the tree. What a SIGKILL
        # left half written has a hidden name beside it, is read by nobody and swept away when it is a day old.
        files = [path for path in work.rglob("*.parquet") if not path.name.startswith(".")]
        return sorted((str(path.relative_to(work)), path.stat().st_size) for path in files)
    if command == "tune":
        best = [json.loads(path.read_text()) for path in sorted(work.rglob("best-*.json"))]
        return [(one["params"], one["mean"], one["graphs"]) for one in best]
    if command == "train":
        return [path.read_text() for path in sorted(work.rglob("booster.txt"))]
    name = {"evaluate": "out.json", "submit": "out.csv", "run-all": "submission.csv"}[command]
    return sorted((folder / name).read_text().splitlines())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each command in which all that comes before it was done."""
    root = tmp_path_factory.mktemp("before")
    write_tree(root / "none" / "tree")
    made = {(): root / "none"}
    for _, before in COMMANDS.values():
        for number in range(1, len(before) + 1):
            steps = tuple(before[:number])
            if steps not in made:
                made[steps] = root / "-".join(steps)
                shutil.copytree(made[steps[:-1]], made[steps])
                finish(COMMANDS[steps[-1]][0], made[steps])
    return {command: made[tuple(before)] for command, (_, before) in COMMANDS.items()}


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_and_run_again_gives_the_same(command: str, prepared: dict[str, Path], tmp_path: Path) -> None:
    words = COMMANDS[command][0]
    shutil.copytree(prepared[command], tmp_path / "whole")
    began = time.monotonic()
    finish(words, tmp_path / "whole")
    seconds, expected = time.monotonic() - began, result(command, tmp_path / "whole")
    rng = random.Random(command)
    for number, which in [(k, s) for s in (signal.SIGKILL, signal.SIGTERM) for k in range(KILLS)]:
        folder = tmp_path / f"{which.name}-{number}"
        shutil.copytree(prepared[command], folder)
        process = start(*words, cwd=folder)
        time.sleep(rng.uniform(0.2, 1.0) * seconds)
        os.killpg(process.pid, which)
        ended(process, timeout=60)
        finish(words, folder)
        assert result(command, folder) == expected, (command, which.name, number)
        shutil.rmtree(folder)
