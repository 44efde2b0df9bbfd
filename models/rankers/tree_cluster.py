"""LightGBM's trees grown by the workers of a Dask cluster, each on some of the query groups."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ClusterError
from xlarank.models.rankers.lightgbm_data import Learnable, binning
from xlarank.models.ranking_data import RankingData

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
#: What a booster's text says of the cluster; other ports must not make another model.
_NETWORK: Final = re.compile(
    r"^\[(machines|local_listen_port|num_machines|time_out|pre_partition): [^\n]*\]\n", re.MULTILINE
)
#: Seconds between looks at whether all workers live, and to wait for lost ones to be back.
_LOOK: Final = 0.5
_PATIENCE: Final = 120.0
#: Seconds for the scheduler to answer.
_ANSWER: Final = 20
#: How often a training is begun before it is given up.
_TRIES: Final = 3


@dataclass(eq=False)
class TreeCluster:
    """Grows trees on a cluster; one booster at a time, for every worker takes part in it.

    Each worker holds whole query groups. LightGBM cannot go on without a worker that has died, and those that are
    left may wait for it for ever: they are restarted, and the training begins anew with as many workers as before.

    Attributes:
        address: of the scheduler.
        notes: what went wrong on the way and was mended.
    """

    address: str
    notes: list[str] = field(default_factory=list)
    _one: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def told(self) -> list[str]:
        """The notes since this was asked last."""
        found, self.notes = self.notes, []
        return found

    def grow(
        self,
        data: RankingData,
        used: NDArray[np.intp],
        learned: Learnable,
        params: dict[str, Any],
        rounds: int,
        orders: Sequence[NDArray[np.intp]] | None = None,
    ) -> lgb.Booster:
        """A booster of LightGBM's ``params``; the other arguments as `xlarank.models.rankers.lightgbm_data.binned`.

        Raises `ClusterError` where it was begun three times in vain.
        """
        with self._one:
            for number in range(1, _TRIES + 1):
                attempt = _Attempt(self.address)
                try:
                    text = attempt.run(data, used, learned, params, rounds, orders)
                    return lgb.Booster(model_str=_NETWORK.sub("", text))
                except Exception as error:  # LightGBM, Dask and the network: each has errors of its own
                    why = attempt.lost or (str(error).strip() or repr(error)).splitlines()[-1]
                    said = f"a training on the cluster broke off ({why})"
                    if number == _TRIES:
                        raise ClusterError(
                            f"{said} {_TRIES} times",
                            expected="workers that live until it is done",
                            do="give them more memory, or leave out --engine dask",
                        ) from error
                    self.notes.append(f"{said}; it was begun anew, {number + 1} of {_TRIES}")
                    self._restart(attempt.workers)
        raise AssertionError("the last try returns or raises")

    def _restart(self, workers: Sequence[str]) -> None:
        """Free the workers that wait for a lost one, and have as many as before."""
        from distributed import Client

        try:
            client = Client(self.address, timeout=_ANSWER, set_as_default=False)
        except OSError as error:
            raise ClusterError("the scheduler of the cluster is gone", do="start it and train again") from error
        with client:
            left = [worker for worker in workers if worker in client.nthreads()]
            with suppress(Exception):  # those without a nanny end, and whoever started them has to do so again
                client.restart_workers(left, timeout=_PATIENCE, raise_for_error=False)
            try:
                client.wait_for_workers(max(1, len(workers)), timeout=_PATIENCE)
            except TimeoutError:
                now = len(client.nthreads())
                if not now:
                    raise ClusterError("the cluster has no workers left", do="start some and train again") from None
                self.notes.append(
                    f"{now} of {len(workers)} workers are left: the model is not the one that all would have made"
                )


class _Attempt:
    """One try to grow a booster.

    Attributes:
        workers: addresses of those that take part, sorted.
        lost: which of them is gone, once one is.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self.workers: list[str] = []
        self.lost = ""

    def run(
        self,
        data: RankingData,
        used: NDArray[np.intp],
        learned: Learnable,
        params: dict[str, Any],
        rounds: int,
        orders: Sequence[NDArray[np.intp]] | None,
    ) -> str:
        """LightGBM's text of the booster; raises whatever Dask and LightGBM do, and `ClusterError`."""
        found: list[str | BaseException] = []
        # A client of its own: when it is closed, whoever waits for anything of this try is released.
        with _placing_client(self._address) as client:
            client.wait_for_workers(1, timeout=_PATIENCE)
            self.workers = sorted(client.nthreads())
            lgb.register_logger(_Quiet())

            def work() -> None:
                try:
                    found.append(_grown(client, self.workers, data, used, learned, params, rounds, orders))
                except BaseException as error:
                    found.append(error)

            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            while thread.is_alive():
                thread.join(_LOOK)
                gone = set(self.workers) - set(client.nthreads())
                if gone:
                    self.lost = f"the worker {min(gone)} died"
                    raise ClusterError(self.lost)
        (outcome,) = found
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class _Quiet:
    """A logger for LightGBM, which writes to standard output when it looks for ports."""

    def info(self, message: str) -> None:
        pass

    def warning(self, message: str) -> None:
        if "n_jobs" not in message:  # as many threads as a worker has: this is as it should be
            warnings.warn(message, stacklevel=3)


