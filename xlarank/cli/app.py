"""The command line: all commands and their examples, common options, errors as one line."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final, NoReturn

import typer
from typer import Option
from typer.main import get_command

import xlarank
from xlarank.cli import console, dataset, demo, explaining, learning, programs, ranking, scoring
from xlarank.cli.options import RANKERS, moved_to_front, require_separate_files
from xlarank.data.errors import XlarankError
from xlarank.data.files import DISK_FULL
from xlarank.pipelines.support.progress import set_display

#: Signals received so far: a library may swallow the exception of a handler.
_received: list[int] = []
#: Seconds after a signal to remove partial files; a second signal ends the program at once.
_GRACE = 10.0
_MEMORY = (
    b"error: not enough memory; raise the limit (ulimit -v), or use fewer --jobs or --threads\n"
)
_INTERRUPTED = b"error: interrupted; no file is left half-written, run the same command again\n"

#: Examples of commands, for their help.
_EXAMPLES: Final = """\
info --data-root ~/data/tpugraphs -c 'layout:*'
info GRAPH.npz
build-features --data-root ~/data/tpugraphs --max-configs 1000
explain-feature padding__output_waste__mean
explain-feature '*'
tune --trials 200
tune --trials 20 -c tile:xla --model ranknet
train --seeds 5
evaluate --official-indices eval_indices --json scores.json
cross-validate --model lambdarank --model ranknet
cross-validate --by family -c tile:xla
rank net__a.npz --target tpugraphs
rank step.hlo.pb --target tpu-v4 --check 3
rank own/npz/tile/tpu-estimate/train --csv orders.csv
submit --data-root ~/data/tpugraphs --model-from shipped
check-submission submission.csv
explain net__a.npz --against default
explain net__a.npz --config 17 --against 3
report --out report.html -c tile:cpu
import-hlo step.hlo.pb --out own
import-hlo dump --out own --target tpu-v4
collect --program mynet:program --configs 64 --out own
collect --program step.hlo.pb --target cpu --minutes 20 --out own
advise mynet:program --budget 1
advise step.hlo.pb --budget 20 --minutes 30 --out advice
demo
"""
#: Next command. ``{kept}`` is what the finished command recorded, the other words are its options;
#: without a record, no command is shown.
NEXT: Final = {
    "info": "{kept}{data_root}{collection}",
    "build-features": "train{workspace}{collection}",
    "tune": "train{workspace}{collection}{model} # takes these parameters",
    "train": "{kept}{workspace}{collection} # then rank a graph",
    "evaluate": "report{workspace}{collection} # pictures, and the explanation of a ranking",
    "cross-validate": "train{workspace}{collection} # --model chooses the ranker",
    "rank": "explain {kept}{workspace}{target}{collection}{model_from} # why the first is first",
    "submit": "check-submission {kept}{data_root}{workspace}{collection} # then upload the file",
    "explain": "explain-feature {kept} # the meaning of a column",
    "import-hlo": "rank {kept}{target}",
    "collect": "build-features --data-root {kept} # then train",
    "advise": "advise {kept} # searches; measure before you keep a layout",
}

app = typer.Typer(
    name="xlarank",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Rank compiler configurations without running them: boosted trees on TpuGraphs data.",
)
for group in (dataset, learning, scoring, ranking, explaining, programs, demo):
    app.add_typer(group.app)


def _say_next(result: object, **values: object) -> None:
    """Print the next command, unless files were broken when features were built first."""
    console.finish(console.current_run.broken)
    with suppress(KeyError):  # nothing follows, or nothing was recorded
        then = NEXT[console.current_run.command].format_map(console.current_run.words)
        console.say(f"next: {console.program()} {then}", "dim")


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
    quiet: Annotated[
        bool, Option("--quiet", help="Print errors only (and JSON with --json -).")
    ] = False,
    verbose: Annotated[
        bool, Option("--verbose", help="Print each step, and lists in full.")
    ] = False,
) -> None:
    """Set the options of all commands, which may stand before or after the command."""
    if quiet and verbose:
        raise typer.BadParameter("--quiet and --verbose exclude each other")
    console.current_run.quiet = quiet
    console.current_run.verbose = verbose
    set_display(console.progress)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA's parser prints irrelevant warnings
    console.current_run.command = context.invoked_subcommand or ""


def examples_of(command: str) -> list[str]:
    return [line for line in _EXAMPLES.splitlines() if line.partition(" ")[0] == command]


def commands() -> Any:
    """Return all commands; their help ends with examples, and with the rankers if they take one."""
    group: Any = get_command(app)
    for name, command in group.commands.items():
        lines = ["Examples:", *(f"{console.program()} {example}" for example in examples_of(name))]
        if any(parameter.name == "model" for parameter in command.params):
            lines += ["", "Rankers:", *(f"{ranker}: {text}" for ranker, text in RANKERS.items())]
        command.epilog = "\n".join(lines)
        command.invoke = partial(_invoke, command.invoke)
    return group


def _invoke(invoke: Callable[[Any], Any], context: Any) -> Any:
    """Run a command after a check of the files that its line names."""
    require_separate_files(context.command.params, context.params)
    return invoke(context)


def main() -> None:
    """Run a command; errors that a user can act on are printed as one line, without a traceback."""
    console.current_run = console.Run()
    for number in (signal.SIGINT, signal.SIGTERM):  # the default is to exit without a message
        signal.signal(number, _interrupt)
    warnings.showwarning = _show_warning
    try:
        _require_streams()
        commands()(args=moved_to_front(sys.argv[1:]))
    except BaseException as error:
        if _received:  # libraries may turn the interruption into another error
            sys.stdout.flush()
            _leave(_received[0])
        if any(isinstance(cause, MemoryError) for cause in _causes(error)):
            os.write(2, _MEMORY)  # perhaps too little is left for the console
            sys.exit(1)
        if (user_error := _user_error(error)) is None:
            raise
        console.error_line(str(user_error))
        sys.exit(1)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the path and the line of Python that raised it."""
    console.say(" ".join(str(message).split()), "yellow", label="note: ", error=True)


def _interrupt(number: int, frame: Any) -> None:
    _received.append(number)
    if len(_received) > 1:
        _leave(_received[0])
    watchdog = threading.Timer(_GRACE, _leave, [number])
    watchdog.daemon = True
    watchdog.start()
    logging.disable()  # a library that catches this exit would log it with a traceback
    sys.exit(128 + number)


def _leave(number: int) -> NoReturn:
    """Exit at once with 128 + the signal; writes are atomic, so no thread needs to finish."""
    show_cursor = b"\x1b[?25h" if sys.stderr.isatty() else b""
    # Not through the console: the signal may have stopped it half way.
    os.write(2, show_cursor + _INTERRUPTED)
    os._exit(128 + number)


def _require_streams() -> None:
    """Escape characters that the terminal lacks; refuse a closed standard output."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    if sys.stdout is None:  # the next opened file would receive the output
        do = "send it to /dev/null if you do not need it"
        raise XlarankError("standard output is closed", do=do)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _user_error(error: BaseException) -> XlarankError | None:
    """Return the error that a user can act on, or None for a bug."""
    if isinstance(error, XlarankError):
        return error
    for cause in _causes(error):
        # Raised by any library that writes.
        if isinstance(cause, OSError) and cause.errno in DISK_FULL:
            got = f"a file cannot be written ({cause.strerror})"
            do = "make room and run the same command again; finished work is kept"
            return XlarankError(got, expected="free space on the disk", do=do)
    if isinstance(error, OSError) and error.filename is not None:
        return XlarankError(f"{error.filename}: {error.strerror}", do="check the path")
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
