"""Training of the rankers of each collection: from scratch, or continuing a trained model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from xlarank.data.errors import CollectionError, ModelError, counted
from xlarank.data.graph import Kind, program_family
from xlarank.data.workspace import Workspace
from xlarank.models import trained
from xlarank.models.rankers.time_trees import TimeTrees
from xlarank.models.trained import CARD, DEFAULT, RANKERS, Continued, TrainedModel
from xlarank.models.training_data import FitSettings, target_of
from xlarank.models.validation.folds import MOST_FOLDS, FoldPlan, family_folds
from xlarank.models.validation.metrics import graph_metrics, paired_difference
from xlarank.pipelines.ranking.model_choice import SHIPPED
from xlarank.pipelines.support.progress import Progress
from xlarank.pipelines.support.workspaces import chosen_collections
from xlarank.pipelines.training import fitting
from xlarank.pipelines.training.fitting import Candidate, TrainingJob, TrainRequest, TrainResult
from xlarank.pipelines.training.training_sets import StoredTrainingSet

#: Name that selects the ranker with the best out-of-fold score, for each collection.
AUTO: Final = "auto"
#: Number of rounds without folds.
_DEFAULT_ROUNDS: Final = 150
#: Learning rates of added trees to cross-validate, as multiples of the model's own.
RATES: Final = (1.0, 0.3)
#: Minimum number of families unknown to the continued model for choosing by cross-validation.
MIN_FAMILIES: Final = 3
#: Rounds and rate of added trees without folds: the best on the embedded sample (docs/how-to/fine-tune.md).
CONTINUED_ROUNDS, CONTINUED_RATE = 100, 1.0


def train(
    workspace: Workspace, request: TrainRequest | None = None, *, progress: Progress | None = None
) -> list[TrainResult]:
    """Fit ``seeds`` rankers per collection, with tuned parameters if there is a study.

    The number of rounds is the best on folds that hold out program families, or kernel families of tiles. Unseen
    kernel families are ranked with the fallback. The out-of-fold scores are stored in the model.

    With ``model`` "auto", every ranker is validated on the same folds, each with its tuned parameters or else its
    defaults, and the best is trained, per collection. A ranker that cannot run here (no xgboost) is left out. The
    best of several out-of-fold scores is slightly optimistic.

    A model whose scores are all equal is not saved unless ``allow_constant``. Raises as `fitting.train_each`.
    """
    request = request or TrainRequest()
    if request.model != AUTO:
        trained.ranker_class(request.model)

    def train_one(training: StoredTrainingSet, settings: FitSettings) -> TrainResult:
        return _train(TrainingJob(workspace, training, FoldPlan.of(training.data), request, settings), progress)

    return fitting.train_each(workspace, request, train_one)


def _train(job: TrainingJob, progress: Progress | None) -> TrainResult:
    """Train the requested ranker, or the one that is best out of fold."""
    kind, auto = job.training.kind, job.request.model == AUTO
    time_model = kind == "layout" and "layout" in target_of(job.training.collection).estimate
    names = [job.request.model]
    if auto:
        names = [*RANKERS] if job.plan.folds else [TimeTrees.name if time_model else DEFAULT]
    candidates: list[Candidate] = []
    failed: list[str] = []
    with job.steps(len(names), progress) as step:
        for name in names:
            params, tuned = trained.params_for(job.workspace.study(job.training.collection), name, kind)
            try:
                ranker = trained.ranker_class(name)(params, kind=kind)
                if job.plan.folds:
                    candidates.append(fitting.validate(job, [ranker], tuned, step, f"{name}, " if auto else ""))
                else:
                    rounds = 0 if name == TimeTrees.name and time_model else _DEFAULT_ROUNDS
                    chosen_by = "default (one family, no folds)"
                    candidates.append(Candidate([ranker], tuned, min(rounds, job.request.rounds), chosen_by))
            except ModelError as error:
                if not auto:
                    raise
                failed.append(f"{name} is left out: {error.got}")
        choice = max(candidates, key=lambda candidate: candidate.value)  # ties: the first registered
        rankers = fitting.fit_seeds(job, choice, step)
    result = fitting.save(job, choice, rankers, candidates, progress)
    if not auto:
        return result
    if not job.plan.folds:
        reason = f"{choice.name}: one program family, so there are no folds to compare rankers by"
        return replace(result, why=reason)
    scores = [
        f"{candidate.name}{' (tuned)' if candidate.tuned else ''} {candidate.value:.3f}"
        for candidate in sorted(candidates, key=lambda candidate: -candidate.value)
    ]
    return replace(result, why="; ".join([f"{', '.join(scores)} out of fold", *failed]))


def fine_tune(
    workspace: Workspace, start: str, request: TrainRequest | None = None, *, progress: Progress | None = None
) -> list[TrainResult]:
    """Continue a model on each collection instead of training from scratch.

    ``start`` is "shipped" for the shipped ranker of the collection's kind, a collection with a model in the
    workspace, or the folder of a model. Each ranker gets at most ``rounds`` more trees, on the columns it uses.
    The number of trees and their learning rate are cross-validated on families unknown to the model; with fewer
    than `MIN_FAMILIES` of them, defaults are used.

    Raises `ModelError` if the model is missing or cannot be continued, and the errors of `fitting.train_each`.
    """
    request = request or TrainRequest()
    kinds = {collection.kind for collection in chosen_collections(workspace, request.collections)}
    # loaded before any training, which may replace the model that is continued
    models = {kind: find_model(start, workspace, kind) for kind in kinds}
    for model, _ in models.values():
        if request.model not in (DEFAULT, model.card.model):
            got = f"`model={request.model}` beside a model to fine-tune, which is of {model.card.model}"
            raise ModelError(got, do="leave one of them out")
        replace(request, model=model.card.model)  # raises an error if a cluster cannot train this ranker

    def train_one(training: StoredTrainingSet, settings: FitSettings) -> TrainResult:
        model, source = models[training.kind]
        job = TrainingJob(workspace, training, new_families(model, training), request, settings)
        return _continue(job, model, source, progress)

    return fitting.train_each(workspace, request, train_one)


def find_model(name: str, workspace: Workspace, kind: Kind) -> tuple[TrainedModel, str]:
    """Return the shipped ranker, a collection's model or that of a folder, and its source; raises `ModelError`."""
    if name == SHIPPED:
        return trained.pretrained_model(kind), SHIPPED
    collections = {str(collection): collection for collection in trained.trained_collections(workspace)}
    if name in collections:
        return trained.model_of(workspace, collections[name]), str(workspace.model(collections[name]))
    if (Path(name) / CARD).exists():
        return trained.load_model(Path(name)), name
    expected = ", ".join([SHIPPED, f"a folder with {CARD}", *collections])
    do = "pass `fine_tune` with one of these"
    raise ModelError(f"there is no model {name!r} to fine-tune", expected=expected, do=do)


