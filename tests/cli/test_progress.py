"""Where no bar can be drawn there are lines, also while one step takes long."""

from __future__ import annotations

import threading
import time

from xlarank.cli.progress import Lines, Several


def test_a_long_step_is_not_silent() -> None:
    told: list[str] = []
    lines = Lines(told.append, first=0.02, often=0.02)
    lines.begin("tuning tile:cpu", 3)
    lines.step("best 0.9")
    end = time.monotonic() + 5
    while len(told) < 2 and time.monotonic() < end:  # no step in between
        time.sleep(0.01)
    lines.end()
    assert told[0].startswith("tuning tile:cpu: 1 of 3, 0 s, about ") and told[0].endswith("last: best 0.9")
    assert told[-1] == "tuning tile:cpu: 1 of 3 in 0 s"


def test_a_short_job_says_nothing() -> None:
    told: list[str] = []
    lines = Lines(told.append)
    lines.begin("reading", 1)
    lines.step()
    lines.end()
    assert told == []


def test_verbose_has_a_line_for_each_step() -> None:
    told: list[str] = []
    lines = Lines(told.append, every=True)
    lines.begin("reading", 2)
    lines.step("a")
    lines.step("b")
    lines.end()
    assert [line.split(",")[0] for line in told] == ["reading: 1 of 2", "reading: 2 of 2", "reading: 2 of 2 in 0 s"]


def test_a_job_that_fails_leaves_no_thread() -> None:
    before = threading.active_count()
    lines = Lines(lambda line: None, first=0.01)
    lines.begin("reading", 2)
    lines.close()
    assert threading.active_count() == before


def test_a_note_does_not_forge_a_line() -> None:
    told: list[str] = []
    several = Several(Lines(told.append, every=True))
    several.begin("reading", 1)
    several.step("a\nerror: no")
    several.end()
    assert "\n" not in told[0] and "a\\nerror: no" in told[0]
