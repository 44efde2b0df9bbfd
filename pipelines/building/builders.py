"""Graphs built by processes of this machine, which read and write the files themselves."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Final

from xlarank.data.errors import XlarankError
from xlarank.pipelines.building.graph_job import GraphJob, Outcome, build_graph
from xlarank.pipelines.support.machine import interrupts_held_back

#: What the libraries behind numpy's matrix product read when they are loaded.
_MATRIX_THREADS: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")


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
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_start_worker)
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
    """Ignore interrupts, which the parent handles, and end with the parent, also where it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
