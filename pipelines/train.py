"""Training of the model of each collection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlarank.data.errors import CollectionError, ModelError, counted, require_ranges
from xlarank.data.workspace import Workspace
from xlarank.models.card import FALLBACK, ModelCard
from xlarank.models.losses import DEFAULT, rankers, specs_of
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings
from xlarank.models.tuned import params_for
from xlarank.models.validation.folds import Fold
from xlarank.models.validation.metrics import require_selection, summarise
from xlarank.pipelines.ranking.model_choice import best_of
from xlarank.pipelines.support.baselines import UNTRAINED
from xlarank.pipelines.support.evaluation import add_rules, board, compared
from xlarank.pipelines.support.progress import Step, steps_of
from xlarank.pipelines.support.tables import Table
from xlarank.pipelines.support.workspaces import chosen_collections, leaving_out, workspace_lock
from xlarank.pipelines.training.training_sets import StoredTrainingSet, read_training_set

if TYPE_CHECKING:
    import polars as pl


#: Name that selects the ranker with the best out-of-fold score, for each collection.
AUTO: Final = "auto"
#: Maximum number of rounds by default.
ROUNDS: Final = 300
#: Number of rounds without folds, except for time-trees of layouts, which rank without trees.
_DEFAULT_ROUNDS: Final = 150


@dataclass(frozen=True)
class TrainResult:
    """Result of training on one collection; ``skipped`` is the reason if it was left out.

    Attributes:
        why: how "auto" chose the ranker; else empty.
        note: warning about the training.
        rounds, chosen_by: number of boosting rounds, and how it was chosen.
        folds: out-of-fold summary (`xlarank.models.validation.metrics.summarise`); empty without
            folds.
        comparison: the model, the estimated time and rules on the graphs of the folds, as in
            `xlarank.pipelines.support.evaluation.compared`.
        ranked_by: what `rank` and `submit` use, and why.
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
    comparison: list[dict[str, Any]] = field(default_factory=list)
    ranked_by: str = ""
    seconds: float = 0.0
    skipped: str = ""


class Training(Table, list[TrainResult]):
    """Results of training, one for each collection."""

    def __repr__(self) -> str:
        lines = []
        for result in self:
            if result.skipped:
                lines.append(f"{result.collection} is not trained: {result.skipped}")
            else:
                lines.append(f"{result.collection} is ranked by {result.ranked_by}")
        return "\n".join(lines)

    def to_polars(self) -> pl.DataFrame:
        """Return the trained and untrained rankers of each collection, out of fold
        (`xlarank.pipelines.support.evaluation.board`).
        """
        return board({result.collection: result.comparison for result in self})


def train(
    workspace: Workspace,
    *,
    collections: Sequence[str] = (),
    also_from: Sequence[str] = (),
    model: str = DEFAULT,
    seeds: int = 3,
    with_valid: bool = False,
    fit: FitSettings | None = None,
    select: str = "mean",
    max_rows: int | None = None,
) -> Training:
    """For each collection, cross-validate the number of rounds, then fit and save a model, with
    tuned parameters if there are any.

    If folds hold out kernel families, those unseen in training are ranked with a fallback, blended
    with the compiler's default (`xlarank.models.card.blend_default`). A model whose scores are all
    equal is not saved.

    Args:
        also_from: extra training collections of the same kind, not scored. Families held out by a
            fold are held out in them, too.
        model: ranker, or "auto": every ranker is validated on the same folds and the best is
            trained, per collection; its score, the best of several, is slightly optimistic.
        with_valid: also train on the valid split; afterwards, scores on it are meaningless.
        fit: maximum number of boosting rounds, of which cross-validation chooses (default 300),
            first seed and number of threads.
        select: criterion by which cross-validation chooses, one of
            `xlarank.models.validation.metrics.SELECTIONS`.
        max_rows: training rows of a collection, sampled evenly from its graphs; 0: all, None: the
            default of the kind of graphs, `xlarank.pipelines.training.training_sets.MAX_ROWS`.

    Raises `CollectionError` or `ModelError` for a named collection (others are left out with their
    reason), and `CollectionError` if nothing could be trained. Models that were saved before an
    error stay.
    """
    require_ranges(seeds=seeds, max_rows=max_rows or 0)
    require_selection("select", select)
    if model != AUTO:
        specs_of(model)  # raises for an unknown name
    workspace.require_writable()
    fit = fit or FitSettings(ROUNDS)
    extra = chosen_collections(workspace, also_from) if also_from else []
    splits = ("train", "valid") if with_valid else ("train",)
    left_out: dict[str, str] = {}
    results = []
    for collection in chosen_collections(workspace, collections):
        with leaving_out(collection, collections, left_out):
            began = time.monotonic()
            training = read_training_set(workspace, collection, splits, extra, max_rows)
            result = _train(workspace, training, model, seeds, fit, select)
            results.append(replace(result, seconds=time.monotonic() - began))
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    skipped = [TrainResult(collection, skipped=reason) for collection, reason in left_out.items()]
    return Training([*results, *skipped])


