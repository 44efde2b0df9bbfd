"""Interface of progress displays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Progress display: a job calls `begin`, `step` repeatedly, and `end`; jobs do not nest."""

    def begin(self, title: str, total: int) -> None: ...

    def step(self, note: str = "", left: float | None = None) -> None:
        """Advance; ``left`` are the seconds left, by default the mean of a step times the rest."""

    def end(self) -> None: ...


@contextmanager
def steps_of(progress: Progress | None, title: str, total: int) -> Iterator[Callable[..., None]]:
    """Begin a job of ``total`` steps, yield `Progress.step`, and end it on exit."""
    if progress is None:
        yield lambda *_: None
        return
    progress.begin(title, total)
    try:
        yield progress.step
    finally:
        progress.end()
