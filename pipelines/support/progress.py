"""Interface of progress displays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

#: Function that advances a job: ``step(note="", more=0)``; ``more`` is a number of new steps.
Step: TypeAlias = Callable[..., None]
#: Function that begins a job, by title and number of steps, and ends it on exit; jobs do not nest.
Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Step]]


def no_step(note: str = "", more: int = 0) -> None:
    """Advance a job whose progress is not shown."""


def steps_of(progress: Progress | None, title: str, total: int) -> AbstractContextManager[Step]:
    return nullcontext(no_step) if progress is None else progress(title, total)
