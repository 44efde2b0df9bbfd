"""A step in a process of its own, so that a step that takes too long or too much memory does not end the job."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from xlarank.data.errors import XlarankError
from xlarank.pipelines.support.progress import Progress, Silent

Result = TypeVar("Result")

#: How often, in seconds, a waiting parent looks at the clock.
_LOOK = 0.5


def isolated(
    function: Callable[..., Result],
    *arguments: Any,
    limit: float | None = None,
    progress: Progress | None = None,
    **named: Any,
) -> Result:
    """``function(*arguments, progress=..., **named)`` in a fresh interpreter.

    The function must be importable by name, what goes in and out picklable. Its progress is told to ``progress``.
    Raises `XlarankError` when the process is not done after ``limit`` seconds (it is killed then), when it was
    killed by somebody else (the system does so where memory runs out), and the error that the function raised.
    """
    progress = progress or Silent()
    context = multiprocessing.get_context("spawn")  # as in building features: threads do not survive a fork
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, function, arguments, named), daemon=True)
    end = None if limit is None else time.monotonic() + limit
    begun = False
    process.start()
    theirs.close()
    try:
        while True:
            if end is not None and time.monotonic() > end:
                raise XlarankError(f"it was not done after {limit:.0f} s")
            if not ours.poll(_LOOK):
                continue
            what, value = ours.recv()
            if what == "result":
                process.join()
                return value  # type: ignore[no-any-return]
            if what == "error":
                raise value
            getattr(progress, what)(*value)
            begun = what != "end"
    except (EOFError, OSError):  # OSError: it ended in the middle of a word
        process.join()
        code = process.exitcode or 0
        why = f"signal {-code}, most likely for want of memory" if code < 0 else f"exit code {code}"
        raise XlarankError(f"its process ended with {why}") from None
    finally:
        if process.is_alive():
            process.kill()
        process.join()
        ours.close()
        if begun:
            progress.end()


class _Told:
    """Tells the parent's progress."""

    def __init__(self, parent: Connection) -> None:
        self.parent = parent

    def begin(self, what: str, total: int) -> None:
        self.parent.send(("begin", (what, total)))

    def step(self, note: str = "") -> None:
        self.parent.send(("step", (note,)))

    def end(self) -> None:
        self.parent.send(("end", ()))


def _work(parent: Connection, function: Callable[..., Any], arguments: Any, named: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends this process
    _end_with_parent()
    try:
        found: tuple[str, Any] = ("result", function(*arguments, progress=_Told(parent), **named))
    except XlarankError as error:
        found = ("error", error)
    except MemoryError:
        found = ("error", XlarankError("it does not fit into memory"))
    except Exception as error:  # a bug: its traceback would be lost with the process
        found = ("error", RuntimeError("".join(traceback.format_exception(error))))
    parent.send(found)


def _end_with_parent() -> None:
    """A parent that is killed cannot tell anybody to stop."""
    above = multiprocessing.parent_process()

    def follow() -> None:
        if above is not None:
            above.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
