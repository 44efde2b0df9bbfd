"""Cost of features against the floor, `numpy.load` of all arrays of the same file.

    python -m benchmarks.feature_speed [--data-root D] [--match TEXT] [--repeats N] [--json FILE]

Prints a JSON list with one entry a file: ``file`` (path below the root), ``load_s`` (numpy.load of every array),
``features_s`` (reading, checking and all columns), their ``ratio``, ``rows_per_s`` (configurations) and
``peak_rss_mb``.
Each file has a process of its own; after one uncounted turn the two are timed in alternation, and medians are
given. The peak is that of reading and features alone, before numpy.load runs.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from xlarank.data.collection import discover
from xlarank.data.graph import read_graph
from xlarank.data.root import find_data_root
from xlarank.features.assemble import assemble
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings


def measure(path: Path, kind: Any, tier: str, repeats: int) -> dict[str, Any]:
    """One entry, timed in this process."""

    def features() -> int:
        graph = read_graph(path, kind)
        assemble(graph, FeatureSettings(Tier(tier)))
        return graph.configs

    def load() -> None:
        with np.load(path) as archive:
            for name in archive.files:
                archive[name]

    configs = features()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    load()
    times: dict[str, list[float]] = {"load": [], "features": []}
    for _ in range(repeats):
        for name, work in (("load", load), ("features", features)):
            started = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - started)
    load_s, features_s = (statistics.median(times[name]) for name in ("load", "features"))
    ratio = statistics.median(f / n for f, n in zip(times["features"], times["load"], strict=True))
    return {
        "load_s": round(load_s, 5),
        "features_s": round(features_s, 5),
        "ratio": round(ratio, 3),
        "rows_per_s": round(configs / features_s),
        "peak_rss_mb": round(peak, 1),
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--match", default="", help="only files whose path contains this")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tier", default="full", choices=[tier.value for tier in Tier])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    root = find_data_root(asked.data_root)
    if asked.one:
        file = next(file for file in discover(root.npz) if str(file.path.relative_to(root.path)) == asked.one)
        print(json.dumps(measure(file.path, file.collection.kind, asked.tier, asked.repeats)))
        return
    entries = []
    for file in discover(root.npz):
        name = str(file.path.relative_to(root.path))
        if asked.match not in name:
            continue
        command = [sys.executable, "-m", "benchmarks.feature_speed", "--data-root", str(root.path), "--one", name]
        command += ["--repeats", str(asked.repeats), "--tier", asked.tier]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        entries.append({"file": name, **json.loads(done.stdout)})
        print(json.dumps(entries[-1]), file=sys.stderr, flush=True)
    text = json.dumps(entries, indent=2)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