def _placing_client(address: str) -> Client:
    """A client that keeps the parts of a training apart and in order.

    LightGBM numbers its machines in the order in which `who_has` names the parts, by default another one each time.
    Each machine finds the bins of some columns in its own rows, so the numbers decide what the trees are.
    """
    from distributed import Client

    class Placing(Client):  # type: ignore[misc]
        def compute(self, collections: Any, **options: Any) -> Any:
            if not isinstance(collections, list):
                return super().compute(collections, **options)
            workers = sorted(self.nthreads())
            return [
                super(Placing, self).compute(part, workers=[workers[number % len(workers)]], **options)
                for number, part in enumerate(collections)
            ]

        def who_has(self, futures: Any = None, **options: Any) -> dict[Any, Any]:
            found = super().who_has(futures, **options)
            return found if futures is None else {future.key: found[future.key] for future in futures}

    return Placing(address, set_as_default=False)


def _grown(
    client: Client,
    workers: Sequence[str],
    data: RankingData,
    used: NDArray[np.intp],
    learned: Learnable,
    params: dict[str, Any],
    rounds: int,
    orders: Sequence[NDArray[np.intp]] | None,
) -> str:
    import dask
    import dask.array as da
    from lightgbm.dask import DaskLGBMRanker

    assert learned.sizes is not None, "only objectives of query groups are distributed"
    sizes = np.array(learned.sizes)
    edges = partitions(sizes, len(workers))
    ends = np.append(0, np.cumsum(sizes))

    def spread(pieces: Iterable[NDArray[Any]]) -> Any:
        """A Dask array with each piece on a worker of its own; they are made and sent one by one."""
        parts = []
        for piece, at in zip(pieces, workers, strict=False):
            there = client.scatter(piece, workers=[at], hash=False)
            parts.append(da.from_delayed(dask.delayed(there), piece.shape, dtype=piece.dtype))
        return da.concatenate(parts, axis=0)

    def cut(values: NDArray[np.float64] | None) -> Any:
        return None if values is None else spread(values[a:b] for a, b in bounds)

    bounds = [(int(ends[a]), int(ends[b])) for a, b in pairwise(edges)]
    named = {_SKLEARN.get(name, name): value for name, value in ({**binning(), **params}).items()}
    named.pop("num_threads", None)  # as many as a worker has
    ranker = DaskLGBMRanker(client=client, n_estimators=rounds, **named)
    with client.as_current():  # LightGBM does not name its client everywhere
        ranker.fit(
            spread(rows_between(data, used, orders, start, stop) for start, stop in bounds),
            cut(learned.label),
            group=spread(sizes[a:b] for a, b in pairwise(edges)),
            sample_weight=cut(learned.weight),
            init_score=cut(learned.start),
        )
    return str(ranker.booster_.model_to_string())


def partitions(sizes: NDArray[np.integer[Any]], workers: int) -> list[int]:
    """Where each worker's query groups begin, and the end: whole groups, in order, of about as many rows each.

    >>> partitions(np.array([5, 1, 1, 1, 4]), 2)
    [0, 2, 5]
    >>> partitions(np.array([9, 1]), 3)
    [0, 1, 2]
    """
    ends = np.cumsum(sizes)
    wanted = ends[-1] * np.arange(1, workers) / workers
    cuts = np.searchsorted(ends, wanted) + 1
    return sorted({0, *map(int, np.minimum(cuts, len(sizes))), len(sizes)})


def rows_between(
    data: RankingData,
    used: NDArray[np.intp],
    orders: Sequence[NDArray[np.intp]] | None,
    start: int,
    stop: int,
) -> NDArray[np.float32]:
    """``(stop - start, used)`` the rows from ``start`` on of `RankingData.matrix`, without the others."""
    pieces = []
    for group, part in enumerate(data.parts):
        first = int(data.indptr[group])
        low, high = max(0, start - first), min(len(part), stop - first)
        if low < high:
            which = slice(low, high) if orders is None else orders[group][low:high]
            pieces.append(part.matrix(which, used))
    return np.concatenate(pieces)
