"""Graph files to stored rows, by processes of this machine or by workers of a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.collection import GraphFile
from xlarank.data.errors import ClusterError, XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.graph import read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings, Recipe, Source
from xlarank.features.rows import at_most
from xlarank.features.store import current_summary, instances_current, write_instances, write_rows
from xlarank.pipelines.support.processes import end_with_parent, interrupts_held_back

if TYPE_CHECKING:  # an extra, imported where a cluster is asked for
    from distributed import Client

#: What became of one file: counts, the source and whether the rows were ``kept``; or ``{"broken": why}``.
Outcome = dict[str, Any]
#: Of a job that is sent away: the contents of the files to write, in their order, stand under this name.
_FILES: Final = "files"
#: Seconds between looks at what a cluster has built, and without a single worker after which the build ends.
_LOOK, _WITHOUT_WORKERS = 0.05, 60.0
_AGAIN: Final = "and run the same command again; graphs already built are kept"
_SAME: Final = "install the same xlarank on all machines"
#: What the libraries behind numpy's matrix product read when they are loaded.
_MATRIX_THREADS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class GraphJob:
    """One file, the workspace for its rows, and how they are made."""

    file: GraphFile
    workspace: Workspace
    recipe: Recipe
    settings: FeatureSettings

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.file.collection} {self.file.split} {self.file.name}"

    @property
    def size(self) -> int:
        """Bytes of the file; 0 where it cannot be read, of which whoever reads it says why."""
        try:
            return self.file.path.stat().st_size
        except OSError:
            return 0

    def targets(self, workspace: Workspace) -> tuple[Path, Path]:
        """Files of instances and, written last, of rows; raises `WorkspaceError` for a name that may not be."""
        place = self.file.collection, self.file.split, self.file.name
        return workspace.graph_instances(*place), workspace.graph_rows(*place)

    def kept(self) -> Outcome:
        """The outcome where whole and current rows are stored already, else an empty one; raises `XlarankError` and
        `OSError`.
        """
        beside, path = self.targets(self.workspace)
        source = Source.of(self.file.path)
        summary = current_summary(path, self.recipe, source)
        if summary is None:
            return {}
        if self.file.collection.kind == "layout" and not instances_current(beside, self.recipe, source):
            return {}
        return {**summary, "source": asdict(source), "kept": True}

    def write(self, source: Source, workspace: Workspace) -> Outcome:
        """Compute the rows of the graph and store those that the recipe keeps; raises `GraphFileError`."""
        beside, path = self.targets(workspace)
        graph = read_graph(self.file.path, self.file.collection.kind)
        rows = at_most(assemble(graph, self.settings), self.recipe)
        if rows.instances is not None:
            write_instances(beside, rows.instances.value, self.recipe, source)
        write_rows(path, rows, self.recipe, source)
        return {**rows.summary(), "source": asdict(source), "kept": False}


def with_errors(job: GraphJob, make: Callable[[], Outcome]) -> Outcome:
    """Return what ``make`` gives, or why the file is broken: it must not stop the others."""
    try:
        return make()
    except XlarankError as error:
        return {"broken": str(error)}
    except OSError as error:
        return {"broken": f"{job.file.path.name} cannot be read ({error.strerror or error})"}
    except MemoryError:
        return {"broken": f"{job.file.path.name} does not fit into memory; run again with --jobs 1"}


def build_graph(job: GraphJob) -> Outcome:
    """Store the rows of one graph, unless they are there."""
    return with_errors(job, lambda: job.kept() or job.write(Source.of(job.file.path), job.workspace))


def build_remotely(job: GraphJob, source: Source) -> Outcome:
    """Build a graph where its workspace is out of reach; the outcome holds the files that `store_result` writes.

    ``source`` is the file as the client sees it: a copy on this machine may have another date.
    Raises `ClusterError` where no graph could be built right.
    """

    if (code_hash := job.settings.code_hash(job.file.collection.kind)) != job.recipe.code_hash:
        raise ClusterError(
            f"the worker on {socket.gethostname()} has the feature code {code_hash}",
            expected=job.recipe.code_hash,
            do=_SAME,
        )
    root = job.file.path.parents[len(job.file.collection.parts) + 1]  # a folder below may lack on one machine
    if not os.path.isdir(root):
        raise ClusterError(
            f"the worker on {socket.gethostname()} does not see {root}",
            expected="the data root under the same path on all machines",
            do="share its file system, or copy it to the same place",
        )

    def make() -> Outcome:
        if (size := job.file.path.stat().st_size) != source.size:
            raise XlarankError(
                f"{job.file.path} has {size:,} bytes where a worker runs",
                expected=f"{source.size:,}, as where build-features was called",
                do="give all machines the same data root",
            )
        with tempfile.TemporaryDirectory(prefix="xlarank-") as folder:
            outcome = job.write(source, Workspace(Path(folder)))
            paths = job.targets(Workspace(Path(folder)))
            return {**outcome, _FILES: [path.read_bytes() if path.exists() else None for path in paths]}

    return with_errors(job, make)


def store_result(job: GraphJob, outcome: Outcome) -> Outcome:
    """Write what a worker sent and return the outcome without it."""

    def write() -> Outcome:
        for path, content in zip(job.targets(job.workspace), outcome.pop(_FILES, (None, None)), strict=True):
            if content is not None:
                with atomic_write(path) as partial:
                    partial.write_bytes(content)
        return outcome

    return outcome if "broken" in outcome else with_errors(job, write)


def local_outcomes(
    work: Sequence[GraphJob], processes: int, end: float | None
) -> Generator[tuple[GraphJob, Outcome], None, None]:
    """Outcomes of the jobs that are begun before the ``end`` (monotonic), in the order that they are done.

    The largest files are begun first, so that no process is left alone with one of them; within a limited time they
    are begun in the order of ``work``. One process is this one. Raises `XlarankError` where a process dies.
    """
    if processes == 1:
        for job in work:
            if end is not None and time.monotonic() >= end:
                return
            yield job, build_graph(job)
        return
    # Fresh interpreters: forking a process that holds the thread pools of pyarrow can hang.
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=end_with_parent)
    try:
        with interrupts_held_back(), _one_thread_each():
            order = work if end is not None else sorted(work, key=lambda job: -job.size)
            futures = {pool.submit(build_graph, job): job for job in order}
        try:
            for future in as_completed([*futures], None if end is None else max(0.0, end - time.monotonic())):
                yield futures.pop(future), _result(future)
        except TimeoutError:
            for future in [future for future in futures if not future.cancel()]:  # already begun
                yield futures[future], _result(future)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _result(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise XlarankError(
            "a worker process died, most likely for want of memory",
            do="run again with a smaller --jobs; graphs already built are kept",
        ) from error


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that start now multiply matrices on one thread: there is one of them for each core already."""
    before = {name: os.environ[name] for name in _MATRIX_THREADS if name in os.environ}
    os.environ.update(dict.fromkeys(_MATRIX_THREADS, "1"))
    try:
        yield
    finally:
        for name in _MATRIX_THREADS:
            del os.environ[name]
        os.environ.update(before)


