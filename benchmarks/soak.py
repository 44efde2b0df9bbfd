"""Two or three commands at once on one workspace, chosen at random, with kills: nothing lost, nothing wrong.

    python -m benchmarks.soak [--minutes 60] [--seed 0]

Each of a workspace's rounds starts commands within a second of each other; some are killed, interrupted or find a
full disk. Asserted of every round: commands end within `LIMIT` seconds and show no traceback; a submission or an
evaluation of exit code 0 is one that undisturbed commands give; models load, unless their data root was replaced.
In the end the commands run undisturbed and give the submission of an undisturbed workspace, to the last byte.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

from tests.pipelines.trees import LAYOUT, TILE, write_tree
from xlarank.data.collection import Collection
from xlarank.data.workspace import Workspace
from xlarank.models.trained import model_of

RUN: Final = Path(__file__).parent.parent / "run.py"
LIMIT: Final = 240.0
#: Bytes that a file may have where the disk is "full".
_FULL: Final = 3_000
_TREE: Final = ("--data-root", "tree", "--workspace", "work")
BUILD: Final = ("build-features", *_TREE, "--tier", "fast")
FULL: Final = ("build-features", *_TREE, "--tier", "full")
REPLACE: Final = ("build-features", "--data-root", "other", "--workspace", "work", "--tier", "fast", "--replace")
TRAIN: Final = ("train", "--workspace", "work", "--seeds", "1", "--rounds", "8", "--threads", "1")
RANKNET: Final = (*TRAIN, "--model", "ranknet")
SUBMIT: Final = ("submit", "--workspace", "work", "--out", "out.csv")
EVALUATE: Final = ("evaluate", "--workspace", "work", "--json", "scores.json")
TUNE: Final = ("tune", "--workspace", "work", "--trials", "2", "--rounds", "8", "--threads", "1")
RANK: Final = ("rank", "tree/npz/tile/cpu/test", "--workspace", "work", "--csv", "ranks.csv")
#: Those that write are drawn more often.
COMMANDS: Final = (
    *(BUILD, FULL, TRAIN, RANKNET, SUBMIT, EVALUATE) * 3, REPLACE, TUNE, RANK,
    ("explain", "tree/npz/tile/cpu/test/sort__a.npz", "--workspace", "work"),
    ("report", "--workspace", "work", "--out", "report.html"), ("calibrate", "--workspace", "work"),
)  # fmt: skip
FAULTS: Final = ("none", "none", "none", "SIGKILL", "SIGKILL", "SIGTERM", "full disk")
#: By collection, what undisturbed commands give: rows of a submission, and evaluations as JSON.
Known = dict[str, list[Any]]


def full_disk() -> None:
    """No file of this process may grow beyond a few kilobytes; writing says so, as a full disk does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FULL, _FULL))


def start(words: tuple[str, ...], folder: Path, number: int = 0, fault: str = "none") -> subprocess.Popen[bytes]:
    """The command, which writes what it shows and its files to a folder of its own."""
    here = folder / f"command-{number}"
    shutil.rmtree(here, ignore_errors=True)
    for path in (here, folder / "work"):
        path.mkdir(exist_ok=True)
    for name in ("tree", "other", "work"):
        (here / name).symlink_to(folder / name)
    with (here / "shown").open("wb") as shown:
        return subprocess.Popen(
            [sys.executable, str(RUN), *words], cwd=here, stdout=shown, stderr=shown, start_new_session=True,
            preexec_fn=full_disk if fault == "full disk" else None, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


def ended(process: subprocess.Popen[bytes], folder: Path, number: int = 0) -> int:
    """The exit code; raises `AssertionError` for a command that does not end or shows a traceback."""
    try:
        code = process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"command {number} did not end in {LIMIT:.0f} s") from None
    shown = (folder / f"command-{number}" / "shown").read_text(encoding="utf-8")
    assert "Traceback" not in shown, shown
    return code


