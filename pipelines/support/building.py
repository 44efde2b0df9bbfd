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
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from xlarank.data.collection import Collection, GraphFile
from xlarank.data.errors import ClusterError, FeatureStoreError, OutputError, WorkspaceError, XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.graph import graph_size, read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings, Recipe, Source
from xlarank.features.rows import GraphRows, at_most
from xlarank.features.store import instances_current, read_rows, stored_summaries, write_instances, write_rows
from xlarank.pipelines.support.cluster import SAME_CODE, connected, require_workers
from xlarank.pipelines.support.processes import end_with_parent, interrupts_held_back

#: Result of one file: counts, the number of its part, its source and whether the rows were ``kept``; or
#: ``{"broken": why}``.
Outcome: TypeAlias = dict[str, Any]
#: Results of the files of a job, by name.
Outcomes: TypeAlias = dict[str, Outcome]
Results: TypeAlias = Generator[tuple["PartJob", Outcomes], None, None]
#: The most configurations and graphs whose rows share a file, unless it is one graph: enough for columns to cost
#: little, few enough to be built again after an interruption.
_PART_CONFIGS, _PART_GRAPHS = 4096, 32
#: Seconds between looks at the workers, and without a single one on a cluster after which the build ends.
_LOOK, _WITHOUT_WORKERS = 0.5, 60.0
_KEPT: Final = "graphs already built are kept"
#: What the libraries behind numpy's matrix product read when they are loaded.
_MATRIX_THREADS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class PartJob:
    """Graph files of one split whose rows share a stored file, and how they are made."""

    files: tuple[GraphFile, ...]
    part: int
    workspace: Workspace
    recipe: Recipe
    settings: FeatureSettings

    @property
    def place(self) -> tuple[Collection, str]:
        """Collection and split."""
        return self.files[0].collection, self.files[0].split

    @property
    def size(self) -> int:
        """Bytes of the files; 0 for those that cannot be read."""
        return sum(map(_bytes, self.files))

    def targets(self, workspace: Workspace) -> list[Path]:
        """Files of instances and, written last, of rows; raises `WorkspaceError` for a name that may not be."""
        instances = [workspace.graph_instances(*self.place, file.name) for file in self.files]
        return [*instances, workspace.rows(*self.place, self.part)]

    def stored(self) -> tuple[Outcomes, bool]:
        """Return the outcomes of current rows, the sources of other files, and whether nothing is left to build."""
        stored: dict[str, tuple[dict[str, Any], Source]] = {}
        with suppress(WorkspaceError):  # a name that may not be: building says so
            stored = stored_summaries(self.workspace.rows(*self.place, self.part), self.recipe)

        def outcome_of(file: GraphFile) -> Outcome:
            source = Source.of(file.path)
            summary, known = stored.get(file.name, ({}, None))
            instances = self.workspace.graph_instances(*self.place, file.name)
            tile = self.place[0].kind == "tile"
            if known != source or not (tile or instances_current(instances, self.recipe, source)):
                return {"source": source}
            return {**summary, "part": self.part, "source": source, "kept": True}

        outcomes = {file.name: _outcome([file], partial(outcome_of, file)) for file in self.files}
        gone = stored.keys() - outcomes.keys()
        return outcomes, not gone and all("kept" in one or "broken" in one for one in outcomes.values())

    def build(self, outcomes: Outcomes, workspace: Workspace | None = None) -> Outcomes:
        """Compute the rows that are not stored and write them with those that are, as the recipe keeps them."""
        workspace = workspace or self.workspace
        path = workspace.rows(*self.place, self.part)
        stored: dict[str, tuple[GraphRows, Source]] = {}
        if any("kept" in outcome for outcome in outcomes.values()):
            with suppress(FeatureStoreError):  # a worker of a cluster does not see them
                stored = read_rows(path, self.recipe)
        graphs: list[GraphRows] = []

        def build_graph(file: GraphFile) -> Outcome:
            target = workspace.graph_instances(*self.place, file.name)
            source, kept = outcomes[file.name]["source"], "kept" in outcomes[file.name] and file.name in stored
            if kept:
                rows = stored[file.name][0]
            else:
                rows = at_most(assemble(read_graph(file.path, file.collection.kind), self.settings), self.recipe)
                if rows.instances is not None:
                    write_instances(target, rows.instances.value, self.recipe, source)
            graphs.append(rows)
            return {**rows.summary(), "part": self.part, "source": source, "kept": kept}

        built = {
            file.name: outcomes[file.name]
            if "broken" in outcomes[file.name]
            else _outcome([file], partial(build_graph, file))
            for file in self.files
        }
        if graphs:
            collection, split = self.place
            sources = {graph.name: built[graph.name]["source"] for graph in graphs}
            write_rows(path, graphs, self.recipe, sources, (str(collection), split))
        return built


def part_jobs(
    files: Sequence[GraphFile], workspace: Workspace, recipe: Recipe, settings: FeatureSettings
) -> list[PartJob]:
    """Return the jobs of one split: its files in order, a part for each few thousand configurations.

    A file that cannot be read is a job of its own, after the others.
    """
    parts: list[list[GraphFile]] = []
    broken: list[list[GraphFile]] = []
    total = 0
    for file in files:
        try:
            workspace.graph_instances(file.collection, file.split, file.name)
            configs = graph_size(file.path, file.collection.kind).configs
        except (XlarankError, OSError):
            broken.append([file])
            continue
        configs = min(configs, recipe.max_configs or configs)
        total += configs
        if not parts or total > _PART_CONFIGS or len(parts[-1]) == _PART_GRAPHS:
            parts.append([])
            total = configs
        parts[-1].append(file)
    jobs = enumerate([*parts, *broken])
    return [PartJob(tuple(members), part, workspace, recipe, settings) for part, members in jobs]


