"""A Dask cluster: the connection, and graphs built by its workers; the client alone writes their rows."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.errors import ClusterError
from xlarank.features.recipe import Source
from xlarank.pipelines.support.building import GraphJob, Outcome, build_remotely, store_result, with_errors
from xlarank.pipelines.support.processes import interrupts_held_back

if TYPE_CHECKING:  # an extra, imported where a cluster is asked for
    from distributed import Client, LocalCluster

#: In place of an address: a cluster of worker processes on this machine, for as long as it is needed.
LOCAL: Final = "local"
#: Seconds for the scheduler to answer, and for the first worker to report to it.
_PATIENCE: Final = 20
#: Seconds between looks at what is built, and without a single worker after which the build ends.
_LOOK, _WITHOUT_WORKERS = 0.05, 60.0
#: Loggers that report every lost worker; what matters is raised.
_LOGGERS: Final = ("distributed", "distributed.client", "tornado.application")
_AGAIN: Final = "and run the same command again; graphs already built are kept"


@contextmanager
def connected(scheduler: str, workers: int = 0) -> Iterator[Client]:
    """A client of a cluster that has workers.

    Args:
        scheduler: ``host:port`` of a running scheduler, or `LOCAL`.
        workers: of a local cluster, each a process with one thread; 0 for one a core.

    Raises `ClusterError` where Dask is missing, nobody answers or no worker reports.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(
            "a cluster was asked for, and Dask is not installed",
            expected="the extra dask",
            do="pip install 'xlarank[dask]'",
        ) from error
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        if scheduler == LOCAL:
            with local_cluster(workers or os.cpu_count() or 1) as cluster:
                with Client(cluster, set_as_default=False) as client:
                    client.run(_silence_output)
                    yield client
            return
        try:
            client = Client(scheduler, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError) as error:  # ImportError: of an unknown protocol
            why = (str(error) or repr(error)).splitlines()[0]
            raise ClusterError(
                f"no Dask scheduler answers at {scheduler} ({why})",
                expected="host:port of a running scheduler, or local",
                do="start one with `dask scheduler`, or check --scheduler",
            ) from error
        with client:
            try:
                client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError as error:
                raise ClusterError(
                    f"the scheduler at {scheduler} has no workers",
                    expected="one or more",
                    do=f"start some with `dask worker {scheduler} --nthreads 1 --nworkers N`",
                ) from error
            yield client
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def local_cluster(workers: int) -> Iterator[LocalCluster]:
    """Worker processes of one thread each on this machine; raises `ClusterError` where they cannot be started."""
    import dask
    from distributed import LocalCluster

    # A worker that died is started again, which may take longer than the 15 s that Dask waits on a busy machine.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "15 minutes"}):
        # No dashboard, which needs bokeh, and no fixed port, which somebody else may have.
        try:
            with interrupts_held_back():
                cluster = LocalCluster(
                    n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                    dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
                    silence_logs=logging.CRITICAL,
                )  # fmt: skip
        except (OSError, RuntimeError) as error:
            raise ClusterError(
                f"no cluster can be started here ({error})", do="leave out --scheduler, or name a running one"
            ) from error
        with cluster:
            yield cluster


def _silence_output() -> None:
    """LightGBM prints every port that it tries to standard output, which is for results."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)


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
                if client.nthreads():
                    alive = time.monotonic()
                elif time.monotonic() - alive > _WITHOUT_WORKERS:
                    seconds = f"{_WITHOUT_WORKERS:.0f} s"
                    raise ClusterError(f"the cluster has had no worker for {seconds}", do=f"start workers {_AGAIN}")
                time.sleep(_LOOK)
    except (CancelledError, OSError) as error:
        raise ClusterError("the scheduler of the cluster is gone", do=f"start it {_AGAIN}") from error
    finally:
        client.cancel([*waiting], force=True)


def _kept(job: GraphJob) -> Outcome:
    return job.kept() or {}  # workers do not see the workspace


def _outcome(job: GraphJob, future: Any) -> Outcome:
    from distributed import KilledWorker

    try:
        return store_result(job, future.result())
    except KilledWorker as error:
        died = f"{job.file.path.name}: {error.allowed_failures + 1} workers died while they built it"
        return {"broken": f"{died}; expected workers with enough memory; start fewer of them on each machine"}


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
