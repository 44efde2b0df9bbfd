"""Child processes on this machine, which end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from xlarank.data.errors import XlarankError
from xlarank.pipelines.support.progress import Progress

#: Seconds between checks of the time limit, and until a finished process is killed.
_POLL, _GRACE = 0.5, 10.0


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables of the processes that are started meanwhile."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C, so that processes started meanwhile ignore it; this process receives it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # started here, because starting it unblocks the signal; it frees, silently, what a killed process leaves behind
    with environment(PYTHONWARNINGS="ignore::UserWarning:multiprocessing.resource_tracker"):
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Ignore interrupts, which the parent handles, and exit with the parent, also if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def isolated(function: Callable[..., Any], *arguments: Any, limit: float, progress: Progress, **named: Any) -> Any:
    """Return ``function(*arguments, progress=..., **named)``, called in a fresh interpreter.

    The function must be importable by name, its arguments and result picklable; its progress is forwarded.
    Raises `XlarankError` if it takes more than ``limit`` seconds or its process is killed (the system does so when
    memory runs out), and the error that the function raised.
    """
    context = multiprocessing.get_context("spawn")  # threads do not survive a fork
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, function, arguments, named))
    end, begun = time.monotonic() + limit, False
    with interrupts_held_back():
        process.start()
    theirs.close()
    try:
        while time.monotonic() < end:
            if not ours.poll(_POLL):
                continue
            message, value = ours.recv()
            if message == "result":
                process.join(_GRACE)  # it releases shared resources
                return value
            if message == "error":
                raise value
            getattr(progress, message)(*value)
            begun = message != "end"
        raise XlarankError(f"{function.__name__} was not done in time")
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
    """`Progress` whose calls are sent to the parent."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values: self._parent.send((name, values))


def _work(parent: Connection, function: Callable[..., Any], arguments: Any, named: Any) -> None:
    end_with_parent()
    try:
        answer: tuple[str, Any] = ("result", function(*arguments, progress=_Relay(parent), **named))
    except XlarankError as error:
        answer = ("error", error)
    except MemoryError:
        answer = ("error", XlarankError("it does not fit into memory"))
    except Exception as error:  # a bug: its traceback would be lost with the process
        answer = ("error", RuntimeError("".join(traceback.format_exception(error))))
    parent.send(answer)
