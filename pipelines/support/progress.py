"""Interface of progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Progress display. A job calls `begin`, then `step` repeatedly, then `end`; jobs do not nest."""

    def begin(self, title: str, total: int) -> None:
        """Start a job of ``total`` steps."""

    def step(self, note: str = "") -> None:
        """Advance by one step, described by ``note``."""

    def end(self) -> None:
        """End the job."""


class Silent:
    """Progress that is not shown."""

    def begin(self, *values: object, **named: object) -> None:
        pass

    step = end = begin


@contextmanager
def steps_of(progress: Progress | None, title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Begin a job of ``total`` steps, yield the function that advances it, and end it on exit."""
    progress = progress or Silent()
    progress.begin(title, total)
    try:
        yield progress.step
    finally:
        progress.end()
