"""Ctrl-C is for the command, not for the processes that it starts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Processes that start now never hear Ctrl-C (a blocked signal is inherited); this one hears it afterwards."""
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
