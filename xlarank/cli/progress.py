"""Progress of a job: a bar on a terminal, plain lines elsewhere."""

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
#: Characters of a line at most; the name is cut, the count never.
_WIDTH: Final = 80


def plain(text: str) -> str:
    """Return text with control characters escaped: a file name must not forge output."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shortened(text: str, most: int) -> str:
    """Return text without its middle where it is longer.

    >>> shortened("layout:cpu:default train mlp__a", 20), shortened("mlp__a", 20)
    ('layout:cpu…in mlp__a', 'mlp__a')
    """
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - (most - 1) // 2 :]}"


class Lines:
    """Prints lines, also during a long step: a thread watches the clock; with ``every`` a line for each step."""

    def __init__(
        self, write: Callable[[str], None], *, first: float = _FIRST, often: float = _OFTEN, every: bool = False
    ) -> None:
        self.write, self.first, self.often, self.every = write, first, often, every
        self._over: threading.Event | None = None

    def begin(self, what: str, total: int) -> None:
        self.close()
        self.what, self.total, self.done, self.note = what, total, 0, ""
        self.began, self.printed = time.monotonic(), False
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._watch, args=(self._over,), daemon=True)
        self._clock.start()

    def step(self, note: str = "") -> None:
        self.done += 1
        self.note = note
        if self.every:
            self.write(self._line())

    def end(self) -> None:
        self.close()
        seconds = time.monotonic() - self.began
        if self.printed or self.every or seconds >= self.first:
            self.write(f"{self.what}: {self.done} of {self.total} in {seconds:.0f} s")

    def close(self) -> None:
        """Stop the thread, also of a job that did not end."""
        if self._over is not None:
            self._over.set()
            self._clock.join(1.0)
            self._over = None

    def _watch(self, over: threading.Event) -> None:
        pause = self.first
        while not over.wait(pause):
            self.printed = True
            self.write(self._line())
            pause = self.often if time.monotonic() - self.began < 60 else _LATER

    def _line(self) -> str:
        passed = time.monotonic() - self.began
        line = f"{self.what}: {self.done} of {self.total}, {passed:.0f} s"
        if 0 < self.done < self.total:
            line += f", about {passed / self.done * (self.total - self.done):.0f} s left"
        room = _WIDTH - len(line) - len("; last: ")
        return line + (f"; last: {shortened(self.note, max(room, 12))}" if self.note else "")


class Bar:
    """Progress of a job as a bar."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.task: TaskID | None = None

    def begin(self, what: str, total: int) -> None:
        self.task = self.bars.add_task(what, total=total, note="")

    def step(self, note: str = "") -> None:
        if self.task is not None:
            self.bars.update(self.task, advance=1, note=note)

    def end(self) -> None:
        if self.task is not None:  # a job may fail before it begins
            self.bars.stop_task(self.task)


class Several:
    """Passes progress on to every listener; control characters in notes are escaped."""

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
    """Return bars with description, count, time and note; names are cut in a narrow window."""
    from rich import progress
    from rich.table import Column

    def cut(ratio: int) -> Column:
        return Column(ratio=ratio, no_wrap=True, overflow="ellipsis")

    columns = (
        progress.TextColumn("{task.description}", table_column=cut(3)),
        progress.BarColumn(bar_width=12),
        progress.MofNCompleteColumn(table_column=Column(no_wrap=True)),
        progress.TimeElapsedColumn(table_column=Column(no_wrap=True)),
        progress.TextColumn("left", table_column=Column(no_wrap=True)),
        progress.TimeRemainingColumn(table_column=Column(no_wrap=True)),
        progress.TextColumn("{task.fields[note]}", style="dim", markup=False, table_column=cut(2)),
    )
    return progress.Progress(*columns, console=console, refresh_per_second=4, expand=True)
