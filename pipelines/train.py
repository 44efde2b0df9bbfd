"""Training of the model of each collection: from scratch, or continued from another model."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, counted, duration
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.models.arrays import Floats
from xlarank.models.card import Continued, ModelCard
from xlarank.models.model import Model
from xlarank.models.rankers import DEFAULT, rankers, specs_of
from xlarank.models.training_data import TPU, FitSettings, target_of
from xlarank.models.tuned import params_for
from xlarank.models.validation.folds import MIN_NEW_FAMILIES, Fold, FoldPlan
from xlarank.models.validation.metrics import (
    graph_metrics,
    objective_value,
    paired_difference,
    summarise,
)
from xlarank.pipelines.ranking.model_choice import SHIPPED, find_model
from xlarank.pipelines.ranking.winner import best_of, scores_of_untrained
from xlarank.pipelines.support.evaluation import Rankings, add_untrained, compared
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.results import Run, results_table, write_results
from xlarank.pipelines.support.workspaces import chosen_collections, each_collection, workspace_lock
from xlarank.pipelines.training.budget import MAX_ROWS
from xlarank.pipelines.training.fit_cost import training_seconds
from xlarank.pipelines.training.settings import AUTO, TrainSettings, fit_settings
from xlarank.pipelines.training.training_sets import (
    StoredTrainingSet,
    extra_collections,
    read_training_set,
)

if TYPE_CHECKING:
    import polars as pl

#: Number of rounds without folds; 0 for time-trees of layouts.
_DEFAULT_ROUNDS: Final = 150
#: Learning rates of added trees to cross-validate, as multiples of the continued model's.
RATES: Final = (1.0, 0.3)
#: Rounds and rate of a continued model without folds.
CONTINUED_ROUNDS = 100
CONTINUED_RATE = 1.0


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
        comparison: the model, the shipped ranker and rules on the graphs of the folds, as in
            `xlarank.pipelines.support.evaluation.compared`.
        ranked_by: why `rank` and `submit` use another ranker than the model; empty if they do not.
        seconds, expected_seconds: duration, and its forecast before the start; 0 without one.
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
    expected_seconds: float = 0.0
    skipped: str = ""


@dataclass(frozen=True, eq=False)
class Trial:
    """A model, unfitted until it is saved, with its number of rounds and out-of-fold scores.

    Attributes:
        default_rounds, reason: number of rounds without folds, and why there are no folds.
        rounds, chosen_by: number of rounds, and how it was chosen.
        metrics, scores: out-of-fold values by graph, of one seed; empty without folds.
        value: aggregate of the out-of-fold scores by ``TrainSettings.select``.
        rate: learning rate of a continued model, as a multiple of its own.
        name: name of the run in the leaderboard.
    """

    model: Model
    tuned: bool
    default_rounds: int
    reason: str
    rate: float = 1.0
    rounds: int = 0
    chosen_by: str = ""
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    scores: dict[str, Floats] = field(default_factory=dict)
    value: float = 0.0
    seconds: float = 0.0
    name: str = ""


def train(
    workspace: Workspace,
    settings: TrainSettings | None = None,
    *,
    name: str = "",
    progress: Progress | None = None,
    report: Callable[[str], object] | None = None,
) -> list[TrainResult]:
    """Fit and save a model per collection, one after another, with tuned parameters if any and the
    number of rounds best out of fold.

    If folds hold out kernel families, those unseen in training are ranked with a fallback, blended
    with the compiler's default (`xlarank.models.card.Fallback`). A model whose scores are all equal
    is not saved unless ``allow_constant``. With ``model`` "auto", every ranker is validated on the
    same folds and the best is trained, per collection; its score, the best of several, is slightly
    optimistic. With ``fine_tune``, trees are added to the model that it names; their number and
    learning rate are cross-validated on families unknown to that model. ``name`` is that of the run
    in the leaderboard; ``report`` is called with a forecast of the time, measured on short fits.

    Raises `CollectionError` or `ModelError` for a collection named in the settings (others are left
    out with their reason) and for a model that cannot be continued, `CollectionError` if nothing
    could be trained, and `ClusterError` for an unusable cluster. Models that were saved before an
    error stay.
    """
    settings = settings or TrainSettings()
    if settings.model != AUTO:
        specs_of(settings.model)  # raises for an unknown name
    workspace.require_writable()
    extra = extra_collections(workspace, settings.also_from)
    chosen = chosen_collections(workspace, settings.collections)
    # Loaded before the loop, which may replace the model that is continued.
    starts = _starting_models(workspace, settings, chosen)
    left_out: dict[str, str] = {}
    expected = _forecast(workspace, chosen, settings, report) if report else {}
    with fit_settings(settings) as fit:

        def run(collection: Collection) -> TrainResult:
            began = time.monotonic()
            splits = settings.splits
            max_rows = settings.max_rows
            rows = read_training_set(workspace, collection, splits, extra, fit, max_rows)
            start = starts.get(collection.kind)
            if settings.fine_tune == SHIPPED and collection.kind == "layout":
                _require_tpu(collection)
            result = _train(workspace, rows, start, settings, fit, name, progress)
            seconds = time.monotonic() - began
            forecast = expected.get(str(collection), 0.0)
            return replace(result, seconds=seconds, expected_seconds=forecast)

        results = each_collection(chosen, settings.collections, left_out, run)
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    skipped = [TrainResult(collection, skipped=reason) for collection, reason in left_out.items()]
    return [*results.values(), *skipped]


def _forecast(
    workspace: Workspace,
    chosen: Sequence[Collection],
    settings: TrainSettings,
    report: Callable[[str], object],
) -> dict[str, float]:
    """Return the expected seconds by collection and report them; none of a model to continue or on
    a cluster.
    """
    if settings.fine_tune is not None or settings.scheduler is not None:
        return {}

    def run(collection: Collection) -> float:
        trials = _new_models(workspace, collection, settings, has_folds=True)
        models = [trial.model for trial in trials]
        return training_seconds(workspace, collection, settings, models)

    # collections that cannot be read are left out here, and named by the training itself
    expected = each_collection(chosen, (), {}, run)
    parts = [f"{name} {duration(seconds)}" for name, seconds in expected.items() if seconds]
    listed = f" ({', '.join(parts)})" if len(parts) > 1 else ""
    if parts:
        report(f"training takes about {duration(sum(expected.values()))}{listed}")
    return expected


def _train(
    workspace: Workspace,
    rows: StoredTrainingSet,
    start: tuple[Model, str] | None,
    settings: TrainSettings,
    fit: FitSettings,
    name: str,
    progress: Progress | None,
) -> TrainResult:
    """Cross-validate the requested models, fit the best on all rows and save it."""
    plan = FoldPlan.of(rows.data) if start is None else folds_of_new_families(start[0], rows)
    if start is None:
        trials = _new_models(workspace, rows.collection, settings, has_folds=bool(plan.folds))
    else:
        trials = _continued_models(start[0], plan)
    validated: list[Trial] = []
    failed: list[str] = []
    total = len(trials) * len(plan.folds) + settings.seeds
    with steps_of(progress, f"training {rows.collection}", total) as step:
        for trial in trials:
            try:
                named = replace(trial, name=name)
                validated.append(_validate(named, rows, plan, settings, fit, step))
            except ModelError as error:
                if settings.model != AUTO:
                    raise
                failed.append(f"{trial.model.name} is left out: {error.got}")
        best = max(validated, key=lambda trial: trial.value)  # ties: the first
        rounds = counted(best.rounds, "round")
        model = best.model.fit(
            rows.data.with_also(),
            replace(fit, rounds=best.rounds),
            settings.seeds,
            lambda seed: step(f"seed {seed}, {rounds}"),
        )
    if start is not None:
        why = _describe_continued(start, best, rows, settings)
    else:
        why = _chosen_from(validated, failed, plan) if settings.model == AUTO else ""
    evaluated = validated if start is None else [best]
    fitted = replace(best, model=model)
    result = _save(workspace, rows, plan, fitted, start, settings, evaluated, progress)
    return replace(result, why=why)


def _new_models(
    workspace: Workspace, collection: Collection, settings: TrainSettings, *, has_folds: bool
) -> list[Trial]:
    """Return the requested ranker, or all of them for "auto", with tuned parameters if any."""
    kind = collection.kind
    has_estimate = kind == "layout"  # every target has an estimated time of layouts
    names = [settings.model]
    if settings.model == AUTO:
        by_default = "time-trees" if has_estimate else DEFAULT
        names = rankers() if has_folds else [by_default]
    trials = []
    for name in names:
        params, tuned = params_for(workspace.study(collection), name, kind)
        rounds = 0 if name == "time-trees" and has_estimate else _DEFAULT_ROUNDS
        trials.append(Trial(Model.of(name, kind, params), tuned, rounds, "one family, no folds"))
    return trials


def _continued_models(model: Model, plan: FoldPlan) -> list[Trial]:
    """Return a model to continue, at each learning rate to compare."""
    reason = f"fewer than {MIN_NEW_FAMILIES} families that are new to the model"
    rates = RATES if plan.folds else (CONTINUED_RATE,)
    tuned = model.require_card().tuned
    return [
        Trial(model.continued(rate), tuned, CONTINUED_ROUNDS, reason, rate=rate) for rate in rates
    ]


def _validate(
    trial: Trial,
    rows: StoredTrainingSet,
    plan: FoldPlan,
    settings: TrainSettings,
    fit: FitSettings,
    step: Callable[[str], None],
) -> Trial:
    """Cross-validate a model and choose its number of rounds."""
    if not plan.folds:
        rounds = min(trial.default_rounds, settings.rounds)
        return replace(trial, rounds=rounds, chosen_by=f"default ({trial.reason})")
    prefix = f"{trial.model.name}, " if settings.model == AUTO else ""

    def report_fold(fold: Fold) -> None:
        families = sorted({rows.data.families[graph] for graph in fold.held})
        step(f"{prefix}held out {', '.join(families)}")

    began = time.perf_counter()
    curves = plan.curves(rows.data, trial.model, fit, report_fold)
    stage = curves.best_stage(settings.select)
    return replace(
        trial,
        rounds=curves.rounds[stage],
        chosen_by=f"{len(plan.folds)} folds by {plan.by}",
        metrics=curves.at(stage),
        scores=curves.scores_at(stage),
        value=float(objective_value(curves.column("score")[:, stage], settings.select)),
        seconds=time.perf_counter() - began,
    )


def _chosen_from(trials: Sequence[Trial], failed: Sequence[str], plan: FoldPlan) -> str:
    """Describe how "auto" chose the ranker."""
    if not plan.folds:
        name = trials[0].model.name
        return f"{name}: one program family, so there are no folds to compare rankers by"
    scores = []
    for trial in sorted(trials, key=lambda trial: -trial.value):
        scores.append(f"{trial.model.name}{' (tuned)' if trial.tuned else ''} {trial.value:.3f}")
    return "; ".join([f"{', '.join(scores)} out of fold", *failed])


def _save(
    workspace: Workspace,
    rows: StoredTrainingSet,
    plan: FoldPlan,
    best: Trial,
    start: tuple[Model, str] | None,
    settings: TrainSettings,
    evaluated: Sequence[Trial],
    progress: Progress | None,
) -> TrainResult:
    """Replace the model of the collection by that of ``best``, fitted, and write the out-of-fold
    results of all trials.

    Raises `CollectionError`, before anything is replaced, if all scores of a new model are equal,
    unless allowed.
    """
    data = rows.data.with_also()
    model = best.model
    importance = model.importance() if model.members else {}
    note = ""
    if not importance:
        note = _require_scores_that_differ(rows, model, settings.allow_constant or bool(start))
    others = _untrained(rows, best)
    card = _card(rows, plan, best, start, settings)
    card.others = scores_of_untrained(others)
    tables = _tables(card, evaluated, others)
    with workspace_lock(workspace, progress):
        rows.require_current(workspace)
        saved = model.save(workspace.model(rows.collection), card)
        write_results(workspace, tables)
        with suppress(OSError):  # if old predictions cannot be removed, writing new ones raises
            workspace.predictions(rows.collection, model.name).unlink()
        rows.write_scores(workspace, plan, model.name, best.scores, settings.seed)
    return TrainResult(
        card.collection,
        card.model,
        card.tuned,
        note=note,
        graphs=data.groups,
        rows=len(data.cost),
        families=len(set(data.families)),
        rounds=best.rounds,
        chosen_by=best.chosen_by,
        seeds=settings.seeds,
        fallback=str(card.fallback) if card.fallback else "",
        importance=importance,
        folds=summarise(best.metrics) if best.metrics else {},
        comparison=compared({(model.name, None): best.metrics, **others}),
        ranked_by=best_of(saved)[1],
    )


def _card(
    rows: StoredTrainingSet,
    plan: FoldPlan,
    best: Trial,
    start: tuple[Model, str] | None,
    settings: TrainSettings,
) -> ModelCard:
    """Return the card of the model of ``best``, without scores of others."""
    data = rows.data.with_also()
    # only kernels whose family is certain; none for layouts
    kernel_families = {part.kinds[0] for part in data.parts if len(part.kinds) == 1}
    if start is not None:
        kernel_families.update(start[0].require_card().kinds)
    return ModelCard(
        collection=str(rows.collection),
        model=best.model.name,
        params=dict(best.model.params),
        rounds=best.rounds,
        tuned=best.tuned,
        recipe=rows.manifest.recipe,
        columns=rows.manifest.columns,
        trained_on=rows.splits,
        also_from=rows.also_from,
        also_weights=rows.also_weights,
        continues=_continued_card(start, best.rate),
        folds=best.metrics,
        folds_by=plan.by,
        target=target_of(rows.collection).name,
        kinds=sorted(kernel_families),
        fallback=plan.fallback,
        select=settings.select,
        seeds=settings.seeds,
        name=best.name,
        rows=len(data.cost),
        max_rows=MAX_ROWS[rows.kind] if settings.max_rows is None else settings.max_rows,
    )


def _tables(card: ModelCard, evaluated: Sequence[Trial], others: Rankings) -> list[pl.DataFrame]:
    """Return the out-of-fold results of other rankers, then of all trials."""
    scope = (card.collection, "train", card.folds_by)
    tables = [results_table(metrics, name, scope=scope) for (name, _), metrics in others.items()]
    for trial in evaluated:
        if trial.metrics:
            run = Run.of(trial.model, card.recipe, trial.rounds, trial.name, trial.tuned, card.rows)
            ranker = trial.model.name
            seconds = trial.seconds
            tables.append(
                results_table(trial.metrics, ranker, scope=scope, run=run, seconds=seconds)
            )
    return tables


def _untrained(rows: StoredTrainingSet, trial: Trial) -> Rankings:
    """Return the metrics of the shipped ranker and of rules on the graphs that folds scored."""
    rankings = Rankings()
    for graph in rows.data.parts:
        if graph.name in trial.metrics:
            add_untrained(rankings, rows.collection, graph)
    return rankings


def _require_scores_that_differ(rows: StoredTrainingSet, model: Model, may_be_equal: bool) -> str:
    """Return a warning about a model without splits; raise `CollectionError` for equal scores,
    unless allowed.
    """
    data = rows.data.with_also()
    reason = f"too few rows to train {model.name} ({counted(len(data.cost), 'row')})"
    note = "" if not model.members else f"{rows.collection}: no tree has a split: {reason}"
    scores = (model.score(part) for part in data.parts)
    if not may_be_equal and all(np.ptp(graph_scores) == 0 for graph_scores in scores):
        cause = f"{note}, and" if note else f"{rows.collection}:"
        got = f"{cause} all scores are equal, so the model is not saved"
        smaller = "run tune, which tries smaller leaves (min_data_in_leaf)"
        do = f"add graphs or configurations, or {smaller}; `allow_constant` saves it"
        raise CollectionError(got, do=do)
    return note


def _starting_models(
    workspace: Workspace, settings: TrainSettings, chosen: Sequence[Collection]
) -> Mapping[Kind, tuple[Model, str]]:
    """Return the model to continue and its source by kind of graphs; empty if none was named."""
    if settings.fine_tune is None:
        return {}
    starts = {}
    for kind in {collection.kind for collection in chosen}:
        model, source = find_model(settings.fine_tune, workspace, kind)
        if settings.model not in (DEFAULT, model.name):
            got = f"`model={settings.model}` beside a model to fine-tune, which is of {model.name}"
            raise ModelError(got, do="leave one of them out")
        replace(settings, model=model.name)  # raises an error if a cluster cannot train it
        starts[kind] = (model, source)
    return starts


def _require_tpu(collection: Collection) -> None:
    """Raise `ModelError` for layouts that the shipped time model of TPUs does not describe."""
    if target_of(collection) is not TPU:
        got = f"the shipped time model describes TPUs, not {collection}"
        do = "train without it: rankers of these layouts begin at the time of their relayouts"
        raise ModelError(got, do=do)


def folds_of_new_families(model: Model, rows: StoredTrainingSet) -> FoldPlan:
    """Return folds over the graphs of families unknown to a model; no folds if there are too few
    families.

    Raises `CollectionError` or `ModelError` unless the model can be continued on these graphs.
    """
    card = model.require_card()
    if card.kind != rows.kind:
        expected = f"{card.kind} graphs, which {model.title} ranks"
        do = "choose the collections to train with `collections`"
        got = f"{rows.collection} holds {rows.kind} graphs"
        raise CollectionError(got, expected=expected, do=do)
    model.require(rows.manifest)
    return FoldPlan.of_new(rows.data, card.known_graphs)


def _continued_card(start: tuple[Model, str] | None, rate: float) -> Continued | None:
    if start is None:
        return None
    model, source = start
    card = model.require_card()
    graphs = sorted(card.known_graphs)
    return Continued(source, card.collection, card.fingerprint, rate, graphs)


def _describe_continued(
    start: tuple[Model, str], best: Trial, rows: StoredTrainingSet, settings: TrainSettings
) -> str:
    """Describe the continued model and the out-of-fold improvement over it."""
    model, source = start
    card = model.require_card()
    name = "the shipped ranker" if source == SHIPPED else f"the model at {source}"
    programs = counted(len(card.known_graphs), "program")
    text = f"fine-tuned from {name} ({card.collection}, {programs})"
    if not best.metrics:
        return text
    scores = {graph: values["score"] for graph, values in best.metrics.items()}
    unchanged = {}
    for graph in (part for part in rows.data.parts if part.name in scores):
        metrics = graph_metrics(
            model.kind, model.score(graph)[graph.group], graph.cost, graph.group
        )
        unchanged[graph.name] = metrics["score"]
    lead, error = paired_difference(scores, unchanged, settings.select)
    text += (
        f"; out of fold {best.value:.3f} on {counted(len(scores), 'graph')} of new families, "
        f"{lead:+.3f} ± {error:.3f} compared with that model unchanged; "
        f"new trees learn {best.rate:g} times as fast as its own"
    )
    if lead < 0:
        text += (
            "; the unchanged model ranks them better: measure more graphs, or rank with that model"
        )
    return text
