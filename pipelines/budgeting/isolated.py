"""A step in a process of its own, so that one that takes too long or too much memory does not end the job."""

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
from xlarank.pipelines.support.progress import Progress

Result = TypeVar("Result")

#: How often, in seconds, a waiting parent looks at the clock, and how long a process may take to end.
_LOOK, _GRACE = 0.5, 10.0


def isolated(
    function: Callable[..., Result], *arguments: Any, limit: float, progress: Progress, **named: Any
) -> Result:
    """Return ``function(*arguments, progress=..., **named)`` of a fresh interpreter.

    The function must be importable by name, what goes in and out picklable; its progress is handed on.
    Raises `XlarankError` when it is not done after ``limit`` seconds or its process was killed (the system does so
    where memory runs out), and the error that the function raised.
    """
    context = multiprocessing.get_context("spawn")  # threads do not survive a fork
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, function, arguments, named))
    end, begun = time.monotonic() + limit, False
    process.start()
    theirs.close()
    try:
        while time.monotonic() < end:
            if not ours.poll(_LOOK):
                continue
            what, value = ours.recv()
            if what == "result":
                process.join(_GRACE)  # it closes what it shares with others
                return value  # type: ignore[no-any-return]
            if what == "error":
                raise value
            getattr(progress, what)(*value)
            begun = what != "end"
        raise XlarankError(f"it was not done after {limit:.0f} s")
    except (EOFError, OSError):  # OSError: it ended in the middle of a message
        process.join()
        code = process.exitcode or 0
        why = f"signal {-code}, most likely for want of memory" if code < 0 else f"exit code {code}"
        raise XlarankError(f"its process ended with {why}") from None
    finally:
        process.kill()
        process.join()
        ours.close()
        if begun:
            progress.end()


class _Relay:
    """Sends calls of a `Progress` to the parent."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values: self._parent.send((name, values))


def _work(parent: Connection, function: Callable[..., Any], arguments: Any, named: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        found: tuple[str, Any] = ("result", function(*arguments, progress=_Relay(parent), **named))
    except XlarankError as error:
        found = ("error", error)
    except MemoryError:
        found = ("error", XlarankError("it does not fit into memory"))
    except Exception as error:  # a bug: its traceback would be lost with the process
        found = ("error", RuntimeError("".join(traceback.format_exception(error))))
    parent.send(found)


def _end_with_parent() -> None:
    """A parent that is killed cannot tell anybody to stop."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
