"""Fit the final boosters of each collection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from data.errors import CollectionError, XlarankError
from data.workspace import Workspace
from models.best_params import params_for
from models.bundle import ModelCard, save_model
from models.contract import Ranker
from models.folds import family_folds
from models.metrics import summarise
from models.selection import require_selection
from models.validation import Curves, join_curves, validate_folds
from models.zoo import DEFAULT, ranker_class
from pipelines.progress import Progress, Silent
from pipelines.training_sets import TrainingSet, chosen_collections, training_set

#: Leave-family-out up to this many families; more are dealt into as many folds.
_FOLDS: Final = 10
#: Rounds where there are no folds to choose by.
_DEFAULT_ROUNDS: Final = 150


@dataclass
class TrainResult:
    """One trained collection, or why it was left out.

    Attributes:
        graphs, rows, families: learned from.
        rounds: trees per seed; ``chosen_by`` says how the number was found.
        folds: out-of-fold report of `models.metrics.summarise`; empty without folds.
    """

    collection: str
    model: str = ""
    tuned: bool = False
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
    `models.selection.SELECTIONS`. ``with_valid`` also learns from the valid split
    (for a submission: `evaluate` on valid means nothing afterwards).

    A collection that cannot be trained is left out with a reason; it raises `CollectionError` when it was
    asked for by name or when nothing at all could be trained.
    """
    if seeds < 1:
        raise XlarankError(f"--seeds is {seeds}", expected="1 or more")
    if rounds < 1:
        raise XlarankError(f"--rounds is {rounds}", expected="1 or more")
    require_selection(select)
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
        params, tuned = params_for(
            self.workspace.study(self.data.collection), self.model, self.data.collection.kind
        )
        folds = family_folds(self.data.data.families, _FOLDS)
        progress.begin(f"training {self.data.collection}", len(folds) + self.seeds)
        try:
            curves = self._validate(folds, params, progress)
            if curves is None:
                rounds, chosen_by = min(_DEFAULT_ROUNDS, self.rounds), "default (one family, no folds)"
                scores: dict[str, dict[str, float]] = {}
            else:
                stage = curves.best_stage(self.select)
                rounds, chosen_by = curves.rounds[stage], f"{len(folds)} folds by family"
                scores = curves.at(stage)
            rankers: list[Ranker] = []
            for number in range(self.seeds):
                ranker = ranker_class(self.model)()
                rankers.append(
                    ranker.fit(
                        self.data.data,
                        params,
                        rounds=rounds,
                        seed=self.seed + number,
                        threads=self.threads,
                    )
                )
                progress.step(f"seed {self.seed + number}, {rounds} rounds")
        finally:
            progress.end()
        card = ModelCard(
            collection=str(self.data.collection),
            model=self.model,
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
            model=self.model,
            tuned=tuned,
            graphs=self.data.data.groups,
            rows=len(self.data.data.rows),
            families=len(set(self.data.data.families)),
            rounds=rounds,
            chosen_by=chosen_by,
            seeds=self.seeds,
            folds=summarise(scores) if scores else {},
            importance=rankers[0].importance(),
            seconds=time.monotonic() - started,
        )

    def _validate(self, folds: list[list[int]], params: dict[str, Any], progress: Progress) -> Curves | None:
        found = validate_folds(
            self.data.collection.kind,
            self.data.graphs,
            self.data.data,
            folds,
            self.model,
            params,
            rounds=self.rounds,
            seed=self.seed,
            threads=self.threads,
        )
        parts = []
        for held, part in zip(folds, found, strict=True):
            parts.append(part)
            progress.step("held out " + ", ".join(sorted({self.data.data.families[g] for g in held})))
        return join_curves(parts) if parts else None
