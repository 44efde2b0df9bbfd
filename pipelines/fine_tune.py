"""Continue a trained model on the graphs of each collection."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.family import program_family
from xlarank.data.workspace import Workspace
from xlarank.models.registry import DEFAULT
from xlarank.models.trained import (
    CARD,
    Continued,
    TrainedModel,
    fingerprint,
    load_model,
    model_of,
    pretrained_model,
)
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.curves import MOST_FOLDS, FoldPlan
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import graph_metrics
from xlarank.models.validation.paired import paired_difference
from xlarank.pipelines.support.fitting import Choice, Job, TrainRequest, TrainResult, fit_collections
from xlarank.pipelines.support.progress import Progress
from xlarank.pipelines.support.training_sets import StoredTrainingSet
from xlarank.pipelines.support.workspace_collections import trained_collections

#: The shipped ranker, as a model to fine-tune.
SHIPPED: Final = "shipped"
#: How fast new trees learn beside the old ones, to be chosen among by folds.
RATES: Final = (1.0, 0.3)
#: Families, new to the model that is continued, from which on folds choose; fewer say too little.
FEWEST_FAMILIES: Final = 3
#: Rounds and rate where folds cannot choose: chosen on the embedded sample (docs/how-to/fine-tune.md).
DEFAULT_ROUNDS: Final = 100
DEFAULT_RATE: Final = 1.0


@dataclass(frozen=True)
class FineTuning:
    """A model to fine-tune, and where it was found: `SHIPPED`, or its folder."""

    model: TrainedModel
    where: str

    @classmethod
    def find(cls, asked: str, workspace: Workspace) -> FineTuning:
        """Load `SHIPPED`, the model of a collection in the workspace, or that of a folder.

        Raises `ModelError` where there is none.
        """
        if asked == SHIPPED:
            return cls(pretrained_model(), SHIPPED)
        trained = {str(collection): collection for collection in trained_collections(workspace)}
        if asked in trained:
            return cls(model_of(workspace, trained[asked]), str(workspace.model(trained[asked])))
        if (Path(asked) / CARD).exists():
            return cls(load_model(Path(asked)), asked)
        raise ModelError(
            f"there is no model {asked!r} to fine-tune",
            expected=", ".join([SHIPPED, f"a folder with {CARD}", *trained]),
            do="pass --fine-tune with one of these",
        )

    def require_fit(self, training: StoredTrainingSet) -> None:
        """Raise `CollectionError` or `ModelError` unless the model can be continued on these graphs."""
        card, manifest = self.model.card, training.manifest
        if card.kind != training.kind:
            raise CollectionError(
                f"{training.collection} holds {training.kind} graphs",
                expected=f"{card.kind} graphs, which the model of {card.collection} ranks",
                do="choose the collections to train with --collection",
            )
        if not self.model.shipped and card.recipe.code_hash != manifest.recipe.code_hash:
            raise ModelError(
                f"the rows of {training.collection} were made by feature code {manifest.recipe.code_hash}",
                expected=f"{card.recipe.code_hash}, which the model of {card.collection} was trained on",
                do="train that model again, or fine-tune another",
            )

    def plan(self, data: TrainingData) -> FoldPlan:
        """Folds of the graphs whose families are new to the model; none where these are too few."""
        known = {program_family(name) for name in self.model.card.known_graphs}
        new = [number for number, family in enumerate(data.families) if family not in known]
        families = [data.families[number] for number in new]
        folds = family_folds(families, MOST_FOLDS) if len(set(families)) >= FEWEST_FAMILIES else []
        return FoldPlan.of_families([[new[place] for place in held] for held in folds])

    def scores(self, data: TrainingData, names: Collection[str]) -> dict[str, float]:
        """Scores of some graphs by the unchanged model."""
        found = {}
        for graph in data.parts:
            if graph.name in names:
                rows = self.model.own_columns(graph)
                score = self.model.score(rows).mean[rows.group]
                found[graph.name] = graph_metrics(self.model.card.kind, score, rows.cost, rows.group)["score"]
        return found


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
    request, tuning = request or TrainRequest(), FineTuning.find(start, workspace)
    model = tuning.model.card.model
    if request.model not in (DEFAULT, model):
        raise ModelError(
            f"--model {request.model} beside a model to fine-tune, which is of {model}", do="leave one of them out"
        )

    def plan_of(training: StoredTrainingSet) -> FoldPlan:
        tuning.require_fit(training)
        return tuning.plan(training.data)

    request = replace(request, model=model, allow_constant=True)
    return fit_collections(workspace, request, plan_of, lambda job: choose_rate(job, tuning), progress)


def choose_rate(job: Job, tuning: FineTuning) -> Choice:
    """Choose the learning rate and number of rounds; both are defaults for few new families."""
    card, rates = tuning.model.card, RATES if job.plan.folds else (DEFAULT_RATE,)
    job.begin(len(rates))
    few = f"fewer than {FEWEST_FAMILIES} families that are new to the model"
    choices = {}
    for rate in rates:
        rankers = [ranker.continuing(rate) for ranker in tuning.model.rankers]
        choices[rate] = job.choose_rounds(rankers, card.tuned, DEFAULT_ROUNDS, few)
    rate, best = max(choices.items(), key=lambda one: one[1].value)  # of equals the first
    name = "the shipped ranker" if tuning.where == SHIPPED else f"the model at {tuning.where}"
    why = f"fine-tuned from {name} ({card.collection}, {len(card.known_graphs)} programs)"
    if best.metrics:
        scores = {graph: values["score"] for graph, values in best.metrics.items()}
        before = tuning.scores(job.training.data, scores)
        lead, spread = paired_difference(scores, before, job.request.select)
        why += (
            f"; out of fold {best.value:.3f} on {len(scores)} graphs of new families, {lead:+.3f} ± {spread:.3f} "
            f"compared with that model unchanged; new trees learn {rate:g} times as fast as its own"
        )
    continued = Continued(tuning.where, card.collection, fingerprint(card), rate, sorted(card.known_graphs))
    return replace(best, why=why, continues=continued, kinds=card.kinds)
