"""Trials a minute of one `tune --worker` and of several that share a study.

    python -m benchmarks.tune_workers [--workspace W] [--collection layout:cpu:random] [--trials 20] [--workers 2]
                                      [--repeats 2] [--rounds 100] [--storage journal|postgresql|both] [--json FILE]

Each run is a new study in a new storage. Every worker has one thread, so that twice the workers have twice the
processors: give it as many quiet cores as workers. Time is taken from the start of the study's first trial to the
end of its last one, as its storage has them: what a process needs to start and to read rows is not in it. Up to 20
trials the points are the same in each run; which of them are given up early depends on their order, so the work of
all workers, in processor seconds, is told too. PostgreSQL is a server of its own, started and stopped here; without
``--workspace`` the rows are those of the embedded sample, built anew.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.pipelines.postgres import PostgresServer
from xlarank.pipelines.study.place import open_place

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--collection", default="layout:cpu:random")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--storage", choices=["journal", "postgresql", "both"], default="both")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workspace = asked.workspace or built_sample(folder / "work", asked.collection)
        for kind in ("journal", "postgresql") if asked.storage == "both" else (asked.storage,):
            with storages(kind, folder) as addresses:
                runs: dict[int, list[dict[str, Any]]] = {1: [], asked.workers: []}
                for _ in range(asked.repeats):  # in turn, so that what else the machine does meets both
                    for workers, done in runs.items():
                        done.append(run(workspace, next(addresses), workers, asked))
                        print(json.dumps({"storage": kind, "workers": workers, **done[-1]}), flush=True)
            speeds = {n: statistics.median(one["trials_a_minute"] for one in done) for n, done in runs.items()}
            ratio = speeds[asked.workers] / speeds[1]
            print(f"{kind}: {ratio:.2f} times the trials a minute with {asked.workers} workers", flush=True)
            found.append({"storage": kind, "ratio": ratio, "runs": runs})
    if asked.json is not None:
        asked.json.write_text(json.dumps({"cores": os.cpu_count(), "found": found}, indent=2) + "\n")


def built_sample(workspace: Path, collection: str) -> Path:
    """A workspace with the rows of the embedded sample."""
    command = [sys.executable, "run.py", "build-features", "--data-root", "data/sample", "--collection", collection]
    subprocess.run([*command, "--workspace", str(workspace), "--quiet"], cwd=ROOT, check=True)
    return workspace


@contextmanager
def storages(kind: str, folder: Path) -> Iterator[Iterator[str]]:
    """Addresses of new storages, as many as are asked for."""
    if kind == "journal":
        yield (f"journal:{folder / f'study-{number}.log'}" for number in range(10_000))
        return
    server = PostgresServer()
    try:
        server.start()

        def made() -> Iterator[str]:
            for number in range(10_000):
                server.create(f"study{number}")
                yield server.local(f"study{number}")

        yield made()
    finally:
        server.remove()


def run(workspace: Path, storage: str, workers: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One study from nothing."""
    command = [
        sys.executable, "run.py", "tune", "--worker", "--storage", storage, "--trials", str(asked.trials),
        "--rounds", str(asked.rounds), "--threads", "1", "--collection", asked.collection, "--quiet",
        "--workspace", str(workspace),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    began, before = time.perf_counter(), processor_seconds()
    processes = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(workers)]
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"a worker failed: {codes}")
    seconds = time.perf_counter() - began
    with closing(open_place(storage)) as place:
        (study,) = place.storage.get_all_studies()
        trials = place.storage.get_all_trials(study._study_id)
    starts = [trial.datetime_start.timestamp() for trial in trials if trial.datetime_start is not None]
    ends = [trial.datetime_complete.timestamp() for trial in trials if trial.datetime_complete is not None]
    assert len(ends) == len(trials) == asked.trials
    return {
        "trials_a_minute": 60 * len(trials) / (max(ends) - min(starts)),
        "pruned": sum(trial.state.name == "PRUNED" for trial in trials),
        "best": max(trial.value for trial in trials if trial.value is not None),
        "seconds_of_the_clock": seconds,
        "seconds_of_the_processor": processor_seconds() - before,
    }


def processor_seconds() -> float:
    """Of all processes that this one started and that are over."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