def rows_of(path: Path) -> dict[str, list[tuple[str, ...]]]:
    """Collection -> rows of a submission."""
    found = defaultdict(list)
    with path.open(newline="") as stream:
        for row in list(csv.reader(stream))[1:]:
            found[row[0].rpartition(":")[0]].append(tuple(row))
    return dict(found)


def results(folder: Path, words: tuple[str, ...], number: int = 0) -> dict[str, Any]:
    """By collection, what a command left that ended well; empty for those without figures."""
    here = folder / f"command-{number}"
    if words is SUBMIT:
        return rows_of(here / "out.csv")
    return dict(json.loads((here / "scores.json").read_text())) if words is EVALUATE else {}


def undisturbed(folder: Path, *commands: tuple[str, ...]) -> dict[str, Any]:
    """Results of the last command."""
    for words in commands:
        assert ended(start(words, folder), folder) == 0, (words, (folder / "command-0" / "shown").read_text())
    return results(folder, commands[-1])


def one_round(folder: Path, rng: random.Random, known: Known, counts: Counter[str]) -> bool:
    """Some commands at once; whether models and figures are still those of the tree."""
    drawn = [(rng.choice(COMMANDS), rng.choice(FAULTS)) for _ in range(rng.choice((2, 2, 3)))]
    print("  " + " | ".join(f"{' '.join(words)} ({fault})" for words, fault in drawn), flush=True)
    replaced, tuned = any(words is REPLACE for words, _ in drawn), any(words is TUNE for words, _ in drawn)
    processes = []
    for number, (words, fault) in enumerate(drawn):
        time.sleep(rng.uniform(0.0, 0.5))
        processes.append(start(words, folder, number, fault))
    for process, (_, fault) in sorted(zip(processes, drawn, strict=True), key=lambda _: rng.random()):
        if fault.startswith("SIG"):
            time.sleep(rng.uniform(0.0, 4.0))
            if process.poll() is None:
                os.killpg(process.pid, signal.Signals[fault])
    for number, (process, (words, fault)) in enumerate(zip(processes, drawn, strict=True)):
        code = ended(process, folder, number)
        counts[f"{fault}, exit {code}"] += 1
        if code == 0 and not replaced and not tuned:
            for collection, found in results(folder, words, number).items():
                assert found in known[collection], (words, collection, found)
    if not replaced:
        for name in (LAYOUT, TILE):
            model_of(Workspace(folder / "work"), Collection.parse(name))
    return not replaced and not tuned


def soak(place: Path, minutes: float, seed: int) -> None:
    whole, known = place / "whole", defaultdict(list)
    write_tree(whole / "tree")
    write_tree(whole / "other", {TILE: {"train": ["y__a", "y__b", "x__a"], "test": ["z__a"]}})
    for before in ((FULL, RANKNET), (TRAIN,), (BUILD, RANKNET), (TRAIN,)):
        undisturbed(whole, *before)
        for last in (EVALUATE, SUBMIT):
            for collection, found in undisturbed(whole, last).items():
                known[collection].append(found)
    expected, counts, number = undisturbed(whole, SUBMIT), Counter[str](), 0
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        rng = random.Random(f"{seed}/{number}")
        print(f"workspace {number}", flush=True)
        with tempfile.TemporaryDirectory(dir=place) as name:
            folder = Path(name)
            shutil.copytree(whole, folder, dirs_exist_ok=True, symlinks=True)
            while one_round(folder, rng, known, counts) and rng.random() < 0.7:
                pass
            shutil.rmtree(folder / "work" / "studies", ignore_errors=True)  # else it may train by other parameters
            assert undisturbed(folder, (*BUILD, "--replace"), TRAIN, SUBMIT) == expected
        number += 1
    print(f"{number} workspaces, all as they should be: {dict(counts.most_common())}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        soak(Path(place), asked.minutes, asked.seed)
