"""The connection to a Dask cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from xlarank.data.errors import ClusterError
from xlarank.pipelines.support.processes import interrupts_held_back

if TYPE_CHECKING:  # an extra, imported where a cluster is asked for
    from distributed import Client, LocalCluster

#: In place of an address: a cluster of worker processes on this machine, for as long as it is needed.
LOCAL: Final = "local"
#: Seconds for the scheduler to answer, and for the first worker to report to it.
_PATIENCE: Final = 20
#: Loggers that report every lost worker; what matters is raised.
_LOGGERS: Final = ("distributed", "distributed.client", "tornado.application")


@contextmanager
def connected(scheduler: str, workers: int = 0) -> Iterator[Client]:
    """A client of a cluster that has workers.

    Args:
        scheduler: ``host:port`` of a running scheduler, or `LOCAL`.
        workers: of a local cluster, each a process with one thread; 0 for one a core.

    Raises `ClusterError` where Dask is missing, nobody answers or no worker reports.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(
            "a cluster was asked for, and Dask is not installed",
            expected="the extra dask",
            do="pip install 'xlarank[dask]'",
        ) from error
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        if scheduler == LOCAL:
            with local_cluster(workers or os.cpu_count() or 1) as cluster:
                with Client(cluster, set_as_default=False) as client:
                    client.run(_silence_output)
                    yield client
            return
        try:
            client = Client(scheduler, timeout=_PATIENCE, set_as_default=False)
        except (OSError, ValueError, TypeError, ImportError) as error:  # ImportError: of an unknown protocol
            why = (str(error) or repr(error)).splitlines()[0]
            raise ClusterError(
                f"no Dask scheduler answers at {scheduler} ({why})",
                expected="host:port of a running scheduler, or local",
                do="start one with `dask scheduler`, or check --scheduler",
            ) from error
        with client:
            try:
                client.wait_for_workers(1, timeout=_PATIENCE)
            except TimeoutError as error:
                raise ClusterError(
                    f"the scheduler at {scheduler} has no workers",
                    expected="one or more",
                    do=f"start some with `dask worker {scheduler} --nthreads 1 --nworkers N`",
                ) from error
            yield client
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def local_cluster(workers: int) -> Iterator[LocalCluster]:
    """Worker processes of one thread each on this machine; raises `ClusterError` where they cannot be started."""
    import dask
    from distributed import LocalCluster

    # A worker that died is started again, which may take longer than the 15 s that Dask waits on a busy machine.
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "15 minutes"}):
        # No dashboard, which needs bokeh, and no fixed port, which somebody else may have.
        try:
            with interrupts_held_back():
                cluster = LocalCluster(
                    n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                    dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
                    silence_logs=logging.CRITICAL,
                )  # fmt: skip
        except (OSError, RuntimeError) as error:
            raise ClusterError(
                f"no cluster can be started here ({error})", do="leave out --scheduler, or name a running one"
            ) from error
        with cluster:
            yield cluster


def _silence_output() -> None:
    """LightGBM prints every port that it tries to standard output, which is for results."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
