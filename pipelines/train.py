"""Training of the model of each collection."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from xlarank.data.errors import CollectionError, ModelError, counted
from xlarank.data.workspace import Workspace
from xlarank.models.card import FALLBACK, ModelCard
from xlarank.models.model import Model
from xlarank.models.rankers import specs_of
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.folds import FoldPlan
from xlarank.models.validation.metrics import summarise
from xlarank.pipelines.ranking.model_choice import best_of
from xlarank.pipelines.support.baselines import UNTRAINED, Rankings
from xlarank.pipelines.support.evaluation import add_untrained, board, compared
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.tables import Table
from xlarank.pipelines.support.workspaces import chosen_collections, leaving_out, workspace_lock
from xlarank.pipelines.training.contender import Contender, new_contenders
from xlarank.pipelines.training.settings import AUTO, TrainSettings
from xlarank.pipelines.training.training_sets import (
    MAX_ROWS,
    StoredTrainingSet,
    extra_collections,
    read_training_set,
)

if TYPE_CHECKING:
    import polars as pl


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


def train(workspace: Workspace, settings: TrainSettings | None = None) -> Training:
    """For each collection, cross-validate the number of rounds, then fit and save a model, with
    tuned parameters if there are any.

    If folds hold out kernel families, those unseen in training are ranked with a fallback, blended
    with the compiler's default (`xlarank.models.card.blend_default`). A model whose scores are all
    equal is not saved. With ``model`` "auto", every ranker is validated on the same folds and the
    best is trained, per collection; its score, the best of several, is slightly optimistic.

    Raises `CollectionError` or `ModelError` for a collection named in the settings (others are left
    out with their reason), and `CollectionError` if nothing could be trained. Models that were
    saved before an error stay.
    """
    settings = settings or TrainSettings()
    if settings.model != AUTO:
        specs_of(settings.model)  # raises for an unknown name
    workspace.require_writable()
    extra = extra_collections(workspace, settings.also_from)
    chosen = chosen_collections(workspace, settings.collections)
    left_out: dict[str, str] = {}
    fit = FitSettings(settings.rounds, settings.seed, settings.threads)
    results = []
    for collection in chosen:
        with leaving_out(collection, settings.collections, left_out):
            began = time.monotonic()
            splits = settings.splits
            training = read_training_set(workspace, collection, splits, extra, settings.max_rows)
            result = _train(workspace, training, settings, fit)
            results.append(replace(result, seconds=time.monotonic() - began))
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    skipped = [TrainResult(collection, skipped=reason) for collection, reason in left_out.items()]
    return Training([*results, *skipped])


def _train(
    workspace: Workspace, training: StoredTrainingSet, settings: TrainSettings, fit: FitSettings
) -> TrainResult:
    """Cross-validate the requested models, fit the best on all rows and save it."""
    plan = FoldPlan.of(training.data)
    has_folds = bool(plan.folds)
    contenders = new_contenders(workspace, training.collection, settings, has_folds=has_folds)
    total = len(contenders) * len(plan.folds) + settings.seeds
    data = training.data.with_also()
    with steps_of(f"training {training.collection}", total) as step:
        validated, failed = _validated(contenders, training, plan, settings, fit, step)
        best = validated[0]
        rounds = counted(best.rounds, "round")
        model = best.model.fit(
            data,
            replace(fit, rounds=best.rounds),
            settings.seeds,
            lambda seed: step(f"seed {seed}, {rounds}"),
        )
    importance = model.importance() if model.members else {}
    note = "" if importance else _require_scores_that_differ(training, model)
    others = _untrained(training, best)
    card = _card(training, plan, best, settings, others)
    saved = _save(workspace, training, model, card)
    return TrainResult(
        card.collection,
        card.model,
        card.tuned,
        why=_chosen_from(validated, failed, plan) if settings.model == AUTO else "",
        note=note,
        graphs=data.groups,
        rows=len(data.cost),
        families=len(set(data.families)),
        rounds=best.rounds,
        chosen_by=best.chosen_by,
        seeds=settings.seeds,
        fallback=FALLBACK if card.fallback else "",
        importance=importance,
        folds=summarise(best.metrics) if best.metrics else {},
        comparison=compared({(model.name, None): best.metrics, **others}),
        ranked_by=best_of(saved).reason,
    )


def _validated(
    contenders: Sequence[Contender],
    training: StoredTrainingSet,
    plan: FoldPlan,
    settings: TrainSettings,
    fit: FitSettings,
    step: Callable[[str], object],
) -> tuple[list[Contender], list[str]]:
    """Return the contenders with out-of-fold scores, best first, and why others are left out;
    raise `ModelError` if none is left.
    """
    validated = []
    failed = []
    for contender in contenders:
        try:
            validated.append(contender.validated(training.data, plan, settings, fit, step))
        except ModelError as error:
            if settings.model != AUTO:
                raise
            failed.append(f"{contender.model.name} is left out: {error.got}")
    if not validated:
        raise ModelError("; ".join(failed))
    return sorted(validated, key=lambda contender: -contender.value), failed


def _chosen_from(contenders: Sequence[Contender], failed: Sequence[str], plan: FoldPlan) -> str:
    """Describe how "auto" chose the ranker."""
    if not plan.folds:
        name = contenders[0].model.name
        return f"{name}: one program family, so there are no folds to compare rankers by"
    scores = []
    for contender in contenders:
        tuned = " (tuned)" if contender.tuned else ""
        scores.append(f"{contender.model.name}{tuned} {contender.value:.3f}")
    return "; ".join([f"{', '.join(scores)} out of fold", *failed])


def _save(
    workspace: Workspace, training: StoredTrainingSet, model: Model, card: ModelCard
) -> Model:
    """Replace the model of the collection, unless its rows were replaced meanwhile."""
    with workspace_lock(workspace):
        training.require_current(workspace)
        return model.save(workspace.model(training.collection), card)


def _card(
    training: StoredTrainingSet,
    plan: FoldPlan,
    best: Contender,
    settings: TrainSettings,
    others: Rankings,
) -> ModelCard:
    """Return the card of the model of ``best``."""
    data = training.data.with_also()
    # only kernels whose family is certain; none for layouts
    kernel_families = {part.kinds[0] for part in data.parts if len(part.kinds) == 1}
    return ModelCard(
        collection=str(training.collection),
        model=best.model.name,
        params=dict(best.model.params),
        rounds=best.rounds,
        tuned=best.tuned,
        recipe=training.manifest.recipe,
        columns=training.manifest.columns,
        trained_on=training.splits,
        also_from=training.also_from,
        also_weights=training.also_weights,
        folds=best.metrics,
        folds_by=plan.by,
        others=_untrained_scores(others),
        target=training.collection.hardware,
        kinds=sorted(kernel_families),
        fallback=plan.fallback,
        select=settings.select,
        seeds=settings.seeds,
        rows=len(data.cost),
        max_rows=MAX_ROWS[training.kind] if settings.max_rows is None else settings.max_rows,
    )


def _untrained(training: StoredTrainingSet, best: Contender) -> Rankings:
    """Return the metrics of rankers that need no training on the graphs that folds scored."""
    rankings = Rankings()
    for rows in training.data.parts:
        if rows.name in best.metrics:
            add_untrained(rankings, training.collection, rows)
    return rankings


def _untrained_scores(rankings: Rankings) -> dict[str, dict[str, float]]:
    """Return the scores by graph of the rankers that need no training."""
    scores = {}
    for name in UNTRAINED:
        metrics = rankings.get((name, None), {})
        if metrics:
            scores[name] = {graph: values["score"] for graph, values in metrics.items()}
    return scores


def _require_scores_that_differ(training: StoredTrainingSet, model: Model) -> str:
    """Return a warning about a model without splits; raise `CollectionError` for equal scores."""
    data = training.data.with_also()
    reason = f"too few rows to train {model.name} ({counted(len(data.cost), 'row')})"
    note = "" if not model.members else f"{training.collection}: no tree has a split: {reason}"
    scores = (model.score(part) for part in data.parts)
    if all(np.ptp(graph_scores) == 0 for graph_scores in scores):
        cause = f"{note}, and" if note else f"{training.collection}:"
        got = f"{cause} all scores are equal, so the model is not saved"
        smaller = "run tune, which tries smaller leaves (min_data_in_leaf)"
        do = f"add graphs or configurations, or {smaller}"
        raise CollectionError(got, do=do)
    return note
