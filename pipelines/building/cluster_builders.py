"""Graphs built by the workers of a Dask cluster; their rows are sent to the client, which alone writes."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.errors import ClusterError
from xlarank.features.recipe import Source
from xlarank.pipelines.building.graph_job import GraphJob, Outcome, build_remotely, store_result, with_errors

if TYPE_CHECKING:  # an extra, imported where a cluster is asked for
    from distributed import Client

#: Seconds between looks at what is done, and without a single worker after which the build ends.
_LOOK, _PATIENCE = 0.05, 60.0
_AGAIN: Final = "and run the same command again; graphs already built are kept"


def cluster_outcomes(
    client: Client, npz: Path, work: Sequence[GraphJob], end: float | None
) -> Generator[tuple[GraphJob, Outcome], None, None]:
    """Outcomes of the jobs that are done before the ``end`` (monotonic), in that order.

    The graphs of a worker that dies are built again by the others; Dask gives a graph up after its fourth worker
    has died: it is broken then, and the others go on. ``npz`` is the folder with the files.
    Raises `ClusterError` for workers that cannot build, and where the scheduler or all workers are gone.
    """
    from distributed import as_completed

    _require_prepared(client, npz, work)
    jobs = []
    for job in work:
        if kept := with_errors(job, partial(_kept, job)):
            yield job, kept
        else:
            jobs.append(job)
    jobs.sort(key=lambda job: -job.size)
    # a relative path means something else where the workers run
    there = [replace(job, file=replace(job.file, path=job.file.path.absolute())) for job in jobs]
    futures = client.map(build_remotely, there, [Source.of(job.file.path) for job in jobs], pure=False)
    waiting = dict(zip(futures, jobs, strict=True))
    done, alive = as_completed(futures, loop=client.loop), time.monotonic()
    del futures
    try:
        while waiting and (end is None or time.monotonic() < end):
            for future in done.next_batch(block=False):
                job = waiting.pop(future)
                yield job, _outcome(job, future)
            if waiting and done.queue.empty():
                alive = _require_alive(client, alive)
                time.sleep(_LOOK)
    finally:
        client.cancel([*waiting], force=True)


def _kept(job: GraphJob) -> Outcome:
    return job.kept() or {}  # workers do not see the workspace


def _outcome(job: GraphJob, future: Any) -> Outcome:
    from distributed import KilledWorker

    try:
        return store_result(job, with_errors(job, future.result))
    except KilledWorker as error:
        died = f"{job.file.path.name}: {error.allowed_failures + 1} workers died while they built it"
        return {"broken": f"{died}; expected workers with enough memory; start fewer of them on each machine"}
    except CancelledError as error:
        raise ClusterError("the scheduler of the cluster is gone", do=f"start it {_AGAIN}") from error


def _require_alive(client: Client, alive: float) -> float:
    """Now, or when there was a worker last; raises `ClusterError` where that is too long ago."""
    try:
        workers = len(client.nthreads())
    except OSError as error:
        raise ClusterError("the scheduler of the cluster is gone", do=f"start it {_AGAIN}") from error
    now = time.monotonic()
    if workers or now - alive <= _PATIENCE:
        return now if workers else alive
    raise ClusterError(f"the cluster has had no worker for {_PATIENCE:.0f} s", do=f"start workers {_AGAIN}")


def _require_prepared(client: Client, npz: Path, work: Sequence[GraphJob]) -> None:
    """Raise `ClusterError` unless every worker has this xlarank and sees the data root."""
    jobs = list({job.file.collection.kind: job for job in work}.values())
    wanted = [job.recipe.code_hash for job in jobs]
    same = "install the same xlarank on all machines"
    try:
        prepared = client.run(_prepared, jobs, npz)
    except ImportError as error:
        raise ClusterError(f"a worker cannot import what it needs ({error})", do=same) from error
    for worker, (hashes, sees) in prepared.items():
        if hashes != wanted:
            raise ClusterError(
                f"the worker {worker} has the feature code {', '.join(hashes)}", expected=", ".join(wanted), do=same
            )
        if not sees:
            raise ClusterError(
                f"the worker {worker} does not see {npz}",
                expected="the data root under the same path on all machines",
                do="share its file system, or copy it to the same place",
            )


def _prepared(jobs: Sequence[GraphJob], npz: Path) -> tuple[list[str], bool]:
    return [job.settings.code_hash(job.file.collection.kind) for job in jobs], npz.is_dir()
