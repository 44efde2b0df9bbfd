"""Who builds: one scheduling of graphs, and the processes of this machine that they are given to."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Final

from xlarank.data.errors import XlarankError
from xlarank.pipelines.building.graph_job import GraphJob, Outcome, build_graph
from xlarank.pipelines.support.interrupts import interrupts_held_back

#: What the libraries behind numpy's matrix product read when they are loaded.
_MATRIX_THREADS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
#: Seconds between looks at whether there is still somebody who builds.
_LOOK: Final = 1.0


class Builders(ABC):
    """Takes jobs, one after the other, and tells what became of each."""

    @abstractmethod
    def submit(self, job: GraphJob, share: float) -> Future[Outcome]:
        """Have a graph built; ``share`` is its part of the work, 1 for as much as each worker has to do."""

    @abstractmethod
    def outcome(self, job: GraphJob, future: Future[Outcome]) -> Outcome:
        """Of a job that is done; raises `XlarankError` where nothing can be built any more."""

    @property
    @abstractmethod
    def workers(self) -> int:
        """Graphs that are built at once."""

    def ready(self, job: GraphJob) -> Outcome | None:
        """The outcome where nothing needs to be submitted."""
        return None

    @abstractmethod
    def require_alive(self) -> None:
        """Raise `XlarankError` where nobody is left to wait for."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the workers; what was not begun never will be."""


def outcomes(
    work: Sequence[GraphJob], builders: Builders | None, end: float | None
) -> Generator[tuple[GraphJob, Outcome], None, None]:
    """What becomes of each job that is begun before the ``end`` (monotonic), in the order that they are done.

    The largest files are begun first, so that no worker is left alone with one of them; within a limited time they
    are begun in the order of ``work``. Without ``builders`` they are built here, one by one.
    """
    if builders is None:
        for job in work:
            if end is not None and time.monotonic() >= end:
                return
            yield job, build_graph(job)
        return
    sizes = {job: _size(job) for job in work}
    each = max(1.0, sum(sizes.values()) / builders.workers)
    order = work if end is not None else sorted(work, key=lambda job: -sizes[job])
    done: SimpleQueue[Future[Outcome]] = SimpleQueue()
    futures: dict[Future[Outcome], GraphJob] = {}
    try:
        for job in order:
            if (ready := builders.ready(job)) is not None:
                yield job, ready
                continue
            future = builders.submit(job, sizes[job] / each)
            futures[future] = job
            future.add_done_callback(done.put)
        while futures and (end is None or time.monotonic() < end):
            try:
                future = done.get(timeout=_LOOK if end is None else max(0.0, min(_LOOK, end - time.monotonic())))
            except Empty:
                builders.require_alive()
                continue
            job = futures.pop(future)
            yield job, builders.outcome(job, future)
        for future in [future for future in futures if not future.cancel()]:  # already begun
            yield futures[future], builders.outcome(futures[future], future)
    finally:
        builders.close()


def _size(job: GraphJob) -> int:
    try:
        return job.file.path.stat().st_size
    except OSError:  # whoever reads it says so
        return 0


class LocalProcesses(Builders):
    """Processes of this machine, which read and write the files themselves."""

    def __init__(self, processes: int) -> None:
        self._processes = processes
        # Fresh interpreters: forking a process that holds the thread pools of pyarrow can hang.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(processes, context, initializer=_start_worker)

    def submit(self, job: GraphJob, share: float) -> Future[Outcome]:
        with interrupts_held_back(), _one_thread_each():
            return self._pool.submit(build_graph, job)

    def outcome(self, job: GraphJob, future: Future[Outcome]) -> Outcome:
        try:
            return future.result()
        except BrokenProcessPool as error:
            raise XlarankError(
                "a worker process died, most likely for want of memory",
                do="run again with a smaller --jobs; graphs already built are kept",
            ) from error

    @property
    def workers(self) -> int:
        return self._processes

    def require_alive(self) -> None:
        """A pool that lost a process says so of every job."""

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


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
