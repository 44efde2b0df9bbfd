"""From stored rows to saved models, collection by collection: what `train` and `fine_tune` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import polars as pl

from xlarank.data.errors import ClusterError, CollectionError, ModelError
from xlarank.data.ranges import MAX_SEED, require_ranges, thread_count
from xlarank.data.workspace import Workspace
from xlarank.features.targets import target_of
from xlarank.models.arrays import Floats
from xlarank.models.base import Ranker, mean_importance
from xlarank.models.rankers.tree_cluster import TreeCluster
from xlarank.models.rankers.wide_rows import LambdaRank
from xlarank.models.registry import DEFAULT
from xlarank.models.trained import Continued, ModelCard, save_model
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.curves import KIND, FoldPlan
from xlarank.models.validation.folds import Fallback, Fold, learned_kinds
from xlarank.models.validation.metrics import objective_value, require_selection, summarise
from xlarank.pipelines.support.cluster import connected
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.results import results_table, write_results
from xlarank.pipelines.support.score_files import drop_predictions, write_out_of_fold
from xlarank.pipelines.support.training_sets import StoredTrainingSet, read_training_set
from xlarank.pipelines.support.workspace_collections import chosen_collections, weighted_collections
from xlarank.pipelines.support.workspace_lock import workspace_lock

#: Values of ``engine``.
ENGINES: Final = ("local", "dask")


@dataclass(frozen=True)
class TrainResult:
    """One trained collection, or why it was left out.

    Attributes:
        why: how the ranker was chosen, or which model is continued.
        note: what to know of the training.
        rounds: trees per seed; ``chosen_by`` says how the number was chosen.
        fallback: what kernels of unseen kinds fall back on, in words; empty for nothing.
        folds: out-of-fold summary (`xlarank.models.validation.metrics.summarise`); empty without folds.
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
    """Settings of `train` and `fine_tune`.

    Attributes:
        also_from: other collections of the same kind to train on but not to score, each ``NAME`` or
            ``NAME=WEIGHT``, the weight of each graph (1). A fold holds out a family in all of them.
        with_valid: also train on the valid split, before a submission; scores on valid mean nothing afterwards.
        rounds: the most boosting rounds; folds choose the number.
        select: criterion of the best number of rounds, one of `xlarank.models.validation.metrics.SELECTIONS`.
        threads: cores, 0 for all; with ``scheduler`` "local" the number of worker processes.
        engine: "local", or "dask" to grow trees, those of the folds too, on the workers of a cluster. One worker
            makes the trees that this process would; several make others, and as many always the same.
        scheduler: address of the cluster, or "local" for one that is started here.
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
        """Raise `XlarankError` for what cannot be used."""
        require_ranges(seeds=self.seeds, rounds=self.rounds, seed=self.seed)
        require_selection(self.select)
        if self.engine not in ENGINES:
            raise ModelError(f"--engine is {self.engine!r}", expected=" or ".join(ENGINES))
        if (self.engine == "dask") != (self.scheduler is not None):
            raise ClusterError(
                f"--engine is {self.engine} and --scheduler is {self.scheduler}",
                expected="--engine dask with --scheduler host:port, or local for one on this machine",
            )
        if self.scheduler is not None and self.model != LambdaRank.name:
            raise ModelError(
                f"--engine dask with --model {self.model}",
                expected=f"{LambdaRank.name}: LightGBM distributes its own losses, not those of other rankers",
                do="leave out --engine, or --model",
            )


@dataclass(frozen=True, eq=False)
class Choice:
    """How the boosters of a collection are fitted.

    Attributes:
        rankers: unfitted; the seeds take them in turn.
        rounds, chosen_by: trees of each, and in words why so many.
        metrics, scores: out of fold, of each graph and of its ``(rows,)``; empty without folds.
        value: what rankers are compared by.
        why: in words, how the ranker was chosen.
        continues: the model that they continue, and ``kinds`` of kernels that it was trained on.
    """

    rankers: Sequence[Ranker[Any]]
    tuned: bool
    rounds: int
    chosen_by: str
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    scores: dict[str, Floats] = field(default_factory=dict)
    value: float = 0.0
    why: str = ""
    continues: Continued | None = None
    kinds: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Job:
    """The training of one collection: its rows, its folds and what was asked for."""

    workspace: Workspace
    training: StoredTrainingSet
    plan: FoldPlan
    request: TrainRequest
    settings: FitSettings
    progress: Progress
    results: list[pl.DataFrame] = field(default_factory=list)

    def begin(self, candidates: int) -> None:
        """Announce the work of so many candidates and of the boosters."""
        steps = candidates * len(self.plan.folds) + self.request.seeds
        self.progress.begin(f"training {self.training.collection}", steps)

    def choose_rounds(
        self, rankers: Sequence[Ranker[Any]], tuned: bool, default: int, why: str, name: str = ""
    ) -> Choice:
        """Validate the first of the rankers out of fold and choose the number of rounds.

        Without folds it is ``default`` or the most there may be, because of ``why``. Steps of the progress begin
        with ``name``.
        """
        if not self.plan.folds:
            return Choice(rankers, tuned, min(default, self.settings.rounds), f"default ({why})")

        def step(fold: Fold) -> None:
            families = sorted({self.training.data.families[group] for group in fold.held})
            self.progress.step(f"{name}held out {', '.join(families)}")

        began = time.perf_counter()
        curves = self.plan.curves(self.training.data, rankers[0], self.settings, step)
        stage = curves.best_stage(self.request.select)
        metrics = curves.at(stage)
        values = np.array([values["score"] for values in metrics.values()])
        value = float(objective_value(values, self.request.select))
        place, seconds = (str(self.training.collection), "train", self.plan.by), time.perf_counter() - began
        self.results.append(results_table(metrics, rankers[0].name, place=place, tuned=tuned, seconds=seconds))
        scores = curves.scores_at(stage)
        return Choice(rankers, tuned, curves.rounds[stage], self.plan.chosen_by, metrics, scores, value)


def fit_collections(
    workspace: Workspace,
    request: TrainRequest,
    plan_of: Callable[[StoredTrainingSet], FoldPlan],
    choose: Callable[[Job], Choice],
    progress: Progress | None,
) -> list[TrainResult]:
    """Fit and save the boosters that ``choose`` chooses, collection by collection, by the folds of ``plan_of``.

    A collection that cannot be trained is left out with a reason; it raises `CollectionError` when it was asked
    for by name or when nothing at all could be trained. Raises as `connected`, too.
    """
    progress = progress or Silent()
    workspace.require_writable()
    weights = weighted_collections(request.also_from)
    others = {other: weight for name, weight in weights.items() for other in chosen_collections(workspace, [name])}
    settings = FitSettings(request.rounds, request.seed, thread_count(request.threads))
    results: list[TrainResult] = []
    with ExitStack() as stack:
        if request.scheduler is not None:
            client = stack.enter_context(connected(request.scheduler, settings.threads))
            # one thread: each booster takes all workers, so folds wait for each other
            settings = replace(settings, threads=1, cluster=TreeCluster(client))
        for collection in chosen_collections(workspace, request.collections):
            began = time.monotonic()
            try:
                training = read_training_set(workspace, collection, request.splits, others)
                job = Job(workspace, training, plan_of(training), request, settings, progress)
                result = fit_and_save(job, choose)
                results.append(replace(result, seconds=time.monotonic() - began))
            except CollectionError as error:
                if str(collection) in request.collections:
                    raise
                results.append(TrainResult(str(collection), skipped=str(error)))
    if all(result.skipped for result in results):
        raise CollectionError("; ".join(result.skipped for result in results))
    return results


def fit_and_save(job: Job, choose: Callable[[Job], Choice]) -> TrainResult:
    """Fit the boosters on all rows and replace the model of the collection.

    Raises `CollectionError`, before anything is replaced, where nothing was learned.
    """
    request, training, data = job.request, job.training, job.training.data.whole()
    rankers: list[Ranker[Any]] = []
    try:
        choice = choose(job)
        for number in range(request.seeds):
            seed = (request.seed + number) % (MAX_SEED + 1)
            each = replace(job.settings, rounds=choice.rounds, seed=seed)
            rankers.append(choice.rankers[number % len(choice.rankers)].clone().fit(data, each).finish())
            job.progress.step(f"seed {seed}, {each.rounds} rounds")
    finally:
        job.progress.end()
    first, note = rankers[0], ""
    importance = mean_importance(rankers)
    if not importance:
        few = f"{len(data.cost)} rows are too few to train {first.name}"
        note = "" if first.is_time_model else f"{training.collection}: no tree has a split: {few}"
        parts = (first.predict(part.matrix(), data.columns, part.instances) for part in data.parts)
        if not request.allow_constant and all(np.ptp(scores) == 0 for scores in parts):
            raise CollectionError(
                f"{note}, and all scores are equal, so the model is not saved",
                do="add graphs or configurations, or run tune, which tries smaller leaves (min_data_in_leaf); "
                "--allow-constant saves it",
            )
    card = ModelCard(
        collection=str(training.collection), model=first.name, params=first.params.values(), rounds=choice.rounds,
        tuned=choice.tuned, recipe=training.manifest.recipe, columns=training.manifest.columns,
        trained_on=training.splits, also_from=training.also_from, also_weights=training.also_weights,
        continues=choice.continues, folds=choice.metrics, folds_by=job.plan.by,
        target=target_of(training.collection).name, kinds=sorted({*learned_kinds(data.parts), *choice.kinds}),
        fallback=Fallback() if job.plan.by == KIND else None, select=request.select,
    )  # fmt: skip
    with workspace_lock(job.workspace, job.progress):
        training.require_current(job.workspace)
        save_model(job.workspace.model(training.collection), card, rankers)
        write_results(job.workspace, job.results)
        drop_predictions(job.workspace, training.collection, first.name)
        write_out_of_fold(job.workspace, training, job.plan, first.name, choice.scores, job.settings.seed)
    return TrainResult(
        card.collection, card.model, card.tuned, choice.why, note, graphs=data.groups, rows=len(data.cost),
        families=len(set(data.families)), rounds=choice.rounds, chosen_by=choice.chosen_by, seeds=request.seeds,
        fallback=str(card.fallback) if card.fallback else "", importance=importance,
        folds=summarise(choice.metrics) if choice.metrics else {},
    )  # fmt: skip
