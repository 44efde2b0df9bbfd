"""LightGBM training on a Dask cluster; each worker has some of the query groups.

Dask transfers rows and tasks; LightGBM's workers communicate over sockets. `lightgbm.dask` is not
reproducible: it numbers machines in the order of a Python set, and the numbers determine which
machine bins which columns.
"""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import FIRST_EXCEPTION, wait
from contextlib import suppress
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ClusterError
from xlarank.models.arrays import Indices, Matrix
from xlarank.models.boosters.lightgbm import binning
from xlarank.models.boosters.vetting import lightgbm_text
from xlarank.models.training_data import Task

if TYPE_CHECKING:  # optional dependency
    from distributed import Client

#: Seconds between checks that all workers are alive, and timeout of their restart.
_CHECK = 0.5
_RESTART = 120.0


#: A booster is grown by all workers of a cluster, so by one caller at a time.
_GROWING: Final = threading.Lock()


def grow_on_cluster(client: Client, task: Task, used: Indices, rounds: int) -> lgb.Booster:
    """Grow trees on the columns ``used`` on all workers; on failure, restart them and raise
    `ClusterError`.
    """
    with _GROWING:
        rows = task.data.matrix(used)
        workers = 1
        try:
            client.wait_for_workers(1, timeout=_RESTART)
            workers = len(client.nthreads())
            text = _grow(client, rows, task, rounds)
        except Exception as error:  # LightGBM's, Dask's or the network's
            with suppress(Exception):
                client.restart(timeout=_RESTART)
                client.wait_for_workers(workers, timeout=_RESTART)
            reason = (str(error).strip() or repr(error)).splitlines()[-1]
            got = f"a training on the cluster broke off ({reason})"
            expected = "a scheduler, and workers with the same xlarank that live until it is done"
            do = "give them more memory and train again, or leave out `engine=dask`"
            raise ClusterError(got, expected=expected, do=do) from error
    return lgb.Booster(model_str=lightgbm_text(text, rows.shape[1]))


def _grow(client: Client, rows: Matrix, task: Task, rounds: int) -> str:
    """Return LightGBM's text of a booster; raises `ClusterError` for a lost worker."""
    assert task.sizes is not None, "only objectives of query groups are distributed"
    threads = client.nthreads()
    executor = client.get_executor(pure=False)
    groups = partitions(np.array(task.sizes), len(threads))
    ends = np.append(0, np.cumsum(task.sizes))[groups].tolist()
    workers = sorted(threads)[: len(groups) - 1]
    machines: dict[str, str] = {}
    while len(set(machines.values())) < len(workers):  # two workers may be given the same port
        ports = client.run(_free_port, workers=workers)
        machines = {worker: f"{urlsplit(worker).hostname}:{port}" for worker, port in ports.items()}
    shared = {**binning(), **task.params, "tree_learner": "data", "num_machines": len(workers)}
    if len(workers) > 1:
        shared["machines"] = ",".join(machines[worker] for worker in workers)
    running = set()
    slices = (starmap(slice, pairwise(bounds)) for bounds in (groups, ends))
    for worker, of_groups, of_rows in zip(workers, *slices, strict=True):
        weight, start = (
            values if values is None else values[of_rows] for values in (task.weight, task.start)
        )
        part = rows[of_rows], task.label[of_rows], weight, task.sizes[of_groups], start
        scattered = client.scatter(part, workers=[worker], hash=False)
        settings = shared | {"num_threads": threads[worker], "local_listen_port": ports[worker]}
        running.add(executor.submit(_grow_part, scattered, settings, rounds, workers=[worker]))
    while running:
        finished, running = wait(running, _CHECK, FIRST_EXCEPTION)
        texts = [future.result() for future in finished]  # equal on all workers
        if running and (lost := set(workers) - set(client.nthreads())):
            raise ClusterError(f"the worker {min(lost)} died")
    return str(texts[0])


def _free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def _grow_part(part: tuple[Any, ...], params: dict[str, Any], rounds: int) -> str:
    """Grow the shared booster on the rows of this worker."""
    rows, label, weight, sizes, start = part
    stdout = os.dup(1)
    with open(os.devnull, "wb") as null:  # LightGBM's threads print every port that they try
        os.dup2(null.fileno(), 1)
    try:
        booster = lgb.train(
            params, lgb.Dataset(rows, label, None, weight, sizes, start, params=params), rounds
        )
        text = booster.model_to_string()
        booster.free_network()
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    return text


def partitions(sizes: NDArray[np.integer[Any]], workers: int) -> list[int]:
    """Return the first query group of each worker, then the number of groups; workers get similar
    numbers of rows.

    >>> partitions(np.array([5, 1, 1, 1, 4]), 2)  # six rows each
    [0, 2, 5]
    >>> partitions(np.array([9, 1]), 3)  # more workers than groups: the last worker is idle
    [0, 1, 2]
    """
    ends = np.cumsum(sizes)
    targets = ends[-1] * np.arange(1, workers) / workers
    cuts = np.searchsorted(ends, targets) + 1
    return sorted({0, *map(int, np.minimum(cuts, len(sizes))), len(sizes)})
