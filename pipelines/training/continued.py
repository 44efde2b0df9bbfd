"""Training that continues another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, counted
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.models.card import Continued
from xlarank.models.model import Model
from xlarank.models.rankers import DEFAULT
from xlarank.models.training_data import TPU, target_of
from xlarank.models.validation.folds import MIN_NEW_FAMILIES, FoldPlan
from xlarank.models.validation.metrics import graph_metrics, paired_difference
from xlarank.pipelines.ranking.model_choice import SHIPPED, find_model
from xlarank.pipelines.training.contender import Contender
from xlarank.pipelines.training.settings import TrainSettings
from xlarank.pipelines.training.training_sets import StoredTrainingSet

#: Learning rates of added trees to cross-validate, as multiples of the continued model's.
RATES: Final = (1.0, 0.3)
#: Rounds and rate of a continued model without folds.
CONTINUED_ROUNDS: Final = 100
CONTINUED_RATE: Final = 1.0


def starting_models(
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


def continued_contenders(
    model: Model, source: str, training: StoredTrainingSet, settings: TrainSettings
) -> tuple[FoldPlan, list[Contender]]:
    """Return folds over the families that are unknown to a model (none if there are too few), and
    the model at each learning rate to compare.

    Raises `CollectionError` or `ModelError` unless it can be continued on these graphs.
    """
    card = model.require_card()
    if (
        source == SHIPPED
        and training.kind == "layout"
        and target_of(training.collection) is not TPU
    ):
        got = f"the shipped time model describes TPUs, not {training.collection}"
        do = "train without it: rankers of these layouts begin at the time of their relayouts"
        raise ModelError(got, do=do)
    if card.kind != training.kind:
        expected = f"{card.kind} graphs, which {model.title} ranks"
        do = "choose the collections to train with `collections`"
        got = f"{training.collection} holds {training.kind} graphs"
        raise CollectionError(got, expected=expected, do=do)
    model.require(training.manifest)
    plan = FoldPlan.of_new(training.data, card.known_graphs)
    rounds = min(CONTINUED_ROUNDS, settings.rounds)
    chosen_by = f"default (fewer than {MIN_NEW_FAMILIES} families that are new to the model)"
    graphs = sorted(card.known_graphs)
    contenders = []
    for rate in RATES if plan.folds else (CONTINUED_RATE,):
        continues = Continued(source, card.collection, card.fingerprint, rate, graphs, card.kinds)
        continued = model.continued(rate)
        contenders.append(Contender(continued, card.tuned, rounds, chosen_by, continues))
    return plan, contenders


def describe_continued(
    model: Model, best: Contender, training: StoredTrainingSet, select: str
) -> str:
    """Describe the continued model and the out-of-fold improvement over it."""
    assert best.continues is not None
    start = best.continues
    name = "the shipped ranker" if start.where == SHIPPED else f"the model at {start.where}"
    programs = counted(len(start.graphs), "program")
    text = f"fine-tuned from {name} ({start.collection}, {programs})"
    if not best.metrics:
        return text
    scores = {graph: values["score"] for graph, values in best.metrics.items()}
    unchanged = {}
    for rows in training.data.parts:
        if rows.name in scores:
            score = model.score(rows)[rows.group]
            metrics = graph_metrics(model.kind, score, rows.cost, rows.group)
            unchanged[rows.name] = metrics["score"]
    lead, error = paired_difference(scores, unchanged, select)
    text += (
        f"; out of fold {best.value:.3f} on {counted(len(scores), 'graph')} of new families, "
        f"{lead:+.3f} ± {error:.3f} compared with that model unchanged; "
        f"new trees learn {start.rate:g} times as fast as its own"
    )
    if lead < 0:
        text += (
            "; the unchanged model ranks them better: measure more graphs, or rank with that model"
        )
    return text
