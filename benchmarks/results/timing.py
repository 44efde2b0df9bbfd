"""Time a file in this process: `python -m benchmarks.results.timing FILE`."""

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
    """Print the least processor seconds to load, to make all columns and to rank; memory; size."""

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
    """Return the most memory held; unlike ru_maxrss, without the process that started this one."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024  # in kB


if __name__ == "__main__":
    time_file(Path(sys.argv[1]))