def cluster_outcomes(
    client: Client, work: Sequence[GraphJob], end: float | None
) -> Generator[tuple[GraphJob, Outcome], None, None]:
    """Outcomes of the jobs that are done before the ``end`` (monotonic), in that order.

    The graphs of a worker that dies are built again by the others; Dask gives a graph up after its fourth worker
    has died: it is broken then, and the others go on.
    Raises `ClusterError` for workers that cannot build, and where the scheduler or all workers are gone.
    """
    from distributed import as_completed as completed

    jobs = []
    for job in work:  # workers do not see the workspace
        if kept := with_errors(job, partial(GraphJob.kept, job)):
            yield job, kept
        else:
            jobs.append(job)
    jobs.sort(key=lambda job: -job.size)
    # a relative path means something else where the workers run
    there = [replace(job, file=replace(job.file, path=job.file.path.absolute())) for job in jobs]
    futures = client.map(build_remotely, there, [Source.of(job.file.path) for job in jobs], pure=False)
    waiting = dict(zip(futures, jobs, strict=True))
    done, alive = completed(futures, loop=client.loop), time.monotonic()
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
    except ImportError as error:
        raise ClusterError(f"a worker cannot import what it needs ({error})", do=_SAME) from error
    except (CancelledError, OSError) as error:
        raise ClusterError("the scheduler of the cluster is gone", do=f"start it {_AGAIN}") from error
    finally:
        client.cancel([*waiting], force=True)


def _outcome(job: GraphJob, future: Any) -> Outcome:
    from distributed import KilledWorker

    try:
        return store_result(job, future.result())
    except KilledWorker as error:
        died = f"{job.file.path.name}: {error.allowed_failures + 1} workers died while they built it"
        return {"broken": f"{died}; expected workers with enough memory; start fewer of them on each machine"}