def new_families(model: TrainedModel, training: StoredTrainingSet) -> FoldPlan:
    """Return folds over the graphs of families unknown to a model; no folds if there are too few families.

    Raises `CollectionError` or `ModelError` unless the model can be continued on these graphs.
    """
    if model.card.kind != training.kind:
        expected = f"{model.card.kind} graphs, which the model of {model.card.collection} ranks"
        do = "choose the collections to train with `collections`"
        raise CollectionError(f"{training.collection} holds {training.kind} graphs", expected=expected, do=do)
    model.require(training.manifest)
    known = {program_family(name) for name in model.card.known_graphs}
    new = [group for group, family in enumerate(training.data.families) if family not in known]
    families = [training.data.families[group] for group in new]
    folds = family_folds(families, MOST_FOLDS) if len(set(families)) >= MIN_FAMILIES else []
    return FoldPlan.of_families([[new[index] for index in fold] for fold in folds])


def _continue(job: TrainingJob, model: TrainedModel, source: str, progress: Progress | None) -> TrainResult:
    """Add trees to a model, at the learning rate that is best out of fold."""
    rates = RATES if job.plan.folds else (CONTINUED_RATE,)
    card, candidates = model.card, dict[float, Candidate]()
    with job.steps(len(rates), progress) as step:
        for rate in rates:
            rankers = [ranker.continuing(rate) for ranker in model.rankers]
            if job.plan.folds:
                candidates[rate] = fitting.validate(job, rankers, card.tuned, step)
            else:
                chosen_by = f"default (fewer than {MIN_FAMILIES} families that are new to the model)"
                rounds = min(CONTINUED_ROUNDS, job.request.rounds)
                candidates[rate] = Candidate(rankers, card.tuned, rounds, chosen_by)
        rate, choice = max(candidates.items(), key=lambda item: item[1].value)  # ties: the first rate
        rankers = fitting.fit_seeds(job, choice, step)
    continues = Continued(source, card.collection, trained.fingerprint(card), rate, sorted(card.known_graphs))
    result = fitting.save(job, choice, rankers, [choice], progress, continues=continues, kinds=card.kinds)
    name = "the shipped ranker" if source == SHIPPED else f"the model at {source}"
    reason = f"fine-tuned from {name} ({card.collection}, {counted(len(continues.graphs), 'program')})"
    if choice.metrics:
        reason += _improvement(job, model, rate, choice)
    return replace(result, why=reason)


def _improvement(job: TrainingJob, model: TrainedModel, rate: float, choice: Candidate) -> str:
    """Describe the out-of-fold improvement over the model that was continued."""
    scores = {graph: values["score"] for graph, values in choice.metrics.items()}
    before = {}
    for graph in (part for part in job.training.data.parts if part.name in scores):
        rows = model.select(graph)
        metrics = graph_metrics(model.card.kind, model.score(rows).mean[rows.group], rows.cost, rows.group)
        before[graph.name] = metrics["score"]
    lead, error = paired_difference(scores, before, job.request.select)
    text = (
        f"; out of fold {choice.value:.3f} on {counted(len(scores), 'graph')} of new families, "
        f"{lead:+.3f} ± {error:.3f} compared with that model unchanged; "
        f"new trees learn {rate:g} times as fast as its own"
    )
    if lead < 0:
        text += "; the unchanged model ranks them better: measure more graphs, or rank with that model"
    return text
