"""Computation and storage of the rows of graph files."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from xlarank.data.collection import (
    DataRoot,
    DataRootLike,
    GraphFile,
    Names,
    choose,
    choose_splits,
    discover,
    find_data_root,
    graph_files,
)
from xlarank.data.errors import MAX_THREADS, WorkspaceError, XlarankError, counted
from xlarank.data.files import atomic_write
from xlarank.data.workspace import DEFAULT_ROOT, Workspace, WorkspaceLike
from xlarank.features.catalogue import all_columns
from xlarank.features.rows import Recipe, Source
from xlarank.features.store import Manifest, StoredGraph, stored_collections, write_manifest
from xlarank.models.params import Interval
from xlarank.pipelines.support import building, processes
from xlarank.pipelines.support.building import PartJob
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.tables import Table
from xlarank.pipelines.support.workspaces import require_one_root, workspace_lock

if TYPE_CHECKING:
    import polars as pl

#: Below this many bytes of npz, starting processes costs more than it saves.
_WORTH_PROCESSES: Final = 20 * 2**20
#: Seconds between checks of the workers, and maximum seconds without any worker of a cluster.
_POLL = 0.5
_MAX_WAIT = 60.0
_KEPT: Final = "graphs already built are kept"
#: Environment variables that the libraries behind numpy's matrix product read when they are loaded.
_MATRIX_THREADS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
Results: TypeAlias = Generator[PartJob, None, None]


@dataclass(frozen=True, repr=False)
class BuildReport(Table):
    """Result of a build.

    Attributes:
        splits: a record of each collection and split: numbers of ``graphs``, ``configs`` and
            ``rows``, of graphs ``built`` now and ``kept`` from before, names of those that are
            ``unrankable``, and why others are ``broken``.
        removed: collections and splits without files, whose stored rows were removed.
    """

    splits: list[dict[str, Any]]
    removed: list[str]
    seconds: float

    def __repr__(self) -> str:
        graphs = counted(sum(part["graphs"] for part in self.splits), "graph")
        rows = counted(sum(part["rows"] for part in self.splits), "row")
        broken = f", {counted(len(self.broken), 'broken file')}" if self.broken else ""
        return f"<BuildReport: {graphs}, {rows}{broken}, {self.seconds:.1f} s>"

    def to_polars(self) -> pl.DataFrame:
        """Return a frame with a row for each split."""
        import polars as pl

        rows = [{**part, "broken": len(part["broken"])} for part in self.splits]
        return pl.DataFrame(rows).drop("unrankable")

    @property
    def broken(self) -> dict[str, str]:
        broken = {}
        for part in self.splits:
            for name, reason in part["broken"].items():
                broken[f"{part['collection']} {part['split']} {name}"] = reason
        return broken


def build_features(
    data_root: DataRootLike | None = None,
    workspace: WorkspaceLike = DEFAULT_ROOT,
    *,
    collection: Names = (),
    split: Names = (),
    max_configs: int = 0,
    jobs: int = 0,
    scheduler: str | None = None,
) -> BuildReport:
    """Compute and store the rows of graph files; call it again to resume.

    Complete, current rows are kept. A broken file is recorded and does not stop the build; rows
    without a file in the data root are removed.

    Args:
        data_root: default: the environment variable ``XLARANK_DATA``, Kaggle's folder of the
            competition, ``~/data/tpugraphs``, or the embedded sample, the first that exists.
        collection: collections such as "layout:xla:random" or patterns; default: all.
        split: "train", "valid" or "test"; default: all.
        max_configs: distinct configurations kept of each train graph, drawn at random; 0: all.
            Valid and test graphs are always complete.
        jobs: number of processes; 0: by cores and sizes. A script that uses several has to keep
            this call below ``if __name__ == "__main__":``; a notebook has not.
        scheduler: host:port of a Dask scheduler.

    Raises `DataRootError` and `CollectionError` for missing input, `WorkspaceError` for an unusable
    workspace or one with rows of another data root, `XlarankError` for an unusable or lost cluster.

    Examples:
        >>> import tempfile, xlarank
        >>> work = tempfile.mkdtemp()
        >>> built = xlarank.build_features(xlarank.SAMPLE, work, collection="tile:cpu")
        >>> built.to_polars()[["split", "graphs"]].rows()
        [('train', 30), ('valid', 12), ('test', 15)]
    """
    Interval(0, whole=True)("`max_configs`", max_configs)
    Interval(0, MAX_THREADS, whole=True)("`jobs`", jobs)
    root = find_data_root(data_root)
    work = Workspace.of(workspace)
    splits = choose_splits(split)
    work.require_writable()
    files = graph_files(root.npz, collection, where=str(root.path))
    discovered = discover(root.npz)
    require_one_root(root, work, discovered)
    started = time.monotonic()
    parts: list[PartJob] = []
    # a relative path would mean something else to the workers of a cluster
    chosen = [replace(file, path=file.path.absolute()) for file in files if file.split in splits]
    by_split = groupby(chosen, key=lambda file: (file.collection, file.split))
    for (of, part), members in by_split:
        limit = max_configs if part == "train" else 0
        recipe = Recipe.of(of.kind, of.hardware, max_configs=limit)
        parts += building.part_jobs([*members], work, recipe)
    built = _run(parts, jobs, scheduler)
    with workspace_lock(work):
        # another command may have changed the root meanwhile
        require_one_root(root, work, discovered)
        splits_built = _write_manifests(root, work, built)
        removed = _remove_splits_without_files(work, collection, splits, discovered)
    return BuildReport(splits_built, removed, time.monotonic() - started)


def _run(work: list[PartJob], jobs: int, scheduler: str | None) -> list[PartJob]:
    """Return the jobs with their results."""
    built = {}
    files = sum(len(job.files) for job in work)
    results = _results(work, jobs, scheduler)
    with steps_of("building features", files) as step, closing(results):
        for job in results:
            built[job.files] = job
            for file in job.files:
                step(f"{file.collection} {file.split} {file.name}")
    return [built[job.files] for job in work]


def _results(work: list[PartJob], jobs: int, scheduler: str | None) -> Results:
    """Yield the jobs without missing rows, then the others as they are built."""
    missing = []
    for job in work:
        if job.find_stored():
            yield job
        else:
            missing.append(job)
    if not jobs and sum(job.size for job in missing) >= _WORTH_PROCESSES:
        jobs = os.cpu_count() or 1
    workers = min(jobs, len(missing))
    if scheduler is not None:
        yield from _build_on_cluster(missing, scheduler)
    elif workers > 1:
        yield from _build_in_processes(missing, workers)
    else:
        for job in missing:
            try:
                job.build()
            except Exception as error:
                job.fail(error)
            yield job


def _build_in_processes(work: list[PartJob], workers: int) -> Results:
    """Build the jobs in processes of this machine; raises `XlarankError` if one dies."""
    # a fork of a process with the threads of polars can hang
    spawn = multiprocessing.get_context("spawn")
    others = set(multiprocessing.active_children())
    with processes.interrupts_held_back():
        pool = ProcessPoolExecutor(workers, spawn, initializer=processes.end_with_parent)

    def submit(job: PartJob) -> Future[PartJob]:
        # starts processes on demand; they share the cores, so each uses one thread
        with (
            processes.environment(**dict.fromkeys(_MATRIX_THREADS, "1")),
            processes.interrupts_held_back(),
        ):
            return pool.submit(PartJob.build, job)

    try:
        yield from _build_parallel(work, submit, lambda: workers)
    except BrokenProcessPool as error:
        do = f"run again with a smaller `jobs`; {_KEPT}"
        got = "a worker process died, most likely for want of memory"
        raise XlarankError(got, do=do) from error
    except BaseException:  # interrupted: the workers do not finish their graphs
        pool.shutdown(wait=False, cancel_futures=True)
        processes.end_children(set(multiprocessing.active_children()) - others)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _build_on_cluster(work: list[PartJob], scheduler: str) -> Results:
    """Build the jobs on a cluster, whose workers do not see the workspace; raises `XlarankError`.

    Other workers build the parts of a dead one; a part that killed four workers is broken.
    """
    with processes.connected(scheduler) as client:
        pool = client.get_executor(pure=False)
        capacity = partial(processes.require_workers, client, _MAX_WAIT)
        submit = partial(pool.submit, building.build_remotely)
        try:
            yield from _build_parallel(work, submit, capacity)
        except ImportError as error:
            got = f"a worker cannot import what it needs ({error})"
            raise XlarankError(got, do=processes.SAME_CODE) from error
        except (CancelledError, OSError) as error:
            do = f"start it and run the same command again; {_KEPT}"
            raise XlarankError("the scheduler of the cluster is gone", do=do) from error
        finally:
            pool.shutdown(wait=False)


def _build_parallel(
    work: list[PartJob], submit: Callable[[PartJob], Future[PartJob]], capacity: Callable[[], int]
) -> Results:
    """Yield the jobs as they finish, the largest begun first; keep ``capacity() + 1`` in flight."""
    queue = deque(sorted(work, key=lambda job: -job.size))
    running: dict[Future[PartJob], PartJob] = {}
    limit = 0
    while queue or running:
        # a lost scheduler cancels jobs before it fails to answer
        if not any(map(Future.done, running)):
            limit = capacity() + 1
        while queue and len(running) < limit:
            job = queue.popleft()
            running[submit(job)] = job
        for future in wait(running, _POLL, FIRST_COMPLETED).done:
            job = running.pop(future)
            try:
                job = future.result()
                if job.content:
                    with atomic_write(job.rows) as target:
                        target.write_bytes(job.content)
                    job.content = b""
            except Exception as error:
                job.fail(error)
            yield job


def _write_manifests(
    data_root: DataRoot, workspace: Workspace, built: list[PartJob]
) -> list[dict[str, Any]]:
    """Write the manifest of each split; return its record in the report."""
    records = []
    for (collection, split), members in groupby(built, key=lambda job: (job.collection, job.split)):
        jobs = [*members]
        stored: dict[str, StoredGraph] = {}
        broken: dict[str, str] = {}
        sources: dict[str, Source] = {}
        for job in jobs:
            stored |= job.stored
            broken |= job.broken
            sources |= job.sources
        manifest = Manifest(
            jobs[0].recipe,
            str(data_root.path.resolve()),
            all_columns(collection.kind),
            stored,
            broken,
            sources,
        )
        kept = sum(job.kept for job in jobs)
        record = {
            "collection": str(collection),
            "split": split,
            "graphs": sum(len(job.files) for job in jobs),
            "configs": sum(graph.configs for graph in stored.values()),
            "rows": sum(graph.rows for graph in stored.values()),
            "built": len(stored) - kept,
            "kept": kept,
            "unrankable": [name for name, graph in stored.items() if not graph.rankable],
            "broken": broken,
        }
        records.append(record)
        try:
            workspace.features(collection, split)
        except WorkspaceError:  # invalid name: each of its files is reported as broken
            continue
        write_manifest(workspace, collection, split, manifest)
    return records


def _remove_splits_without_files(
    workspace: Workspace, collections: Names, splits: Sequence[str], discovered: Sequence[GraphFile]
) -> list[str]:
    """Remove the rows of chosen splits without a file in the data root; return their names."""
    present = {(file.collection, file.split) for file in discovered}
    stored = stored_collections(workspace)
    chosen = choose(collections, [*stored, *(file.collection for file in discovered)])
    removed = []
    for collection, split in product(stored, splits):
        folder = workspace.features(collection, split)
        if collection in chosen and (collection, split) not in present and folder.is_dir():
            shutil.rmtree(folder)
            removed.append(f"{collection} {split}")
    return removed
