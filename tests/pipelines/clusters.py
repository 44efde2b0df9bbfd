"""A real Dask cluster of worker processes on this machine, for the tests that need one."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def two_workers(workers: int = 2, **options: Any) -> Iterator[str]:
    """The address of its scheduler; skips the test where Dask is not installed."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'xlarank[dask]'")
    with distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1",
        dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False}, silence_logs=logging.CRITICAL,
        **options,
    ) as cluster:  # fmt: skip
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
