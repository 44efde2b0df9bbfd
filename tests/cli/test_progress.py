"""Where no bar can be drawn there are lines, also while one step takes long."""

from __future__ import annotations

import io
import threading
import time

import pytest
from rich.console import Console

from xlarank.cli.progress import JobProgress, bars


def test_a_long_step_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    printed: list[str] = []
    monkeypatch.setattr("xlarank.cli.progress._FIRST", 0.02)
    progress = JobProgress(printed.append)
    progress.end()  # of a job that failed before it began
    progress.begin("tuning tile:cpu", 3)
    progress.step("best 0.9")
    end = time.monotonic() + 5
    while len(printed) < 2 and time.monotonic() < end:  # no step in between
        time.sleep(0.01)
    progress.end()
    assert printed[0].startswith("tuning tile:cpu: 1 of 3, 0 s, about ") and printed[0].endswith("last: best 0.9")
    assert printed[-1] == "tuning tile:cpu: 1 of 3 in 0 s"
    progress.begin("reading", 2)
    progress.close()
    assert threading.active_count() == before, "a job that fails leaves no thread"


def test_a_short_job_prints_nothing_but_when_verbose() -> None:
    """Notes hold names of files, which must not forge lines."""
    short: list[str] = []
    verbose: list[str] = []
    screen = io.StringIO()
    with bars(Console(file=screen, width=100, force_terminal=True)) as drawn:
        for progress in (JobProgress(short.append, drawn), JobProgress(verbose.append, every=True)):
            progress.begin("reading", 2)
            progress.step("a")
            progress.step("b\nerror: no")
            progress.end()
    assert short == []
    assert [line.split(",")[0] for line in verbose] == [
        "reading: 1 of 2",
        "reading: 2 of 2",
        "reading: 2 of 2 in 0 s",
    ]
    assert verbose[1].endswith("b\\nerror: no")
    assert "reading" in screen.getvalue() and "2/2" in screen.getvalue() and "b\\nerror: no" in screen.getvalue()
