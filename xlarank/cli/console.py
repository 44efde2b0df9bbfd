"""Output of commands: lines, tables, errors, JSON and the log."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import typer

from xlarank.cli.progress import Bar, Lines, Several, bars, plain
from xlarank.cli.tables import Sheet, new_table, print_sheet
from xlarank.data.wording import counted

__all__ = [
    "configure", "console", "error_line", "finish", "headline", "list_lines", "log", "new_table", "number_range",
    "plain", "plain_values", "progress_bars", "rounded", "say", "settings", "show", "show_rows", "write_json",
]  # fmt: skip

if TYPE_CHECKING:  # heavy; imported where a command needs them, so that --help stays quick
    from rich.console import Console

#: Lines shown of a list of graphs.
_LISTED = 20
#: Files named of many that are broken in the same way.
_ALIKE: Final = 3
#: Characters of a line where the output goes to a file.
_FILE_WIDTH: Final = 150
#: What ``--json`` takes for standard output.
STDOUT: Final = Path("-")


@dataclass
class Settings:
    """With ``json_on_stdout`` tables and notes go to standard error, so that a pipe gets JSON alone."""

    quiet: bool = False
    verbose: bool = False
    log: TextIO | None = None
    json_on_stdout: bool = False


settings = Settings()


def configure(*, quiet: bool = False, verbose: bool = False, log_file: Path | None = None) -> None:
    """Begin a command; raises `WorkspaceError` for a log that cannot be written."""
    close_log()
    settings.quiet, settings.verbose, settings.json_on_stdout = quiet, verbose, False
    if log_file is not None:
        from xlarank.data.errors import WorkspaceError
        from xlarank.data.files import output_target

        target = output_target(log_file)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            settings.log = target.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            raise WorkspaceError(
                f"cannot write {log_file} ({error.strerror or error})", do="pass another --log-file"
            ) from error


def close_log() -> None:
    if settings.log is not None:
        settings.log.close()
        settings.log = None


def log(text: str) -> None:
    """Lines for the log file alone."""
    if settings.log is not None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        settings.log.writelines(f"{now} {line}\n" for line in text.splitlines())


@contextmanager
def progress_bars() -> Iterator[Several]:
    """Show the progress of jobs: bars on a terminal, lines elsewhere and in the log."""
    lines = [] if settings.log is None else [Lines(log)]
    drawn = sys.stderr.isatty() and not settings.quiet and not settings.verbose
    if not settings.quiet and not drawn:
        lines.append(Lines(partial(print, file=sys.stderr, flush=True), every=settings.verbose))
    try:
        if drawn:
            with bars(console(stderr=True)) as shown:
                yield Several(Bar(shown), *lines)
        else:
            yield Several(*lines)
    finally:
        for listener in lines:
            listener.close()


def console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal, or wide enough for most tables in a file."""
    from rich.console import Console

    stream = sys.stderr if stderr or settings.json_on_stdout else sys.stdout
    known = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    # names of files and folders are not markup
    return Console(file=stream, width=None if known else _FILE_WIDTH, markup=False)


def finish(broken: dict[str, str]) -> None:
    """Print broken files, grouped by error, and exit with code 1 if there are any."""
    if not broken:
        return
    alike: dict[str, list[str]] = {}
    for name, why in broken.items():
        file = f"{name.rsplit(' ', 1)[-1]}.npz"  # the reason often begins with the name again
        alike.setdefault(why.removeprefix(f"{file}: ").removeprefix(f"{file} "), []).append(name)
    lines = []
    for why, names in alike.items():
        if settings.verbose or len(names) <= _ALIKE:
            lines += [f"{name}: {why}" for name in names]
        else:
            lines.append(f"{len(names):,} files, such as {', '.join(names[:_ALIKE])}: {why}")
    shown = lines if settings.verbose else lines[:_LISTED]
    for line in shown:
        error_line(line)
    if len(shown) < len(lines):
        error_line(f"and {len(lines) - len(shown):,} more; --verbose names all of them")
    error_line(f"{counted(len(broken), 'broken file')}; the others were dealt with")
    raise typer.Exit(1)


def show_rows(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Show rows under heads (`new_table`), unless there are none."""
    table = new_table(*heads)
    for row in rows:
        table.add_row(*row)
    show(table)


def show(sheet: Sheet) -> None:
    """Show a table, unless it is empty."""
    if not sheet.rows:
        return
    if not settings.quiet:
        print_sheet(sheet, console())
    if settings.log is not None:
        from rich.console import Console

        lines = Console(width=_FILE_WIDTH, markup=False, file=None, force_terminal=False)
        with lines.capture() as captured:
            print_sheet(sheet, lines)
        log(captured.get())


def say(text: str, *, style: str = "") -> None:
    log(plain(text))
    if not settings.quiet:
        console().print(plain(text), style=style, highlight=False, soft_wrap=True)


def headline(text: str) -> None:
    if not settings.quiet:
        console().print()
    say(text, style="bold")


def list_lines(title: str, lines: list[str]) -> None:
    from rich.text import Text

    # A tile collection may have a thousand kernels of one configuration; --json of `info` has them all.
    shown = lines if len(lines) <= _LISTED else [*lines[:_LISTED], f"and {len(lines) - _LISTED:,} more"]
    for line in shown:
        log(f"{title}: {plain(line)}")
        if not settings.quiet:
            text = Text.assemble((f"{title}:", "yellow"), " ", plain(line))
            console().print(text, highlight=False, soft_wrap=True)


def error_line(text: str) -> None:
    from rich.text import Text

    log(f"error: {plain(text)}")
    line = Text.assemble(("error:", "red"), " ", plain(text))
    console(stderr=True).print(line, highlight=False, soft_wrap=True)


def plain_values(value: Any) -> Any:
    """Return a result as values for JSON: dataclasses as objects, paths as text, NaN and infinity as null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain_values(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        return {str(name): plain_values(each) for name, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain_values, value))
    if isinstance(value, list | tuple):
        return [plain_values(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def write_json(path: Path | None, value: Any) -> None:
    """Write JSON to the path of ``--json``, if given; - is standard output."""
    if path is None:
        return
    if path == STDOUT:
        print(json.dumps(value, indent=2, allow_nan=False), flush=True)
        return
    from xlarank.data.files import write_json

    write_json(path, value)
    say(f"wrote {path}")


def number_range(values: list[int]) -> str:
    if not values:
        return "-"
    return f"{min(values):,}" if min(values) == max(values) else f"{min(values):,}-{max(values):,}"


def rounded(number: int) -> str:
    """Return a number in at most six characters or so; `--json` has all digits.

    >>> rounded(99_999), rounded(361_000), rounded(16_100_000)
    ('99,999', '361k', '16.1M')
    """
    return f"{number:,}" if number < 1e5 else f"{number / 1e3:.0f}k" if number < 1e6 else f"{number / 1e6:.1f}M"
