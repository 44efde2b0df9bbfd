"""LightGBM's trees grown by the workers of a Dask cluster, each on some of the query groups."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ClusterError
from xlarank.models.arrays import Indices, Matrix
from xlarank.models.rankers.lightgbm_data import RowTargets, binning
from xlarank.models.training_data import TrainingData

if TYPE_CHECKING:  # an extra, imported where a cluster is asked for
    from distributed import Client

#: LightGBM's names -> those of its scikit-learn classes, which have defaults of their own for them.
_SKLEARN: Final = {
    "min_data_in_leaf": "min_child_samples",
    "feature_fraction": "colsample_bytree",
    "bagging_fraction": "subsample",
    "bagging_freq": "subsample_freq",
    "lambda_l2": "reg_lambda",
    "seed": "random_state",
    "bin_construct_sample_cnt": "subsample_for_bin",
}
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
        orders: Sequence[Indices] | None = None,
    ) -> lgb.Booster:
        """A booster of LightGBM's ``params``; the other arguments as `lightgbm_data.binned`.

        Raises `ClusterError` where a worker or the scheduler is lost: LightGBM cannot go on then, and the other
        workers would wait for ever, so they are restarted.
        """
        with self._lock:
            rows, workers = data.matrix(orders, used), 1
            try:
                with _ordered_client(self.address) as client:
                    client.wait_for_workers(1, timeout=_PATIENCE)
                    workers = len(client.nthreads())
                    text = _watched(client, partial(_grow, client, rows, targets, params, rounds))
            except Exception as error:  # LightGBM, Dask and the network: each has errors of its own
                self._restart(workers)
                raise ClusterError(
                    f"a training on the cluster broke off ({(str(error).strip() or repr(error)).splitlines()[-1]})",
                    expected="a scheduler, and workers that live until it is done",
                    do="give them more memory and train again, or leave out --engine dask",
                ) from error
        return lgb.Booster(model_str=_NETWORK.sub("", text))

    def _restart(self, workers: int) -> None:
        from distributed import Client

        with suppress(Exception), Client(self.address, timeout=_ANSWER, set_as_default=False) as client:
            client.restart(timeout=_PATIENCE)
            client.wait_for_workers(workers, timeout=_PATIENCE)


def _watched(client: Client, work: Callable[[], str]) -> str:
    """Return what ``work`` does; raises `ClusterError` as soon as a worker is gone."""
    workers = set(client.nthreads())
    done: Future[str] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while not done.done():
        with suppress(TimeoutError):
            return done.result(timeout=_LOOK)
        if gone := workers - set(client.nthreads()):
            raise ClusterError(f"the worker {min(gone)} died")
    return done.result()


class _Quiet:
    """A logger for LightGBM, which writes to standard output when it looks for ports."""

    def info(self, message: str) -> None:
        pass

    def warning(self, message: str) -> None:
        if "n_jobs" not in message:  # as many threads as a worker has: this is as it should be
            warnings.warn(message, stacklevel=3)


def _ordered_client(address: str) -> Client:
    """A client that names parts in the order in which they were sent.

    LightGBM numbers its machines in the order in which `who_has` names the parts, by default another one each time.
    Each machine finds the bins of some columns in its own rows, so the numbers decide what the trees are.
    """
    from distributed import Client

    class Ordered(Client):  # type: ignore[misc]
        def compute(self, collections: Any, **options: Any) -> Any:
            if not isinstance(collections, list):
                return super().compute(collections, **options)
            workers = sorted(self.nthreads())
            return [
                super(Ordered, self).compute(part, workers=[workers[number % len(workers)]], **options)
                for number, part in enumerate(collections)
            ]

        def who_has(self, futures: Any = None, **options: Any) -> dict[Any, Any]:
            found = super().who_has(futures, **options)
            return found if futures is None else {future.key: found[future.key] for future in futures}

    return Ordered(address, set_as_default=False)


def _grow(client: Client, rows: Matrix, targets: RowTargets, params: dict[str, Any], rounds: int) -> str:
    """LightGBM's text of a booster of ``rows (rows, columns)``."""
    import dask
    import dask.array as da
    from lightgbm.dask import DaskLGBMRanker

    assert targets.sizes is not None, "only objectives of query groups are distributed"
    workers, sizes = sorted(client.nthreads()), np.array(targets.sizes)
    groups = partitions(sizes, len(workers))
    ends = np.append(0, np.cumsum(sizes))[groups].tolist()

    def spread(values: NDArray[Any] | None, edges: list[int] = ends) -> Any:
        """A Dask array with a piece on each worker."""
        if values is None:
            return None
        parts = []
        for (a, b), worker in zip(pairwise(edges), workers, strict=False):
            there = client.scatter(values[a:b], workers=[worker], hash=False)
            parts.append(da.from_delayed(dask.delayed(there), values[a:b].shape, dtype=values.dtype))
        return da.concatenate(parts, axis=0)

    named = {_SKLEARN.get(name, name): value for name, value in ({**binning(), **params}).items()}
    named.pop("num_threads", None)  # as many as a worker has
    ranker = DaskLGBMRanker(client=client, n_estimators=rounds, **named)
    lgb.register_logger(_Quiet())
    with client.as_current():  # LightGBM does not name its client everywhere
        ranker.fit(
            spread(rows),
            spread(targets.label),
            group=spread(sizes, groups),
            sample_weight=spread(targets.weight),
            init_score=spread(targets.start),
        )
    return str(ranker.booster_.model_to_string())


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
