"""Fit the final boosters of each collection, or continue those of a trained model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.family import program_family
from xlarank.data.workspace import Workspace
from xlarank.features.targets import target_of
from xlarank.models import trained
from xlarank.models.rankers.time_trees import TimeTrees
from xlarank.models.registry import DEFAULT, RANKERS, ranker_class
from xlarank.models.trained import CARD, Continued, TrainedModel
from xlarank.models.validation.best_params import params_for
from xlarank.models.validation.curves import MOST_FOLDS, FoldPlan
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import graph_metrics, paired_difference
from xlarank.pipelines.ranking.model_choice import SHIPPED
from xlarank.pipelines.support.fitting import Choice, Job, TrainRequest, TrainResult, fit_collections
from xlarank.pipelines.support.progress import Progress
from xlarank.pipelines.support.training_sets import StoredTrainingSet
from xlarank.pipelines.support.workspace_collections import trained_collections

#: In place of a ranker's name: whichever scores best out of fold, for each collection.
AUTO: Final = "auto"
#: Rounds where there are no folds to choose by.
_DEFAULT_ROUNDS: Final = 150
#: How fast new trees learn beside the old ones, to be chosen among by folds.
RATES: Final = (1.0, 0.3)
#: Families, new to the model that is continued, from which on folds choose; fewer say too little.
FEWEST_FAMILIES: Final = 3
#: Rounds and rate where folds cannot choose: chosen on the embedded sample (docs/how-to/fine-tune.md).
CONTINUED_ROUNDS, CONTINUED_RATE = 100, 1.0


def train(
    workspace: Workspace, request: TrainRequest | None = None, *, progress: Progress | None = None
) -> list[TrainResult]:
    """Fit ``seeds`` boosters per collection, with tuned parameters where a study left them.

    The number of rounds is the best of folds with these parameters that hold out program families, or kinds of
    kernels for tiles, which fall back as unseen kinds do; the folds' scores are kept in
    the model.

    ``model`` "auto" scores every ranker on the same folds, each with its tuned parameters or else its defaults, and
    trains the best, collection by collection. A ranker that cannot run here (no xgboost) is left out. The best of
    several out-of-fold scores is slightly optimistic.

    A model that learned nothing is not saved, unless with ``allow_constant``. Raises as `fit_collections`.
    """
    request = request or TrainRequest()
    if request.model != AUTO:
        ranker_class(request.model)
    return fit_collections(workspace, request, lambda rows: FoldPlan.of(rows.data), choose_ranker, progress)


def choose_ranker(job: Job) -> Choice:
    """Choose the named ranker, or the one of the best out-of-fold score, and its best number of rounds."""
    model, kind = job.request.model, job.training.kind
    study = job.workspace.study(job.training.collection)
    timed = kind == "layout" and kind in target_of(job.training.collection).estimate
    without_folds = TimeTrees.name if timed else DEFAULT
    names = [model] if model != AUTO else [*RANKERS] if job.plan.folds else [without_folds]
    job.begin(len(names))
    choices: list[Choice] = []
    left_out: list[str] = []
    for name in names:
        params, tuned = params_for(study, name, kind)
        note = f"{name}, " if model == AUTO else ""
        try:
            ranker = ranker_class(name)(params, kind=kind)
            rounds = 0 if timed and name == TimeTrees.name else _DEFAULT_ROUNDS
            choices.append(job.choose_rounds([ranker], tuned, rounds, "one family, no folds", note))
        except ModelError as error:
            if model != AUTO:
                raise
            left_out.append(f"{name} is left out: {error.got}")
    choices.sort(key=lambda choice: -choice.value)  # of equals the first registered
    if model != AUTO:
        return choices[0]
    scores = [f"{one.rankers[0].name}{' (tuned)' if one.tuned else ''} {one.value:.3f}" for one in choices]
    why = "; ".join([f"{', '.join(scores)} out of fold", *left_out])
    one_family = f"{without_folds}: one program family, so there are no folds to compare rankers by"
    return replace(choices[0], why=why if job.plan.folds else one_family)


def fine_tune(
    workspace: Workspace, start: str, request: TrainRequest | None = None, *, progress: Progress | None = None
) -> list[TrainResult]:
    """Continue a model on each collection instead of training from scratch.

    ``start`` is "shipped" for the shipped ranker, a collection with a model in the workspace, or
    the folder of a model. Its rankers get more trees, at most ``rounds``, on the columns they use. Folds choose
    their number and learning rate; only families that are new to the model are validated on, and with fewer than
    `FEWEST_FAMILIES` of them both are defaults.

    Raises `ModelError` where the model is missing or cannot be continued, and as `fit_collections`.
    """
    request, (model, where) = request or TrainRequest(), find_model(start, workspace)
    name = model.card.model
    if request.model not in (DEFAULT, name):
        raise ModelError(
            f"--model {request.model} beside a model to fine-tune, which is of {name}", do="leave one of them out"
        )
    request = replace(request, model=name, allow_constant=True)
    return fit_collections(
        workspace, request, lambda rows: new_families(model, rows), lambda job: choose_rate(job, model, where),
        progress,
    )  # fmt: skip


def find_model(asked: str, workspace: Workspace) -> tuple[TrainedModel, str]:
    """Load `SHIPPED`, the model of a collection in the workspace, or that of a folder, and say where it was found.

    Raises `ModelError` where there is none.
    """
    if asked == SHIPPED:
        return trained.pretrained_model(), SHIPPED
    places = {str(collection): collection for collection in trained_collections(workspace)}
    if asked in places:
        return trained.model_of(workspace, places[asked]), str(workspace.model(places[asked]))
    if (Path(asked) / CARD).exists():
        return trained.load_model(Path(asked)), asked
    raise ModelError(
        f"there is no model {asked!r} to fine-tune",
        expected=", ".join([SHIPPED, f"a folder with {CARD}", *places]),
        do="pass --fine-tune with one of these",
    )


def new_families(model: TrainedModel, training: StoredTrainingSet) -> FoldPlan:
    """Folds of the graphs whose families are new to a model; none where these are too few.

    Raises `CollectionError` or `ModelError` unless the model can be continued on these graphs.
    """
    if model.card.kind != training.kind:
        raise CollectionError(
            f"{training.collection} holds {training.kind} graphs",
            expected=f"{model.card.kind} graphs, which the model of {model.card.collection} ranks",
            do="choose the collections to train with --collection",
        )
    model.require(training.manifest)
    known = {program_family(name) for name in model.card.known_graphs}
    new = [number for number, family in enumerate(training.data.families) if family not in known]
    families = [training.data.families[number] for number in new]
    folds = family_folds(families, MOST_FOLDS) if len(set(families)) >= FEWEST_FAMILIES else []
    return FoldPlan.of_families([[new[place] for place in held] for held in folds])


def choose_rate(job: Job, model: TrainedModel, where: str) -> Choice:
    """Choose the learning rate and number of rounds; both are defaults for few new families."""
    card, rates = model.card, RATES if job.plan.folds else (CONTINUED_RATE,)
    job.begin(len(rates))
    few = f"fewer than {FEWEST_FAMILIES} families that are new to the model"
    choices = {}
    for rate in rates:
        rankers = [ranker.continuing(rate) for ranker in model.rankers]
        choices[rate] = job.choose_rounds(rankers, card.tuned, CONTINUED_ROUNDS, few)
    rate, best = max(choices.items(), key=lambda one: one[1].value)  # of equals the first
    chosen = [*choices].index(rate)
    job.results[:] = job.results[chosen : chosen + 1]  # rates are not rankers to compare
    name = "the shipped ranker" if where == SHIPPED else f"the model at {where}"
    why = f"fine-tuned from {name} ({card.collection}, {len(card.known_graphs)} programs)"
    if best.metrics:
        scores = {graph: values["score"] for graph, values in best.metrics.items()}
        before = {}
        for graph in (part for part in job.training.data.parts if part.name in scores):
            rows = model.select(graph)
            metrics = graph_metrics(card.kind, model.score(rows).mean[rows.group], rows.cost, rows.group)
            before[graph.name] = metrics["score"]
        lead, spread = paired_difference(scores, before, job.request.select)
        why += (
            f"; out of fold {best.value:.3f} on {len(scores)} graphs of new families, {lead:+.3f} ± {spread:.3f} "
            f"compared with that model unchanged; new trees learn {rate:g} times as fast as its own"
        )
        if lead < 0:
            why += "; the unchanged model ranks them better: measure more graphs, or rank with that model"
    continues = Continued(where, card.collection, trained.fingerprint(card), rate, sorted(card.known_graphs))
    return replace(best, why=why, continues=continues, kinds=card.kinds)
