"""Progress of long jobs: silent, unless a display is attached."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

#: Function that advances a job: ``step(note="", more=0)``; ``more`` is a number of new steps.
Step: TypeAlias = Callable[..., None]
#: Function that begins a job, by title and number of steps, and ends it on exit; jobs do not nest.
Display: TypeAlias = Callable[[str, int], AbstractContextManager[Step]]

_display: Display | None = None


def show_progress(display: Display | None) -> None:
    """Show all later jobs by a display; None shows nothing."""
    global _display
    _display = display


def no_step(note: str = "", more: int = 0) -> None:
    """Advance a job whose progress is not shown."""


def steps_of(title: str, total: int) -> AbstractContextManager[Step]:
    """Begin a job of ``total`` steps; return the function that advances it, as a context."""
    return nullcontext(no_step) if _display is None else _display(title, total)
