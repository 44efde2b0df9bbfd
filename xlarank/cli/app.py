"""The command line: all commands, the options of every command, errors and interruptions as one line."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn, get_type_hints

import typer
from typer import Option
from typer.main import get_command

import xlarank
from xlarank.cli import console, dataset, explaining, learning, programs, ranking, record, run_all, scoring
from xlarank.cli.guide import GUIDES
from xlarank.cli.options import load_config, moved_to_front
from xlarank.data.errors import MAX_ROUNDS, XlarankError

app = typer.Typer(
    name="xlarank",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Rank compiler configurations without running them: boosted trees on TpuGraphs data.",
)
for group in (dataset, learning, scoring, ranking, explaining, programs, run_all):
    app.add_typer(group.app)


def _say_next(result: object, **options: object) -> None:
    """Print the next command after one that succeeded."""
    with suppress(KeyError):  # no file to go on with
        if then := GUIDES[record.run.command].then.format_map(record.run.words):
            console.say(f"next: python run.py {then}", "dim")


def _version(show: bool) -> None:
    if show:
        typer.echo(f"xlarank {xlarank.__version__}")
        raise typer.Exit


@app.callback(result_callback=_say_next)
def common(
    context: typer.Context,
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", help="Print errors only (and JSON with --json -).")] = False,
    verbose: Annotated[bool, Option("--verbose", help="Print each step, and lists in full.")] = False,
    log_file: Annotated[Path | None, Option(help="Append all output to this file, with the time.")] = None,
    config_file: Annotated[
        Path | None, Option(help="TOML file with values of options: top level for all commands, \\[train] for one.")
    ] = None,
) -> None:
    """Rank compiler configurations without running them: boosted trees on TpuGraphs data.

    The options below may stand before or after the command.
    """
    if quiet and verbose:
        raise typer.BadParameter("--quiet and --verbose exclude each other")
    console.configure(quiet=quiet, verbose=verbose, log_file=log_file)
    record.run.command = name = context.invoked_subcommand or ""
    if config_file is not None and name:
        values = load_config(config_file, context.command.commands, name)  # type: ignore[attr-defined]
        context.default_map = {name: values}
        record.run.config = {"file": str(config_file), "values": values}


#: Placeholders of option values in help, by type; a flag has none.
_WORDS: Final = {"Path": "PATH", "str": "TEXT", "bool": "", "int": "N", "float": "N"}


def commands() -> Any:
    """Return all commands; their help has plain words in the place of Python's types, and examples."""
    group: Any = get_command(app)
    for name, command in {"": group, **group.commands}.items():
        hints = get_type_hints(command.callback)
        for part in (*command.params, command.get_help_option(typer.Context(command))):
            if part.param_type_name == "argument":
                part.display_type_rich = lambda ctx: None
            else:
                hint = str(hints.get(part.name, bool))
                part.metavar = next(word for kind, word in _WORDS.items() if kind in hint)
            part._get_number_range_help_str = partial(number_span, part)
        if name in GUIDES:
            command.epilog = GUIDES[name].epilog()
    return group


def number_span(part: Any) -> str | None:
    """Return the values that an option of numbers takes, in words; None without limits.

    >>> from types import SimpleNamespace as Option
    >>> number_span(Option(min=1, max=64)), number_span(Option(min=0, max=2**31 - 1)), number_span(Option())
    ('1 to 64', '0 or more', None)
    """
    low, high = getattr(part, "min", None), getattr(part, "max", None)
    if low is None:
        return None
    return f"{low:g} or more" if high is None or high >= MAX_ROUNDS else f"{low:g} to {high:g}"


#: A full disk, a quota, a limit on the size of files: any write may fail so, those within libraries too.
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: Messages of errors that libraries raise instead of `MemoryError`.
_NO_MEMORY = ("can't start new thread", "error return without exception", "allocate memory", "map segment")
#: Signals received so far: a library may swallow the exception of a handler.
_received: list[int] = []
#: Seconds to remove partial files; a second signal ends the program at once.
_GRACE = 10.0
_MEMORY = b"error: not enough memory; raise the limit (ulimit -v), or use fewer --jobs or --threads\n"
_INTERRUPTED = b"error: interrupted; finished work is kept, run the same command again to resume\n"


def main() -> None:
    """Run a command; errors that a user can act on are printed as one line, without a traceback."""
    record.run = record.Run()
    code: object = 1
    for number in (signal.SIGINT, signal.SIGTERM):  # Typer would exit with 1, without a message
        signal.signal(number, _interrupt)
    try:
        _require_streams()
        commands()(args=moved_to_front(sys.argv[1:]))
    except BaseException as error:
        if _received:  # libraries may turn the interruption into another error
            sys.stdout.flush()
            _leave(_received[0])
        if isinstance(error, SystemExit):
            code = error.code or 0
        if _out_of_memory(error):  # too little perhaps for all that prints a line
            os.write(2, _MEMORY)
            sys.exit(1)
        user_error = _user_error(error)
        if user_error is None:
            raise
        console.error_line(str(user_error))
        sys.exit(1)
    finally:
        record.run.end(code)
        console.close_log()


def _interrupt(number: int, frame: Any) -> None:
    _received.append(number)
    if len(_received) > 1:
        _leave(_received[0])
    watchdog = threading.Timer(_GRACE, _leave, [number])
    watchdog.daemon = True
    watchdog.start()
    sys.exit(128 + number)


def _leave(number: int) -> NoReturn:
    """Exit at once with 128 + the signal; writes are atomic, so no thread needs to finish."""
    show_cursor = b"\x1b[?25h" if sys.stderr.isatty() else b""
    os.write(2, show_cursor + _INTERRUPTED)  # not through the console: the signal may have stopped it half way
    os._exit(128 + number)


def _require_streams() -> None:
    """Raise `XlarankError` if standard output is closed: the next opened file would receive the output."""
    if not os.environ.get("COLUMNS", "1").strip("0"):
        del os.environ["COLUMNS"]  # rich would print nothing
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    if sys.stdout is None:
        raise XlarankError("standard output is closed", do="send it to /dev/null if you do not need it")


def _user_error(error: BaseException) -> XlarankError | None:
    """Return the error that a user can act on, or None for a bug."""
    if isinstance(error, XlarankError):
        return error
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno in _DISK_FULL:  # raised by any library that writes
            got, do = f"a file cannot be written ({cause.strerror})", "make room and run the same command again"
            return XlarankError(got, expected="free space on the disk", do=f"{do}; finished work is kept")
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return XlarankError(f"the path {str(error.filename)[:40]}... is too long", do="choose a shorter name")
    if isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:  # how Python reads other bytes
        return XlarankError(f"the path {error.object!r} is not valid UTF-8", do="rename it, or choose another")
    return None


def _out_of_memory(error: BaseException) -> bool:
    def lacks_memory(cause: BaseException) -> bool:
        suspect = isinstance(cause, RuntimeError | SystemError | ImportError | OSError)
        return isinstance(cause, MemoryError) or (suspect and any(text in str(cause) for text in _NO_MEMORY))

    return any(map(lacks_memory, _causes(error)))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
