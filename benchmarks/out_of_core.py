"""Training from rows on disk under a memory cap, beside training from rows in memory.

    python -m benchmarks.out_of_core [--rows 400000] [--rounds 25] [--model ranknet] [--threads 2] [--json FILE]

Stores graphs whose rows are drawn from those of the embedded sample (layout:cpu:random, all columns, values as they
are), two thousand a graph, in a workspace of its own, and trains on them twice, folds and final booster, through
the code that ``train`` runs: each time in a process of its own, with its rows in memory or on disk.
Prints the peak of memory beyond what the process held before, against the size of the rows (four bytes a value),
the processor time, and whether the boosters are the same to the last byte. With ``--cap SHARE`` the process that
trains from disk may allocate no more than that share of the rows (RLIMIT_DATA counts what it allocates, used or
not), and then the one that trains from memory is held to it, too, to show that it cannot.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.data.workspace import Workspace
from xlarank.features.recipe import Source
from xlarank.features.rows import GraphRows
from xlarank.features.store import load_split, read_manifest, write_manifest, write_rows

COLLECTION: Final = Collection.parse("layout:cpu:random")
#: Rows of a graph, families of graphs.
_GRAPH: Final = 2000
_FAMILIES: Final = 2


def drawn_graph(source: GraphRows, name: str, rows: int, rng: np.random.Generator) -> GraphRows:
    """Rows of a real graph, drawn with replacement, with other runtimes; each counts as another configuration."""
    drawn = rng.integers(len(source), size=rows)
    runtime = np.rint(source.row_cost[drawn] * np.exp(rng.normal(0, 0.02, rows))).astype(np.int64)
    return replace(
        source,
        name=name,
        config_values=source.config_values[drawn],
        group=np.arange(rows),
        ids=np.arange(rows),
        runtime=runtime,
        normalizer=np.ones(rows, np.int64),
        instances=None,
    )


def make(workspace: Workspace, rows: int) -> int:
    """Store graphs of about so many rows together; returns the bytes of their values, all columns written out."""
    from xlarank.pipelines.build_features import build_features

    with tempfile.TemporaryDirectory() as folder:
        sample = Workspace(Path(folder))
        build_features(find_data_root(SAMPLE), sample, collections=[str(COLLECTION)], splits=["train"], jobs=1)
        sources = [graph for graph in load_split(sample, COLLECTION, "train") if graph.labelled and graph.rankable]
        of_sample = read_manifest(sample, COLLECTION, "train")
    assert of_sample is not None
    manifest = replace(of_sample, graphs={}, broken={})
    for number in range(max(_FAMILIES, rows // _GRAPH)):
        name = f"family{number % _FAMILIES}__{number}"
        graph = drawn_graph(sources[number % len(sources)], name, _GRAPH, np.random.default_rng(number))
        source = Source(0, number)
        write_rows(workspace.graph_rows(COLLECTION, "train", name), graph, manifest.recipe, source)
        manifest.graphs[name] = {**graph.summary(), "source": {"size": 0, "mtime_ns": number}}
    write_manifest(workspace, COLLECTION, "train", manifest)
    return 4 * _GRAPH * len(manifest.graphs) * len(manifest.columns)


def held(what: str) -> int:
    """Bytes that this process holds by the kernel's account: VmHWM (peak), VmRSS, VmData."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(what)


def child(asked: argparse.Namespace) -> None:
    """Train and print what it took, as JSON."""
    from xlarank.models.rankers import lightgbm_data
    from xlarank.pipelines.train import train

    if asked.sampled:
        lightgbm_data._SAMPLED = asked.sampled  # type: ignore[misc]
    workspace = Workspace(asked.workspace)
    shutil.rmtree(workspace.root / "bins", ignore_errors=True)
    import lightgbm  # noqa: F401  (libraries are no part of what training takes)
    import pyarrow.parquet  # noqa: F401
    import scipy.stats  # noqa: F401

    before = held("VmRSS")
    if asked.bytes:
        limit = held("VmData") + asked.bytes
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    started = time.process_time()
    (result,) = train(
        workspace, collections=[str(COLLECTION)], model=asked.model, seeds=1, rounds=asked.rounds,
        threads=asked.threads, ram_gb=1e-9 if asked.child == "disk" else 1e6,
    )  # fmt: skip
    seconds = time.process_time() - started
    digest = hashlib.sha256()
    for path in sorted(workspace.model(COLLECTION).glob("boosters-*/**/*")):
        digest.update(path.read_bytes() if path.is_file() else b"")
    print(
        json.dumps(
            {
                "peak_bytes": held("VmHWM") - before,
                "seconds": round(seconds, 1),
                "tau": result.folds["tau"]["mean"],
                "boosters": digest.hexdigest(),
                "note": result.note,
            }
        )
    )


def run(
    where: str, workspace: Path, *, model: str, rounds: int, threads: int, sampled: int = 0, limit: int = 0
) -> dict[str, Any] | None:
    """What a process of its own says of its training; None where it ended otherwise, as one does without memory."""
    arguments = [
        *("--child", where, "--workspace", str(workspace), "--model", model, "--rounds", str(rounds)),
        *("--threads", str(threads), "--sampled", str(sampled), "--bytes", str(limit)),
    ]
    # One arena of the C library for all threads: each would reserve 64 MB, allocated by RLIMIT_DATA's count.
    # Arrow's own allocator reserves a gigabyte.
    quiet = {
        **os.environ,
        **{"MALLOC_ARENA_MAX": "1", "ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"},
        "OMP_NUM_THREADS": str(threads),
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.out_of_core", *arguments], capture_output=True, text=True, env=quiet
    )
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--model", default="ranknet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cap", type=float, default=0.0, help="share of the rows' size; 0 for no cap")
    parser.add_argument("--sampled", type=int, default=0, help="rows that bounds of bins come from; 0: as ever")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", choices=["disk", "memory"], help=argparse.SUPPRESS)
    parser.add_argument("--workspace", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--bytes", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        child(asked)
        return
    options = {"model": asked.model, "rounds": asked.rounds, "threads": asked.threads, "sampled": asked.sampled}
    with tempfile.TemporaryDirectory() as folder:
        size = make(Workspace(Path(folder)), asked.rows)
        limit = int(asked.cap * size)
        disk = run("disk", Path(folder), limit=limit, **options)
        memory = run("memory", Path(folder), **options)
        capped = run("memory", Path(folder), limit=limit, **options) if limit else None
    entry: dict[str, Any] = {
        "model": asked.model,
        "rows": asked.rows,
        "rounds": asked.rounds,
        "threads": asked.threads,
        "rows_gb": round(size / 1e9, 3),
        "cap": asked.cap,
    }
    for name, one in (("disk", disk), ("memory", memory)):
        if one is not None:
            entry[f"{name}_peak_share"] = round(one["peak_bytes"] / size, 3)
            entry[f"{name}_processor_s"] = one["seconds"]
    if disk is not None and memory is not None:
        entry["time_ratio"] = round(disk["seconds"] / memory["seconds"], 2)
        entry["same_boosters"] = disk["boosters"] == memory["boosters"]
        entry["same_tau"] = disk["tau"] == memory["tau"]
    if limit:
        entry["disk_under_cap"] = disk is not None
        entry["memory_under_cap"] = capped is not None
    text = json.dumps(entry, indent=2)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
