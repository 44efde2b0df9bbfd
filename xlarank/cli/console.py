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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import typer
from rich import progress
from rich.console import Console
from rich.progress import Progress
from rich.table import Column, Table
from rich.text import Text

import xlarank
from xlarank.cli.tables import FILE_WIDTH, fits_unwrapped, new_table, plain, print_table
from xlarank.data import files
from xlarank.data.errors import WorkspaceError, counted, duration, reasons
from xlarank.data.files import regular_no_link
from xlarank.data.passwords import without_password

#: Maximum number of lines of a list.
_MAX_LINES = 20
#: A parameter in a message, perhaps with a value.
_PARAMETER: Final = re.compile(r"`([a-z][a-z_]*)(?:=([^`]*))?`")
#: Parameters whose options have another name.
_OPTIONS: Final = {"collections": "collection", "hours": "budget-hours", "ram_gb": "budget-ram-gb"}
#: Value of ``--json`` for standard output.
STDOUT: Final = Path("-")
#: Parts of the next command that may be empty.
_WORDS: Final = ("work", "data", "collection", "model_from", "blocks")


@dataclass
class Run:
    """A running command: its output and its record.

    Attributes:
        json_on_stdout: whether all but JSON goes to standard error.
        words: parts of the next command (`xlarank.cli.app.NEXT`).
    """

    quiet: bool = False
    verbose: bool = False
    log: TextIO | None = None
    json_on_stdout: bool = False
    command: str = ""
    config: dict[str, Any] | None = None
    workspace: Path | None = None
    words: dict[str, str] = field(default_factory=lambda: dict.fromkeys(_WORDS, ""))
    arguments: list[str] = field(default_factory=lambda: sys.argv[1:])
    began: float = field(default_factory=time.time)

    def keep(self, *words: object) -> None:
        """Record a file, a name or an option for the next command."""
        self.words["file"] = shlex.join(map(str, words))

    def end(self, code: object) -> None:
        """Close the log, and append the record to ``reports/runs.jsonl`` of the workspace; ignore
        write errors.
        """
        if self.log is not None:
            self.log.close()
            self.log = None
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
        target = files.output_target(log_file)
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


@contextmanager
def progress_bars() -> Iterator[JobProgress]:
    """Show progress of jobs: bars on a terminal; lines elsewhere, if verbose and in the log."""
    show_bars = not (current_run.quiet or current_run.verbose) and sys.stderr.isatty()
    display = bars(console(stderr=True)) if show_bars else None

    def write(line: str) -> None:
        line = plain(line)
        _log(line)
        if not current_run.quiet and display is None:
            print(line, file=sys.stderr, flush=True)

    with display or nullcontext():
        yield JobProgress(write, display, every=current_run.verbose)


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


def list_lines(title: str, lines: list[str]) -> None:
    shown = lines if current_run.verbose else lines[:_MAX_LINES]
    omitted = [f"and {len(lines) - len(shown):,} more"] if len(lines) > len(shown) else []
    for line in shown + omitted:
        say(line, "yellow", label=f"{title}: ")


def list_reasons(title: str, reason_of: Mapping[str, str]) -> None:
    """Print why names are left out, grouped by reason."""
    list_lines(title, reasons(reason_of, len(reason_of) if current_run.verbose else 3))


def error_line(text: str) -> None:
    say(text, "red", label="error: ", error=True)


def show_rows(rows: Iterable[Mapping[str, object]], *, extra: int = 0) -> None:
    """Print rows, if any, as a table: cells by head (`new_table`). Empty columns are left out; so
    are up to ``extra`` of the last columns in a narrow window.
    """
    texts = [{head: plain(str(cell)) for head, cell in row.items()} for row in rows]
    heads = list(texts[0]) if texts else []
    used = [head for head in heads if any(row[head] for row in texts)]
    table = new_table(*used)
    for row in texts:
        table.add_row(*(row[head] for head in used))
    if extra and used and not fits_unwrapped(table, console().width):
        show_rows([{head: row[head] for head in heads[:-1]} for row in texts], extra=extra - 1)
    else:
        show(table)


