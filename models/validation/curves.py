"""Out-of-fold scores: every graph is scored by models that never saw its family."""

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

from xlarank.data.family import program_family
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats
from xlarank.models.base import Ranker
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.folds import Fallback, Fold, family_folds, kind_folds, whole_folds
from xlarank.models.validation.metrics import graph_metrics, objective_value

S = TypeVar("S")
T = TypeVar("T")

#: Numbers of rounds are compared on this grid; a finer one would only fit noise.
STEP: Final = 25
#: Rows of a graph that are written out in full to be scored at once.
PIECE: Final = 16_384
FAMILY, KIND = "family", "kind"
#: In words, what folds hold out.
FOLDS_OF: Final = {FAMILY: "families", KIND: "kinds of kernels"}
#: Leave-one-out up to this many families or kinds; more are dealt into as many folds.
MOST_FOLDS: Final = 10


@dataclass(frozen=True)
class Curves:
    """Metrics of each graph, ``{graph: [metrics at each stage]}``, after ``rounds (stages,)``."""

    rounds: list[int]
    metrics: dict[str, list[dict[str, float]]]
    # scores: of each graph, ``(rows,)`` at each stage; empty for the rungs of a study.
    scores: dict[str, list[Floats]] = field(default_factory=dict, compare=False)

    def column(self, metric: str) -> Floats:
        """``(graphs, stages)`` of one metric."""
        return np.array([[stage[metric] for stage in stages] for stages in self.metrics.values()])

    def smooth_score(self, how: str = "mean") -> Floats:
        """``(stages,)`` `objective_value` of the scores of all graphs, averaged with the stages before and after.

        Few graphs make a jagged curve; a stage is worth choosing where its neighbours do well too.
        """
        padded = np.pad(objective_value(self.column("score"), how), 1, mode="edge")
        smooth: Floats = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
        return smooth

    def best_stage(self, how: str = "mean") -> int:
        """The stage of the highest smooth score; the earliest of equals."""
        return int(np.argmax(self.smooth_score(how)))

    def scores_at(self, stage: int) -> dict[str, Floats]:
        """Return ``{graph: (rows,) scores}`` at one stage."""
        return {name: stages[stage] for name, stages in self.scores.items()}

    def at(self, stage: int) -> dict[str, dict[str, float]]:
        """``{graph: {metric: value}}`` at one stage."""
        return {name: stages[stage] for name, stages in self.metrics.items()}


def join_curves(parts: Sequence[Curves]) -> Curves:
    """Curves of several folds, all over the same rounds, as one."""
    metrics = {name: stages for part in parts for name, stages in part.metrics.items()}
    return Curves(
        parts[0].rounds, metrics, {name: stages for part in parts for name, stages in part.scores.items()}
    )


@dataclass(frozen=True)
class FoldPlan:
    """Which graphs are held out together."""

    by: str  # a key of `FOLDS_OF`
    folds: list[Fold]  # empty where nothing can be held out

    @classmethod
    def of(cls, data: TrainingData, most: int = MOST_FOLDS) -> FoldPlan:
        """At most so many folds: kinds of kernels for tiles of two kinds or more, else program families.

        Folds of families leave a kind of kernel in training under another family's name, and so tell nothing of
        kernels that are new.
        """
        return cls.of_graphs(data.names, [graph.kinds for graph in data.parts], most)

    @classmethod
    def of_graphs(cls, names: Sequence[str], kinds: Sequence[Sequence[str]], most: int = MOST_FOLDS) -> FoldPlan:
        """Return the folds of graphs by their names and the kinds of kernel that each may be of."""
        by_kind = kind_folds(kinds, most)  # none of layouts
        families = [program_family(name) for name in names]
        return cls(KIND, by_kind) if len(by_kind) > 1 else cls.of_families(family_folds(families, most))

    @classmethod
    def of_families(cls, folds: Sequence[Sequence[int]]) -> FoldPlan:
        """Folds that hold out whole program families, and score all that they hold out."""
        return cls(FAMILY, whole_folds(folds))

    @property
    def held(self) -> list[list[int]]:
        """Graphs that each fold holds out."""
        return [fold.held for fold in self.folds]

    @property
    def chosen_by(self) -> str:
        """In words, what a choice by them goes by."""
        return f"{len(self.folds)} folds by {self.by}"

    def curves(
        self,
        data: TrainingData,
        ranker: Ranker[Any],
        settings: FitSettings,
        step: Callable[[Fold], None] = lambda fold: None,
    ) -> Curves:
        """Out-of-fold curves of the graphs that folds score, in the order of the data; there must be one fold.

        ``step`` is called after each fold.
        """
        fallback, parts = Fallback() if self.by == KIND else None, []
        for fold, part in zip(self.folds, validate_folds(data, self.held, ranker, settings, fallback), strict=True):
            names = [data.names[g] for g in fold.scored]
            metrics = {name: part.metrics[name] for name in names}
            scores = {name: part.scores[name] for name in names if name in part.scores}
            parts.append(Curves(part.rounds, metrics, scores))
            step(fold)
        found = join_curves(parts)
        return replace(found, metrics={name: found.metrics[name] for name in data.names if name in found.metrics})


def validate_folds(
    data: TrainingData,
    folds: Sequence[Sequence[int]],
    ranker: Ranker[Any],
    settings: FitSettings,
    fallback: Fallback | None = None,
) -> Generator[Curves, None, None]:
    """`validate_fold` for each fold, in order; ``settings.threads`` (0: all cores) folds at a time: `in_turn`."""
    return in_turn(lambda held, each: validate_fold(data, held, ranker, each, fallback), folds, settings)


