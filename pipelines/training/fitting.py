"""Fitting, validation and saving of the rankers of one collection, from scratch or warm-started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from xlarank.data.errors import (
    MAX_SEED,
    ClusterError,
    CollectionError,
    ModelError,
    counted,
    require_ranges,
)
from xlarank.data.workspace import Workspace
from xlarank.models.arrays import Floats
from xlarank.models.base import Ranker, mean_importance
from xlarank.models.rankers.boosted import LambdaRank
from xlarank.models.rankers.tree_cluster import TreeCluster
from xlarank.models.trained import DEFAULT, Continued, ModelCard, save_model
from xlarank.models.training_data import FitSettings, target_of
from xlarank.models.validation.folds import KIND, Fallback, Fold, FoldPlan
from xlarank.models.validation.metrics import objective_value, require_selection, summarise
from xlarank.pipelines.support.processes import connected
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.results import results_table, write_results
from xlarank.pipelines.support.workspaces import workspace_lock
from xlarank.pipelines.training.training_sets import StoredTrainingSet


@dataclass(frozen=True)
class TrainResult:
    """Result of training on one collection; ``skipped`` is the reason if it was left out.

    Attributes:
        why: how "auto" chose the ranker, or which model was continued; else empty.
        note: warning about the training.
        rounds, chosen_by: boosting rounds (added ones of a continued model), and how the number was
            chosen.
        folds: out-of-fold summary (`xlarank.models.validation.metrics.summarise`); empty without
            folds.
    """

    collection: str
    model: str = ""
    tuned: bool = False
    why: str = ""
    note: str = ""
    graphs: int = 0
    rows: int = 0
    families: int = 0
    rounds: int = 0
    chosen_by: str = ""
    seeds: int = 0
    fallback: str = ""
    folds: dict[str, dict[str, Any]] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    skipped: str = ""


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """Settings of `train` and `fine_tune`; invalid ones raise `XlarankError`.

    Attributes:
        also_from: extra training collections of the same kind, not scored: ``NAME`` or
            ``NAME=WEIGHT``, the weight of each graph (default 1). Families held out by a fold are
            held out in them, too.
        with_valid: also train on the valid split; afterwards, scores on it are meaningless.
        rounds: maximum number of boosting rounds; cross-validation chooses.
        select: criterion by which cross-validation chooses, one of
            `xlarank.models.validation.metrics.SELECTIONS`.
        threads: cores, 0 for all; with ``scheduler`` "local" the number of worker processes.
        engine: "local", or "dask" to grow all trees on the workers of a cluster, whose number
            changes the trees.
        scheduler: address of the cluster, or "local" to start one on this machine.
        allow_constant: whether to save models whose scores are all equal.
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

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", "valid") if self.with_valid else ("train",)

    def __post_init__(self) -> None:
        require_ranges(seeds=self.seeds, rounds=self.rounds, seed=self.seed, threads=self.threads)
        require_selection("select", self.select)
        if self.engine not in ("local", "dask"):
            raise ModelError(f"`engine` is {self.engine!r}", expected="local or dask")
        if (self.engine == "dask") != (self.scheduler is not None):
            expected = "`engine=dask` with `scheduler=host:port`, or local for one on this machine"
            got = f"`engine` is {self.engine} and `scheduler` is {self.scheduler}"
            raise ClusterError(got, expected=expected)
        if self.scheduler is not None and self.model != LambdaRank.name:
            expected = (
                f"{LambdaRank.name}: LightGBM distributes its own losses, not those of other "
                "rankers"
            )
            got = f"`engine=dask` with `model={self.model}`"
            do = "leave out `engine`, or `model`"
            raise ModelError(got, expected=expected, do=do)


