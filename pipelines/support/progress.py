"""Interface of progress displays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

#: Function that advances a job: ``step(note="", left=None)``, with the seconds left, by default the
#: mean of a step times the number of those left.
Step: TypeAlias = Callable[..., None]
#: Function that begins a job, by title and number of steps, and ends it on exit; jobs do not nest.
Progress: TypeAlias = Callable[[str, int], AbstractContextManager[Step]]


def steps_of(progress: Progress | None, title: str, total: int) -> AbstractContextManager[Step]:
    return nullcontext(lambda *_: None) if progress is None else progress(title, total)
