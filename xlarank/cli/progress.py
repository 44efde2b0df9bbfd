"""How far a job is: a bar on a terminal, plain lines everywhere else, so that no log stays silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

#: Seconds of a job before its first line, between the lines of its first minute, and between later ones.
_FIRST: Final = 2.0
_OFTEN: Final = 5.0
_LATER: Final = 15.0


def plain(text: str) -> str:
    """Line breaks and control characters spelled out: a file name must not forge output."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class Lines:
    """The course of a job as lines, also where one step takes long: a thread of its own looks at the clock.

    Args:
        tell: takes a line.
        first, often, later: seconds, see above.
        every: whether each step is a line.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        *,
        first: float = _FIRST,
        often: float = _OFTEN,
        later: float = _LATER,
        every: bool = False,
    ) -> None:
        self.tell, self.first, self.often, self.later, self.every = tell, first, often, later, every
        self._over: threading.Event | None = None

    def begin(self, what: str, total: int) -> None:
        self.close()
        self.what, self.total, self.done, self.note = what, total, 0, ""
        self.began, self.told = time.monotonic(), False
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._watch, args=(self._over,), daemon=True)
        self._clock.start()

    def step(self, note: str = "") -> None:
        self.done += 1
        self.note = note
        if self.every:
            self.tell(self._line())

    def end(self) -> None:
        told = self.told
        self.close()
        if told or self.every or time.monotonic() - self.began >= self.first:
            seconds = time.monotonic() - self.began
            self.tell(f"{self.what}: {self.done} of {self.total} in {seconds:.0f} s")

    def close(self) -> None:
        """No more lines, also where a job did not end."""
        if self._over is not None:
            self._over.set()
            self._clock.join(1.0)
            self._over = None

    def _watch(self, over: threading.Event) -> None:
        pause = self.first
        while not over.wait(pause):
            self.told = True
            self.tell(self._line())
            pause = self.often if time.monotonic() - self.began < 60 else self.later

    def _line(self) -> str:
        passed = time.monotonic() - self.began
        line = f"{self.what}: {self.done} of {self.total}, {passed:.0f} s"
        if 0 < self.done < self.total:
            line += f", about {passed / self.done * (self.total - self.done):.0f} s left"
        return line + (f"; last: {self.note}" if self.note else "")


class Bar:
    """Shows a job of `xlarank.pipelines.support.progress.Progress` as a bar."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.task: TaskID | None = None

    def begin(self, what: str, total: int) -> None:
        self.task = self.bars.add_task(what, total=total, note="")

    def step(self, note: str = "") -> None:
        if self.task is not None:
            self.bars.update(self.task, advance=1, note=note)

    def end(self) -> None:
        if self.task is not None:
            self.bars.stop_task(self.task)


class Several:
    """Tells every listener; notes hold names of files, which must not forge output."""

    def __init__(self, *listeners: Any) -> None:
        self.listeners = listeners

    def begin(self, what: str, total: int) -> None:
        for listener in self.listeners:
            listener.begin(what, total)

    def step(self, note: str = "") -> None:
        for listener in self.listeners:
            listener.step(plain(note))

    def end(self) -> None:
        for listener in self.listeners:
            listener.end()


def bars(console: Console) -> Progress:
    """The columns of a bar: what, how far, how long."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    return Progress(*columns, console=console, refresh_per_second=4)
