"""Where trees are grown: in this process, or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from xlarank.data.errors import ClusterError, ModelError
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.rankers.tree_cluster import TreeCluster
from xlarank.pipelines.support.cluster import connected

#: What ``--engine`` may be.
ENGINES: Final = ("local", "dask")


def require_engine(engine: str, scheduler: str | None, model: str) -> None:
    """Raise `ModelError` for an unknown engine or what it cannot do, `ClusterError` for a missing scheduler."""
    if engine not in ENGINES:
        raise ModelError(f"--engine is {engine!r}", expected=" or ".join(ENGINES))
    if engine == "local":
        if scheduler is not None:
            raise ClusterError("--scheduler is named for --engine local", do="pass --engine dask, too")
        return
    if scheduler is None:
        raise ClusterError(
            "--engine dask has no cluster",
            expected="--scheduler host:port, or --scheduler local for one on this machine",
        )
    if model != LambdaRank.name:
        raise ModelError(
            f"--engine dask with --model {model}",
            expected=f"{LambdaRank.name}: LightGBM distributes its own losses, not those that other rankers bring",
            do="leave out --engine, or --model",
        )


@contextmanager
def tree_cluster(scheduler: str | None, workers: int) -> Iterator[TreeCluster | None]:
    """The cluster behind ``scheduler``, where one is named; raises `ClusterError` as `connected` does."""
    if scheduler is None:
        yield None
        return
    if find_spec("sklearn") is None:
        raise ClusterError(
            "LightGBM needs scikit-learn to train on a cluster, and it is not installed",
            expected="the extra dask",
            do="pip install 'xlarank[dask]'",
        )
    with connected(scheduler, workers) as client:
        yield TreeCluster(client.scheduler.address)
