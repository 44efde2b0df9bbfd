"""Fit the final boosters of each collection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.ranges import MAX_SEED, require_ranges, thread_count
from xlarank.data.workspace import Workspace
from xlarank.features.targets import target_of
from xlarank.models.base import Ranker
from xlarank.models.fallback import Fallback, learned_kinds
from xlarank.models.fit_settings import FitSettings
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import DEFAULT, RANKERS, ranker_class
from xlarank.models.trained import ModelCard, save_model
from xlarank.models.validation.best_params import params_for
from xlarank.models.validation.curves import Curves
from xlarank.models.validation.fold_plan import KIND, MOST_FOLDS, FoldPlan
from xlarank.models.validation.folds import Fold
from xlarank.models.validation.metrics import summarise
from xlarank.models.validation.paired import difference
from xlarank.models.validation.selection import objective_value, paired_difference, require_selection
from xlarank.pipelines.support.engines import require_engine, tree_cluster
from xlarank.pipelines.support.fine_tuning import (
    DEFAULT_RATE,
    DEFAULT_ROUNDS,
    FEWEST_FAMILIES,
    RATES,
    FineTuning,
    advice,
    told_start,
)
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.training_sets import (
    StoredTrainingSet,
    also_learn_from,
    read_training_set,
)
from xlarank.pipelines.support.workspace_collections import chosen_collections, weighted_collections
from xlarank.pipelines.support.workspace_lock import workspace_lock

#: In place of a ranker's name: whichever scores best out of fold, for each collection.
AUTO: Final = "auto"
#: Told beside the score where rankers are compared: a lead in tau may be worth no runtime.
_SLOWDOWNS: Final = ("slowdown@1", "slowdown@5")
#: Rounds where there are no folds to choose by.
_DEFAULT_ROUNDS: Final = 150


@dataclass
class TrainResult:
    """One trained collection, or why it was left out.

    Attributes:
        graphs, rows, families: learned from.
        why: how the ranker was chosen, where it was left to `AUTO`.
        note: what to know of the training.
        rounds: trees per seed; ``chosen_by`` says how the number was found.
        fallback: what kernels of kinds never seen fall back on, in words; empty for nothing.
        folds: out-of-fold report of `xlarank.models.validation.metrics.summarise`; empty without folds.
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


