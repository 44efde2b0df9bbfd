"""Out-of-fold scores of graphs by boosting round."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np

from xlarank.data.collection import program_family
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats
from xlarank.models.base import Ranker
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.folds import Fallback, Fold, family_folds, kind_folds, whole_folds
from xlarank.models.validation.metrics import graph_metrics, objective_value

S = TypeVar("S")
T = TypeVar("T")

#: Number of rounds between stages.
STEP: Final = 25
#: Maximum number of rows of a graph that are scored at once.
PIECE: Final = 16_384
FAMILY, KIND = "family", "kind"
#: Plural names of the units that folds hold out.
FOLDS_OF: Final = {FAMILY: "families", KIND: "kernel families"}
MOST_FOLDS: Final = 10


@dataclass(frozen=True)
class Curves:
    """Out-of-fold metrics by boosting round.

    Attributes:
        rounds: number of rounds at each stage.
        metrics: metrics of each graph at each stage.
        scores: ``(rows,)`` scores of each graph at each stage; empty for the rungs of a study.
    """

    rounds: list[int]
    metrics: dict[str, list[dict[str, float]]]
    scores: dict[str, list[Floats]] = field(default_factory=dict, compare=False)

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

    def scores_at(self, stage: int) -> dict[str, Floats]:
        return {name: stages[stage] for name, stages in self.scores.items()}

    def at(self, stage: int) -> dict[str, dict[str, float]]:
        return {name: stages[stage] for name, stages in self.metrics.items()}


def join_curves(parts: Sequence[Curves]) -> Curves:
    """Join the curves of several folds, all over the same rounds."""
    metrics = {name: stages for part in parts for name, stages in part.metrics.items()}
    scores = {name: stages for part in parts for name, stages in part.scores.items()}
    return Curves(parts[0].rounds, metrics, scores)


@dataclass(frozen=True)
class FoldPlan:
    """Folds, empty if nothing can be held out; ``by`` is a key of `FOLDS_OF`."""

    by: str
    folds: list[Fold]

    @classmethod
    def of(cls, data: TrainingData, most: int = MOST_FOLDS) -> FoldPlan:
        """Return at most ``most`` folds: by kernel family for tiles of several families, else by program family.

        Kernels of one family occur in several programs, so folds by program would not measure how well unseen
        kernel families are ranked.
        """
        return cls.of_graphs(data.names, [graph.kinds for graph in data.parts], most)

    @classmethod
    def of_graphs(cls, names: Sequence[str], kinds: Sequence[Sequence[str]], most: int = MOST_FOLDS) -> FoldPlan:
        """Return folds from the graphs' names and possible kernel families (empty for layouts)."""
        by_kind = kind_folds(kinds, most)
        families = [program_family(name) for name in names]
        return cls(KIND, by_kind) if len(by_kind) > 1 else cls.of_families(family_folds(families, most))

    @classmethod
    def of_families(cls, folds: Sequence[Sequence[int]]) -> FoldPlan:
        """Return folds that hold out whole program families and score all of their graphs."""
        return cls(FAMILY, whole_folds(folds))

    @property
    def held(self) -> list[list[int]]:
        return [fold.held for fold in self.folds]

    @property
    def chosen_by(self) -> str:
        return f"{len(self.folds)} folds by {self.by}"

    def curves(
        self,
        data: TrainingData,
        ranker: Ranker[Any],
        settings: FitSettings,
        step: Callable[[Fold], None] = lambda fold: None,
    ) -> Curves:
        """Return the out-of-fold curves of the scored graphs, in the order of the data; call ``step`` per fold."""
        fallback, parts = Fallback() if self.by == KIND else None, []

        def run(fold: Fold, settings: FitSettings) -> Curves:
            return validate_fold(data, fold, ranker, settings, fallback)

        for fold, curves in zip(self.folds, in_turn(run, self.folds, settings), strict=True):
            parts.append(curves)
            step(fold)
        joined = join_curves(parts)
        in_order = {name: joined.metrics[name] for name in data.names if name in joined.metrics}
        return replace(joined, metrics=in_order)


def validate_fold(
    data: TrainingData, fold: Fold, ranker: Ranker[Any], settings: FitSettings, fallback: Fallback | None = None
) -> Curves:
    """Fit a clone of the ranker without the held-out groups and evaluate it on the scored ones by round."""
    fitted = ranker.clone().fit(data.without(fold.held), settings)
    return _evaluated(data, fold.scored, fitted, settings.rounds, fallback)


