"""Cross-validation: scores of graphs by rankers fitted without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, XlarankError, counted, reasons
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest
from xlarank.models.card import FALLBACK, FAMILY, FOLDS_OF, KERNEL_FAMILY, ModelCard
from xlarank.models.losses import specs_of
from xlarank.models.model import Model
from xlarank.models.stored import model_of
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.tuned import params_for
from xlarank.models.validation.folds import MOST_FOLDS, Curves, FoldPlan, family_folds
from xlarank.pipelines.ranking.model_choice import best_of
from xlarank.pipelines.support.baselines import Rankings
from xlarank.pipelines.support.evaluation import Evaluation, add_rules, first_of, out_of_fold
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.workspaces import labelled_collections, leaving_out
from xlarank.pipelines.training.training_sets import read_training_set, training_set_of

#: Unit held out -> description of the scores.
HELD_OUT: Final = {
    KERNEL_FAMILY: "out of fold, unseen families",
    FAMILY: "out of fold, unseen program families",
}
ROUNDS: Final = 300


def cross_validate(
    workspace: Workspace,
    model: str | Sequence[str] | None = None,
    *,
    by: str = KERNEL_FAMILY,
    collections: Sequence[str] = (),
    fit: FitSettings | None = None,
) -> Evaluation:
    """Score training graphs out of fold.

    Without ``model``, each collection's trained model is scored with its parameters and rounds. The
    scores kept by `train` are reused if its folds held out the same unit.

    Args:
        model: ranker to fit instead of the trained model's, with tuned parameters if any and the
            best number of rounds on these folds (at most ``fit``'s). Several rankers are
            compared with the first.
        by: unit held out with a graph. "kernel-family": as in `FoldPlan.of`, with a fallback.
            "family": its program family, as for a new program.

    Raises `CollectionError` if nothing, or not a named collection, could be scored; `ModelError`
    for an unknown ranker or a missing model; `XlarankError` for an invalid argument.
    """
    if by not in HELD_OUT:
        raise XlarankError(f"`by` is {by!r}", expected=" or ".join(HELD_OUT))
    rankers = [model] if isinstance(model, str) else list(dict.fromkeys(model or ()))
    for ranker in rankers:
        specs_of(ranker)
    settings = fit or FitSettings(ROUNDS)
    evaluation = Evaluation(HELD_OUT[by])
    for collection in labelled_collections(workspace, collections):
        with leaving_out(collection, collections, evaluation.left_out):
            if rankers:
                rankings = _fitted(workspace, collection, rankers, by, settings, evaluation)
            else:
                rankings = _trained(workspace, collection, by, settings, evaluation)
            evaluation.rankings[str(collection)] = rankings
    if not evaluation.rankings:
        why = "; ".join(reasons(evaluation.left_out))
        raise CollectionError(f"nothing could be cross-validated: {why}")
    evaluation.notes = list(dict.fromkeys(evaluation.notes))
    return evaluation


def _fitted(
    workspace: Workspace,
    collection: Collection,
    rankers: Sequence[str],
    by: str,
    settings: FitSettings,
    evaluation: Evaluation,
) -> Rankings:
    """Return the out-of-fold metrics of rankers, with tuned parameters if any, and of rules."""
    training = read_training_set(workspace, collection)
    rankings = Rankings()
    for ranker in rankers:
        params, tuned = params_for(workspace.study(collection), ranker, collection.kind)
        unfitted = Model.of(ranker, collection.kind, params)
        curves = _curves(collection, training.data, unfitted, by, settings, evaluation)
        stage = curves.best_stage()
        parameters = f"{'tuned' if tuned else 'default'} parameters"
        best = f"{counted(curves.rounds[stage], 'round')}, the best on these folds"
        evaluation.notes.append(f"{collection}: {ranker} with {parameters}, {best}")
        rankings[ranker] = curves.at(stage)
    add_rules(rankings, collection, training.data.parts)
    return rankings


def _trained(
    workspace: Workspace,
    collection: Collection,
    by: str,
    settings: FitSettings,
    evaluation: Evaluation,
) -> Rankings:
    """Return the out-of-fold metrics of the trained model and of rules."""
    model = model_of(workspace, collection)
    card = model.require_card()
    if by in (KERNEL_FAMILY, card.folds_by):
        return _kept_by_train(workspace, collection, model, card, evaluation)
    training = training_set_of(workspace, collection, model)
    settings = replace(settings, rounds=card.rounds)
    curves = _curves(collection, training.data, model, by, settings, evaluation)
    if common := card.folds.keys() & curves.metrics.keys():
        mean = np.mean([card.folds[graph]["score"] for graph in common])
        graphs = "this graph" if len(common) == 1 else f"these {len(common)} graphs"
        if len(common) < len(curves.metrics):
            graphs = f"{len(common)} of these graphs"
        note = f"{graphs} by folds of {FOLDS_OF[card.folds_by]}: score {mean:.3f}"
        evaluation.notes.append(f"{collection}: {note}")
    rankings = Rankings({model.name: curves.at(-1)})
    add_rules(rankings, collection, training.data.parts)
    return rankings


def _kept_by_train(
    workspace: Workspace,
    collection: Collection,
    model: Model,
    card: ModelCard,
    evaluation: Evaluation,
) -> Rankings:
    """Return the metrics in the card, and metrics of rules."""
    name = str(collection)
    if card.fallback:
        evaluation.notes.append(f"{name}: fallback for unseen kernel families: {FALLBACK}")
    rankings = out_of_fold(workspace, collection, card)
    manifest = read_manifest(workspace, collection, "train")
    for graph in manifest.graphs.keys() - card.folds if manifest else ():
        evaluation.left_out[f"{name} {graph}"] = "it was not scored out of fold"
    choice = best_of(model)
    evaluation.ranked_by[name] = choice.reason
    return first_of(rankings, choice.model.name)


def _curves(
    collection: Collection,
    data: TrainingData,
    model: Model,
    by: str,
    settings: FitSettings,
    evaluation: Evaluation,
) -> Curves:
    """Fit a model on each fold; describe the folds and the graphs that none scores."""
    plan = FoldPlan.of(data)
    if by == FAMILY:
        plan = FoldPlan(FAMILY, family_folds(data.families, MOST_FOLDS))
    graphs = counted(data.groups, "graph")
    if not plan.folds:
        unit = plan.by.replace("-", " ")
        got = f"there is nothing to hold out by {unit} of the {graphs} of {collection}"
        raise CollectionError(got, expected="graphs of two or more program families")
    if plan.by == KERNEL_FAMILY:
        kinds = {kind for graph in data.parts for kind in graph.kinds}
        folds = f"{len(kinds)} kernel families in {len(plan.folds)} folds"
        evaluation.notes.append(f"{collection}: {folds}")
        fallback = f"fallback for unseen kernel families: {FALLBACK}"
        evaluation.notes.append(f"{collection}: {fallback}")
    with steps_of(f"cross-validating {collection}", len(plan.folds)) as step:
        curves = plan.curves(
            data, model, settings, lambda fold: step(f"held out {len(fold.held)} of {graphs}")
        )
    for name in data.names:
        if name not in curves.metrics:
            reason = "all graphs may be of its kernel family"
            evaluation.left_out[f"{collection} {name}"] = reason
    return curves
