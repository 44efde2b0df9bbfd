"""Steps in processes of their own: results, errors and progress come back; time and death end them."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.pipelines.trees import Listener
from xlarank.data.errors import CollectionError, XlarankError
from xlarank.pipelines.support.processes import isolated
from xlarank.pipelines.support.progress import Progress

pytestmark = pytest.mark.slow


def double(value: int, *, progress: Progress, fail: str = "") -> int:
    progress.begin("doubling", 1)
    if fail == "clearly":
        raise CollectionError("made up", do="nothing")
    if fail == "as a bug":
        raise ZeroDivisionError("made up")
    if fail == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if fail == "never done":
        time.sleep(600)
    progress.step("done")
    progress.end()
    return 2 * value


def test_results_errors_and_progress_come_back() -> None:
    listener = Listener()
    assert isolated(double, 21, limit=300, progress=listener) == 42
    assert listener.jobs == [("doubling", 1)] and listener.notes == ["done"] and listener.ended == 1
    for fail, kind, said in (
        ("clearly", CollectionError, "made up; nothing"),
        ("as a bug", RuntimeError, "ZeroDivisionError: made up"),
        ("killed", XlarankError, "signal 9, most likely for want of memory"),
        ("never done", XlarankError, "was not done after 2 s"),
    ):
        listener, started = Listener(), time.monotonic()
        with pytest.raises(kind, match=said):
            isolated(double, 1, fail=fail, limit=2 if fail == "never done" else 300, progress=listener)
        assert time.monotonic() - started < 300
        assert listener.ended == len(listener.jobs), "no job is left open"