@contextmanager
def fit_settings(request: TrainRequest) -> Iterator[FitSettings]:
    """Yield the settings of all fits, connected to a cluster if requested; raises
    `ClusterError`.
    """
    settings = FitSettings(request.rounds, request.seed, request.threads)
    if request.scheduler is None:
        yield settings
        return
    with connected(request.scheduler, settings.threads) as client:
        # one thread: each booster uses all workers, so folds run one after another
        yield replace(settings, threads=1, cluster=TreeCluster(client))


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """Rows, folds and settings of the training of one collection."""

    workspace: Workspace
    training: StoredTrainingSet
    plan: FoldPlan
    request: TrainRequest
    settings: FitSettings
    progress: Progress | None

    def steps(self, candidates: int) -> AbstractContextManager[Callable[[str], None]]:
        """Return a context that begins the progress of all fits and yields the function that
        advances it.
        """
        total = candidates * len(self.plan.folds) + self.request.seeds
        return steps_of(self.progress, f"training {self.training.collection}", total)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Unfitted rankers with their number of rounds and out-of-fold scores.

    Attributes:
        rankers: assigned to seeds in turn.
        metrics, scores: out-of-fold values by graph; empty without folds.
        value: aggregate of the out-of-fold scores by ``TrainRequest.select``.
    """

    rankers: Sequence[Ranker[Any]]
    tuned: bool
    rounds: int
    chosen_by: str
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    scores: dict[str, Floats] = field(default_factory=dict)
    value: float = 0.0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.rankers[0].name


def validate(
    job: TrainingJob,
    rankers: Sequence[Ranker[Any]],
    tuned: bool,
    step: Callable[[str], None],
    default: tuple[int, str],
    note: str = "",
) -> Candidate:
    """Cross-validate the first ranker and choose the number of rounds; ``note`` prefixes progress
    notes.

    ``default`` is the number of rounds without folds (at most that of the request) and why there
    are no folds.
    """
    if not job.plan.folds:
        rounds, reason = default
        return Candidate(rankers, tuned, min(rounds, job.request.rounds), f"default ({reason})")

    def report_fold(fold: Fold) -> None:
        families = sorted({job.training.data.families[group] for group in fold.held})
        step(f"{note}held out {', '.join(families)}")

    began = time.perf_counter()
    select = job.request.select
    curves = job.plan.curves(job.training.data, rankers[0], job.settings, report_fold)
    stage = curves.best_stage(select)
    chosen_by = f"{len(job.plan.folds)} folds by {job.plan.by}"
    value = float(objective_value(curves.column("score")[:, stage], select))
    return Candidate(
        rankers,
        tuned,
        curves.rounds[stage],
        chosen_by,
        curves.at(stage),
        curves.scores_at(stage),
        value,
        time.perf_counter() - began,
    )


def fit_seeds(
    job: TrainingJob, choice: Candidate, step: Callable[[str], None]
) -> list[Ranker[Any]]:
    """Fit a ranker for each seed on all rows."""
    data = job.training.data.with_also()
    fitted = []
    for number in range(job.request.seeds):
        seed = (job.request.seed + number) % (MAX_SEED + 1)
        settings = replace(job.settings, rounds=choice.rounds, seed=seed)
        fitted.append(
            choice.rankers[number % len(choice.rankers)].clone().fit(data, settings).finish()
        )
        step(f"seed {seed}, {counted(choice.rounds, 'round')}")
    return fitted


def save(
    job: TrainingJob,
    choice: Candidate,
    rankers: Sequence[Ranker[Any]],
    evaluated: Sequence[Candidate],
    why: str,
    *,
    continues: Continued | None = None,
    kinds: Sequence[str] = (),
) -> TrainResult:
    """Replace the model of the collection and write the out-of-fold results of the ``evaluated``
    candidates.

    ``continues`` is the model that the rankers were warm-started from, and ``kinds`` are its kernel
    families. Raises `CollectionError`, before anything is replaced, if all scores of a new model
    are equal, unless allowed.
    """
    training = job.training
    data = job.training.data.with_also()
    by = job.plan.by
    certain_kinds = {part.kinds[0] for part in data.parts if len(part.kinds) == 1}
    importance = mean_importance(rankers)
    may_be_constant = job.request.allow_constant or continues is not None
    note = "" if importance else _require_scores_that_differ(training, rankers[0], may_be_constant)
    card = ModelCard(
        collection=str(training.collection),
        model=choice.name,
        params=rankers[0].params.values(),
        rounds=choice.rounds,
        tuned=choice.tuned,
        recipe=training.manifest.recipe,
        columns=training.manifest.columns,
        trained_on=training.splits,
        also_from=training.also_from,
        also_weights=training.also_weights,
        continues=continues,
        folds=choice.metrics,
        folds_by=by,
        target=target_of(training.collection).name,
        kinds=sorted({*certain_kinds, *kinds}),
        fallback=Fallback() if by == KIND else None,
        select=job.request.select,
    )
    tables = [
        results_table(
            candidate.metrics,
            candidate.name,
            scope=(card.collection, "train", by),
            tuned=candidate.tuned,
            seconds=candidate.seconds,
        )
        for candidate in evaluated
        if candidate.metrics
    ]
    with workspace_lock(job.workspace, job.progress):
        training.require_current(job.workspace)
        save_model(job.workspace.model(training.collection), card, rankers)
        write_results(job.workspace, tables)
        with suppress(OSError):  # if old predictions cannot be removed, writing new ones raises
            job.workspace.predictions(training.collection, choice.name).unlink()
        training.write_scores(
            job.workspace, job.plan, choice.name, choice.scores, job.settings.seed
        )
    return TrainResult(
        card.collection,
        card.model,
        card.tuned,
        why,
        note,
        graphs=data.groups,
        rows=len(data.cost),
        families=len(set(data.families)),
        rounds=choice.rounds,
        chosen_by=choice.chosen_by,
        seeds=len(rankers),
        fallback=str(card.fallback) if card.fallback else "",
        importance=importance,
        folds=summarise(choice.metrics) if choice.metrics else {},
    )


def _require_scores_that_differ(
    training: StoredTrainingSet, ranker: Ranker[Any], may_be_constant: bool
) -> str:
    """Return a warning about a ranker without splits; raise `CollectionError` for equal scores,
    unless allowed.
    """
    data = training.data.with_also()
    reason = f"too few rows to train {ranker.name} ({counted(len(data.cost), 'row')})"
    note = "" if ranker.is_time_model else f"{training.collection}: no tree has a split: {reason}"
    scores = (ranker.predict(part.matrix(), data.columns, part.instances) for part in data.parts)
    if not may_be_constant and all(np.ptp(graph_scores) == 0 for graph_scores in scores):
        cause = f"{note}, and" if note else f"{training.collection}:"
        raise CollectionError(
            f"{cause} all scores are equal, so the model is not saved",
            do="add graphs or configurations, or run tune, which tries smaller leaves "
            "(min_data_in_leaf); "
            "`allow_constant` saves it",
        )
    return note
