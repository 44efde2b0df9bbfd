"""The process that owns JAX and forks a child for each piece of work, which may crash or hang alone.

It never compiles itself: a child forked from a process without compiled programs is cheap and free of locks.
"""

from __future__ import annotations

import pickle
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.errors import XlarankError
from xlarank.data.hlo.compiler.outcome import Outcome, Status
from xlarank.data.hlo.compiler.xla import Xla, first_line

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

#: Seconds between two looks at the children.
POLL: Final = 0.02
ANSWER: Final = "answer.pickle"
#: Function of the compiler and a folder for dumps that is run in a child and returns the answer.
Work = Callable[[Xla, Path], Any]


def serve(connection: Connection, xla: Xla) -> None:
    """Serve until the other end closes: ``(folder, work)`` starts a child, ``(folder, None)`` ends it.

    The answer, or the error that was raised, is a file of the folder.
    """
    running: dict[Path, ForkProcess] = {}
    try:
        while True:
            if connection.poll(POLL if running else None):
                folder, work = connection.recv()
                if work is None:
                    _end(folder, running.pop(folder))
                else:
                    folder.mkdir()
                    arguments = (connection, xla, folder, work)
                    running[folder] = get_context("fork").Process(target=_answer, args=arguments)
                    running[folder].start()
            for folder, process in running.items():
                code = process.exitcode
                if code is not None and not (folder / ANSWER).exists():
                    ended = f"signal {-code}" if code < 0 else f"status {code}"
                    outcome = Outcome(Status.CRASHED, message=f"the compiler's process ended with {ended}")
                    if code == -signal.SIGALRM:
                        outcome = Outcome(Status.TIMEOUT, message="not done within its limit of time")
                    try:
                        _keep(folder, outcome)
                    except OSError:  # its dumps may have filled the disk
                        shutil.rmtree(folder, ignore_errors=True)
                        folder.mkdir()
                        _keep(folder, outcome)
    except (EOFError, ConnectionResetError):
        pass  # the client is gone
    finally:
        for folder, process in running.items():
            _end(folder, process)


def _answer(connection: Connection, xla: Xla, folder: Path, work: Work) -> None:
    connection.close()  # or the client would not see the end of the process
    try:
        answer = work(xla, folder)
    except XlarankError as error:
        answer = error
    except BaseException as error:  # whatever it is, it concerns this configuration alone
        answer = Outcome(Status.FAILED, message=first_line(error))
    with suppress(OSError):
        _keep(folder, answer)


def _keep(folder: Path, answer: Any) -> None:
    partial = folder / "answer.partial"
    partial.write_bytes(pickle.dumps(answer))
    partial.replace(folder / ANSWER)


def _end(folder: Path, process: ForkProcess) -> None:
    process.kill()
    process.join()
    shutil.rmtree(folder, ignore_errors=True)


def main(load: Callable[..., Xla] = Xla) -> None:
    """Serve the process on the other end of a socket, whose file descriptor is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the connection is what ends this process
    connection = Connection(int(sys.argv[1]))
    scratch, *settings = connection.recv()
    try:
        xla = load(*settings)
        connection.send(xla.versions)
        serve(connection, xla)
    except XlarankError as error:
        connection.send(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)  # the client may be gone
