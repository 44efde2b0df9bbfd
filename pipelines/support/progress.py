"""Interface of progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Receives the course of a job: one `begin`, steps, one `end`; jobs do not nest."""

    def begin(self, what: str, total: int) -> None:
        """A job of ``total`` steps starts."""

    def step(self, note: str = "") -> None:
        """One more step is done; ``note`` says what is worth knowing now."""

    def end(self) -> None:
        """The job is over."""


class Silent:
    """Ignores everything."""

    def begin(self, *values: object, **named: object) -> None:
        pass

    step = end = begin


@contextmanager
def steps_of(progress: Progress | None, what: str, total: int) -> Iterator[Callable[[str], None]]:
    """A job of ``total`` steps, over however it ends; yields the function that tells a step."""
    progress = progress or Silent()
    progress.begin(what, total)
    try:
        yield progress.step
    finally:
        progress.end()
