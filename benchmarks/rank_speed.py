"""Seconds from a graph file to its columns and to its order, against `numpy.load` of all arrays of the same file.

    python -m benchmarks.rank_speed [--data-root D] [--workspace W] [--match TEXT] [--repeats N] [--json FILE]

Prints one JSON entry a file: ``load_s`` (the floor), ``features_s`` (reading, checking and all columns), ``rank_s``
(the same and the scores of the workspace's model, or of the ranker that ships), the ratios of both to the floor,
and ``peak_rss_mb`` of features alone. Each file has a process of its own; after one uncounted turn all are timed in
alternation, and medians are given.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from xlarank.data.collection import discover
from xlarank.data.errors import ModelError
from xlarank.data.graph import read_graph
from xlarank.data.root import find_data_root
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.pipelines.rank import rank


def measure(path: Path, workspace: Workspace, repeats: int) -> dict[str, Any]:
    """Time one file in this process."""

    def load() -> None:
        with np.load(path) as archive:
            for name in archive.files:
                archive[name]

    works: dict[str, Callable[[], object]] = {"load": load, "features": lambda: assemble(read_graph(path))}
    works["features"]()
    entry: dict[str, Any] = {"peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)}
    try:
        rank(workspace, path)
        works["rank"] = lambda: rank(workspace, path)
    except ModelError as error:
        entry["no_rank"] = str(error)
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - started)
    for name, seconds in times.items():
        entry[f"{name}_s"] = round(statistics.median(seconds), 5)
        ratios = [one / floor for one, floor in zip(seconds, times["load"], strict=True)]
        entry[f"{name}_ratio"] = round(statistics.median(ratios), 2)
    return entry


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--workspace", type=Path, default=Path("work"))
    parser.add_argument("--match", default="", help="only files whose path contains this")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, Workspace(args.workspace), args.repeats)))
        return
    root = find_data_root(args.data_root)
    entries = []
    for file in discover(root.npz):
        name = str(file.path.relative_to(root.path))
        if args.match in name:
            words = [sys.executable, "-m", "benchmarks.rank_speed", "--one", str(file.path)]
            words += ["--workspace", str(args.workspace), "--repeats", str(args.repeats)]
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            entries.append({"file": name, **json.loads(done.stdout)})
            print(json.dumps(entries[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
