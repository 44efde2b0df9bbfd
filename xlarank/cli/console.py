"""Output of commands: lines, tables, progress, errors, JSON and the log."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import typer
from rich import progress as rich_progress
from rich.console import Console
from rich.table import Column
from rich.text import Text

import xlarank
from xlarank.cli.tables import FILE_WIDTH, plain, print_rows
from xlarank.data import files
from xlarank.data.errors import WorkspaceError, counted, duration, reasons
from xlarank.data.files import regular_no_link
from xlarank.data.passwords import without_password

#: Maximum number of lines of a list, and of names that share a reason.
_MAX_LINES = 20
_MAX_NAMES = 3
#: Seconds before the first line of a job, and maximum seconds between later ones.
_FIRST = 2.0
_MAX_PAUSE = 15.0
#: A parameter in a message, perhaps with a value.
_PARAMETER: Final = re.compile(r"`([a-z][a-z_]*)(?:=([^`]*))?`")
#: Parameters whose options have another name.
_OPTIONS: Final = {"collections": "collection"}
#: Value of ``--json`` for standard output.
STDOUT: Final = Path("-")


@dataclass
class Run:
    """A running command: its output and its record.

    Attributes:
        json_on_stdout: whether all but JSON goes to standard error.
        words: options and the file of the next command (`xlarank.cli.app.NEXT`).
        broken: files that were left out when features were built first, with the reasons.
    """

    quiet: bool = False
    verbose: bool = False
    log: TextIO | None = None
    json_on_stdout: bool = False
    command: str = ""
    config: dict[str, Any] | None = None
    workspace: Path | None = None
    words: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=lambda: sys.argv[1:])
    began: float = field(default_factory=time.time)

    def keep(self, *words: object) -> None:
        """Record a file, a name or an option for the next command."""
        self.words["file"] = shlex.join(map(str, words))

    def close_log(self) -> None:
        if self.log is not None:
            self.log.close()
            self.log = None

    def end(self, code: object) -> None:
        """Close the log, and append the record to ``reports/runs.jsonl`` of the workspace; ignore
        write errors.
        """
        self.close_log()
        if self.workspace is None or not os.path.isdir(self.workspace):
            return
        entry = {
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began)),
            "seconds": round(time.time() - self.began, 1),
            "version": xlarank.__version__,
            "arguments": without_passwords(self.arguments),
            "config": without_passwords(self.config),
            "exit": code,
        }
        with suppress(ImportError):  # not on Windows
            import resource

            processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            # The peak of the largest single process, not their sum.
            peak = max(resource.getrusage(who).ru_maxrss for who in processes)
            entry["peak_mb"] = round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
        path = self.workspace / "reports" / "runs.jsonl"
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            with open(path, "a", encoding="utf-8", opener=regular_no_link) as stream:
                stream.write(json.dumps(entry, default=str) + "\n")


def without_passwords(value: Any, option: str = "") -> Any:
    """Hide passwords in command-line words or a configuration.

    >>> without_passwords(["tune", "--storage=mysql://me:secret@host/db", "--storage",
    ...     "password=x"])
    ['tune', '--storage=mysql://me:***@host/db', '--storage', '***']
    """
    if isinstance(value, dict):
        return {name: without_passwords(entry, f"--{name}") for name, entry in value.items()}
    if isinstance(value, list | tuple):
        before = [option, *map(str, value)]
        return [without_passwords(*pair) for pair in zip(value, before, strict=False)]
    if isinstance(value, str) and value.startswith("--storage="):
        return "--storage=" + without_password(value.removeprefix("--storage="))
    hidden = isinstance(value, str) and (option == "--storage" or "://" in value)
    return without_password(value) if hidden else value


current_run = Run()


def configure(*, quiet: bool = False, verbose: bool = False, log_file: Path | None = None) -> None:
    """Set the output of a command; raises `WorkspaceError` for a log that cannot be written."""
    current_run.quiet = quiet
    current_run.verbose = verbose
    if log_file is not None:
        target = files.require_replaceable(log_file)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            current_run.log = target.open("a", encoding="utf-8", buffering=1)
        except OSError as error:
            got = f"cannot write {log_file} ({error.strerror or error})"
            raise WorkspaceError(got, do="pass another --log-file") from error


def _log(text: str) -> None:
    if current_run.log is not None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        current_run.log.writelines(f"{now} {line}\n" for line in text.splitlines())


def console(*, stderr: bool = False) -> Console:
    """Return a console with the terminal's width, or a fixed width for files."""
    stream = sys.stderr if stderr or current_run.json_on_stdout else sys.stdout
    has_width = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    # names of files and folders are not markup
    return Console(file=stream, width=None if has_width else FILE_WIDTH, markup=False)


def as_options(text: str) -> str:
    """Rewrite parameters in backticks as command-line options.

    >>> as_options("`max_configs` is -1; pass `weights` or `model_from=shipped`")
    '--max-configs is -1; pass --weights or --model-from shipped'
    """

    def option(match: re.Match[str]) -> str:
        name = _OPTIONS.get(match[1], match[1]).replace("_", "-")
        return f"--{name} {match[2]}" if match[2] else f"--{name}"

    return _PARAMETER.sub(option, text)


