"""What `xlarank.pipelines.budgeting.costs` states, measured on this machine.

    python -m benchmarks.costs --data-root D [--rows 40000] [--rounds 40] [--json FILE]

For each kind of graphs that the data root has training graphs of: seconds per row and round, per row once (copies
and bins) and of predicting, on one core, and bytes per row that a training set and one fit on it take. Seconds are
of processor time, so that other work on the machine counts little. The rows are drawn, with repetition, from the
graphs that are there, 1000 (layout) or 100 (tile) a group, with graph columns scattered so that groups differ;
memory is the high-water mark of a process of its own. Seconds to build come from the benchmarks in `docs/speed.md`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from xlarank.data.collection import discover
from xlarank.data.graph import Kind, read_graph
from xlarank.data.root import find_data_root
from xlarank.features.assemble import assemble
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import DEFAULT, ranker_class
from xlarank.pipelines.budgeting.costs import COSTS

_GROUP = {"layout": 1000, "tile": 100}


def _memory(peak: bool) -> float:
    """Bytes of this process, now or at most."""
    key = "VmHWM" if peak else "VmRSS"
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith(key))


def _graphs(npz: Path, kind: str, rows: int) -> list[GraphRows]:
    """Groups drawn from the labelled training graphs."""
    rng = np.random.default_rng(0)
    found = []
    for file in discover(npz):
        if file.split == "train" and file.collection.kind == kind:
            graph = read_graph(file.path, file.collection.kind)
            stored = assemble(graph)
            if stored.labelled and stored.rankable and len(stored) >= 0.3 * _GROUP[kind]:
                found.append(stored)
    groups = []
    for number in range(rows // _GROUP[kind]):
        graph_rows = found[number % len(found)]
        pick = np.sort(rng.choice(len(graph_rows), _GROUP[kind], replace=True))
        scattered = graph_rows.graph_values * (1 + rng.random(len(graph_rows.graph_values)))
        groups.append(
            replace(
                graph_rows, name=f"g{number}__a", graph_values=scattered.astype(np.float32),
                config_values=graph_rows.config_values[pick],
                group=np.arange(_GROUP[kind]), ids=np.arange(_GROUP[kind]),
                runtime=(1e6 * graph_rows.row_cost[pick]).astype(np.int64) + 1,
                normalizer=np.ones(_GROUP[kind], np.int64), instances=None,
            )
        )  # fmt: skip
    return groups


def measure(npz: Path, kind: Kind, rows: int, rounds: int) -> dict[str, float]:
    """Costs of one kind, in this process."""
    idle = _memory(peak=False)
    graphs = _graphs(npz, kind, rows)
    data = RankingData.from_graphs(graphs)
    held = _memory(peak=False) - idle
    everyone = list(range(data.groups))
    ranker = ranker_class(DEFAULT)(kind=kind)
    ranker.fit(data.take([0, 1]), FitSettings(1, threads=1))  # loads what is loaded once
    seconds = []
    before = _memory(peak=False)
    for count in (1, rounds):
        began = time.process_time()
        fitted = ranker.clone().fit(data.take(everyone), FitSettings(count, threads=1))
        seconds.append(time.process_time() - began)
    fit_bytes = _memory(peak=True) - before
    began = time.process_time()
    for start, stop in zip(data.indptr[:-1], data.indptr[1:], strict=True):
        list(fitted.staged(data.rows[start:stop], 25))
    predicted = time.process_time() - began
    total = len(data.rows)
    return {
        "round_seconds": (seconds[1] - seconds[0]) / (rounds - 1) / total,
        "bin_seconds": seconds[0] / total,
        "predict_seconds": predicted / rounds / total,
        "set_bytes": held / total,
        "fit_bytes": fit_bytes / total,
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    root = find_data_root(asked.data_root)
    if asked.one:
        print(json.dumps(measure(root.npz, asked.one, asked.rows, asked.rounds)))
        return
    result = {}
    for kind, stated in COSTS.items():
        with tempfile.TemporaryFile("w+") as out:
            words = [sys.executable, "-m", "benchmarks.costs", *sys.argv[1:], "--one", kind]
            subprocess.run(words, stdout=out, check=True)
            out.seek(0)
            result[kind] = json.loads(out.read())
        for name, value in result[kind].items():
            print(f"{kind} {name}: {value:.3g} (stated: {asdict(stated)[name]:.3g})")
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
