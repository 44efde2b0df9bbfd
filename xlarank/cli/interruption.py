"""Ctrl-C and SIGTERM: partial files are removed, one line is printed, the exit code is 128 + signal."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, NoReturn


class _Interrupted(BaseException):
    """Raised by a signal to end the program."""


#: Signals so far: a library may swallow the exception that a handler raises.
_heard: list[int] = []
#: Seconds to remove partial files; a second signal ends the program at once.
_GRACE = 10.0
_MESSAGE = b"error: interrupted; finished work is kept, run the same command again to resume\n"


def listen() -> None:
    """Handle both signals; Typer would turn a KeyboardInterrupt into exit code 1 without a message."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)


def leave_if_heard() -> None:
    """End the program if there was a signal."""
    if _heard:
        sys.stdout.flush()
        _leave(_heard[0])


def _interrupt(number: int, frame: Any) -> None:
    _heard.append(number)
    if len(_heard) > 1:
        _leave(_heard[0])
    watchdog = threading.Timer(_GRACE, _leave, [number])
    watchdog.daemon = True
    watchdog.start()
    raise _Interrupted


def _leave(number: int) -> NoReturn:
    """End now: every file is whole or absent, so no thread needs to finish."""
    show_cursor = b"\x1b[?25h" if sys.stderr.isatty() else b""
    os.write(2, show_cursor + _MESSAGE)  # not through the console: the signal may have stopped it half way
    os._exit(128 + number)
