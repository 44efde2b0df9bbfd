"""What people see: tables, lines, bars and errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:  # heavy; imported where a command needs them, so that --help stays quick
    from rich.console import Console
    from rich.table import Table

#: Lines shown of a list of graphs.
_LISTED = 20


def finish(broken: dict[str, str]) -> None:
    """Name broken files and leave with an exit code that tells; everything else was done."""
    if broken:
        for name, why in broken.items():
            error_line(f"{name}: {why}")
        error_line(f"{len(broken)} broken file{'s' if len(broken) > 1 else ''}; the others were dealt with")
        raise typer.Exit(1)


@contextmanager
def progress_bars() -> Iterator[Any]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    class Bar:
        """Shows a job of `xlarank.pipelines.support.progress.Progress` as a bar."""

        def __init__(self, bars: Progress) -> None:
            self.bars = bars

        def begin(self, what: str, total: int) -> None:
            self.task = self.bars.add_task(what, total=total, note="")

        def step(self, note: str = "") -> None:
            self.bars.update(self.task, advance=1, note=plain(note))

        def end(self) -> None:
            self.bars.stop_task(self.task)

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    with Progress(*columns, console=console(stderr=True), refresh_per_second=4) as bars:
        yield Bar(bars)


def new_table(*columns: str) -> Table:
    """A table; a column that starts with > is aligned right."""
    from rich.table import Table

    table = Table()
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left")
    return table


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; wide enough for every table where the output goes to a file."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # names of files and folders are not markup
    return Console(file=stream, width=None if stream.isatty() else 150, markup=False)


def show(table: Table) -> None:
    if table.row_count:
        console().print(table)


def say(text: str, *, style: str = "") -> None:
    console().print(plain(text), style=style, highlight=False, soft_wrap=True)


def headline(text: str) -> None:
    console().print()
    say(text, style="bold")


def list_lines(title: str, lines: list[str]) -> None:
    from rich.text import Text

    # A tile collection may have a thousand kernels of one configuration; --json of `info` has them all.
    shown = lines if len(lines) <= _LISTED else [*lines[:_LISTED], f"and {len(lines) - _LISTED:,} more"]
    for line in shown:
        text = Text.assemble((f"{title}:", "yellow"), " ", plain(line))
        console().print(text, highlight=False, soft_wrap=True)


def error_line(text: str) -> None:
    from rich.text import Text

    line = Text.assemble(("error:", "red"), " ", plain(text))
    console(stderr=True).print(line, highlight=False, soft_wrap=True)


def plain(text: str) -> str:
    """Line breaks and control characters spelled out: a file name must not forge output."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def write_json(path: Path, value: Any) -> None:
    from xlarank.data.files import write_json

    write_json(path, value)
    say(f"wrote {path}")


def number_range(values: list[int]) -> str:
    if not values:
        return "-"
    return f"{min(values):,}" if min(values) == max(values) else f"{min(values):,}-{max(values):,}"
