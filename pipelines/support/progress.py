"""Progress of long jobs: silent, unless a display is attached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, TypeAlias

#: Function that advances a job: ``step(note="", more=0)``; ``more`` is a number of new steps.
Step: TypeAlias = Callable[..., None]
#: Function that begins a job, by title and number of steps, and ends it on exit; jobs do not nest.
Display: TypeAlias = Callable[[str, int], AbstractContextManager[Step]]

#: Minimum seconds between two writes of a line.
_SECONDS: Final = 0.5
_display: Display | None = None


def show_progress(show: bool = True) -> None:
    """Print the progress of later calls, one line for each job, or stop printing it."""
    set_display(print_steps if show else None)


def set_display(display: Display | None) -> None:
    """Show all later jobs by a display; None shows nothing."""
    global _display
    _display = display


@contextmanager
def print_steps(title: str, total: int) -> Iterator[Step]:
    """Show a job as one line of standard output, written anew at most twice a second."""
    done = 0
    shown = 0.0

    def step(note: str = "", more: int = 0) -> None:
        nonlocal done, total, shown
        done += 1
        total += more
        if done >= total or time.monotonic() - shown > _SECONDS:
            shown = time.monotonic()
            print(f"\r{title}: {done} of {total}", end="", flush=True)

    yield step
    print(flush=True)


def no_step(note: str = "", more: int = 0) -> None:
    """Advance a job whose progress is not shown."""


def steps_of(title: str, total: int) -> AbstractContextManager[Step]:
    """Begin a job of ``total`` steps; return the function that advances it, as a context."""
    return nullcontext(no_step) if _display is None else _display(title, total)
