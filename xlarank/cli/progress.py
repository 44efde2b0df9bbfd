"""Progress of a job: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from rich import progress
from rich.console import Console
from rich.progress import Progress
from rich.table import Column

#: Seconds before the first line of a job, and maximum seconds between later ones.
_FIRST, _MAX_PAUSE = 2.0, 15.0
#: Maximum characters of a line, and minimum characters of its note, the only part that is cut.
_WIDTH, _MIN_NOTE = 80, 21


def plain(text: str) -> str:
    """Return text with control characters escaped: a file name must not forge output."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class JobProgress:
    """Progress of a job as lines, also during long steps (written by a timer thread), and as bars if given.

    With ``every``, each step writes a line.
    """

    def __init__(self, write: Callable[[str], None], drawn: Progress | None = None, *, every: bool = False) -> None:
        self.write, self.drawn, self.every = write, drawn, every
        self._over: threading.Event | None = None

    def begin(self, title: str, total: int) -> None:
        self.close()
        self.title, self.total, self.done, self.note = title, total, 0, ""
        self.began, self.printed = time.monotonic(), False
        self._over = threading.Event()
        self._clock = threading.Thread(target=self._watch, args=(self._over,), daemon=True)
        self._clock.start()
        if self.drawn is not None:
            self._task = self.drawn.add_task(title, total=total, note="")

    def step(self, note: str = "") -> None:
        self.done += 1
        self.note = plain(note)
        if self.every:
            self.write(self._line())
        if self.drawn is not None:
            self.drawn.update(self._task, advance=1, note=self.note)

    def end(self) -> None:
        if self._over is None:  # a job may fail before it begins
            return
        self.close()
        seconds = time.monotonic() - self.began
        if self.printed or self.every or seconds >= _FIRST:
            self.write(f"{self.title}: {self.done} of {self.total} in {seconds:.0f} s")
        if self.drawn is not None:
            self.drawn.stop_task(self._task)

    def close(self) -> None:
        """Stop the thread, even if the job did not finish."""
        if self._over is not None:
            self._over.set()
            self._clock.join(1.0)
            self._over = None

    def _watch(self, over: threading.Event) -> None:
        pause = _FIRST
        while not over.wait(pause):
            self.printed = True
            self.write(self._line())
            pause = min(pause * 1.5, _MAX_PAUSE)

    def _line(self) -> str:
        passed = time.monotonic() - self.began
        line = f"{self.title}: {self.done} of {self.total}, {passed:.0f} s"
        if 0 < self.done < self.total:
            line += f", about {passed / self.done * (self.total - self.done):.0f} s left"
        return f"{line}; last: {_tail(self.note, max(_WIDTH - len(line) - 8, _MIN_NOTE))}" if self.note else line


def _tail(note: str, width: int) -> str:
    """Return the end of a note, which has the names, cut at a word boundary if possible.

    >>> _tail("out-of-fold score 0.641 ± 0.200", 20), _tail("tile:cpu train k09_3677bcf40868", 12)
    ('…score 0.641 ± 0.200', '…677bcf40868')
    """
    if len(note) <= width:
        return note
    cut = note[1 - width :]
    words = cut if note[-width].isspace() else cut.partition(" ")[2]
    return f"…{words or cut}"


def bars(console: Console) -> Progress:
    """Return bars with description, count, time and note; names are cut in a narrow window."""
    description, note = (Column(ratio=ratio, no_wrap=True, overflow="ellipsis") for ratio in (3, 2))
    fixed = Column(no_wrap=True)
    columns = (
        progress.TextColumn("{task.description}", table_column=description),
        progress.BarColumn(bar_width=12),
        progress.MofNCompleteColumn(table_column=fixed),
        progress.TimeElapsedColumn(table_column=fixed),
        progress.TextColumn("left", table_column=fixed),
        progress.TimeRemainingColumn(table_column=fixed),
        progress.TextColumn("{task.fields[note]}", style="dim", markup=False, table_column=note),
    )
    return Progress(*columns, console=console, refresh_per_second=4, expand=True)
