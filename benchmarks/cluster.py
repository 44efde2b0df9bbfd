"""Building rows on a Dask cluster of this machine: two worker processes against one.

Copies of the embedded sample (or of a data root), so that there is work for a while; each turn builds into
an empty workspace on a cluster that is already there, its workers warm. Prints seconds of each turn by the
clock, and of the processor in this process, which is client and scheduler and shares the cores with the workers;
the ratio of the medians; and whether both stored the same bytes. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from xlarank.data.collection import discover
from xlarank.data.root import DataRoot, find_data_root
from xlarank.data.workspace import Workspace
from xlarank.pipelines.build_features import build_features
from xlarank.pipelines.support.cluster import local_cluster

_WORKERS = (1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=Path(__file__).parents[1] / "data" / "sample")
    parser.add_argument("--copies", type=int, default=4, help="of each graph")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        root = _copies(find_data_root(arguments.data_root), Path(folder) / "data", arguments.copies)
        print(f"{len(discover(root.npz))} graphs")
        seconds = {workers: _turns(root, Path(folder), workers, arguments.turns) for workers in _WORKERS}
        one, two = (_contents(Path(folder) / f"work-{workers}") for workers in _WORKERS)
    for workers, taken in seconds.items():
        each = ", ".join(f"{wall:.1f} s ({busy:.1f})" for wall, busy in taken)
        print(f"{workers} worker{'s' * (workers > 1)}, by the clock (client and scheduler, processor): {each}")
    one_worker, two_workers = (median(wall for wall, _ in seconds[workers]) for workers in _WORKERS)
    print(f"two against one: {one_worker / two_workers:.2f} times as fast; same bytes: {one == two}")


def _copies(root: DataRoot, target: Path, copies: int) -> DataRoot:
    for file in discover(root.npz):
        for number in range(copies):
            path = target / "npz" / file.path.relative_to(root.npz).with_name(f"{file.name}-{number}.npz")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.path, path)
    return DataRoot(target, target / "npz", "copies")


def _turns(root: DataRoot, folder: Path, workers: int, turns: int) -> list[tuple[float, float]]:
    seconds = []
    with local_cluster(workers) as cluster:
        for turn in range(turns + 1):
            work = folder / f"work-{workers}"
            shutil.rmtree(work, ignore_errors=True)
            started, busy = time.monotonic(), time.process_time()
            report = build_features(root, Workspace(work), scheduler=cluster.scheduler_address)
            assert not report.broken
            if turn:  # in the first one the workers import what they need
                seconds.append((time.monotonic() - started, time.process_time() - busy))
    return seconds


def _contents(workspace: Path) -> dict[Path, bytes]:
    return {path.relative_to(workspace): path.read_bytes() for path in workspace.rglob("*") if path.is_file()}


if __name__ == "__main__":
    main()
