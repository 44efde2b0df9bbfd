"""Graph files to stored rows: in this process, in others of this machine or by workers of a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from xlarank.data.collection import GraphFile
from xlarank.data.errors import ClusterError, OutputError, XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.graph import read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings, Recipe, Source
from xlarank.features.rows import at_most
from xlarank.features.store import current_summary, instances_current, write_instances, write_rows
from xlarank.pipelines.support.cluster import SAME_CODE, connected, require_workers
from xlarank.pipelines.support.processes import end_with_parent, interrupts_held_back

#: What became of one file: counts, the source and whether the rows were ``kept``; or ``{"broken": why}``.
Outcome: TypeAlias = dict[str, Any]
Outcomes: TypeAlias = Generator[tuple["GraphJob", Outcome], None, None]
#: Seconds between looks at the workers, and without a single one on a cluster after which the build ends.
_LOOK, _WITHOUT_WORKERS = 0.5, 60.0
_KEPT: Final = "graphs already built are kept"
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
    def size(self) -> int:
        """Bytes of the file; 0 where they cannot be read."""
        try:
            return self.file.path.stat().st_size
        except OSError:  # reading it says why
            return 0

    def targets(self, workspace: Workspace) -> tuple[Path, Path]:
        """Files of instances and, written last, of rows; raises `WorkspaceError` for a name that may not be."""
        place = self.file.collection, self.file.split, self.file.name
        return workspace.graph_instances(*place), workspace.graph_rows(*place)

    def stored(self) -> Outcome:
        """The outcome where whole and current rows are stored already, else the source of the file alone."""
        instances, rows = self.targets(self.workspace)
        source = Source.of(self.file.path)
        layout = self.file.collection.kind == "layout"
        # a name that is too long for one of them raises `OSError`
        if [path for path in ((instances, rows) if layout else (rows,)) if not path.exists()]:
            return {"source": source}
        summary = current_summary(rows, self.recipe, source)
        if summary is None or (layout and not instances_current(instances, self.recipe, source)):
            return {"source": source}
        return {**summary, "source": source, "kept": True}

    def build(self, source: Source, workspace: Workspace | None = None) -> Outcome:
        """Compute the rows of the graph and store those that the recipe keeps; raises `GraphFileError`."""
        instances, path = self.targets(workspace or self.workspace)
        graph = read_graph(self.file.path, self.file.collection.kind)
        rows = at_most(assemble(graph, self.settings), self.recipe)
        if rows.instances is not None:
            write_instances(instances, rows.instances.value, self.recipe, source)
        write_rows(path, rows, self.recipe, source)
        return {**rows.summary(), "source": source, "kept": False}


def local_outcomes(work: Sequence[GraphJob], processes: int, end: float | None) -> Outcomes:
    """Outcomes as of `_outcomes`, by processes here (one: this one); raises `XlarankError` where one dies."""
    # Fresh interpreters: forking a process that holds the thread pools of pyarrow can hang.
    spawn = multiprocessing.get_context("spawn")
    pool = _Here() if processes == 1 else _Processes(processes, spawn, initializer=end_with_parent)
    try:
        yield from _outcomes(
            work, pool, GraphJob.build, lambda job, future: future.result(), lambda: processes, end
        )
    except BrokenProcessPool as error:
        raise XlarankError(
            "a worker process died, most likely for want of memory",
            do=f"run again with a smaller --jobs; {_KEPT}",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def cluster_outcomes(work: Sequence[GraphJob], scheduler: str, workers: int, end: float | None) -> Outcomes:
    """Outcomes as of `_outcomes`, by the workers of a cluster, which do not see the workspace.

    The graphs of a worker that dies are built again by the others; Dask gives a graph up after its fourth worker
    has died, and it is broken. Raises `ClusterError` for workers that cannot build, and where the scheduler or all
    workers are gone.
    """
    with connected(scheduler, workers) as client:
        pool = client.get_executor(pure=False)
        try:
            places = partial(require_workers, client, _WITHOUT_WORKERS)
            yield from _outcomes(work, pool, build_remotely, _received, places, end)
        except ImportError as error:
            raise ClusterError(f"a worker cannot import what it needs ({error})", do=SAME_CODE) from error
        except (CancelledError, OSError) as error:
            do = f"start it and run the same command again; {_KEPT}"
            raise ClusterError("the scheduler of the cluster is gone", do=do) from error
        finally:
            pool.shutdown(wait=False)


def _outcomes(
    work: Sequence[GraphJob],
    pool: Executor,
    build: Callable[[GraphJob, Source], Any],
    take: Callable[[GraphJob, Future[Any]], Outcome],
    places: Callable[[], int],
    end: float | None,
) -> Outcomes:
    """Outcomes of the jobs that are begun before the ``end`` (monotonic), in the order that they are done.

    The largest files are begun first, so that no worker is left alone with one of them; within a limited time they
    are begun in the order of ``work``. As many jobs are under way as there are ``places``, and one that waits for
    the next of them. ``take`` makes an outcome of what ``build`` returned.
    """
    queue = deque(work if end is not None else sorted(work, key=lambda job: -job.size))
    begun: dict[Future[Any], GraphJob] = {}
    most = 0
    while queue or begun:
        if not any(map(Future.done, begun)):  # a scheduler that is gone cancels jobs sooner than it fails to answer
            most = places() + 1
        while queue and len(begun) < most and (end is None or time.monotonic() < end):
            job = queue.popleft()
            outcome = _outcome(job, job.stored)
            if "kept" in outcome or "broken" in outcome:
                yield job, outcome
            else:
                begun[pool.submit(build, job, outcome["source"])] = job
        if not begun:
            return
        for future in wait(begun, _LOOK, FIRST_COMPLETED).done:
            job = begun.pop(future)
            yield job, _outcome(job, partial(take, job, future))


def _outcome(job: GraphJob, make: Callable[[], Outcome]) -> Outcome:
    """Return what ``make`` gives, or why the file is broken: it must not stop the others."""
    try:
        return make()
    except (ClusterError, OutputError):  # the cluster or the disk is at fault, not the file
        raise
    except XlarankError as error:
        why = str(error)
    except OSError as error:
        why = f"{job.file.path.name} cannot be read ({error.strerror or error})"
    except MemoryError:
        why = f"{job.file.path.name} does not fit into memory; run again with --jobs 1"
    return {"broken": why}


class _Here(Executor):
    """Makes every call at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class _Processes(ProcessPoolExecutor):
    """Processes that leave interrupts to this one; they are started as jobs come."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        before = {name: os.environ[name] for name in _MATRIX_THREADS if name in os.environ}
        os.environ.update(dict.fromkeys(_MATRIX_THREADS, "1"))  # there is a process for each core already
        try:
            with interrupts_held_back():
                return super().submit(fn, *args, **kwargs)
        finally:
            for name in _MATRIX_THREADS:
                del os.environ[name]
            os.environ.update(before)


def build_remotely(job: GraphJob, source: Source) -> tuple[Outcome, list[bytes | None]]:
    """Build a graph where its workspace is out of reach; also returns the contents of the files to write.

    ``source`` is the file as the client sees it: a copy on this machine may have another date.
    Raises `ClusterError` where no graph could be built right.
    """
    here, path = f"the worker on {socket.gethostname()}", job.file.path
    if (code_hash := job.settings.code_hash(job.file.collection.kind)) != job.recipe.code_hash:
        raise ClusterError(f"{here} has the feature code {code_hash}", expected=job.recipe.code_hash, do=SAME_CODE)
    if not path.exists() or path.stat().st_size != source.size:
        raise XlarankError(
            f"{here} sees no {path} of {source.size:,} bytes",
            expected="the same data root under the same path on all machines",
            do="share its file system, or copy it to the same place",
        )
    with tempfile.TemporaryDirectory(prefix="xlarank-") as folder:
        outcome = job.build(source, Workspace(Path(folder)))
        paths = job.targets(Workspace(Path(folder)))
        return outcome, [path.read_bytes() if path.exists() else None for path in paths]


def _received(job: GraphJob, future: Future[Any]) -> Outcome:
    """Write the files that a worker sent."""
    from distributed import KilledWorker

    try:
        outcome, contents = future.result()
    except KilledWorker as error:
        raise XlarankError(
            f"{job.file.path.name}: {error.allowed_failures + 1} workers died while they built it",
            expected="workers with enough memory",
            do="start fewer of them on each machine",
        ) from error
    for path, content in zip(job.targets(job.workspace), contents, strict=True):
        if content is not None:
            with atomic_write(path) as partial:
                partial.write_bytes(content)
    return dict(outcome)
