"""Folds of graphs, and out-of-fold scores by boosting round."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from xlarank.data.families import program_family
from xlarank.models.arrays import Floats
from xlarank.models.card import FAMILY, KERNEL_FAMILY, blend_default
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.metrics import graph_metrics, objective_value

T = TypeVar("T")

#: Number of rounds between stages.
STEP: Final = 25
MOST_FOLDS: Final = 10
#: Folds of the last call of `map_folds`.
_FUTURES: Final[list[Future[Any]]] = []
#: Reduction factor of successive halving.
FACTOR: Final = 4


class Fold(NamedTuple):
    """Groups to be ``scored`` by a ranker that is trained without the groups ``held`` out."""

    scored: list[int]
    held: list[int]


def family_folds(families: Sequence[str], limit: int) -> list[Fold]:
    """Return at most ``limit`` folds of even size that hold out families; none for a single one.

    >>> [fold.held for fold in family_folds(["a", "b", "a", "c"], limit=10)]
    [[0, 2], [1], [3]]
    >>> [fold.held for fold in family_folds(["a", "b", "a", "c"], limit=2)]
    [[0, 2], [1, 3]]
    """
    sizes = Counter(families)
    if len(sizes) < 2:
        return []
    folds: list[list[int]] = [[] for _ in range(min(limit, len(sizes)))]
    for family in sorted(sizes, key=lambda family: (-sizes[family], family)):
        min(folds, key=len).extend(i for i, other in enumerate(families) if other == family)
    return [Fold(groups, groups) for groups in map(sorted, folds)]


def kernel_family_folds(families: Sequence[Sequence[str]], limit: int) -> list[Fold]:
    """Return folds that score kernels, holding out all kernels that may be of the same family.

    ``families`` lists the possible families of each kernel. Kernels with equal lists form a fold.
    Kernels of unknown family, and folds without training data, are omitted. While there are more
    than ``limit`` folds, the two are merged whose union holds out the fewest kernels, unless it
    holds out all.

    >>> kernels = [["dot"], ["reduce"], ["dot", "dot transposed"], ["dot transposed"]]
    >>> kernel_family_folds(kernels, limit=10)
    [Fold(scored=[0], held=[0, 2]), Fold(scored=[2], held=[0, 2, 3]), \
Fold(scored=[3], held=[2, 3]), Fold(scored=[1], held=[1])]
    >>> kernel_family_folds([["dot"], ["reduce"], ["slice"]], limit=2)
    [Fold(scored=[0, 1], held=[0, 1]), Fold(scored=[2], held=[2])]
    """
    folds = []
    for possible_families in sorted({tuple(sorted(possible)) for possible in families if possible}):
        scored = [
            i for i, possible in enumerate(families) if tuple(sorted(possible)) == possible_families
        ]
        held = [i for i, possible in enumerate(families) if set(possible) & set(possible_families)]
        if len(held) < len(families):
            folds.append(Fold(scored, held))
    while len(folds) > limit:
        pairs = combinations(range(len(folds)), 2)
        count, a, b = min((len({*folds[a].held, *folds[b].held}), a, b) for a, b in pairs)
        if count == len(families):
            break
        merged = folds.pop(b)
        scored = sorted({*folds[a].scored, *merged.scored})
        folds[a] = Fold(scored, sorted({*folds[a].held, *merged.held}))
    return folds


@dataclass(frozen=True)
class Curves:
    """Out-of-fold metrics by graph, a list over the stages, at ``rounds`` rounds."""

    rounds: list[int]
    metrics: dict[str, list[dict[str, float]]]

    def column(self, metric: str) -> Floats:
        """Return ``(graphs, stages)`` values of one metric."""
        return np.array([[stage[metric] for stage in stages] for stages in self.metrics.values()])

    def smooth_score(self, how: str = "mean") -> Floats:
        """Return ``(stages,)`` values of `objective_value`, averaged over neighbouring stages."""
        padded = np.pad(objective_value(self.column("score"), how), 1, mode="edge")
        return np.asarray((padded[:-2] + padded[1:-1] + padded[2:]) / 3)

    def best_stage(self, how: str = "mean") -> int:
        """Return the earliest stage with the highest smoothed score."""
        return int(np.argmax(self.smooth_score(how)))

    def at(self, stage: int) -> dict[str, dict[str, float]]:
        return {name: stages[stage] for name, stages in self.metrics.items()}


@dataclass(frozen=True)
class FoldPlan:
    """Folds, empty if nothing can be held out, and their unit, "family" or "kernel-family"."""

    by: str
    folds: list[Fold]

    @property
    def fallback(self) -> bool:
        """True if kernel families are held out; scores are then blended with the default."""
        return self.by == KERNEL_FAMILY

    @classmethod
    def of(cls, data: TrainingData, limit: int = MOST_FOLDS) -> FoldPlan:
        """Return folds by kernel family for tiles of several, else by program family.

        Kernels of one family occur in several programs, so folds by program would not measure how
        well unseen kernel families are ranked.
        """
        return cls.of_graphs(data.names, [graph.kernel_families for graph in data.parts], limit)

    @classmethod
    def of_graphs(
        cls, names: Sequence[str], families: Sequence[Sequence[str]], limit: int = MOST_FOLDS
    ) -> FoldPlan:
        """Return folds from the graphs' names and possible kernel families (empty for layouts)."""
        by_kernel_family = kernel_family_folds(families, limit)
        if len(by_kernel_family) > 1:
            return cls(KERNEL_FAMILY, by_kernel_family)
        return cls(FAMILY, family_folds([program_family(name) for name in names], limit))

    @classmethod
    def by_family(cls, data: TrainingData) -> FoldPlan:
        """Return folds by program family."""
        return cls(FAMILY, family_folds(data.families, MOST_FOLDS))

    def curves(
        self,
        data: TrainingData,
        model: Model,
        settings: FitSettings,
        step: Callable[[Fold], object] = lambda fold: None,
    ) -> Curves:
        """Return out-of-fold curves in the order of the graphs; call ``step`` with each fold."""

        def run(fold: Fold, settings: FitSettings) -> Curves:
            fitted = model.fit(data.training_groups(fold.held), settings)
            return evaluated(data, fold.scored, fitted, settings.rounds, self.fallback)

        metrics = dict[str, list[dict[str, float]]]()
        for fold, curves in zip(self.folds, map_folds(run, self.folds, settings), strict=True):
            metrics |= curves.metrics
            step(fold)
        in_order = {name: metrics[name] for name in data.names if name in metrics}
        return Curves(curves.rounds, in_order)


