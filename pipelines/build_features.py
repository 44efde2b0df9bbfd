"""npz files to stored rows."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from xlarank.data.collection import Collection, GraphFile, choose_splits, discover, graph_files
from xlarank.data.errors import ModelError, WorkspaceError, XlarankError
from xlarank.data.files import sweep_partial
from xlarank.data.graph import read_graph
from xlarank.data.ranges import require_ranges, require_seconds
from xlarank.data.root import DataRoot
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.instances.store import instances_current, write_instances
from xlarank.features.recipe import FeatureSettings, Recipe, Source
from xlarank.features.sampling import SAMPLES, at_most
from xlarank.features.store import Manifest, current_summary, write_manifest, write_rows
from xlarank.pipelines.support.one_root import require_one_root
from xlarank.pipelines.support.progress import Progress, Silent

#: Below this many bytes of npz, starting worker processes costs more than it saves.
_WORTH_PROCESSES: Final = 20 * 2**20
#: What the libraries behind numpy's matrix product read when they are loaded.
_MATRIX_THREADS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass
class SplitReport:
    """What happened to one split of a collection; ``left`` graphs were not begun before the time was over."""

    collection: str
    split: str
    graphs: int = 0
    configs: int = 0
    rows: int = 0
    built: int = 0
    kept: int = 0
    unrankable: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    left: int = 0


@dataclass
class BuildReport:
    """What a build did; `broken` over all splits decides the exit code."""

    splits: list[SplitReport]
    columns: dict[str, tuple[int, int]]
    seconds: float

    @property
    def broken(self) -> dict[str, str]:
        return {
            f"{part.collection} {part.split} {name}": why
            for part in self.splits
            for name, why in part.broken.items()
        }


@dataclass(frozen=True)
class _Job:
    file: GraphFile
    workspace: Workspace
    recipe: Recipe
    settings: FeatureSettings


def build_features(
    data_root: DataRoot,
    workspace: Workspace,
    *,
    collections: Sequence[str] = (),
    splits: Sequence[str] = (),
    settings: FeatureSettings | None = None,
    max_configs: int = 0,
    sampling: str = "random",
    jobs: int = 0,
    seed: int = 0,
    timeout: float | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> BuildReport:
    """Compute and store the rows of every graph of the chosen collections and splits.

    What is already stored, whole and current is kept, so an interrupted build goes on where it was. A broken
    file is recorded and does not stop the others.

    Args:
        max_configs: distinct configurations kept of each *train* graph, drawn with ``seed``; 0 keeps all.
            Validation and test graphs are always whole: every configuration must be ranked.
        sampling: how they are drawn, one of `xlarank.features.sampling.SAMPLES`; graphs without labels at random.
        jobs: processes; 0 chooses by the size of the files.
        timeout: seconds after which no further graph is begun. Those that are left are not in the manifest:
            what follows works with the others, and a second call goes on.
        replace: whether rows of another data root make way, with the studies and models of their collections.

    Raises `DataRootError` and `CollectionError` for input that is not there, `ModelError` for an unknown
    ``sampling``, `WorkspaceError`, also where the workspace holds rows of another data root.
    """
    settings, progress = settings or FeatureSettings(), progress or Silent()
    if sampling not in SAMPLES:
        raise ModelError(f"--sampling is {sampling!r}", expected=", ".join(SAMPLES))
    require_ranges(max_configs=max_configs, jobs=jobs, seed=seed)
    require_seconds("timeout", timeout)
    workspace.require_writable()
    sweep_partial(workspace.root)
    files = graph_files(data_root.npz, collections, where=str(data_root.path))
    require_one_root(data_root, workspace, discover(data_root.npz), replace=replace)
    chosen_splits = choose_splits(splits)
    started = time.monotonic()
    chosen = [file for file in files if file.split in chosen_splits]
    work = [
        _Job(file, workspace, _recipe(file, settings, max_configs, seed, sampling), settings) for file in chosen
    ]
    outcomes = _run(work, _processes(jobs, chosen), None if timeout is None else started + timeout, progress)
    reports = _write_manifests(data_root, workspace, work, outcomes)
    widths = {
        kind: (len(settings.graph_columns(kind)), len(settings.config_columns(kind)))
        for kind in sorted({file.collection.kind for file in chosen})
    }
    return BuildReport(reports, {str(kind): width for kind, width in widths.items()}, time.monotonic() - started)


def _recipe(file: GraphFile, settings: FeatureSettings, max_configs: int, seed: int, sampling: str) -> Recipe:
    most = max_configs if file.split == "train" else 0
    return Recipe.of(settings, file.collection.kind, max_configs=most, seed=seed, sampling=sampling)


def _processes(jobs: int, files: Sequence[GraphFile]) -> int:
    if jobs == 0:
        size = sum(file.path.stat().st_size for file in files if file.path.exists())
        jobs = (os.cpu_count() or 1) if size >= _WORTH_PROCESSES else 1
    return min(jobs, max(1, len(files)))


def _run(
    work: list[_Job], processes: int, end: float | None, progress: Progress
) -> dict[GraphFile, dict[str, Any]]:
    """Outcome per file that was begun before the ``end`` (monotonic): counts, or ``{"broken": why}``."""
    progress.begin("building features", len(work))
    outcomes: dict[GraphFile, dict[str, Any]] = {}
    try:
        for file, outcome in _outcomes(work, processes, end):
            outcomes[file] = outcome
            progress.step(f"{file.collection} {file.split} {file.name}")
    finally:
        progress.end()
    return outcomes


def _outcomes(work: list[_Job], processes: int, end: float | None) -> Iterator[tuple[GraphFile, dict[str, Any]]]:
    if processes <= 1:
        for job in work:
            if end is not None and time.monotonic() >= end:
                return
            yield job.file, _build_one(job)
        return
    # Fresh interpreters: forking a process that holds the thread pools of pyarrow can hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, initializer=_start_worker)
    try:
        with _interrupts_held_back(), _one_thread_each():
            futures = {pool.submit(_build_one, job): job.file for job in work}
        left = None if end is None else max(0.0, end - time.monotonic())
        with suppress(TimeoutError):
            for future in as_completed(futures, left):
                yield futures.pop(future), future.result()
        for future in [future for future in futures if not future.cancel()]:  # already begun
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise XlarankError(
            "a worker process died, most likely for want of memory",
            do="run again with a smaller --jobs; graphs already built are kept",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Processes that start now never hear Ctrl-C (a blocked signal is inherited); this one hears it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes that start now multiply matrices on one thread: there is one of them for each core already."""
    before = {name: os.environ.get(name) for name in _MATRIX_THREADS}
    os.environ.update(dict.fromkeys(_MATRIX_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _start_worker() -> None:
    """Leave interruptions to the parent, and go with it: a killed parent cannot tell its workers to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _build_one(job: _Job) -> dict[str, Any]:
    try:
        place = job.file.collection, job.file.split, job.file.name
        path, beside = job.workspace.graph_rows(*place), job.workspace.graph_instances(*place)
        source = Source.of(job.file.path)
        summary = current_summary(path, job.recipe, source)
        if job.file.collection.kind == "layout" and not instances_current(beside, job.recipe, source):
            summary = None
        kept = summary is not None
        if summary is None:
            graph = read_graph(job.file.path, job.file.collection.kind)
            rows = at_most(assemble(graph, job.settings), job.recipe)
            if rows.instances is not None:
                write_instances(beside, rows.instances.value, job.recipe, source)
            write_rows(path, rows, job.recipe, source)
            summary = rows.summary()
    except XlarankError as error:
        return {"broken": str(error)}
    except OSError as error:
        return {"broken": f"{job.file.path.name} cannot be read ({error.strerror or error})"}
    except MemoryError:
        return {"broken": f"{job.file.path.name} does not fit into memory; run again with --jobs 1"}
    return {**summary, "source": asdict(source), "kept": kept}


def _storable(workspace: Workspace, collection: Collection, split: str) -> bool:
    """Whether the collection's name may be used in the workspace; if not, each of its files says so."""
    try:
        workspace.features(collection, split)
    except WorkspaceError:
        return False
    return True


def _write_manifests(
    data_root: DataRoot,
    workspace: Workspace,
    work: list[_Job],
    outcomes: dict[GraphFile, dict[str, Any]],
) -> list[SplitReport]:
    reports: dict[tuple[Collection, str], SplitReport] = {}
    manifests: dict[tuple[Collection, str], Manifest] = {}
    for job in work:
        key = job.file.collection, job.file.split
        if key not in reports:
            reports[key] = SplitReport(str(job.file.collection), job.file.split)
            manifests[key] = Manifest(
                recipe=job.recipe,
                data_root=str(data_root.path.resolve()),
                graph_columns=job.settings.graph_columns(job.file.collection.kind),
                config_columns=job.settings.config_columns(job.file.collection.kind),
            )
        report, manifest = reports[key], manifests[key]
        report.graphs += 1
        if job.file not in outcomes:
            report.left += 1
            continue
        outcome = outcomes[job.file]
        if "broken" in outcome:
            report.broken[job.file.name] = manifest.broken[job.file.name] = outcome["broken"]
            continue
        kept = outcome.pop("kept")
        report.kept += kept
        report.built += not kept
        report.configs += outcome["configs"]
        report.rows += outcome["rows"]
        if not outcome["rankable"]:
            report.unrankable.append(job.file.name)
        manifest.graphs[job.file.name] = outcome
    for (collection, split), manifest in manifests.items():
        if _storable(workspace, collection, split):
            write_manifest(workspace, collection, split, manifest)
    return list(reports.values())
