"""Where no bar can be drawn there are lines, also while one step takes long."""

from __future__ import annotations

import threading
import time

from xlarank.cli.progress import Lines, Several


def test_a_long_step_is_not_silent() -> None:
    before = threading.active_count()
    printed: list[str] = []
    lines = Lines(printed.append, first=0.02, often=0.02)
    lines.begin("tuning tile:cpu", 3)
    lines.step("best 0.9")
    end = time.monotonic() + 5
    while len(printed) < 2 and time.monotonic() < end:  # no step in between
        time.sleep(0.01)
    lines.end()
    assert printed[0].startswith("tuning tile:cpu: 1 of 3, 0 s, about ") and printed[0].endswith("last: best 0.9")
    assert printed[-1] == "tuning tile:cpu: 1 of 3 in 0 s"
    lines.begin("reading", 2)
    lines.close()
    assert threading.active_count() == before, "a job that fails leaves no thread"


def test_a_short_job_prints_nothing_but_when_verbose() -> None:
    """Notes hold names of files, which must not forge lines."""
    short: list[str] = []
    verbose: list[str] = []
    several = Several(Lines(short.append), Lines(verbose.append, every=True))
    several.begin("reading", 2)
    several.step("a")
    several.step("b\nerror: no")
    several.end()
    assert short == []
    assert [line.split(",")[0] for line in verbose] == [f"reading: {i} of 2" for i in (1, 2)] + [
        "reading: 2 of 2 in 0 s"
    ]
    assert verbose[1].endswith("b\\nerror: no")