def validate_fold(
    data: TrainingData,
    held: Sequence[int],
    ranker: Ranker[Any],
    settings: FitSettings,
    fallback: Fallback | None = None,
) -> Curves:
    """Fit a clone of the ranker without the held-out groups and evaluate these along the rounds.

    Every configuration of a held-out graph counts, those that are identical to another included. The scores are
    blended with the ``fallback``, if any.
    """
    fitted = ranker.clone().fit(data.without(held), settings)
    return _evaluated(data, held, fitted, settings.rounds, fallback)


def _evaluated(
    data: TrainingData, held: Sequence[int], fitted: Ranker[Any], rounds: int, fallback: Fallback | None = None
) -> Curves:
    stages = [*range(0 if fitted.ranks_without_trees else STEP, rounds, STEP), rounds]
    metrics: dict[str, list[dict[str, float]]] = {}
    scores: dict[str, list[Floats]] = {}
    for g in held:
        graph = data.parts[g]
        scored = [score if fallback is None else fallback.blend(graph, score) for score in _staged(fitted, graph)]
        found = [graph_metrics(fitted.kind, score[graph.group], graph.cost, graph.group) for score in scored]
        missing = len(stages) - len(found)  # it ran out of splits: more rounds change nothing
        metrics[data.names[g]] = found + found[-1:] * missing
        scores[data.names[g]] = scored + scored[-1:] * missing
    return Curves(stages, metrics, scores)


def _staged(ranker: Ranker[Any], graph: GraphRows) -> Iterator[Floats]:
    """`Ranker.staged` each `STEP` rounds; a large graph in pieces, where the ranker looks at each row alone."""
    if not ranker.row_by_row or len(graph) <= PIECE:
        yield from ranker.staged(graph.matrix(), STEP, graph.instances)
        return
    pieces = [slice(start, start + PIECE) for start in range(0, len(graph), PIECE)]
    scores = [list(ranker.staged(graph.matrix(piece), STEP)) for piece in pieces]
    yield from map(np.concatenate, zip(*scores, strict=True))


#: Folds still running for a caller that stopped early.
_LEFT_RUNNING: Final[list[Future[Any]]] = []


def in_turn(
    run: Callable[[S, FitSettings], T], folds: Sequence[S], settings: FitSettings
) -> Generator[T, None, None]:
    """Results of a function of a fold and its settings, in order; ``settings.threads`` (0: all cores) at a time.

    One thread per fold: LightGBM's own would mostly wait for each other on groups of this size. A caller that stops
    early stops the folds not yet begun; those that still run are waited for by the next call: LightGBM and XGBoost
    each bring an OpenMP of their own, and a fold of one beside folds of the other once ended the process.
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
            # Only now, when the caller wants to go on: folds of a trial that was given up would hold up the next.
            begun.extend(begin(1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after an interruption nobody waits for a running fold
        _LEFT_RUNNING.extend(future for future in begun if not future.cancelled())


#: Of the trials that reach a rung one in so many climbs on.
FACTOR: Final = 4
#: Shares of the rounds on each rung, the last one apart, and the least number: fewer rounds say little.
_SHARES, _LEAST = (1 / 30, 1 / 6, 1 / 2), 10


def rungs_of(rounds: int) -> list[int]:
    """Numbers of rounds after which scores are compared, the last one all of them.

    One that costs more than half of the next is left out: with few rounds there is nothing to save.

    >>> rungs_of(300), rungs_of(30)
    ([10, 50, 150, 300], [15, 30])
    """
    found = [rounds]
    for share in reversed(_SHARES):
        few = max(_LEAST, round(rounds * share))
        if 2 * few <= found[0]:
            found.insert(0, few)
    return found


def climb(
    rungs: Sequence[int], data: TrainingData, folds: Sequence[Fold], ranker: Ranker[Any], settings: FitSettings
) -> Generator[Curves, None, None]:
    """Curves of all folds on one rung after the other; ``settings.threads`` (0: all cores) folds at a time.

    Trees grow on from rung to rung, so the curves of the last one are those of `validate_folds`. A caller that
    stops early saves all that would have come.
    """

    def run(fitted: tuple[Fold, Ranker[Any]], each: FitSettings) -> Curves:
        (scored, held), one = fitted
        left = data.without(held)
        one = one.grow(left, each) if one.columns else one.fit(left, each)
        return _evaluated(data, scored, one, each.rounds)

    clones = [(fold, ranker.clone()) for fold in folds]
    for rounds in rungs:
        these = replace(settings, rounds=rounds, grows=rounds != rungs[-1])
        yield replace(join_curves([*in_turn(run, clones, these)]), scores={})


def out_of_fold_scores(
    ranker: Ranker[Any], data: TrainingData, folds: Sequence[Fold], settings: FitSettings
) -> Floats:
    """``(rows,)`` scores of the graphs that folds score, by clones of the ranker fitted without those held out.

    ``settings.threads`` (0: all cores) folds at a time. Graphs that no fold scores have score 0.
    """
    scores = np.zeros(len(data.cost))

    def run(fold: Fold, each: FitSettings) -> None:
        fitted = ranker.clone().fit(data.without(fold.held), each)
        for group in fold.scored:
            part = data.parts[group]
            scores[data.rows_of(group)] = fitted.predict(part.matrix(), data.columns, part.instances)

    # Within a fold of others there is one thread, and `in_turn` would wait for the fold that calls it.
    for _ in map(run, folds, [settings] * len(folds)) if settings.threads == 1 else in_turn(run, folds, settings):
        pass
    return scores