def show(table: Table) -> None:
    """Show a table, unless it is empty."""
    if not table.rows:
        return
    if not current_run.quiet:
        print_table(table, console())
    if current_run.log is not None:
        lines = Console(width=FILE_WIDTH, markup=False, force_terminal=False)
        with lines.capture() as captured:
            print_table(table, lines)
        _log(captured.get())


def finish(broken: dict[str, str]) -> None:
    """Print broken files, grouped by error, and exit with code 1 if there are any."""
    if not broken:
        return
    names_of: dict[str, list[str]] = {}
    for name, reason in broken.items():
        file = f"{name.rsplit(' ', 1)[-1]}.npz"  # the reason often begins with the name again
        reason = reason.removeprefix(f"{file}: ").removeprefix(f"{file} ")
        names_of.setdefault(reason, []).append(name)
    lines = []
    for reason, names in names_of.items():
        if current_run.verbose or len(names) <= 3:
            lines += [f"{name}: {reason}" for name in names]
        else:
            lines.append(f"{len(names):,} files, such as {', '.join(names[:3])}: {reason}")
    shown = lines if current_run.verbose else lines[:_MAX_LINES]
    for line in shown:
        error_line(line)
    if len(lines) > len(shown):
        error_line(f"and {len(lines) - len(shown):,} more; --verbose names all of them")
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


#: Seconds before the first line of a job, and maximum seconds between later ones.
_FIRST = 2.0
_MAX_PAUSE = 15.0
#: Maximum characters of a line, and minimum characters of its note, the only part that is cut.
_WIDTH = 80
_MIN_NOTE = 21


class JobProgress:
    """Progress of jobs: lines at intervals, with ``every`` after each step; ``bars`` if given."""

    def __init__(
        self, write: Callable[[str], None], bars: Progress | None = None, *, every: bool = False
    ) -> None:
        self.write = write
        self.bars = bars
        self.every = every

    @contextmanager
    def __call__(self, title: str, total: int) -> Iterator[Callable[..., None]]:
        """Show a job."""
        self.title = title = plain(title)
        self.total = total
        self.done = 0
        self.note = ""
        self.left: float | None = None
        self.began = time.monotonic()
        self.printed = False
        ended = threading.Event()
        clock = threading.Thread(target=self._watch, args=(ended,), daemon=True)
        clock.start()
        if self.bars is not None:
            self._task = self.bars.add_task(title, total=total, note="", left="")
        try:
            yield self._step
        finally:
            ended.set()
            clock.join(1.0)
            seconds = time.monotonic() - self.began
            if self.printed or self.every or seconds >= _FIRST:
                self.write(f"{title}: {self.done} of {self.total} in {duration(seconds)}")
            if self.bars is not None:
                self.bars.stop_task(self._task)

    def _step(self, note: str = "", left: float | None = None, more: int = 0) -> None:
        self.done += 1
        self.total += more
        self.note = plain(note)
        self.left = left
        if self.every:
            self.write(self._line())
        if self.bars is not None:
            self.bars.update(
                self._task, total=self.total, advance=1, note=self.note, left=self._left()
            )

    def _watch(self, ended: threading.Event) -> None:
        pause = _FIRST
        while not ended.wait(pause):
            self.printed = True
            self.write(self._line())
            pause = min(pause * 1.5, _MAX_PAUSE)

    def _line(self) -> str:
        passed = time.monotonic() - self.began
        line = f"{self.title}: {self.done} of {self.total}, {duration(passed)}"
        if left := self._left():
            line += f", {left}"
        width = max(_WIDTH - len(line) - 8, _MIN_NOTE)
        return f"{line}; last: {_tail(self.note, width)}" if self.note else line

    def _left(self) -> str:
        """Describe the time left; return "" before the first step and after the last."""
        if not 0 < self.done < self.total:
            return ""
        passed = time.monotonic() - self.began
        left = passed / self.done * (self.total - self.done) if self.left is None else self.left
        return f"about {duration(left)} left"


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
        progress.TextColumn("{task.fields[left]}", table_column=fixed),
        progress.TextColumn("{task.fields[note]}", style="dim", markup=False, table_column=note),
    )
    return Progress(*columns, console=console, refresh_per_second=4, expand=True)