def say(text: str, style: str = "", *, label: str = "", error: bool = False) -> None:
    """Print and log a line, errors even if quiet; ``style`` is the label's, if there is one."""
    text = plain(as_options(text))
    line = Text.assemble((label, style), text) if label else Text(text, style)
    _log(line.plain)
    if error or not current_run.quiet:
        console(stderr=error).print(line, highlight=False, soft_wrap=True)


def headline(text: str) -> None:
    say("")
    say(text, "bold")


def error_line(text: str) -> None:
    say(text, "red", label="error: ", error=True)


def list_lines(title: str, lines: Sequence[str], *, error: bool = False) -> None:
    """Print lines after their title, at most `_MAX_LINES` unless verbose."""
    shown = [*lines] if current_run.verbose else [*lines[:_MAX_LINES]]
    if len(shown) < len(lines):
        shown.append(f"and {len(lines) - len(shown):,} more; --verbose names all of them")
    for line in shown:
        say(line, "red" if error else "yellow", label=f"{title}: ", error=error)


def list_reasons(title: str, reason_of: Mapping[str, str]) -> None:
    """Print why names are left out, grouped by reason."""
    list_lines(title, _grouped(reason_of))


def _grouped(reason_of: Mapping[str, str]) -> list[str]:
    return reasons(reason_of, len(reason_of) if current_run.verbose else _MAX_NAMES)


def show_rows(rows: Iterable[Mapping[str, object]], *, extra: int = 0) -> None:
    """Print and log rows as a table (`print_rows`)."""
    texts = [{head: plain(str(cell)) for head, cell in row.items()} for row in rows]
    if not current_run.quiet:
        print_rows(texts, console(), extra=extra)
    if current_run.log is not None:
        lines = Console(width=FILE_WIDTH, markup=False, force_terminal=False)
        with lines.capture() as captured:
            print_rows(texts, lines)
        _log(captured.get())


def finish(broken: dict[str, str]) -> None:
    """Print broken files, grouped by error, and exit with code 1 if there are any."""
    if not broken:
        return
    reason_of = {}
    for name, reason in broken.items():
        file = f"{name.rsplit(' ', 1)[-1]}.npz"  # the reason often begins with the name again
        reason_of[name] = reason.removeprefix(f"{file}: ").removeprefix(f"{file} ")
    list_lines("error", _grouped(reason_of), error=True)
    error_line(f"{counted(len(broken), 'broken file')}; the others were dealt with")
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
    """Show a job: as a bar on a terminal, elsewhere by lines at intervals; if verbose, by a line
    for each step. The log has the lines.
    """
    title = plain(title)
    verbose = current_run.verbose
    has_bar = sys.stderr.isatty() and not (current_run.quiet or verbose)
    bars = _bars()  # also the state of the job if nothing is drawn
    bars.add_task(title, total=total, note="", left="")
    (task,) = bars.tasks
    ended = threading.Event()
    began = time.monotonic()

    def write(line: str) -> None:
        _log(line)
        if not (current_run.quiet or has_bar):
            print(line, file=sys.stderr, flush=True)

    def write_state() -> None:
        line = f"{title}: {task.completed} of {total}, {duration(time.monotonic() - began)}"
        line += f", {task.fields['left']}" if task.fields["left"] else ""
        line += f"; last: {task.fields['note']}" if task.fields["note"] else ""
        write(line)

    def step(note: str = "", left: float | None = None, more: int = 0) -> None:
        nonlocal total
        total += more
        bars.update(task.id, total=total, advance=1, note=plain(note), left="")
        steps_left = total - task.completed
        if steps_left > 0:
            mean = (time.monotonic() - began) / task.completed
            seconds = mean * steps_left if left is None else left
            bars.update(task.id, left=f"about {duration(seconds)} left")
        if verbose:
            write_state()

    def watch() -> None:
        pause = _FIRST
        while not ended.wait(pause):
            write_state()
            pause = min(pause * 1.5, _MAX_PAUSE)

    clock = threading.Thread(target=watch, daemon=True)
    clock.start()
    try:
        with bars if has_bar else nullcontext():
            yield step
    finally:
        ended.set()
        clock.join(1.0)
        seconds = time.monotonic() - began
        if verbose or seconds >= _FIRST:
            write(f"{title}: {task.completed} of {total} in {duration(seconds)}")


def _bars() -> rich_progress.Progress:
    """Return bars with description, count, time and note; names are cut in a narrow window."""
    description, note = (Column(ratio=ratio, no_wrap=True, overflow="ellipsis") for ratio in (3, 2))
    fixed = Column(no_wrap=True)
    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}", markup=False, table_column=description),
        rich_progress.BarColumn(bar_width=12),
        rich_progress.MofNCompleteColumn(table_column=fixed),
        rich_progress.TimeElapsedColumn(table_column=fixed),
        rich_progress.TextColumn("{task.fields[left]}", table_column=fixed),
        rich_progress.TextColumn(
            "{task.fields[note]}", style="dim", markup=False, table_column=note
        ),
        console=console(stderr=True),
        refresh_per_second=4,
        expand=True,
    )
