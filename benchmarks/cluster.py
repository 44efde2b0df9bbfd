"""Building rows on a Dask cluster of this machine: two worker processes against one.

Copies of the embedded sample (or of a data root), so that there is work for a while; each turn builds into
an empty workspace on a cluster that is already there, its workers warm. Prints wall-clock seconds of each turn, the
ratio of the medians, and whether both stored the same bytes. Run it on a quiet machine with two cores or more.
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
        print(f"{workers} worker{'s' * (workers > 1)}: {', '.join(f'{each:.1f}' for each in taken)} s")
    print(f"two against one: {median(seconds[1]) / median(seconds[2]):.2f} times as fast; same bytes: {one == two}")


def _copies(root: DataRoot, target: Path, copies: int) -> DataRoot:
    for file in discover(root.npz):
        for number in range(copies):
            path = target / "npz" / file.path.relative_to(root.npz).with_name(f"{file.name}-{number}.npz")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file.path, path)
    return DataRoot(target, target / "npz", "copies")


def _turns(root: DataRoot, folder: Path, workers: int, turns: int) -> list[float]:
    seconds = []
    with local_cluster(workers) as cluster:
        for turn in range(turns + 1):
            work = folder / f"work-{workers}"
            shutil.rmtree(work, ignore_errors=True)
            started = time.monotonic()
            report = build_features(root, Workspace(work), scheduler=cluster.scheduler_address)
            assert not report.broken
            if turn:  # in the first one the workers import what they need
                seconds.append(time.monotonic() - started)
    return seconds


def _contents(workspace: Path) -> dict[Path, bytes]:
    return {path.relative_to(workspace): path.read_bytes() for path in workspace.rglob("*") if path.is_file()}


if __name__ == "__main__":
    main()
