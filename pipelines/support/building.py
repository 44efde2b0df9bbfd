"""Building of rows: in this process, in others of this machine or by workers of a Dask cluster."""

from __future__ import annotations

import multiprocessing
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from xlarank.data import errors
from xlarank.data.collection import Collection, GraphFile
from xlarank.data.errors import ClusterError, FeatureStoreError, WorkspaceError, XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.graph import GraphCounts, graph_size, read_graph
from xlarank.data.workspace import Workspace
from xlarank.features import store
from xlarank.features.rows import GraphRows, Recipe, Source, assemble, sample_rows
from xlarank.features.store import StoredGraph
from xlarank.pipelines.support.processes import (
    SAME_CODE,
    connected,
    end_with_parent,
    environment,
    interrupts_held_back,
    require_workers,
)

#: Maximum numbers of configurations and graphs whose rows share a file, unless it is a single graph: a column has a
#: fixed cost in each file, and an interruption loses a file.
_PART_CONFIGS, _PART_GRAPHS = 4096, 32
#: Seconds between checks of the workers, and maximum seconds without any worker of a cluster.
_POLL, _MAX_WAIT = 0.5, 60.0
_KEPT: Final = "graphs already built are kept"
#: Environment variables that the libraries behind numpy's matrix product read when they are loaded.
_MATRIX_THREADS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Outcome:
    """Result of one graph file.

    Attributes:
        source: identity of the file on this machine; None if it cannot be read.
        stored: entry in the manifest; None if it is not built.
        kept: whether the stored rows were current.
        broken: reason why it cannot be built; empty if it can.
    """

    source: Source | None = None
    stored: StoredGraph | None = None
    kept: bool = False
    broken: str = ""


#: Outcomes of the files of a job, by name.
Outcomes: TypeAlias = dict[str, Outcome]
#: Outcomes of a job, and the contents of `PartJob.targets` if they are not written yet.
Built: TypeAlias = tuple[Outcomes, Sequence[bytes | None]]
Results: TypeAlias = Generator[tuple["PartJob", Outcomes], None, None]


@dataclass(frozen=True)
class PartJob:
    """Graph files of one split whose rows share a stored file, and their recipe.

    Attributes:
        sizes: counts of the files that can be read.
    """

    files: tuple[GraphFile, ...]
    part: int
    workspace: Workspace
    recipe: Recipe
    sizes: tuple[GraphCounts, ...] = ()

    @property
    def collection_split(self) -> tuple[Collection, str]:
        """Collection and split."""
        return self.files[0].collection, self.files[0].split

    @property
    def size(self) -> int:
        """Bytes of the files; 0 for those that cannot be read."""
        return sum(map(_bytes, self.files))

    @property
    def rows(self) -> Path:
        """File of the rows."""
        return self.workspace.rows(*self.collection_split, self.part)

    def targets(self) -> list[Path]:
        """Return the files of instances and, written last, of rows; raises `WorkspaceError` for a bad name."""
        return [
            *(self.workspace.graph_instances(*self.collection_split, file.name) for file in self.files),
            self.rows,
        ]

    def stored(self) -> tuple[Outcomes, bool]:
        """Return the outcomes known before building, and whether nothing is left to build."""
        stored: dict[str, StoredGraph] = {}
        with suppress(WorkspaceError):  # a bad name, which makes each file broken
            stored = store.stored_graphs(self.rows, self.recipe)
        outcomes = {file.name: self._stored_graph(file, stored.get(file.name)) for file in self.files}
        complete = all(outcome.kept or outcome.broken for outcome in outcomes.values())
        return outcomes, complete and stored.keys() <= outcomes.keys()

    def _stored_graph(self, file: GraphFile, stored: StoredGraph | None) -> Outcome:
        try:
            source = Source.of(file.path)
            instances = self.workspace.graph_instances(*self.collection_split, file.name)
            current = stored is not None and stored.source == source
            if current and file.collection.kind == "layout":
                current = store.instances_current(instances, self.recipe, source)
            return (
                Outcome(source, replace(stored, part=self.part), kept=True)
                if stored and current
                else Outcome(source)
            )
        except Exception as error:
            return Outcome(broken=_why_broken([file], error))

    def build(self, outcomes: Outcomes) -> Outcomes:
        """Compute the rows that are not stored and write them with those that are."""
        stored: dict[str, tuple[GraphRows, Source]] = {}
        if any(outcome.kept for outcome in outcomes.values()):
            with suppress(FeatureStoreError):  # a worker of a cluster does not see them
                stored = store.read_rows(self.rows, self.recipe)
        built: Outcomes = {}
        graphs: list[GraphRows] = []
        for file in self.files:
            outcome = outcomes[file.name]
            if outcome.source is not None:
                is_kept = outcome.kept and file.name in stored
                try:
                    rows = stored[file.name][0] if is_kept else self._build_graph(file, outcome.source)
                    graphs.append(rows)
                    outcome = replace(outcome, stored=StoredGraph.of(rows, self.part, outcome.source), kept=is_kept)
                except Exception as error:
                    outcome = Outcome(broken=_why_broken([file], error))
            built[file.name] = outcome
        if graphs:
            entries = {name: outcome.stored for name, outcome in built.items() if outcome.stored is not None}
            store.write_rows(
                self.rows, graphs, self.recipe, entries, (str(self.collection_split[0]), self.collection_split[1])
            )
        return built

    def _build_graph(self, file: GraphFile, source: Source) -> GraphRows:
        """Compute the rows of a graph, as many as the recipe keeps, and write its instances."""
        rows = sample_rows(assemble(read_graph(file.path, file.collection.kind), self.recipe.settings), self.recipe)
        if rows.instances is not None:
            target = self.workspace.graph_instances(*self.collection_split, file.name)
            store.write_instances(target, rows.instances.value, self.recipe, source)
        return rows


