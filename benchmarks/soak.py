"""Two or three commands at once on one workspace, chosen at random, with kills: nothing lost, nothing wrong.

    python -m benchmarks.soak [--minutes 60] [--seed 0]

Some are killed, interrupted or find a full disk. Commands must end within `LIMIT` seconds and show no traceback; a
submission or an evaluation of exit code 0 must be one that undisturbed commands give; models must load, unless
their data root was replaced. In the end undisturbed commands must give the submission of an undisturbed workspace.
"""

from __future__ import annotations

import argparse
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
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import run
from tests.pipelines.trees import LAYOUT, TILE, write_tree
from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.submission import read_submission
from xlarank.data.workspace import Workspace
from xlarank.models.trained import model_of

LIMIT: Final = 240.0
_BUILD: Final = "build-features --workspace work --data-root tree --tier"
BUILD, FULL = f"{_BUILD} fast", f"{_BUILD} full"
REPLACE: Final = BUILD.replace("tree", "other") + " --replace"
TRAIN: Final = "train --workspace work --seeds 1 --rounds 8 --threads 1"
RANKNET: Final = f"{TRAIN} --model ranknet"
SUBMIT: Final = "submit --workspace work --out OUT"
EVALUATE: Final = "evaluate --workspace work --json OUT"
TUNE: Final = "tune --workspace work --trials 2 --rounds 8 --threads 1"
COMMANDS: Final = (
    *(BUILD, FULL, TRAIN, RANKNET, SUBMIT, EVALUATE) * 3, REPLACE, TUNE,
    "rank tree/npz/tile/cpu/test --workspace work --csv OUT",
    "explain tree/npz/tile/cpu/test/sort__a.npz --workspace work",
    "report --workspace work --out OUT", "calibrate --workspace work",
)  # fmt: skip
FAULTS: Final = ("none", "none", "none", "SIGKILL", "SIGKILL", "SIGTERM", "full disk")


def full_disk() -> None:
    """No file may grow beyond a few kilobytes; Python ignores SIGXFSZ, so writing fails as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))


def start(words: str, folder: Path, number: int = 0, fault: str = "none") -> subprocess.Popen[bytes]:
    """The command, which writes to files of its number."""
    (folder / f"out-{number}").unlink(missing_ok=True)
    with (folder / f"shown-{number}").open("wb") as shown:
        return subprocess.Popen(
            [sys.executable, run.__file__, *words.replace("OUT", f"out-{number}").split()], cwd=folder,
            stdout=shown, stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=full_disk if fault == "full disk" else None, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip


def ended(process: subprocess.Popen[bytes], folder: Path, number: int = 0) -> int:
    """The exit code; raises `TimeoutExpired` for a command that does not end, `AssertionError` for a traceback."""
    code = process.wait(LIMIT)
    shown = (folder / f"shown-{number}").read_text(encoding="utf-8", errors="replace")
    assert "Traceback" not in shown, shown
    return code


def results(folder: Path, words: str, number: int = 0) -> dict[str, Any]:
    """Row by id or figures by collection, where a command that ended well leaves any."""
    out = folder / f"out-{number}"
    return read_submission(out) if words == SUBMIT else json.loads(out.read_text()) if words == EVALUATE else {}


def undisturbed(folder: Path, *commands: str) -> dict[str, Any]:
    """Results of the last command."""
    for words in commands:
        assert ended(start(words, folder), folder) == 0, (words, (folder / "shown-0").read_text())
    return results(folder, commands[-1])


def one_round(folder: Path, rng: random.Random, known: dict[str, list[Any]], counts: Counter[str]) -> bool:
    """Some commands at once; whether models and figures are still those of the tree."""
    drawn = [(rng.choice(COMMANDS), rng.choice(FAULTS)) for _ in range(rng.choice((2, 2, 3)))]
    print(" | ".join(f"{words} ({fault})" for words, fault in drawn), flush=True)
    same = not {REPLACE, TUNE} & {words for words, _ in drawn}
    with ExitStack() as stack:
        processes = []
        for number, (words, fault) in enumerate(drawn):
            time.sleep(rng.uniform(0.0, 0.5))
            processes.append(start(words, folder, number, fault))
            stack.callback(processes[-1].kill)
        for process, (_, fault) in zip(processes, drawn, strict=True):
            if fault.startswith("SIG"):
                time.sleep(rng.uniform(0.0, 4.0))
                if process.poll() is None:
                    os.killpg(process.pid, signal.Signals[fault])
        for number, (process, (words, fault)) in enumerate(zip(processes, drawn, strict=True)):
            code = ended(process, folder, number)
            counts[f"{fault}, exit {code}"] += 1
            for key, found in results(folder, words, number).items() if code == 0 and same else ():
                assert found in known[key], (words, key, found)
    for name in () if REPLACE in dict(drawn) else (LAYOUT, TILE):
        model_of(Workspace(folder / "work"), Collection.parse(name))
    return same


def soak(place: Path, minutes: float, seed: int) -> bool:
    """Whether all was as it should be."""
    whole, known, wrong = place / "whole", defaultdict(list), 0
    write_tree(whole / "tree")
    write_tree(whole / "other", {TILE: {"train": ["y__a", "y__b", "x__a"], "test": ["z__a"]}})
    for before in ((FULL, RANKNET), (TRAIN,), (BUILD, RANKNET), (TRAIN,)):
        figures, rows = undisturbed(whole, *before, EVALUATE), undisturbed(whole, SUBMIT)
        for key, found in (figures | rows).items():
            known[key].append(found)
    counts, number, end = Counter[str](), 0, time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        rng = random.Random(f"{seed}/{number}")
        folder = Path(shutil.copytree(whole, place / str(number), symlinks=True))
        try:
            while one_round(folder, rng, known, counts) and rng.random() < 0.7:
                pass
            shutil.rmtree(folder / "work" / "studies", ignore_errors=True)  # else it may train by other parameters
            assert undisturbed(folder, f"{BUILD} --replace", TRAIN, SUBMIT) == rows
        except (AssertionError, subprocess.TimeoutExpired, XlarankError) as error:
            print(f"WRONG: {error}", flush=True)
            wrong += 1
        shutil.rmtree(folder)
        number += 1
    print(f"{number} workspaces, {wrong} wrong: {dict(counts.most_common())}")
    return not wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    with tempfile.TemporaryDirectory() as place:
        sys.exit(not soak(Path(place), **vars(parser.parse_args())))