def train(
    workspace: Workspace,
    *,
    collections: Sequence[str] = (),
    also_from: Sequence[str] = (),
    fine_tune: str | None = None,
    model: str = DEFAULT,
    seeds: int = 3,
    with_valid: bool = False,
    rounds: int = 300,
    select: str = "mean",
    seed: int = 0,
    threads: int = 0,
    engine: str = "local",
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[TrainResult]:
    """Fit ``seeds`` boosters per collection, with tuned parameters where a study left them.

    The number of rounds is the best, at most ``rounds``, of folds with these very parameters that hold out program
    families, or kinds of kernels for tiles, which fall back as kinds never seen do (`xlarank.models.fallback`); the
    folds' scores are kept in the model. ``select`` is what the number is best by, one of
    `xlarank.models.validation.selection.SELECTIONS`. ``with_valid`` also learns from the valid
    split (for a submission: `evaluate` on valid means nothing afterwards).

    ``also_from`` names collections of the same kind that are learned from, too, and not judged on. A fold holds out
    a family in all of them. ``NAME=WEIGHT`` says what each of its graphs counts beside one of the own collection.

    ``fine_tune`` names a model to go on from instead of learning from nothing: "shipped" for the ranker that comes
    with xlarank, a collection with a model in the workspace, or the folder of a model. Its rankers get more trees,
    on the columns that it looks at; ``rounds`` are then those, and the folds also choose how fast they learn. Only
    families that the model did not know are judged; with fewer than `FEWEST_FAMILIES` of them both are defaults.

    ``model`` "auto" scores every ranker by the same folds, each with its tuned parameters or else its defaults,
    and trains the best, collection by collection. A ranker that cannot run here (no xgboost) is passed over. The
    best of several out-of-fold scores is a little lucky: other graphs tell how good it is.

    ``engine`` "dask" grows the trees, those of the folds too, on the workers of a Dask cluster: ``scheduler`` is
    its address, or "local" for ``threads`` worker processes here. The model is an ordinary one. One worker
    makes the trees that this process would, several make others, and as many always the same.

    A collection that cannot be trained is left out with a reason; it raises `CollectionError` when it was
    asked for by name or when nothing at all could be trained.
    """
    require_ranges(seeds=seeds, rounds=rounds, seed=seed)
    threads = thread_count(threads)
    require_selection(select)
    if model != AUTO:
        ranker_class(model)
    tuning = FineTuning.find(fine_tune, workspace) if fine_tune is not None else None
    if tuning is not None and model not in (DEFAULT, tuning.model.card.model):
        raise ModelError(
            f"--model {model} beside a model to continue, which is of {tuning.model.card.model}",
            do="leave one of them out",
        )
    require_engine(engine, scheduler, tuning.model.card.model if tuning is not None else model)
    workspace.require_writable()
    progress = progress or Silent()
    weights = weighted_collections(also_from)
    others = dict(zip(chosen_collections(workspace, [*weights]), weights.values(), strict=True)) if weights else {}
    results: list[TrainResult] = []
    with tree_cluster(scheduler, threads) as cluster:
        for collection in chosen_collections(workspace, collections):
            try:
                splits = ("train", "valid") if with_valid else ("train",)
                besides = {other: weight for other, weight in others.items() if other != collection}
                training = read_training_set(workspace, collection, splits)
                training = also_learn_from(training, workspace, besides)
                if tuning is not None:
                    tuning.require_fit(training)
            except CollectionError as error:
                if collections:
                    raise
                results.append(TrainResult(str(collection), skipped=str(error)))
                continue
            learned = training.whole()
            if cluster is None:
                settings = FitSettings(rounds, seed, threads)
            else:  # each booster takes the whole cluster, so folds wait for each other
                settings = FitSettings(rounds, seed, 1, cluster=cluster)
            job = _Training(workspace, training, learned, model, seeds, select, settings, tuning)
            results.append(job.run(progress))
    if all(result.skipped for result in results):
        raise CollectionError("; ".join(result.skipped for result in results))
    return results


@dataclass(frozen=True, eq=False)
class _Candidate:
    """An unfitted ranker and its out-of-fold curves, None without folds.

    Attributes:
        select: what the choice goes by.
        seeds: one of each seed that it differs for; a model that is continued has several.
        rate: see `xlarank.models.trained.Continued`.
    """

    ranker: Ranker[Any]
    tuned: bool
    curves: Curves | None
    select: str
    seeds: Sequence[Ranker[Any]] = ()
    rate: float = 1.0

    @cached_property
    def stage(self) -> int:
        """The stage of the best number of rounds."""
        assert self.curves is not None
        return self.curves.best_stage(self.select)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Out-of-fold metrics of each graph at the best number of rounds."""
        assert self.curves is not None
        return self.curves.at(self.stage)

    @property
    def scores(self) -> dict[str, float]:
        """Out-of-fold score of each graph at the best number of rounds."""
        return {name: values["score"] for name, values in self.metrics.items()}

    @property
    def value(self) -> float:
        """What the choice goes by."""
        return float(objective_value(np.array(list(self.scores.values())), self.select))

    @property
    def told(self) -> str:
        return f"{self.ranker.name}{' (tuned)' if self.tuned else ''} {self.value:.3f}"


@dataclass(frozen=True)
class _Training:
    """The training of one collection."""

    workspace: Workspace
    training: StoredTrainingSet
    learned: RankingData
    model: str
    seeds: int
    select: str
    settings: FitSettings
    tuning: FineTuning | None = None

    def run(self, progress: Progress) -> TrainResult:
        started = time.monotonic()
        plan = self._plan()
        models = [self.model] if self.model != AUTO else [*RANKERS] if plan.folds else [DEFAULT]
        rates = self._rates(plan)
        progress.begin(f"training {self.training.collection}", len(rates or models) * len(plan.folds) + self.seeds)
        try:
            chosen, why = self._continued(rates, plan, progress) if rates else self._best(models, plan, progress)
            curves, fallback = chosen.curves, None
            if curves is None:
                most = DEFAULT_ROUNDS if self.tuning else _DEFAULT_ROUNDS
                rounds, chosen_by = min(most, self.settings.rounds), "default (one family, no folds)"
                if self.tuning:
                    chosen_by = "default (fewer than two families that the model did not know)"
                scores: dict[str, dict[str, float]] = {}
            elif len(rates) == 1:
                rounds, scores = curves.rounds[-1], curves.at(-1)
                chosen_by = f"default (fewer than {FEWEST_FAMILIES} families that the model did not know)"
            else:
                rounds, chosen_by, scores = curves.rounds[chosen.stage], plan.chosen_by, chosen.metrics
                if plan.by == KIND:
                    fallback = Fallback()
            rankers: list[Ranker[Any]] = []
            for number in range(self.seeds):
                settings = replace(
                    self.settings, rounds=rounds, seed=(self.settings.seed + number) % (MAX_SEED + 1)
                )
                unfitted = chosen.seeds[number % len(chosen.seeds)] if chosen.seeds else chosen.ranker
                rankers.append(unfitted.clone().fit(self.learned, settings).finish())
                progress.step(f"seed {settings.seed}, {rounds} rounds")
        finally:
            progress.end()
        card = ModelCard(
            collection=str(self.training.collection),
            model=chosen.ranker.name,
            params=chosen.ranker.params.values(),
            rounds=rounds,
            tuned=chosen.tuned,
            recipe=self.training.manifest.recipe,
            columns=self.training.manifest.columns,
            trained_on=self.training.splits,
            also_from=self.training.also_from,
            also_weights=self.training.also_weights,
            continues=self.tuning.told(chosen.rate) if self.tuning else None,
            folds=scores,
            folds_by=plan.by,
            target=target_of(self.training.collection).name,
            kinds=sorted(
                {*learned_kinds(self.learned.parts), *(self.tuning.model.card.kinds if self.tuning else ())}
            ),
            fallback=fallback,
            select=self.select,
        )
        with workspace_lock(self.workspace, progress):
            self.training.require_current(self.workspace)
            save_model(self.workspace.model(self.training.collection), card, rankers)
        mended = self.settings.cluster.told() if self.settings.cluster is not None else []
        return TrainResult(
            collection=card.collection,
            model=card.model,
            tuned=card.tuned,
            why=why,
            note=f"{self.training.collection}: {'; '.join(mended)}" if mended else "",
            graphs=self.learned.groups,
            rows=len(self.learned.cost),
            families=len(set(self.learned.families)),
            rounds=rounds,
            chosen_by=chosen_by,
            fallback=str(fallback) if fallback else "",
            seeds=self.seeds,
            folds=summarise(scores) if scores else {},
            importance=rankers[0].importance(),
            seconds=time.monotonic() - started,
        )

    def _plan(self) -> FoldPlan:
        """What is held out: of a model that is continued, only graphs that it did not know tell how good it is."""
        if self.tuning is None:
            return FoldPlan.of(self.training)
        return FoldPlan.of_families(self.tuning.folds(self.training.data.families, MOST_FOLDS))

    def _rates(self, plan: FoldPlan) -> Sequence[float]:
        """How fast new trees may learn beside those that they continue; empty where nothing is continued."""
        if self.tuning is None:
            return ()
        judged = {self.training.data.families[group] for held in plan.held for group in held}
        return RATES if len(judged) >= FEWEST_FAMILIES else (DEFAULT_RATE,)

    def _continued(self, rates: Sequence[float], plan: FoldPlan, progress: Progress) -> tuple[_Candidate, str]:
        """The model that is continued at the best rate, and in words what that brings out of fold."""
        assert self.tuning is not None
        settings = self.settings
        if len(rates) == 1:
            settings = replace(settings, rounds=min(DEFAULT_ROUNDS, settings.rounds))
        found = []
        for rate in rates:
            each = self.tuning.rankers(rate)
            curves = self._validate(each[0], plan, progress, settings)
            found.append(_Candidate(each[0], self.tuning.model.card.tuned, curves, self.select, each, rate))
        told = told_start(self.tuning)
        if not plan.folds:
            return found[0], told
        best = max(found, key=lambda candidate: candidate.value)  # of equals the first
        assert best.curves is not None
        stage = best.curves.best_stage(self.select) if len(rates) > 1 else -1
        mine = {name: values["score"] for name, values in best.curves.at(stage).items()}
        alone = self.tuning.scores(self.training.data, [group for held in plan.held for group in held])
        lead, spread = paired_difference(mine, alone, self.select)
        score = objective_value(np.array([*mine.values()]), self.select)
        return best, (
            f"{told}; out of fold {score:.3f} on {len(mine)} graphs of families new to it, {lead:+.3f} ± "
            f"{spread:.3f} to that model as it is; new trees learn {best.rate:g} times as fast as its own"
            + advice(lead)
        )

    def _best(self, models: list[str], plan: FoldPlan, progress: Progress) -> tuple[_Candidate, str]:
        """The ranker of the best out-of-fold score, and in words why; the only one there is without any."""
        study, kind = self.workspace.study(self.training.collection), self.training.kind
        found: list[_Candidate] = []
        passed: list[str] = []
        for model in models:
            params, tuned = params_for(study, model, kind)
            ranker = ranker_class(model)(params, kind=kind)
            try:
                curves = self._validate(ranker, plan, progress, self.settings)
            except ModelError as error:
                if self.model != AUTO:
                    raise
                passed.append(f"{model} is passed over: {error.got}")
                continue
            found.append(_Candidate(ranker, tuned, curves, self.select))
        if self.model != AUTO:
            return found[0], ""
        if not plan.folds:
            return found[0], f"{DEFAULT}: one program family, so there are no folds to compare rankers by"
        found.sort(key=lambda candidate: -candidate.value)  # of equals the first registered
        why = ", ".join(candidate.told for candidate in found)
        if len(found) > 1:
            lead, spread = paired_difference(found[0].scores, found[1].scores, self.select)
            why += f" out of fold; {found[0].ranker.name} leads by {lead:.3f} ± {spread:.3f}"
            first, second = (candidate.metrics for candidate in found[:2])
            apart = " and ".join(f"{name} {difference(first, second, name)}" for name in _SLOWDOWNS)
            why += f", less that of {found[1].ranker.name}: {apart}"
        return found[0], "; ".join([why, *passed])

    def _validate(
        self, ranker: Ranker[Any], plan: FoldPlan, progress: Progress, settings: FitSettings
    ) -> Curves | None:
        if not plan.folds:
            return None

        def step(fold: Fold) -> None:
            families = sorted({self.training.data.families[group] for group in fold.held})
            name = f"{ranker.name}, " if self.model == AUTO else ""
            progress.step(f"{name}held out {', '.join(families)}")

        return plan.curves(self.training, ranker, settings, step)
