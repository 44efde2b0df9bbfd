"""Time and memory of a command with all processes that it starts (Linux)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_EVERY: Final = 0.2


@dataclass(frozen=True)
class Measured:
    """What a command took.

    Attributes:
        wall: seconds by the clock.
        cpu: seconds of processor time, user and system, of all its processes.
        peak_mb: most memory of all its processes together, in 2^20 bytes, sampled five times a second; pages that
            they share count once (the proportional set size of `/proc`); at least the largest resident set of any.
    """

    wall: float
    cpu: float
    peak_mb: float


def measured_run(command: Sequence[str], log: Path) -> Measured:
    """Run a command, its output to ``log``; raises `RuntimeError` with the end of it where it fails."""
    started = time.monotonic()
    peak = 0
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        while True:
            done, status, usage = os.wait4(process.pid, os.WNOHANG)
            if done:
                break
            peak = max(peak, sum(map(_proportional_kb, _with_children(process.pid))))
            time.sleep(_EVERY)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8").splitlines()[-20:])
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{tail}")
    return Measured(
        time.monotonic() - started,
        usage.ru_utime + usage.ru_stime,
        max(peak, usage.ru_maxrss) / 1024,
    )


def _with_children(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:  # it ended meanwhile
                continue
            children.setdefault(int(text.rsplit(")", 1)[1].split()[1]), []).append(int(folder.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def _proportional_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
