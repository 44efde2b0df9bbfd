"""Connection to a Dask cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from xlarank.data.errors import ClusterError
from xlarank.pipelines.support.processes import interrupts_held_back

if TYPE_CHECKING:  # optional dependency, imported only if a cluster is used
    from distributed import Client, LocalCluster

#: Address that means a temporary cluster of worker processes on this machine.
LOCAL: Final = "local"
SAME_CODE: Final = "install the same xlarank on all machines"
#: Seconds to wait for the scheduler, and for its first worker.
_PATIENCE: Final = 20.0
#: Loggers to silence; they report every lost worker.
_LOGGERS: Final = ("distributed", "distributed.client", "tornado.application")


@contextmanager
def connected(scheduler: str, workers: int = 0) -> Iterator[Client]:
    """Connect to a running ``scheduler`` or a new `LOCAL` cluster of ``workers`` (0: one per core); yield a client.

    Raises `ClusterError` if Dask is missing, or no scheduler or no worker answers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        got, do = "a cluster was asked for, and Dask is not installed", "pip install 'xlarank[dask]'"
        raise ClusterError(got, expected="the extra dask", do=do) from error
    with ExitStack() as stack:
        for logger in map(logging.getLogger, _LOGGERS):
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL + 1)
        try:
            if scheduler == LOCAL:
                cluster = stack.enter_context(local_cluster(workers or os.cpu_count() or 1))
            address = cluster.scheduler_address if scheduler == LOCAL else scheduler
            client = stack.enter_context(Client(address, timeout=_PATIENCE, set_as_default=False))
        except (OSError, RuntimeError, ValueError, TypeError, ImportError) as error:
            why = (str(error) or repr(error)).splitlines()[0]
            got, do = f"no Dask scheduler answers at {scheduler} ({why})", "start one with `dask scheduler`"
            expected = "host:port of a running scheduler, or local"
            raise ClusterError(got, expected=expected, do=f"{do}, or check `scheduler`") from error
        require_workers(client, _PATIENCE)
        yield client


def require_workers(client: Client, patience: float) -> int:
    """Return the total threads of all workers; raise `ClusterError` if none reports in ``patience`` seconds."""
    try:
        client.wait_for_workers(1, timeout=patience)
    except TimeoutError as error:
        address = client.scheduler.address
        do = f"start some with `dask worker {address} --nthreads 1 --nworkers N` and run the same command again"
        raise ClusterError(f"the scheduler at {address} has no workers", expected="one or more", do=do) from error
    return sum(client.nthreads().values())


@contextmanager
def local_cluster(workers: int) -> Iterator[LocalCluster]:
    """Start a cluster of single-threaded worker processes on this machine and yield it."""
    import dask
    from distributed import LocalCluster

    # on a busy machine, restarting a dead worker can exceed Dask's default of 15 s
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "15 minutes"}):
        with interrupts_held_back():
            # no dashboard (needs bokeh) and no fixed port (may be taken)
            cluster = LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            )  # fmt: skip
        with cluster:
            yield cluster
