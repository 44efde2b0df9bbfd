"""Processes of this machine: one for a single step, and what all of them need to end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from xlarank.data.errors import XlarankError
from xlarank.pipelines.support.progress import Progress

#: How often, in seconds, a waiting parent looks at the clock, and how long a process may take to end.
_LOOK, _GRACE = 0.5, 10.0
#: Files with the memory limit of a container in bytes; a word or a huge number where there is none.
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> float:
    """Bytes of memory of the machine, or of the container that this process runs in."""
    sizes = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for path in _LIMITS:
        with suppress(OSError, ValueError):
            sizes.append(float(Path(path).read_text(encoding="ascii")))
    return min(sizes)


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Start processes that ignore Ctrl-C (a blocked signal is inherited); this one receives it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # started by the first process otherwise, after which it lets the signal through again
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Ignore interrupts, which the parent handles, and end with the parent, also where it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def isolated(function: Callable[..., Any], *arguments: Any, limit: float, progress: Progress, **named: Any) -> Any:
    """Return ``function(*arguments, progress=..., **named)`` of a fresh interpreter.

    The function must be importable by name, what goes in and out picklable; its progress is handed on.
    Raises `XlarankError` when it is not done after ``limit`` seconds or its process was killed (the system does so
    where memory runs out), and the error that the function raised.
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
            if not ours.poll(_LOOK):
                continue
            what, value = ours.recv()
            if what == "result":
                process.join(_GRACE)  # it closes what it shares with others
                return value
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
    end_with_parent()
    try:
        found: tuple[str, Any] = ("result", function(*arguments, progress=_Relay(parent), **named))
    except XlarankError as error:
        found = ("error", error)
    except MemoryError:
        found = ("error", XlarankError("it does not fit into memory"))
    except Exception as error:  # a bug: its traceback would be lost with the process
        found = ("error", RuntimeError("".join(traceback.format_exception(error))))
    parent.send(found)
