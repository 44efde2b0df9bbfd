"""Several processes at one study: who is at work, and one at a time where they would get in each other's way."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from xlarank.data.files import regular_no_link


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process of this machine is in a block of the same folder; a killed one does not count.

    Where the system has no such locks (Windows) nobody waits; raises `OSError` for a folder that cannot be
    written to.
    """
    with open(folder / ".turn", "a", opener=regular_no_link) as turn:
        with suppress(ImportError, OSError):  # OSError: some network file systems
            import fcntl

            fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def myself() -> str:
    """This process as a trial keeps it, ``host:number``."""
    return f"{socket.gethostname()}:{os.getpid()}"


def at_work(process: object) -> bool:
    """Whether another process of this machine, by `myself`, still runs; of other machines nothing is known."""
    host, _, number = str(process).rpartition(":")
    if os.name == "nt" or host != socket.gethostname() or not number.isdigit() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)  # asks, does not kill
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def gone(process: object) -> bool:
    """Whether a process of this machine, by `myself`, is no more; of other machines nothing is known."""
    host, _, number = str(process).rpartition(":")
    if os.name == "nt" or host != socket.gethostname() or not number.isdigit() or int(number) == os.getpid():
        return False
    return not at_work(process)