def _bytes(file: GraphFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError:  # reading it says why
        return 0


def local_outcomes(work: Sequence[PartJob], processes: int, end: float | None) -> Results:
    """Outcomes as of `_outcomes`, by processes here (one: this one); raises `XlarankError` where one dies."""
    # Fresh interpreters: forking a process that holds the thread pools of polars can hang.
    spawn = multiprocessing.get_context("spawn")
    pool = _Here() if processes == 1 else _Processes(processes, spawn, initializer=end_with_parent)
    try:
        yield from _outcomes(work, pool, PartJob.build, lambda job, future: future.result(), lambda: processes, end)
    except BrokenProcessPool as error:
        raise XlarankError(
            "a worker process died, most likely for want of memory",
            do=f"run again with a smaller --jobs; {_KEPT}",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def cluster_outcomes(work: Sequence[PartJob], scheduler: str, workers: int, end: float | None) -> Results:
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
    work: Sequence[PartJob],
    pool: Executor,
    build: Callable[[PartJob, Outcomes], Any],
    take: Callable[[PartJob, Future[Any]], Outcomes],
    places: Callable[[], int],
    end: float | None,
) -> Results:
    """Outcomes of the jobs that are begun before the ``end`` (monotonic), in the order that they are done.

    The largest files are begun first, so that no worker is left alone with one of them; within a limited time they
    are begun in the order of ``work``. As many jobs are under way as there are ``places``, and one that waits for
    the next of them. ``take`` makes an outcome of what ``build`` returned.
    """
    queue = deque(work if end is not None else sorted(work, key=lambda job: -job.size))
    begun: dict[Future[Any], PartJob] = {}
    most = 0
    while queue or begun:
        if not any(map(Future.done, begun)):  # a scheduler that is gone cancels jobs sooner than it fails to answer
            most = places() + 1
        while queue and len(begun) < most and (end is None or time.monotonic() < end):
            job = queue.popleft()
            outcomes, complete = job.stored()
            if complete:
                yield job, outcomes
            else:
                begun[pool.submit(build, job, outcomes)] = job
        if not begun:
            return
        for future in wait(begun, _LOOK, FIRST_COMPLETED).done:
            job = begun.pop(future)
            taken = _outcome(job.files, partial(take, job, future))
            yield job, taken if "broken" not in taken else dict.fromkeys((file.name for file in job.files), taken)


def _names(files: Sequence[GraphFile]) -> str:
    return ", ".join(file.path.name for file in files)


def _outcome(files: Sequence[GraphFile], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what ``make`` gives, or why the files are broken: they must not stop the others."""
    try:
        return make()
    except (ClusterError, OutputError):  # the cluster or the disk is at fault, not the file
        raise
    except XlarankError as error:
        why = str(error)
    except OSError as error:
        why = f"{_names(files)} cannot be read ({error.strerror or error})"
    except MemoryError:
        fit = "does not fit into memory" if len(files) == 1 else "do not fit into memory together"
        why = f"{_names(files)} {fit}; run again with --jobs 1"
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


def build_remotely(job: PartJob, outcomes: Outcomes) -> tuple[Outcomes, list[bytes | None]]:
    """Build a part where its workspace is out of reach; also returns the contents of the files to write.

    ``outcomes`` hold the sources of the files as the client sees them: a copy here may have another date.
    A file that is not here is broken alone. Raises `ClusterError` where no graph could be built right.
    """
    here = f"the worker on {socket.gethostname()}"
    if (code_hash := job.settings.code_hash(job.place[0].kind)) != job.recipe.code_hash:
        raise ClusterError(f"{here} has the feature code {code_hash}", expected=job.recipe.code_hash, do=SAME_CODE)
    outcomes = dict(outcomes)
    for file in job.files:
        source = outcomes[file.name].get("source")
        if source is not None and _bytes(file) != source.size:
            missing = XlarankError(
                f"{here} sees no {file.path} of {source.size:,} bytes",
                expected="the same data root under the same path on all machines",
                do="share its file system, or copy it to the same place",
            )
            outcomes[file.name] = {"broken": str(missing)}
    with tempfile.TemporaryDirectory(prefix="xlarank-") as folder:
        built = job.build(outcomes, Workspace(Path(folder)))
        paths = job.targets(Workspace(Path(folder)))
        return built, [path.read_bytes() if path.exists() else None for path in paths]


def _received(job: PartJob, future: Future[Any]) -> Outcomes:
    """Write the files that a worker sent."""
    from distributed import KilledWorker

    try:
        outcomes, contents = future.result()
    except KilledWorker as error:
        raise XlarankError(
            f"{_names(job.files)}: {error.allowed_failures + 1} workers died while they built it",
            expected="workers with enough memory",
            do="start fewer of them on each machine",
        ) from error
    for path, content in zip(job.targets(job.workspace), contents, strict=True):
        if content is not None:
            with atomic_write(path) as partial:
                partial.write_bytes(content)
    return dict(outcomes)