def _evaluated(
    data: TrainingData, groups: Sequence[int], fitted: Ranker[Any], rounds: int, fallback: Fallback | None = None
) -> Curves:
    stages = [*range(0 if fitted.ranks_without_trees else STEP, rounds, STEP), rounds]
    curves = Curves(stages, {}, {})
    for graph in (data.parts[group] for group in groups):
        staged = [fallback.blend(graph, score) if fallback else score for score in _staged(fitted, graph)]
        values = [graph_metrics(fitted.kind, score[graph.group], graph.cost, graph.group) for score in staged]
        missing = len(stages) - len(values)  # training stopped early: the last scores remain
        curves.metrics[graph.name] = values + values[-1:] * missing
        curves.scores[graph.name] = staged + staged[-1:] * missing
    return curves


def _staged(ranker: Ranker[Any], graph: GraphRows) -> Iterator[Floats]:
    """Yield `Ranker.staged` every `STEP` rounds; large graphs are split if rows are scored independently."""
    if not ranker.row_by_row or len(graph) <= PIECE:
        yield from ranker.staged(graph.matrix(), STEP, graph.instances)
        return
    pieces = [slice(start, start + PIECE) for start in range(0, len(graph), PIECE)]
    scores = [list(ranker.staged(graph.matrix(piece), STEP)) for piece in pieces]
    yield from map(np.concatenate, zip(*scores, strict=True))


#: Folds still running after their caller stopped early.
_LEFT_RUNNING: Final[list[Future[Any]]] = []


def in_turn(run: Callable[[S, FitSettings], T], folds: Sequence[S], settings: FitSettings) -> Iterator[T]:
    """Yield ``run(fold, settings)`` in order, with ``settings.threads`` folds (0: one per core) in parallel.

    Each fold has one thread. If the caller stops early, pending folds are cancelled, and the next call waits for
    the running ones: LightGBM and XGBoost each load their own OpenMP, and running both at once crashed.
    """
    wait_for(_LEFT_RUNNING)
    _LEFT_RUNNING.clear()
    workers = min(settings.threads or os.cpu_count() or 1, max(1, len(folds)))
    pool, waiting = ThreadPoolExecutor(workers), iter(folds)

    def begin(count: int) -> list[Future[T]]:
        return [pool.submit(run, fold, replace(settings, threads=1)) for fold in islice(waiting, count)]

    begun = deque(begin(workers))
    try:
        while begun:
            yield begun.popleft().result()
            begun.extend(begin(1))  # only when the caller continues: folds of a pruned trial would delay the next
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        _LEFT_RUNNING.extend(future for future in begun if not future.cancelled())


#: Reduction factor of successive halving.
FACTOR: Final = 4


def rungs_of(rounds: int) -> list[int]:
    """Return the rounds at which trials are compared, each at most half of the next.

    >>> rungs_of(300), rungs_of(30)
    ([10, 50, 150, 300], [15, 30])
    """
    rungs = [rounds]
    for share in (1 / 2, 1 / 6, 1 / 30):
        few = max(10, round(rounds * share))
        if 2 * few <= rungs[0]:
            rungs.insert(0, few)
    return rungs


def climb(
    rungs: Sequence[int], data: TrainingData, folds: Sequence[Fold], ranker: Ranker[Any], settings: FitSettings
) -> Generator[Curves, None, None]:
    """Yield the curves of all folds at each rung; the last equal those of `FoldPlan.curves`."""

    def run(clone: tuple[Fold, Ranker[Any]], settings: FitSettings) -> Curves:
        fold, ranker = clone
        rest = data.without(fold.held)
        fitted = ranker.grow(rest, settings) if ranker.columns else ranker.fit(rest, settings)
        return _evaluated(data, fold.scored, fitted, settings.rounds)

    clones = [(fold, ranker.clone()) for fold in folds]
    for rounds in rungs:
        on_rung = replace(settings, rounds=rounds, grows=rounds != rungs[-1])
        yield replace(join_curves([*in_turn(run, clones, on_rung)]), scores={})


def out_of_fold_scores(
    ranker: Ranker[Any], data: TrainingData, folds: Sequence[Fold], settings: FitSettings
) -> Floats:
    """Return ``(rows,)`` out-of-fold scores, 0 for graphs that no fold scores."""
    scores = np.zeros(len(data.cost))

    def run(fold: Fold, settings: FitSettings) -> None:
        fitted = ranker.clone().fit(data.without(fold.held), settings)
        for group in fold.scored:
            part = data.parts[group]
            scores[data.rows_of(group)] = fitted.predict(part.matrix(), data.columns, part.instances)

    # With one thread the caller may itself run in a fold: `in_turn` would wait for it forever.
    for _ in map(run, folds, [settings] * len(folds)) if settings.threads == 1 else in_turn(run, folds, settings):
        pass
    return scores
