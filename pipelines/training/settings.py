"""Settings of training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from xlarank.data.errors import ClusterError, ModelError, require_ranges
from xlarank.models.cluster import grow_on_cluster
from xlarank.models.rankers import DEFAULT
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.metrics import require_selection
from xlarank.pipelines.support.processes import connected

#: Name that selects the ranker with the best out-of-fold score, for each collection.
AUTO: Final = "auto"


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of `xlarank.pipelines.train.train`; invalid ones raise `XlarankError`.

    Attributes:
        also_from: extra training collections of the same kind, not scored: ``NAME`` or
            ``NAME=WEIGHT``, the weight of each graph (default 1). Families held out by a fold are
            held out in them, too.
        model: ranker, or "auto" for the best out of fold.
        with_valid: also train on the valid split; afterwards, scores on it are meaningless.
        rounds: maximum number of boosting rounds; cross-validation chooses.
        select: criterion by which cross-validation chooses, one of
            `xlarank.models.validation.metrics.SELECTIONS`.
        threads: cores, 0 for all; with ``scheduler`` "local" the number of worker processes.
        engine: "local", or "dask" to grow all trees on the workers of a cluster, whose number
            changes the trees.
        scheduler: address of the cluster, or "local" to start one on this machine.
        allow_constant: whether to save models whose scores are all equal.
        max_rows: training rows of a collection, sampled evenly from its graphs; 0: all, None: the
            default of the kind of graphs, `xlarank.pipelines.training.budget.MAX_ROWS`.
        name: name of the run in the leaderboard.
    """

    collections: Sequence[str] = ()
    also_from: Sequence[str] = ()
    model: str = DEFAULT
    seeds: int = 3
    with_valid: bool = False
    rounds: int = 300
    select: str = "mean"
    seed: int = 0
    threads: int = 0
    engine: str = "local"
    scheduler: str | None = None
    allow_constant: bool = False
    max_rows: int | None = None
    name: str = ""

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", "valid") if self.with_valid else ("train",)

    def __post_init__(self) -> None:
        require_ranges(seeds=self.seeds, rounds=self.rounds, seed=self.seed, threads=self.threads)
        require_ranges(max_rows=self.max_rows or 0)
        require_selection("select", self.select)
        if self.engine not in ("local", "dask"):
            raise ModelError(f"`engine` is {self.engine!r}", expected="local or dask")
        if (self.engine == "dask") != (self.scheduler is not None):
            expected = "`engine=dask` with `scheduler=host:port`, or local for one on this machine"
            got = f"`engine` is {self.engine} and `scheduler` is {self.scheduler}"
            raise ClusterError(got, expected=expected)
        if self.scheduler is not None and self.model != DEFAULT:
            others = "LightGBM distributes its own losses, not those of other rankers"
            got = f"`engine=dask` with `model={self.model}`"
            do = "leave out `engine`, or `model`"
            raise ModelError(got, expected=f"{DEFAULT}: {others}", do=do)


@contextmanager
def fit_settings(settings: TrainSettings) -> Iterator[FitSettings]:
    """Yield the settings of all fits, connected to a cluster if requested; raises
    `ClusterError`.
    """
    fit = FitSettings(settings.rounds, settings.seed, settings.threads)
    if settings.scheduler is None:
        yield fit
        return
    with connected(settings.scheduler, fit.threads) as client:
        # one thread: each booster uses all workers, so folds run one after another
        yield replace(fit, threads=1, cluster=partial(grow_on_cluster, client))
