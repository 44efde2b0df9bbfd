"""Time one file: `python -m benchmarks.results.timing FILE`; the table `speed` runs it in a process
of its own.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from xlarank.data.graph import read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.assembly import assemble


def time_file(file: Path, repeats: int = 7) -> None:
    """Print the least processor seconds to load, to make all columns and to rank (other work only
    adds to them), memory and size.
    """

    def load() -> None:
        with np.load(file) as archive:
            for name in archive.files:
                archive[name]

    def columns() -> None:
        assemble(read_graph(file))

    def timed(work: Callable[[], object]) -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    columns()
    memory = peak_megabytes()
    from xlarank.pipelines.rank import rank  # takes memory of its own

    with tempfile.TemporaryDirectory() as empty:
        workspace = Workspace(Path(empty))
        ranking = rank(file, workspace)
        works = (load, columns, lambda: rank(file, workspace))
        seconds = [[timed(work) for work in works] for _ in range(repeats)]  # in turn
    print(*map(min, zip(*seconds, strict=True)), memory, len(ranking.order))


def peak_megabytes() -> float:
    """Most memory that this process held; unlike ru_maxrss, nothing of the process that started
    it.
    """
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024  # in kB


if __name__ == "__main__":
    time_file(Path(sys.argv[1]))