def _train(
    workspace: Workspace,
    training: StoredTrainingSet,
    model: str,
    seeds: int,
    fit: FitSettings,
    select: str,
) -> TrainResult:
    """Cross-validate the requested rankers, fit the best on all rows and save it."""
    folds = training.plan.folds
    names = [model]
    if model == AUTO:
        by_default = "time-trees" if training.kind == "layout" else DEFAULT
        names = rankers() if folds else [by_default]
    cards: list[ModelCard] = []
    failed = []
    title = f"training {training.collection}"
    with steps_of(title, len(names) * len(folds) + seeds) as step:
        for name in names:
            try:
                study = workspace.study(training.collection)
                params, tuned = params_for(study, name, training.kind)
                card = training.card(name, params, tuned=tuned, select=select)
                cards.append(_validated(card, training, fit, step))
            except ModelError as error:
                if model != AUTO:
                    raise
                failed.append(f"{name} is left out: {error.got}")
        if not cards:
            raise ModelError("; ".join(failed))
        best = max(cards, key=lambda card: card.value)
        rounds = counted(best.rounds, "round")
        fitted = Model.of(best.model, training.kind, best.params).fit(
            training.data.with_also(),
            replace(fit, rounds=best.rounds),
            seeds,
            lambda seed: step(f"seed {seed}, {rounds}"),
        )
    importance = fitted.importance() if fitted.members else {}
    note = "" if importance else _require_scores_that_differ(training, fitted)
    rankings = {fitted.name: best.folds}
    add_rules(rankings, training.collection, training.data.parts)
    others = {}
    for name in UNTRAINED:
        if name in rankings:
            others[name] = {graph: values["score"] for graph, values in rankings[name].items()}
    with workspace_lock(workspace):
        training.require_current(workspace)
        folder = workspace.model(training.collection)
        saved = fitted.save(folder, replace(best, seeds=seeds, others=others))
    data = training.data.with_also()
    by_folds = f"{len(folds)} folds by {training.plan.by.replace('-', ' ')}"
    return TrainResult(
        best.collection,
        best.model,
        best.tuned,
        why=_chosen_from(cards, failed) if model == AUTO else "",
        note=note,
        graphs=data.groups,
        rows=len(data.cost),
        families=len(set(data.families)),
        rounds=best.rounds,
        chosen_by=by_folds if folds else "default (one family, no folds)",
        seeds=seeds,
        fallback=FALLBACK if best.fallback else "",
        importance=importance,
        folds=summarise(best.folds) if best.folds else {},
        comparison=compared(rankings),
        ranked_by=best_of(saved).reason,
    )


def _validated(
    card: ModelCard, training: StoredTrainingSet, fit: FitSettings, step: Step
) -> ModelCard:
    """Return the card of a ranker with its best number of rounds out of fold, and its scores at
    that number; with a default number without folds.
    """
    if not training.plan.folds:
        without_trees = card.model == "time-trees" and training.kind == "layout"
        return replace(card, rounds=0 if without_trees else min(_DEFAULT_ROUNDS, fit.rounds))

    def report_fold(fold: Fold) -> None:
        families = sorted({training.data.families[graph] for graph in fold.held})
        step(f"{card.model}, held out {', '.join(families)}")

    model = Model.of(card.model, training.kind, card.params)
    curves = training.plan.curves(training.data, model, fit, report_fold)
    stage = curves.best_stage(card.select)
    return replace(card, rounds=curves.rounds[stage], folds=curves.at(stage))


def _chosen_from(cards: Sequence[ModelCard], failed: Sequence[str]) -> str:
    """Describe how "auto" chose the ranker."""
    if not cards[0].folds:
        return f"{cards[0].model}: one program family, so there are no folds to compare rankers by"
    scores = []
    for card in sorted(cards, key=lambda card: -card.value):
        tuned = " (tuned)" if card.tuned else ""
        scores.append(f"{card.model}{tuned} {card.value:.3f}")
    return "; ".join([f"{', '.join(scores)} out of fold", *failed])


def _require_scores_that_differ(training: StoredTrainingSet, model: Model) -> str:
    """Return a warning about a model without splits; raise `CollectionError` for equal scores."""
    data = training.data.with_also()
    note = ""
    if model.members:
        few = f"too few rows to train {model.name} ({counted(len(data.cost), 'row')})"
        note = f"{training.collection}: no tree has a split: {few}"
    if all(np.ptp(model.score(part)) == 0 for part in data.parts):
        cause = f"{note}, and" if note else f"{training.collection}:"
        got = f"{cause} all scores are equal, so the model is not saved"
        do = "add graphs or configurations, or run tune, which tries smaller leaves"
        raise CollectionError(got, do=do)
    return note
