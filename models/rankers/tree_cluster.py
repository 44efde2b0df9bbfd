"""LightGBM's trees grown by the workers of a Dask cluster, each on some of the query groups.

Dask carries rows and tasks; LightGBM's own distributed learning does the rest over sockets. `lightgbm.dask` is not
used: it numbers its machines by the order of a Python set, and on the numbers depends who finds the bins of which
columns.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ClusterError
from xlarank.models.arrays import Indices, Matrix
from xlarank.models.rankers.lightgbm_data import RowTargets, binning
from xlarank.models.training_data import TrainingData

if TYPE_CHECKING:  # an extra, imported where a cluster is asked for
    from distributed import Client, Future

#: Settings of the cluster in a booster's text; other ports must not make another model.
_NETWORK: Final = re.compile(
    r"^\[(machines|local_listen_port|num_machines|time_out|pre_partition): [^\n]*\]\n", re.MULTILINE
)
#: Seconds between looks at whether all workers live, for the scheduler to answer, and for workers to come (back).
_LOOK, _ANSWER, _PATIENCE = 0.5, 10.0, 120.0


@dataclass(frozen=True, eq=False)
class TreeCluster:
    """Grows trees on a cluster; one booster at a time, for every worker takes part in it."""

    address: str
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def grow(
        self,
        data: TrainingData,
        used: Indices,
        targets: RowTargets,
        params: dict[str, Any],
        rounds: int,
    ) -> lgb.Booster:
        """A booster of LightGBM's ``params``; the other arguments as `lightgbm_data.binned`.

        Raises `ClusterError` where a worker or the scheduler is lost: LightGBM cannot go on then, and the other
        workers would wait for ever, so they are restarted.
        """
        with self._lock:
            rows, workers = data.matrix(used), 1
            try:
                from distributed import Client

                with Client(self.address, set_as_default=False) as client:
                    client.wait_for_workers(1, timeout=_PATIENCE)
                    workers = len(client.nthreads())
                    text = _grow(client, rows, targets, params, rounds)
            except Exception as error:  # LightGBM, Dask and the network: each has errors of its own
                self._restart(workers)
                unlike = isinstance(error, (ImportError, AttributeError))  # tasks are unpickled by name
                raise ClusterError(
                    f"a training on the cluster broke off ({(str(error).strip() or repr(error)).splitlines()[-1]})",
                    expected="a scheduler, and workers that live until it is done",
                    do="install the same xlarank on all machines"
                    if unlike
                    else "give them more memory and train again, or leave out --engine dask",
                ) from error
        return lgb.Booster(model_str=_NETWORK.sub("", text))

    def _restart(self, workers: int) -> None:
        from distributed import Client

        with suppress(Exception), Client(self.address, timeout=_ANSWER, set_as_default=False) as client:
            client.restart(timeout=_PATIENCE)
            client.wait_for_workers(workers, timeout=_PATIENCE)


def _grow(client: Client, rows: Matrix, targets: RowTargets, params: dict[str, Any], rounds: int) -> str:
    """LightGBM's text of a booster of ``rows (rows, columns)``."""
    assert targets.sizes is not None, "only objectives of query groups are distributed"
    threads = client.nthreads()
    groups = partitions(np.array(targets.sizes), len(threads))
    ends = np.append(0, np.cumsum(targets.sizes))[groups].tolist()
    workers = sorted(threads)[: len(groups) - 1]
    ports = _ports(client, workers)
    shared = {**binning(), **params, "tree_learner": "data", "num_machines": len(workers)}
    if len(workers) > 1:
        shared["machines"] = ",".join(f"{urlsplit(one).hostname}:{ports[one]}" for one in workers)
    parts = []
    for worker, (g, h), (a, b) in zip(workers, pairwise(groups), pairwise(ends), strict=True):
        weight, start = (None if one is None else one[a:b] for one in (targets.weight, targets.start))
        own = RowTargets(label=targets.label[a:b], weight=weight, start=start, sizes=targets.sizes[g:h])
        there = client.scatter((rows[a:b], own), workers=[worker], hash=False)
        settings = shared | {"num_threads": threads[worker], "local_listen_port": ports[worker]}
        parts.append(client.submit(_grow_part, there, settings, rounds, workers=[worker], pure=False))
    return _text_of(client, parts, workers)


def _text_of(client: Client, parts: Sequence[Future], workers: Sequence[str]) -> str:
    """The result of all parts, which is the same; raises what one raised, and `ClusterError` for a lost worker."""
    from distributed import wait

    while any(part.status == "pending" for part in parts):
        for part in parts:
            if part.status == "error":
                part.result()
        if gone := set(workers) - set(client.nthreads()):
            raise ClusterError(f"the worker {min(gone)} died")
        with suppress(TimeoutError), client.as_current():
            wait(parts, timeout=_LOOK)
    return str(parts[0].result())


def _ports(client: Client, workers: Sequence[str]) -> dict[str, int]:
    """A free port of each worker's machine, another for each."""
    hosts = defaultdict(list)
    for worker in workers:
        hosts[urlsplit(worker).hostname].append(worker)
    ports: dict[str, int] = {}
    for there in hosts.values():
        free = client.run(_free_ports, len(there), workers=there[:1])[there[0]]
        ports |= zip(there, free, strict=True)
    return ports


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _grow_part(part: tuple[Matrix, RowTargets], params: dict[str, Any], rounds: int) -> str:
    """The same booster on every worker, from the rows of each."""
    rows, own = part
    data = lgb.Dataset(rows, own.label, None, own.weight, own.sizes, own.start, params=params)
    booster = lgb.train(params, data, rounds)
    text = booster.model_to_string()
    booster.free_network()
    return text


def partitions(sizes: NDArray[np.integer[Any]], workers: int) -> list[int]:
    """Where each worker's query groups begin, and the end: whole groups, in order, of about as many rows each.

    >>> partitions(np.array([5, 1, 1, 1, 4]), 2)  # of ten rows each: groups stay whole
    [0, 2, 5]
    >>> partitions(np.array([1, 1, 1, 9]), 2), partitions(np.array([4, 4, 4, 4]), 1)
    ([0, 4], [0, 4])
    >>> partitions(np.array([9, 1]), 3)  # more workers than groups: some have nothing to do
    [0, 1, 2]
    """
    ends = np.cumsum(sizes)
    wanted = ends[-1] * np.arange(1, workers) / workers
    cuts = np.searchsorted(ends, wanted) + 1
    return sorted({0, *map(int, np.minimum(cuts, len(sizes))), len(sizes)})
