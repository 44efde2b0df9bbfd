"""How much memory there is."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

#: Where containers say how much they may take, in bytes; a word or a huge number where they are not limited.
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> float:
    """Bytes of memory that this process may take, of the machine or of the container that it runs in."""
    found = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for path in _LIMITS:
        with suppress(OSError, ValueError):
            found.append(float(Path(path).read_text(encoding="ascii")))
    return min(found)
