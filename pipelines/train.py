"""Fit the final boosters of each collection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.ranges import MAX_SEED, require_ranges, thread_count
from xlarank.data.workspace import Workspace
from xlarank.models.base import Params, Ranker
from xlarank.models.registry import DEFAULT, RANKERS, ranker_class
from xlarank.models.trained import ModelCard, save_model
from xlarank.models.validation.best_params import params_for
from xlarank.models.validation.curves import Curves, join_curves, validate_folds
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import summarise
from xlarank.models.validation.selection import gain, merit, require_selection
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.training_sets import TrainingSet, chosen_collections, training_set

#: Leave-family-out up to this many families; more are dealt into as many folds.
_FOLDS: Final = 10
#: In place of a ranker's name: whichever scores best out of fold, for each collection.
AUTO: Final = "auto"
#: Rounds where there are no folds to choose by.
_DEFAULT_ROUNDS: Final = 150


@dataclass
class TrainResult:
    """One trained collection, or why it was left out.

    Attributes:
        graphs, rows, families: learned from.
        why: how the ranker was chosen, where it was left to `AUTO`.
        rounds: trees per seed; ``chosen_by`` says how the number was found.
        folds: out-of-fold report of `xlarank.models.validation.metrics.summarise`; empty without folds.
    """

    collection: str
    model: str = ""
    tuned: bool = False
    why: str = ""
    graphs: int = 0
    rows: int = 0
    families: int = 0
    rounds: int = 0
    chosen_by: str = ""
    seeds: int = 0
    folds: dict[str, dict[str, Any]] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    skipped: str = ""


def train(
    workspace: Workspace,
    *,
    collections: Sequence[str] = (),
    model: str = DEFAULT,
    seeds: int = 3,
    with_valid: bool = False,
    rounds: int = 300,
    select: str = "mean",
    seed: int = 0,
    threads: int = 0,
    progress: Progress | None = None,
) -> list[TrainResult]:
    """Fit ``seeds`` boosters per collection, with tuned parameters where a study left them.

    The number of rounds is the best, at most ``rounds``, of leave-family-out folds with these very
    parameters; the folds' scores are kept in the model. ``select`` is what it is best by, one of
    `xlarank.models.validation.selection.SELECTIONS`. ``with_valid`` also learns from the valid split
    (for a submission: `evaluate` on valid means nothing afterwards).

    ``model`` "auto" scores every ranker by the same folds, each with its tuned parameters or else its defaults,
    and trains the best, collection by collection. A ranker that cannot run here (no xgboost) is passed over. The
    best of several out-of-fold scores is a little lucky: other graphs tell how good it is.

    A collection that cannot be trained is left out with a reason; it raises `CollectionError` when it was
    asked for by name or when nothing at all could be trained.
    """
    require_ranges(seeds=seeds, rounds=rounds, seed=seed)
    threads = thread_count(threads)
    require_selection(select)
    if model != AUTO:
        ranker_class(model)
    workspace.require_writable()
    progress = progress or Silent()
    results: list[TrainResult] = []
    for collection in chosen_collections(workspace, collections):
        try:
            data = training_set(workspace, collection, ("train", "valid") if with_valid else ("train",))
        except CollectionError as error:
            if collections:
                raise
            results.append(TrainResult(str(collection), skipped=str(error)))
            continue
        job = _Training(workspace, data, model, seeds, with_valid, rounds, select, seed, threads)
        results.append(job.run(progress))
    if all(result.skipped for result in results):
        raise CollectionError("; ".join(result.skipped for result in results))
    return results


@dataclass(frozen=True)
class _Candidate:
    """A ranker with its parameters and its out-of-fold curves, None without folds."""

    model: str
    params: Params
    tuned: bool
    curves: Curves | None

    def scores(self, select: str) -> dict[str, float]:
        """Out-of-fold score of each graph at the best number of rounds."""
        assert self.curves is not None
        at = self.curves.at(self.curves.best_stage(select))
        return {name: values["score"] for name, values in at.items()}

    def merit(self, select: str) -> float:
        return float(merit(np.array(list(self.scores(select).values())), select))

    def told(self, select: str) -> str:
        return f"{self.model}{' (tuned)' if self.tuned else ''} {self.merit(select):.3f}"


@dataclass(frozen=True)
class _Training:
    """The training of one collection."""

    workspace: Workspace
    data: TrainingSet
    model: str
    seeds: int
    with_valid: bool
    rounds: int
    select: str
    seed: int
    threads: int

    def run(self, progress: Progress) -> TrainResult:
        started = time.monotonic()
        folds = family_folds(self.data.data.families, _FOLDS)
        models = [self.model] if self.model != AUTO else [*RANKERS] if folds else [DEFAULT]
        progress.begin(f"training {self.data.collection}", len(models) * len(folds) + self.seeds)
        try:
            chosen, why = self._best(models, folds, progress)
            model, params, tuned, curves = chosen.model, chosen.params, chosen.tuned, chosen.curves
            if curves is None:
                rounds, chosen_by = min(_DEFAULT_ROUNDS, self.rounds), "default (one family, no folds)"
                scores: dict[str, dict[str, float]] = {}
            else:
                stage = curves.best_stage(self.select)
                rounds, chosen_by = curves.rounds[stage], f"{len(folds)} folds by family"
                scores = curves.at(stage)
            rankers: list[Ranker] = []
            for number in range(self.seeds):
                ranker = ranker_class(model)()
                rankers.append(
                    ranker.fit(
                        self.data.data,
                        params,
                        rounds=rounds,
                        seed=(self.seed + number) % (MAX_SEED + 1),
                        threads=self.threads,
                    )
                )
                progress.step(f"seed {self.seed + number}, {rounds} rounds")
        finally:
            progress.end()
        card = ModelCard(
            collection=str(self.data.collection),
            model=model,
            params=params,
            rounds=rounds,
            tuned=tuned,
            recipe=self.data.manifest.recipe,
            columns=self.data.data.columns,
            trained_on={"train+valid" if self.with_valid else "train": self.data.data.names},
            folds=scores,
            select=self.select,
        )
        save_model(self.workspace.model(self.data.collection), card, rankers)
        return TrainResult(
            collection=card.collection,
            model=model,
            tuned=tuned,
            why=why,
            graphs=self.data.data.groups,
            rows=len(self.data.data.cost),
            families=len(set(self.data.data.families)),
            rounds=rounds,
            chosen_by=chosen_by,
            seeds=self.seeds,
            folds=summarise(scores) if scores else {},
            importance=rankers[0].importance(),
            seconds=time.monotonic() - started,
        )

    def _best(self, models: list[str], folds: list[list[int]], progress: Progress) -> tuple[_Candidate, str]:
        """The ranker of the best out-of-fold score, and in words why; the only one there is without any."""
        study, kind = self.workspace.study(self.data.collection), self.data.collection.kind
        found: list[_Candidate] = []
        passed: list[str] = []
        for model in models:
            params, tuned = params_for(study, model, kind)
            try:
                curves = self._validate(model, folds, params, progress)
            except ModelError as error:
                if self.model != AUTO:
                    raise
                passed.append(f"{model} is passed over: {error.got}")
                continue
            found.append(_Candidate(model, params, tuned, curves))
        if self.model != AUTO:
            return found[0], ""
        if not folds:
            return found[0], f"{DEFAULT}: one program family, so there are no folds to compare rankers by"
        found.sort(key=lambda candidate: -candidate.merit(self.select))  # of equals the first of the zoo
        why = ", ".join(candidate.told(self.select) for candidate in found)
        if len(found) > 1:
            lead, spread = gain(found[0].scores(self.select), found[1].scores(self.select), self.select)
            why += f" out of fold; {found[0].model} leads by {lead:.3f} ± {spread:.3f}"
        return found[0], "; ".join([why, *passed])

    def _validate(self, model: str, folds: list[list[int]], params: Params, progress: Progress) -> Curves | None:
        found = validate_folds(
            self.data.collection.kind,
            self.data.graphs,
            self.data.data,
            folds,
            model,
            params,
            rounds=self.rounds,
            seed=self.seed,
            threads=self.threads,
        )
        parts = []
        for held, part in zip(folds, found, strict=True):
            parts.append(part)
            progress.step(
                (f"{model}, " if self.model == AUTO else "")
                + "held out "
                + ", ".join(sorted({self.data.data.families[g] for g in held}))
            )
        return join_curves(parts) if parts else None