def part_jobs(files: Sequence[GraphFile], workspace: Workspace, recipe: Recipe) -> list[PartJob]:
    """Return the jobs of one split: its files in order, a part for each few thousand configurations.

    A file that cannot be read is a job of its own, after the others.
    """
    parts: list[list[GraphFile]] = []
    broken: list[list[GraphFile]] = []
    sizes: dict[GraphFile, GraphCounts] = {}
    total = 0
    for file in files:
        try:
            workspace.graph_instances(file.collection, file.split, file.name)
            sizes[file] = size = graph_size(file.path, file.collection.kind)
        except (XlarankError, OSError):
            broken.append([file])
            continue
        configs = min(size.configs, recipe.max_configs or size.configs)
        total += configs
        if not parts or total > _PART_CONFIGS or len(parts[-1]) == _PART_GRAPHS:
            parts.append([])
            total = configs
        parts[-1].append(file)
    return [
        PartJob(tuple(members), part, workspace, recipe, tuple(sizes[file] for file in members if file in sizes))
        for part, members in enumerate([*parts, *broken])
    ]


def _bytes(file: GraphFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError:  # reading it will raise the error
        return 0


def local_outcomes(work: Sequence[PartJob], processes: int, end: float | None) -> Results:
    """Yield `_outcomes` of processes here (one: this one); raises `XlarankError` if one dies."""
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with the threads of polars can hang
    pool = _InProcess() if processes == 1 else _Processes(processes, spawn, initializer=end_with_parent)
    try:
        yield from _outcomes(work, pool, build_here, lambda: processes, end)
    except BrokenProcessPool as error:
        do = f"run again with a smaller `jobs`; {_KEPT}"
        raise XlarankError("a worker process died, most likely for want of memory", do=do) from error
    finally:
        pool.shutdown(cancel_futures=True)


def cluster_outcomes(work: Sequence[PartJob], scheduler: str, workers: int, end: float | None) -> Results:
    """Yield `_outcomes` of the workers of a cluster, which do not see the workspace.

    The graphs of a worker that dies are built again by the others; after four workers have died with a graph, it is
    broken. Raises `ClusterError` for workers that cannot build, and if the scheduler or all workers are gone.
    """
    with connected(scheduler, workers) as client:
        pool = client.get_executor(pure=False)
        try:
            yield from _outcomes(work, pool, build_remotely, partial(require_workers, client, _MAX_WAIT), end)
        except ImportError as error:
            raise ClusterError(f"a worker cannot import what it needs ({error})", do=SAME_CODE) from error
        except (CancelledError, OSError) as error:
            do = f"start it and run the same command again; {_KEPT}"
            raise ClusterError("the scheduler of the cluster is gone", do=do) from error
        finally:
            pool.shutdown(wait=False)


def _outcomes(
    work: Sequence[PartJob], pool: Executor, build: Callable[[PartJob, Outcomes], Built],
    capacity: Callable[[], int], end: float | None,
) -> Results:  # fmt: skip
    """Yield the outcomes of the jobs begun before the ``end`` (monotonic), as they are done.

    The largest files are begun first, so that none is left to a single worker at the end; within a limited time,
    files are begun in the order of ``work``. Keeps ``capacity() + 1`` jobs in flight.
    """
    queue = deque(work if end is not None else sorted(work, key=lambda job: -job.size))
    running: dict[Future[Built], PartJob] = {}
    limit = 0
    while queue or running:
        if not any(map(Future.done, running)):  # a lost scheduler cancels jobs before it fails to answer
            limit = capacity() + 1
        while queue and len(running) < limit and (end is None or time.monotonic() < end):
            job = queue.popleft()
            outcomes, complete = job.stored()
            if complete:
                yield job, outcomes
            else:
                running[pool.submit(build, job, outcomes)] = job
        if not running:
            return
        for future in wait(running, _POLL, FIRST_COMPLETED).done:
            job = running.pop(future)
            try:
                outcomes, contents = future.result()
                for path, content in zip(job.targets() if contents else (), contents, strict=True):
                    if content is not None:
                        with atomic_write(path) as target:
                            target.write_bytes(content)
            except Exception as error:
                broken = Outcome(broken=_why_broken(job.files, error))
                outcomes = {file.name: broken for file in job.files}
            yield job, outcomes


def _why_broken(files: Sequence[GraphFile], error: Exception) -> str:
    """Return why files cannot be built; raises the error if they are not at fault."""
    names = ", ".join(file.path.name for file in files)
    match error:
        case ClusterError() | errors.OutputError() | errors.BlockError():
            raise error
        case XlarankError():
            return str(error)
        case OSError():
            return f"{names} cannot be read ({error.strerror or error})"
        case MemoryError():
            fit = "does not fit into memory" if len(files) == 1 else "do not fit into memory together"
            return f"{names} {fit}; run again with `jobs=1`"
        case _ if type(error).__name__ == "KilledWorker":  # of Dask, an optional dependency
            got = f"{names}: {error.allowed_failures + 1} workers died while they built it"  # type: ignore[attr-defined]
            do = "start fewer of them on each machine"
            return str(XlarankError(got, expected="workers with enough memory", do=do))
        case _:
            raise error


class _InProcess(Executor):
    """Executor that runs every call immediately, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class _Processes(ProcessPoolExecutor):
    """Pool of processes that ignore interrupts, which this process handles; processes are started on demand."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        # there is a process for each core already
        with environment(**dict.fromkeys(_MATRIX_THREADS, "1")), interrupts_held_back():
            return super().submit(fn, *args, **kwargs)


def build_here(job: PartJob, outcomes: Outcomes) -> Built:
    """Build a part in its workspace."""
    return job.build(outcomes), []


def build_remotely(job: PartJob, outcomes: Outcomes) -> Built:
    """Build a part without access to its workspace; return the contents of the files to write, too.

    ``outcomes`` hold the sources of the files on the client, because a copy here may have another date.
    Only missing files are broken. Raises `ClusterError` for other feature code.
    """
    worker = f"the worker on {socket.gethostname()}"
    if (code_hash := job.recipe.settings.code_hash(job.collection_split[0].kind)) != job.recipe.code_hash:
        raise ClusterError(
            f"{worker} has the feature code {code_hash}", expected=job.recipe.code_hash, do=SAME_CODE
        )
    outcomes = dict(outcomes)
    for file in job.files:
        source = outcomes[file.name].source
        if source is not None and _bytes(file) != source.size:
            error = XlarankError(
                f"{worker} sees no {file.path} of {source.size:,} bytes",
                expected="the same data root under the same path on all machines",
                do="share its file system, or copy it to the same place",
            )
            outcomes[file.name] = Outcome(broken=str(error))
    with tempfile.TemporaryDirectory(prefix="xlarank-") as folder:
        local_job = replace(job, workspace=Workspace(Path(folder)))
        built = local_job.build(outcomes)
        return built, [path.read_bytes() if path.exists() else None for path in local_job.targets()]
