"""Random sequences of commands on a small tree, with faults: never a traceback, never a wrong file called right.

    python -m benchmarks.soak [--sequences 200] [--seed 0]

Faults: a process killed at a random moment, files of the workspace cut short or with a bit flipped, files that may
not grow (as on a full disk). After each sequence the commands run undisturbed and must give the submission that an
undisturbed workspace gives.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.pipelines.trees import data_root, write_tree
from xlarank.pipelines.check_submission import check_submission

RUN = Path(__file__).parent.parent / "run.py"
TREE = ("--data-root", "tree", "--workspace", "work")
SMALL = ("--rounds", "8", "--threads", "1")
BUILD = ("build-features", *TREE, "--tier", "fast")
TRAIN = ("train", *TREE, "--seeds", "1", *SMALL)
SUBMIT = ("submit", *TREE, "--out", "out.csv")
COMMANDS = (
    BUILD, TRAIN, SUBMIT, ("tune", *TREE, "--trials", "2", *SMALL), ("evaluate", *TREE, "--json", "scores.json"),
    ("rank", "tree/npz/tile/cpu/test", "--workspace", "work", "--csv", "ranks.csv"),
    ("info", "--data-root", "tree"),
)  # fmt: skip
#: Bytes that a file may have where the disk is "full".
_FULL = 3_000


def command(
    words: tuple[str, ...], folder: Path, *, before: Callable[[], None] | None = None, kill: float = 0.0
) -> int:
    """Exit code of a command; raises `AssertionError` where it shows a traceback."""
    process = subprocess.Popen(
        [sys.executable, str(RUN), *words], cwd=folder, text=True, preexec_fn=before, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if kill:
        time.sleep(kill)
        os.killpg(process.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=300)
    assert "Traceback" not in out + err, f"{' '.join(words)}\n{out}\n{err}"
    return process.returncode


def full_disk() -> None:
    """No file of this process may grow beyond a few kilobytes; writing says so, as a full disk does."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FULL, _FULL))


def spoil(work: Path, rng: random.Random) -> str:
    """One file of the workspace cut short or with a bit flipped; its name, or nothing where there is none."""
    files = sorted(path for path in work.rglob("*") if path.is_file() and path.stat().st_size)
    if not files:
        return ""
    path = rng.choice(files)
    content = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        content = content[: rng.randrange(len(content))]
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    return str(path.relative_to(work))


def right(folder: Path) -> bool:
    """Whether the submission covers every test graph."""
    root = data_root(folder / "tree")
    return not check_submission(folder / "out.csv", data_root=root).problems


def sequence(folder: Path, rng: random.Random, expected: bytes, counts: Counter[str]) -> None:
    """Random commands and faults, then the commands undisturbed; raises `AssertionError` for what must not be."""
    write_tree(folder / "tree")
    steps = []
    for _ in range(rng.randrange(2, 5)):
        words, fault = rng.choice(COMMANDS), rng.choice(("none", "none", "killed", "spoilt", "full disk"))
        steps.append(f"{words[0]} ({fault})")
        counts[fault] += 1
        if fault == "spoilt":
            steps[-1] += f" {spoil(folder / 'work', rng)}"
        code = command(
            words,
            folder,
            before=full_disk if fault == "full disk" else None,
            kill=rng.uniform(0.3, 3.0) if fault == "killed" else 0.0,
        )
        counts[f"exit {code}"] += 1
        if words is SUBMIT and code == 0:
            assert right(folder), steps
    for words in (BUILD, TRAIN, SUBMIT):
        assert command(words, folder) == 0, (steps, words)
    tuned = (folder / "work" / "studies").exists()
    assert right(folder), steps
    if not tuned:  # a study may have chosen other parameters
        assert (folder / "out.csv").read_bytes() == expected, steps


def soak(place: Path, sequences: int, seed: int = 0) -> Counter[str]:
    """Counts of faults and exit codes."""
    whole = place / "whole"
    write_tree(whole / "tree")
    for words in (BUILD, TRAIN, SUBMIT):
        assert command(words, whole) == 0
    counts: Counter[str] = Counter()
    for number in range(sequences):
        with tempfile.TemporaryDirectory(dir=place) as folder:
            sequence(Path(folder), random.Random(f"{seed}/{number}"), (whole / "out.csv").read_bytes(), counts)
        print(f"{number + 1} sequences: {dict(counts.most_common())}", flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        soak(Path(place), asked.sequences, asked.seed)


if __name__ == "__main__":
    main()
