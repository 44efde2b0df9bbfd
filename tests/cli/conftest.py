"""The command line, as a user types it or in this process; its main commands, run once."""

import contextlib
import io
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import run
from tests.graphs import save_npz
from tests.pipelines.trees import LAYOUT, TILE, graph_path
from xlarank.data.collection import SAMPLE

ROOT = Path(run.__file__).parent
#: A few graphs of the embedded sample; two families to learn from.
FILES = {
    (LAYOUT, "train"): ("cnn__nchw_a", "dlrm__a", "dlrm__b"),
    (LAYOUT, "valid"): ("mlp__a",),
    (LAYOUT, "test"): ("gru__a",),
    (TILE, "train"): ("bmm__a", "matmul__a", "matmul__b"),
    (TILE, "valid"): ("expsum__a",),
    (TILE, "test"): ("swish__a",),
}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def errors(self):
        return [line for line in self.err.splitlines() if line.startswith("error:")]


def environment(home):
    """Return an environment with one thread, so that small jobs do not wait for each other."""
    return os.environ | {"HOME": str(home), "OMP_NUM_THREADS": "1"}


def start(*words, cwd):
    """Start ``python run.py ...`` in a new process group, as a terminal does."""
    command = [sys.executable, str(ROOT / "run.py"), *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    options = {"cwd": cwd, "env": environment(cwd), "start_new_session": True}
    # background processes of a shell ignore SIGINT
    heeds_ctrl_c = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, **pipes, **options, preexec_fn=heeds_ctrl_c)


def ended(process, timeout=300):
    out, err = process.communicate(timeout=timeout)
    assert "Traceback" not in out + err, err
    return Outcome(process.returncode, out, err)


def here(*words):
    """Run a command in this process; an exception that would be a traceback reaches the test."""
    out = io.StringIO()
    err = io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with (
            mock.patch.object(sys, "argv", ["run.py", *map(str, words)]),
            pytest.raises(SystemExit) as stopped,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            run.main()
    finally:  # pytest listens to signals again
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Outcome(stopped.value.code or 0, out.getvalue(), err.getvalue())


def refused(command, message):
    """Check that a command, or its outcome, ends in exit code 1 and one clear line."""
    outcome = command if isinstance(command, Outcome) else here(*command)
    assert outcome.code == 1
    (line,) = outcome.errors
    assert re.search(message, line), line
    assert "Traceback" not in outcome.out + outcome.err
    assert "\n" not in outcome.err.partition("error:")[2].strip(), "no message of a library follows"


@pytest.fixture(scope="session")
def job(tmp_path_factory):
    """Run the main commands once, in a folder that is not the repository."""
    folder = tmp_path_factory.mktemp("elsewhere")
    tree = folder / "tree"
    for place, names in FILES.items():
        for name in names:
            save_npz(graph_path(tree, *place, name), np.load(graph_path(SAMPLE, *place, name)))
    commands = (
        "info --data-root tree --json info.json",
        "build-features --data-root tree --json build-features.json",
        "tune --trials 2 --rounds 10 --threads 1 --json tune.json",
        "train --seeds 1 --rounds 30 --threads 1 --json train.json",
        "evaluate --json evaluate.json",
        "submit --out out/submission.csv --json submit.json",
        f"rank {graph_path(tree, LAYOUT, 'valid', 'mlp__a')} --top 3 --json rank.json",
    )
    with contextlib.chdir(folder):
        outcomes = {line.partition(" ")[0]: here(*line.split()) for line in commands}
    return SimpleNamespace(folder=folder, tree=tree, work=folder / "work", outcomes=outcomes)


@pytest.fixture
def trained(job, tmp_path):
    return Path(shutil.copytree(job.work, tmp_path / "trained"))


@pytest.fixture
def tree(job, tmp_path):
    return Path(shutil.copytree(job.tree, tmp_path / "tree"))
