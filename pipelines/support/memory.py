"""How much memory there is, and whether rows fit into it."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from xlarank.data.errors import XlarankError

#: Share of what a machine has that is taken without asking.
_SHARE: Final = 0.9
#: Share of the budget that rows may take, four bytes a value; the rest is for bins and what works on them.
_OF_ROWS: Final = 0.5
#: Where containers say how much they may take, in bytes; a word or a huge number where they are not limited.
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> float:
    """Bytes of memory that this process may take, of the machine or of the container that it runs in."""
    found = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for path in _LIMITS:
        with suppress(OSError, ValueError):
            found.append(float(Path(path).read_text(encoding="ascii")))
    return min(found)


def memory_budget(ram_gb: float = 0.0) -> float:
    """Bytes of a budget in 1e9 bytes, 0 for nine tenths of the machine's; raises `XlarankError` for no number."""
    if not (ram_gb >= 0 and math.isfinite(ram_gb)):
        raise XlarankError(f"--budget-ram-gb is {ram_gb}", expected="a number, 0 or above")
    return 1e9 * ram_gb or _SHARE * machine_memory()


def left_on_disk(rows_bytes: float, budget: float) -> str:
    """Why rows of so many bytes stay on disk, in words; empty where they fit."""
    if rows_bytes <= _OF_ROWS * budget:
        return ""
    return (
        f"its rows ({rows_bytes / 1e9:.3g} GB) stay on disk and are learned from in bins: they take more than half "
        f"of {budget / 1e9:.3g} GB of memory (--budget-ram-gb)"
    )
