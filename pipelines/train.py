"""Training of the model of each collection."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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
from xlarank.models.validation.folds import Fold, FoldPlan
from xlarank.models.validation.metrics import objective_value, require_selection, summarise
from xlarank.pipelines.ranking.model_choice import best_of
from xlarank.pipelines.support.baselines import UNTRAINED
from xlarank.pipelines.support.evaluation import add_rules, board, compared
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.tables import Table
from xlarank.pipelines.support.workspaces import chosen_collections, leaving_out, workspace_lock
from xlarank.pipelines.training.training_sets import MAX_ROWS, StoredTrainingSet, read_training_set

if TYPE_CHECKING:
    import polars as pl


#: Name that selects the ranker with the best out-of-fold score, for each collection.
AUTO: Final = "auto"
#: Number of rounds without folds, except for time-trees of layouts, which rank without trees.
_DEFAULT_ROUNDS: Final = 150


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of `train`; invalid ones raise `XlarankError`.

    Attributes:
        also_from: extra training collections of the same kind, not scored. Families held out by
            a fold are held out in them, too.
        model: ranker, or "auto" for the best out of fold.
        with_valid: also train on the valid split; afterwards, scores on it are meaningless.
        rounds: maximum number of boosting rounds; cross-validation chooses.
        select: criterion by which cross-validation chooses, one of
            `xlarank.models.validation.metrics.SELECTIONS`.
        threads: cores, 0 for all.
        max_rows: training rows of a collection, sampled evenly from its graphs; 0: all, None: the
            default of the kind of graphs, `xlarank.pipelines.training.training_sets.MAX_ROWS`.
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
    max_rows: int | None = None

    @property
    def fit(self) -> FitSettings:
        return FitSettings(self.rounds, self.seed, self.threads)

    @property
    def splits(self) -> tuple[str, ...]:
        return ("train", "valid") if self.with_valid else ("train",)

    def __post_init__(self) -> None:
        require_ranges(seeds=self.seeds, rounds=self.rounds, seed=self.seed, threads=self.threads)
        require_ranges(max_rows=self.max_rows or 0)
        require_selection("select", self.select)


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
    extra = chosen_collections(workspace, settings.also_from) if settings.also_from else []
    chosen = chosen_collections(workspace, settings.collections)
    left_out: dict[str, str] = {}
    results = []
    for collection in chosen:
        with leaving_out(collection, settings.collections, left_out):
            began = time.monotonic()
            splits = settings.splits
            training = read_training_set(workspace, collection, splits, extra, settings.max_rows)
            result = _train(workspace, training, settings)
            results.append(replace(result, seconds=time.monotonic() - began))
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    skipped = [TrainResult(collection, skipped=reason) for collection, reason in left_out.items()]
    return Training([*results, *skipped])


def _train(
    workspace: Workspace, training: StoredTrainingSet, settings: TrainSettings
) -> TrainResult:
    """Cross-validate the requested rankers, fit the best on all rows and save it."""
    plan = FoldPlan.of(training.data)
    names = [settings.model]
    if settings.model == AUTO:
        by_default = "time-trees" if training.kind == "layout" else DEFAULT
        names = rankers() if plan.folds else [by_default]
    data = training.data.with_also()
    total = len(names) * len(plan.folds) + settings.seeds
    cards: list[ModelCard] = []
    failed = []
    with steps_of(f"training {training.collection}", total) as step:
        for name in names:
            try:
                cards.append(_validated(name, workspace, training, plan, settings, step))
            except ModelError as error:
                if settings.model != AUTO:
                    raise
                failed.append(f"{name} is left out: {error.got}")
        if not cards:
            raise ModelError("; ".join(failed))
        best = max(cards, key=_value)
        rounds = counted(best.rounds, "round")
        model = Model.of(best.model, training.kind, best.params).fit(
            data,
            replace(settings.fit, rounds=best.rounds),
            settings.seeds,
            lambda seed: step(f"seed {seed}, {rounds}"),
        )
    importance = model.importance() if model.members else {}
    note = "" if importance else _require_scores_that_differ(training, model)
    rankings = {model.name: best.folds}
    add_rules(rankings, training.collection, training.data.parts)
    others = {}
    for name in UNTRAINED:
        if name in rankings:
            others[name] = {graph: values["score"] for graph, values in rankings[name].items()}
    card = replace(best, others=others)
    saved = _save(workspace, training, model, card)
    by_folds = f"{len(plan.folds)} folds by {plan.by.replace('-', ' ')}"
    return TrainResult(
        card.collection,
        card.model,
        card.tuned,
        why=_chosen_from(cards, failed, plan) if settings.model == AUTO else "",
        note=note,
        graphs=data.groups,
        rows=len(data.cost),
        families=len(set(data.families)),
        rounds=card.rounds,
        chosen_by=by_folds if plan.folds else "default (one family, no folds)",
        seeds=settings.seeds,
        fallback=FALLBACK if card.fallback else "",
        importance=importance,
        folds=summarise(card.folds) if card.folds else {},
        comparison=compared(rankings),
        ranked_by=best_of(saved).reason,
    )


def _validated(
    name: str,
    workspace: Workspace,
    training: StoredTrainingSet,
    plan: FoldPlan,
    settings: TrainSettings,
    step: Callable[[str], object],
) -> ModelCard:
    """Return the card of a ranker with its tuned parameters, if any, and its out-of-fold scores at
    the best number of rounds; call ``step`` for each fold.
    """
    params, tuned = params_for(workspace.study(training.collection), name, training.kind)
    rounds = 0 if name == "time-trees" and training.kind == "layout" else _DEFAULT_ROUNDS
    card = _card(training, plan, settings, name, params, tuned, min(rounds, settings.rounds))
    if not plan.folds:
        return card
    prefix = f"{name}, " if settings.model == AUTO else ""

    def report_fold(fold: Fold) -> None:
        families = sorted({training.data.families[graph] for graph in fold.held})
        step(f"{prefix}held out {', '.join(families)}")

    model = Model.of(name, training.kind, params)
    curves = plan.curves(training.data, model, settings.fit, report_fold)
    stage = curves.best_stage(settings.select)
    return replace(card, rounds=curves.rounds[stage], folds=curves.at(stage))


def _value(card: ModelCard) -> float:
    """Return the aggregate of the out-of-fold scores by which rankers are compared; 0 without
    folds.
    """
    scores = np.array([metrics["score"] for metrics in card.folds.values()])
    return float(objective_value(scores, card.select)) if card.folds else 0.0


def _chosen_from(cards: Sequence[ModelCard], failed: Sequence[str], plan: FoldPlan) -> str:
    """Describe how "auto" chose the ranker."""
    if not plan.folds:
        return f"{cards[0].model}: one program family, so there are no folds to compare rankers by"
    scores = []
    for card in sorted(cards, key=lambda card: -_value(card)):
        tuned = " (tuned)" if card.tuned else ""
        scores.append(f"{card.model}{tuned} {_value(card):.3f}")
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
    settings: TrainSettings,
    name: str,
    params: dict[str, Any],
    tuned: bool,
    rounds: int,
) -> ModelCard:
    """Return the card of a ranker, without scores."""
    data = training.data.with_also()
    # only kernels whose family is certain; none for layouts
    kernel_families = {part.kinds[0] for part in data.parts if len(part.kinds) == 1}
    return ModelCard(
        collection=str(training.collection),
        model=name,
        params=params,
        rounds=rounds,
        tuned=tuned,
        recipe=training.manifest.recipe,
        columns=training.manifest.columns,
        trained_on=training.splits,
        also_from=training.also_from,
        folds={},
        folds_by=plan.by,
        target=training.collection.hardware,
        kinds=sorted(kernel_families),
        fallback=plan.fallback,
        select=settings.select,
        seeds=settings.seeds,
        rows=len(data.cost),
        max_rows=MAX_ROWS[training.kind] if settings.max_rows is None else settings.max_rows,
    )


def _require_scores_that_differ(training: StoredTrainingSet, model: Model) -> str:
    """Return a warning about a model without splits; raise `CollectionError` for equal scores."""
    data = training.data.with_also()
    note = ""
    if model.members:
        rows = counted(len(data.cost), "row")
        few = f"too few rows to train {model.name} ({rows})"
        note = f"{training.collection}: no tree has a split: {few}"
    scores = (model.score(part) for part in data.parts)
    if all(np.ptp(graph_scores) == 0 for graph_scores in scores):
        cause = f"{note}, and" if note else f"{training.collection}:"
        got = f"{cause} all scores are equal, so the model is not saved"
        do = "add graphs or configurations, or run tune, which tries smaller leaves"
        raise CollectionError(got, do=do)
    return note
