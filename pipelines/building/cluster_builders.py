"""Graphs built by the workers of a Dask cluster; their rows are sent to the client, which alone writes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ClusterError, GraphFileError
from xlarank.features.recipe import Source
from xlarank.pipelines.building.builders import Builders
from xlarank.pipelines.building.chunks import chunk_columns, chunks_of, joined_rows
from xlarank.pipelines.building.graph_job import GraphJob, Outcome, require_same, sent, stored, told

if TYPE_CHECKING:  # an extra, imported where a cluster is asked for
    from distributed import Client

#: Seconds without a single worker after which the build ends.
_PATIENCE: Final = 60.0


class ClusterBuilders(Builders):
    """Workers of a cluster; the graphs of one that dies are built again by the others.

    The scheduler gives a graph up after its fourth worker has died: it is broken then, and the others go on.
    """

    def __init__(self, client: Client, npz: Path, work: Sequence[GraphJob]) -> None:
        """``npz`` is the folder with the files of ``work``.

        Raises `ClusterError` for workers that cannot build them.
        """
        self._client = client
        self._executor = client.get_executor()
        self._deserted: float | None = None
        _require_prepared(client, npz, work)

    def ready(self, job: GraphJob) -> Outcome | None:
        """What is stored is looked at here: workers do not see the workspace."""
        checked = told(job, lambda: job.kept() or {})
        return checked or None

    def submit(self, job: GraphJob, share: float) -> Future[Outcome]:
        source = Source.of(job.file.path)
        # a relative path means something else where the workers run
        job = replace(job, file=replace(job.file, path=job.file.path.absolute()))
        chunks = min(chunks_of(job, share), self.workers)
        if chunks == 1:
            built: Future[Outcome] = self._executor.submit(_build, job, source)
            return built
        parts = [
            self._client.submit(_build_chunk, job, source, number, chunks, pure=False) for number in range(chunks)
        ]
        joined: Future[Outcome] = self._executor.submit(_build_joined, job, source, parts)
        return joined

    def outcome(self, job: GraphJob, future: Future[Outcome]) -> Outcome:
        from distributed import KilledWorker

        try:
            return stored(job, told(job, future.result))
        except KilledWorker as error:
            dead = GraphFileError(
                f"{job.file.path.name}: {error.allowed_failures + 1} workers died while they built it",
                expected="workers with enough memory",
                do="start fewer of them on each machine",
            )
            return {"broken": str(dead)}
        except CancelledError as error:
            raise _lost() from error

    @property
    def workers(self) -> int:
        return max(1, sum(map(int, self._client.nthreads().values())))

    def require_alive(self) -> None:
        try:
            workers = len(self._client.nthreads())
        except OSError as error:
            raise _lost() from error
        if workers:
            self._deserted = None
            return
        self._deserted = self._deserted or time.monotonic()
        if time.monotonic() - self._deserted > _PATIENCE:
            raise ClusterError(
                f"the cluster has had no worker for {_PATIENCE:.0f} s",
                do="start workers and run the same command again; graphs already built are kept",
            )

    def close(self) -> None:
        self._executor.shutdown(wait=False)


def _lost() -> ClusterError:
    return ClusterError(
        "the scheduler of the cluster is gone",
        do="start it and run the same command again; graphs already built are kept",
    )


def _build(job: GraphJob, source: Source) -> Outcome:
    return sent(job, source, job.rows)


def _build_chunk(job: GraphJob, source: Source, number: int, chunks: int) -> NDArray[np.float32]:
    require_same(job, source)
    return chunk_columns(job, number, chunks)


def _build_joined(job: GraphJob, source: Source, parts: Sequence[NDArray[np.float32]]) -> Outcome:
    return sent(job, source, partial(joined_rows, job, parts))


def _require_prepared(client: Client, npz: Path, work: Sequence[GraphJob]) -> None:
    """Raise `ClusterError` unless every worker has this xlarank and sees the data root."""
    kinds = {job.file.collection.kind: job for job in work}
    try:
        found = client.run(_hashes, list(kinds.values()), npz)
    except ImportError as error:
        raise ClusterError(
            f"a worker cannot import what it needs ({error})",
            expected="xlarank installed where the workers run",
            do="install the same xlarank on all machines",
        ) from error
    wanted = [job.recipe.code_hash for job in kinds.values()]
    for worker, (hashes, sees) in found.items():
        if hashes != wanted:
            raise ClusterError(
                f"the worker {worker} has the feature code {', '.join(hashes)}",
                expected=", ".join(wanted),
                do="install the same xlarank on all machines",
            )
        if not sees:
            raise ClusterError(
                f"the worker {worker} does not see {npz}",
                expected="the data root under the same path on all machines",
                do="share its file system, or copy it to the same place",
            )


def _hashes(jobs: Sequence[GraphJob], npz: Path) -> tuple[list[str], bool]:
    return [job.settings.code_hash(job.file.collection.kind) for job in jobs], npz.is_dir()
