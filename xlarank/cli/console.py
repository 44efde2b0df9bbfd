"""Output of commands: lines, tables, progress, errors and JSON."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, Literal

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from xlarank.data import files
from xlarank.data.errors import counted, reasons

#: Maximum number of lines of a list, and of names that share a reason.
_MAX_LINES = 20
_MAX_NAMES = 3
#: Width of lines and tables if the output is not a terminal.
FILE_WIDTH = 100
#: A parameter in a message, perhaps with a value.
_PARAMETER: Final = re.compile(r"`([a-z][a-z_]*)(?:=([^`]*))?`")
#: Value of ``--json`` for standard output.
STDOUT: Final = Path("-")


@dataclass
class Run:
    """A running command: its output, and words for the next command.

    Attributes:
        json_on_stdout: whether all but JSON goes to standard error.
        words: parts of the next command (`xlarank.cli.app.NEXT`): options, and what was kept.
        broken: files that were left out when missing features were built, with the reasons.
    """

    quiet: bool = False
    verbose: bool = False
    json_on_stdout: bool = False
    command: str = ""
    words: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def keep(self, *words: object) -> None:
        """Record a part of the next command, such as a file."""
        self.words["kept"] = shlex.join(map(str, words))


current_run = Run()


def program() -> str:
    """Return how the command line was called: by its script, or in a clone."""
    return "xlarank" if Path(sys.argv[0]).stem == "xlarank" else "python run.py"


def console(*, stderr: bool = False) -> Console:
    """Return a console with the terminal's width, or a fixed width for files."""
    stream = sys.stderr if stderr or current_run.json_on_stdout else sys.stdout
    has_width = stream.isatty() or os.environ.get("COLUMNS", "").strip("0")
    # names of files and folders are not markup
    return Console(file=stream, width=None if has_width else FILE_WIDTH, markup=False)


def as_options(text: str) -> str:
    """Rewrite parameters in backticks as command-line options.

    >>> as_options("`max_configs` is -1; pass `seeds` or `model_from=shipped`")
    '--max-configs is -1; pass --seeds or --model-from shipped'
    """

    def option(match: re.Match[str]) -> str:
        name = match[1].replace("_", "-")
        return f"--{name} {match[2]}" if match[2] else f"--{name}"

    return _PARAMETER.sub(option, text)


def say(text: str, style: str = "", *, label: str = "", error: bool = False) -> None:
    """Print a line, errors even if quiet; ``style`` is the label's, if there is one."""
    text = plain(as_options(text))
    line = Text.assemble((label, style), text) if label else Text(text, style)
    if error or not current_run.quiet:
        console(stderr=error).print(line, highlight=False, soft_wrap=True)


def error_line(text: str) -> None:
    say(text, "red", label="error: ", error=True)


def list_lines(title: str, lines: Sequence[str], *, error: bool = False) -> None:
    """Print lines after their title, at most `_MAX_LINES` unless verbose."""
    shown = [*lines] if current_run.verbose else [*lines[:_MAX_LINES]]
    if len(shown) < len(lines):
        shown.append(f"and {len(lines) - len(shown):,} more; --verbose lists all")
    for line in shown:
        say(line, "red" if error else "yellow", label=f"{title}: ", error=error)


def list_reasons(title: str, reason_of: Mapping[str, str], *, error: bool = False) -> None:
    """Print why names are left out, grouped by reason; all names if verbose."""
    limit = len(reason_of) if current_run.verbose else _MAX_NAMES
    list_lines(title, reasons(reason_of, limit), error=error)


def show_rows(rows: Iterable[Mapping[str, object]]) -> None:
    """Print rows as a table without empty columns, headed by their keys.

    A key that begins with > makes a column aligned right; an empty row is a rule.
    """
    texts = [{head: plain(str(cell)) for head, cell in row.items()} for row in rows]
    filled = [row for row in texts if row]
    heads = [head for head in filled[0] if any(row[head] for row in filled)] if filled else []
    if current_run.quiet or not heads:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for head in heads:
        justify: Literal["left", "right"] = "right" if head.startswith(">") else "left"
        table.add_column(head.lstrip(">"), justify=justify, overflow="fold")
    for row in texts:
        if row:
            table.add_row(*(row[head] for head in heads))
        else:
            table.add_section()
    console().print(table)


def plain(text: str) -> str:
    """Return text with control characters escaped: a file name must not forge output."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def finish(broken: dict[str, str]) -> None:
    """Print broken files, grouped by error, and exit with code 1 if there are any."""
    if not broken:
        return
    reason_of = {}
    for name, reason in broken.items():
        file = f"{name.rsplit(' ', 1)[-1]}.npz"  # the reason often begins with the name again
        reason_of[name] = reason.removeprefix(f"{file}: ").removeprefix(f"{file} ")
    list_reasons("error", reason_of, error=True)
    error_line(f"{counted(len(broken), 'broken file')}; all others were processed")
    raise typer.Exit(1)


def plain_values(value: Any) -> Any:
    """Convert to JSON values: dataclasses to objects, paths to text, NaN and infinity to null."""
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain_values(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, dict):
        return {str(name): plain_values(item) for name, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(plain_values, value))
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def write_json(path: Path | None, result: Any) -> None:
    """Write a result (`plain_values`) to the path of ``--json``, if given; - is standard output."""
    if path == STDOUT:
        print(json.dumps(plain_values(result), indent=2, allow_nan=False), flush=True)
    elif path is not None:
        files.write_json(path, plain_values(result))
        say(f"wrote {path}")


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[..., None]]:
    """Show a job as a bar on a terminal; if verbose, by a line for each step."""
    has_bar = sys.stderr.isatty() and not (current_run.quiet or current_run.verbose)
    bars = Progress(
        TextColumn(plain(title), markup=False),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
        console=console(stderr=True),
        transient=True,
        disable=not has_bar,
    )
    task = bars.add_task("", total=total, note="")
    done = 0

    def step(note: str = "", more: int = 0) -> None:
        nonlocal done, total
        done += 1
        total += more
        bars.update(task, total=total, advance=1, note=plain(note))
        if current_run.verbose:
            say(f"{title}: {done} of {total}; {note}", error=True)

    with bars:
        yield step
