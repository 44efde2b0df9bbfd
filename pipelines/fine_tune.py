"""Continuation of trained models on other collections."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from xlarank.data.errors import CollectionError, ModelError, counted
from xlarank.data.graph import Kind, program_family
from xlarank.data.workspace import Workspace
from xlarank.models import trained
from xlarank.models.trained import CARD, DEFAULT, Continued, TrainedModel, trained_collections
from xlarank.models.validation.folds import FAMILY, MOST_FOLDS, Fold, FoldPlan, family_folds
from xlarank.models.validation.metrics import graph_metrics, paired_difference
from xlarank.pipelines.ranking.model_choice import SHIPPED
from xlarank.pipelines.support.progress import Progress
from xlarank.pipelines.support.workspaces import chosen_collections, skip_unless_named
from xlarank.pipelines.training import fitting
from xlarank.pipelines.training.fitting import Candidate, TrainingJob, TrainRequest, TrainResult
from xlarank.pipelines.training.training_sets import (
    StoredTrainingSet,
    extra_collections,
    read_training_set,
)

#: Learning rates of added trees to cross-validate, as multiples of the model's learning rate.
RATES: Final = (1.0, 0.3)
#: Minimum number of families unknown to the model for choosing by cross-validation.
MIN_FAMILIES: Final = 3
#: Rounds and rate used without folds.
CONTINUED_ROUNDS = 100
CONTINUED_RATE = 1.0


def fine_tune(
    workspace: Workspace,
    start: str,
    request: TrainRequest | None = None,
    *,
    progress: Progress | None = None,
) -> list[TrainResult]:
    """Continue a model on each collection instead of training from scratch.

    ``start`` is as in `find_model`. The number of added trees, at most ``rounds``, and their
    learning rate are cross-validated on families unknown to the model; with fewer than
    `MIN_FAMILIES` of them, defaults are used.

    Raises `ModelError` if the model is missing or cannot be continued, and the errors of `train`.
    """
    request = request or TrainRequest()
    workspace.require_writable()
    extra = extra_collections(workspace, request.also_from)
    chosen = chosen_collections(workspace, request.collections)
    # Loaded before the loop, which may replace the model that is continued.
    models = {
        kind: find_model(start, workspace, kind)
        for kind in {collection.kind for collection in chosen}
    }
    for model, _ in models.values():
        if request.model not in (DEFAULT, model.card.model):
            got = (
                f"`model={request.model}` beside a model to fine-tune, which is of "
                f"{model.card.model}"
            )
            raise ModelError(got, do="leave one of them out")
        replace(
            request, model=model.card.model
        )  # raises an error if a cluster cannot train this ranker
    results: list[TrainResult] = []
    left_out: dict[str, str] = {}
    with fitting.fit_settings(request) as settings:
        for collection in chosen:
            with skip_unless_named(collection, request.collections, left_out):
                began = time.monotonic()
                model, source = models[collection.kind]
                training = read_training_set(workspace, collection, request.splits, extra, settings)
                plan = new_families(model, training)
                job = TrainingJob(workspace, training, plan, request, settings, progress)
                results.append(
                    replace(_continue(job, model, source), seconds=time.monotonic() - began)
                )
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    return results + [TrainResult(name, skipped=reason) for name, reason in left_out.items()]


def find_model(name: str, workspace: Workspace, kind: Kind) -> tuple[TrainedModel, str]:
    """Load a model and return it with its source; raises `ModelError` if there is none.

    ``name`` is "shipped" for the shipped ranker of the kind, a collection with a model, or the
    folder of a model.
    """
    if name == SHIPPED:
        return trained.pretrained_model(kind), SHIPPED
    collections = {str(collection): collection for collection in trained_collections(workspace)}
    if name in collections:
        return trained.model_of(workspace, collections[name]), str(
            workspace.model(collections[name])
        )
    if (Path(name) / CARD).exists():
        return trained.load_model(Path(name)), name
    expected = ", ".join([SHIPPED, f"a folder with {CARD}", *collections])
    do = "pass `fine_tune` with one of these"
    raise ModelError(f"there is no model {name!r} to fine-tune", expected=expected, do=do)


def new_families(model: TrainedModel, training: StoredTrainingSet) -> FoldPlan:
    """Return folds over the graphs of families unknown to a model; no folds if there are too few
    families.

    Raises `CollectionError` or `ModelError` unless the model can be continued on these graphs.
    """
    if model.card.kind != training.kind:
        expected = f"{model.card.kind} graphs, which the model of {model.card.collection} ranks"
        do = "choose the collections to train with `collections`"
        raise CollectionError(
            f"{training.collection} holds {training.kind} graphs", expected=expected, do=do
        )
    model.require(training.manifest)
    known = {program_family(name) for name in model.card.known_graphs}
    new = [group for group, family in enumerate(training.data.families) if family not in known]
    families = [training.data.families[group] for group in new]
    folds = family_folds(families, MOST_FOLDS) if len(set(families)) >= MIN_FAMILIES else []
    held_out = ([new[index] for index in fold.held] for fold in folds)
    return FoldPlan(FAMILY, [Fold(groups, groups) for groups in held_out])


def _continue(job: TrainingJob, model: TrainedModel, source: str) -> TrainResult:
    """Add trees to a model, at the learning rate that is best out of fold."""
    rates = RATES if job.plan.folds else (CONTINUED_RATE,)
    default = CONTINUED_ROUNDS, f"fewer than {MIN_FAMILIES} families that are new to the model"
    card = model.card
    candidates = dict[float, Candidate]()
    with job.steps(len(rates)) as step:
        for rate in rates:
            rankers = [ranker.continuing(rate) for ranker in model.rankers]
            candidates[rate] = fitting.validate(job, rankers, card.tuned, step, default)
        rate, choice = max(
            candidates.items(), key=lambda item: item[1].value
        )  # ties: the first rate
        rankers = fitting.fit_seeds(job, choice, step)
    continues = Continued(
        source, card.collection, trained.fingerprint(card), rate, sorted(card.known_graphs)
    )
    name = "the shipped ranker" if source == SHIPPED else f"the model at {source}"
    why = f"fine-tuned from {name} ({card.collection}, {counted(len(continues.graphs), 'program')})"
    if choice.metrics:
        why += _improvement(job, model, rate, choice)
    return fitting.save(job, choice, rankers, [choice], why, continues=continues, kinds=card.kinds)


def _improvement(job: TrainingJob, model: TrainedModel, rate: float, choice: Candidate) -> str:
    """Describe the out-of-fold improvement over the model that was continued."""
    scores = {graph: values["score"] for graph, values in choice.metrics.items()}
    unchanged = {}
    for graph in (part for part in job.training.data.parts if part.name in scores):
        rows = model.select(graph)
        metrics = graph_metrics(
            model.card.kind, model.score(rows).mean[rows.group], rows.cost, rows.group
        )
        unchanged[graph.name] = metrics["score"]
    lead, error = paired_difference(scores, unchanged, job.request.select)
    text = (
        f"; out of fold {choice.value:.3f} on {counted(len(scores), 'graph')} of new families, "
        f"{lead:+.3f} ± {error:.3f} compared with that model unchanged; "
        f"new trees learn {rate:g} times as fast as its own"
    )
    if lead < 0:
        text += (
            "; the unchanged model ranks them better: measure more graphs, or rank with that model"
        )
    return text
