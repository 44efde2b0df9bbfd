"""A command in this process."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

import run


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def command(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """``run.py ...``: an exception that would be a traceback fails the test."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a command listens to them; afterwards pytest does again
        request.addfinalizer(partial(signal.signal, number, signal.getsignal(number)))

    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["run.py", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            run.main()
        written = capsys.readouterr()
        return Outcome(int(stopped.value.code or 0), written.out, written.err)

    return call
