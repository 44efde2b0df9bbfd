"""Memory and signals of this machine."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Final

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
