"""Ctrl-C and SIGTERM: files in the making are dropped, one line is printed, the exit code tells."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, NoReturn


class _Interrupted(BaseException):
    """The user (or the system) wants the program to end."""


#: Signals so far. The exception that a handler raises can get lost in a library; the number does not.
_heard: list[int] = []
#: Seconds for files in the making; a second signal ends the program at once.
_GRACE = 10.0
_word = b"error: interrupted; what was finished is kept, run the same command again to go on\n"


def listen() -> None:
    """Take over both signals; Typer would turn a KeyboardInterrupt into exit code 1 without a word."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)


def nothing_is_kept() -> None:
    """Have an interruption say that the running command starts anew."""
    global _word
    _word = b"error: interrupted; nothing was kept, the same command starts anew\n"


def leave_if_heard() -> None:
    """End the program where a signal has come."""
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
    os.write(2, show_cursor + _word)  # not through the console: the signal may have stopped it half way
    os._exit(128 + number)