def evaluated(
    data: TrainingData, groups: Sequence[int], fitted: Model, rounds: int, fallback: bool = False
) -> Curves:
    """Return the curves of a fitted model on some groups."""
    stages = [*range(0 if fitted.ranks_without_trees else STEP, rounds, STEP), rounds]
    curves = Curves(stages, {})
    for group in groups:
        graph = data.parts[group]
        staged = [*fitted.staged(graph, STEP)]
        if fallback:
            staged = [blend_default(graph, scores) for scores in staged]
        values = []
        for scores in staged:
            score = scores[graph.group]
            values.append(graph_metrics(fitted.kind, score, graph.cost, graph.group))
        missing = len(stages) - len(values)  # training stopped early: the last scores remain
        curves.metrics[graph.name] = values + values[-1:] * missing
    return curves


def map_folds(
    run: Callable[[Fold, FitSettings], T], folds: Sequence[Fold], settings: FitSettings
) -> Iterator[T]:
    """Yield ``run(fold, settings)`` in order, with ``settings.threads`` folds in parallel.

    Each has one thread; 0 means a fold per core. If the caller is interrupted or a fold fails,
    pending folds are cancelled, and the next call waits for the running ones: LightGBM and XGBoost
    each load their own OpenMP, and running both at once crashed.
    """
    wait([future for future in _FUTURES if not future.cancelled()])
    pool = ThreadPoolExecutor(min(settings.threads or os.cpu_count() or 1, max(1, len(folds))))
    settings = replace(settings, threads=1)
    futures = [pool.submit(run, fold, settings) for fold in folds]
    _FUTURES[:] = futures
    try:
        for future in futures:
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def rungs_of(rounds: int) -> list[int]:
    """Return the rounds at which trials are compared, each at most half of the next.

    >>> rungs_of(300), rungs_of(30)
    ([10, 50, 150, 300], [15, 30])
    """
    rungs = [rounds]
    for share in (1 / 2, 1 / 6, 1 / 30):
        rung = max(10, round(rounds * share))
        if 2 * rung <= rungs[0]:
            rungs.insert(0, rung)
    return rungs
