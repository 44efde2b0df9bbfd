"""A real Dask cluster of worker processes on this machine, for the tests that need one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from tests.pipelines.postgres import skip_or_fail
from xlarank.pipelines.support.cluster import local_cluster


def need(package: str) -> None:
    """Skip the test where a package of the extra is missing, or fail it where nothing may be skipped."""
    if find_spec(package) is None:
        skip_or_fail(f"{package} is not installed (pip install 'xlarank[dask]')")


@contextmanager
def two_workers(workers: int = 2) -> Iterator[str]:
    """The address of its scheduler; skips the test where Dask is not installed."""
    need("distributed")
    with local_cluster(workers) as cluster:
        yield cluster.scheduler_address


def pids(address: str) -> list[int]:
    """Process ids of the workers."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        return sorted(client.run(os.getpid).values())


class Killer:
    """A `Progress` that kills a worker without a word at the first step."""

    def __init__(self, victim: int) -> None:
        self.victim, self.steps = victim, 0

    def begin(self, what: str, total: int) -> None:
        pass

    def step(self, note: str = "") -> None:
        self.steps += 1
        if self.steps == 1:
            os.kill(self.victim, signal.SIGKILL)

    def end(self) -> None:
        pass
