"""Cross-validation: scores of graphs by rankers fitted without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from xlarank.data.collection import Collection, Names, listed
from xlarank.data.errors import CollectionError, XlarankError, counted, reasons
from xlarank.data.workspace import DEFAULT_ROOT, Workspace, WorkspaceLike
from xlarank.features.store import read_manifest
from xlarank.models.card import FALLBACK, FAMILY, KERNEL_FAMILY
from xlarank.models.losses import params_of, specs_of
from xlarank.models.model import Model
from xlarank.models.stored import model_of
from xlarank.models.training_data import FitSettings
from xlarank.models.tuned import params_for
from xlarank.models.validation.folds import FoldPlan
from xlarank.pipelines.ranking.model_choice import best_of
from xlarank.pipelines.support.baselines import Rankings, mean_of
from xlarank.pipelines.support.evaluation import Evaluation, add_untrained, first_of, out_of_fold
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.workspaces import labelled_collections, leaving_out
from xlarank.pipelines.training.training_sets import (
    StoredTrainingSet,
    read_training_set,
    training_set_of,
)

#: Unit held out -> description of the scores.
HELD_OUT: Final = {
    KERNEL_FAMILY: "out of fold, unseen families",
    FAMILY: "out of fold, unseen program families",
}


def cross_validate(
    workspace: WorkspaceLike = DEFAULT_ROOT,
    model: Names | None = None,
    *,
    by: str = KERNEL_FAMILY,
    collection: Names = (),
    rounds: int = 300,
    seed: int = 0,
    threads: int = 0,
) -> Evaluation:
    """Score training graphs out of fold.

    Without ``model``, each collection's trained model is scored with its parameters and rounds. The
    scores kept by `train` are reused if its folds held out the same unit.

    Args:
        model: ranker to fit instead of the trained model's, with tuned parameters if any and the
            best number of ``rounds`` on these folds. Several are compared with the first.
        by: unit held out with a graph. "kernel-family": as in `FoldPlan.of`, with a fallback.
            "family": its program family, as for a new program.

    Raises `CollectionError` if nothing, or not a named collection, could be scored; `ModelError`
    for an unknown ranker or a missing model; `XlarankError` for an invalid argument.
    """
    if by not in HELD_OUT:
        raise XlarankError(f"`by` is {by!r}", expected=" or ".join(HELD_OUT))
    rankers = list(dict.fromkeys(listed(model or ())))
    for ranker in rankers:
        specs_of(ranker)
    settings = FitSettings(rounds, seed, threads)
    evaluation = Evaluation(HELD_OUT[by])
    work = Workspace.of(workspace)
    for each in labelled_collections(work, collection):
        with leaving_out(each, collection, evaluation.left_out):
            if rankers:
                training = read_training_set(work, each)
                models = []
                for ranker in rankers:
                    params, _ = params_for(work.study(each), ranker, each.kind)
                    models.append(Model.of(ranker, each.kind, params))
                rankings = _out_of_fold(training, models, by, settings, evaluation)
            else:
                trained = model_of(work, each)
                card = trained.require_card()
                if by in (KERNEL_FAMILY, card.folds_by):
                    rankings = _kept_by_train(work, each, trained, evaluation)
                else:
                    training = training_set_of(work, each, trained)
                    same_rounds = replace(settings, rounds=card.rounds)
                    rankings = _out_of_fold(training, [trained], by, same_rounds, evaluation)
            evaluation.rankings[str(each)] = rankings
    if not evaluation.rankings:
        why = "; ".join(reasons(evaluation.left_out))
        raise CollectionError(f"nothing could be cross-validated: {why}")
    if len(rankers) > 1:

        def mean_score(ranker: str) -> float:
            boards = evaluation.rankings.values()
            return float(np.mean([mean_of(board[ranker]) for board in boards]))

        evaluation.several = sorted(rankers, key=mean_score, reverse=True)
    return evaluation


def _kept_by_train(
    workspace: Workspace, collection: Collection, model: Model, evaluation: Evaluation
) -> Rankings:
    """Return the metrics in the card, and metrics of rules."""
    card = model.require_card()
    if card.fallback:
        evaluation.notes.append(f"{collection}: fallback for unseen kernel families: {FALLBACK}")
    rankings = out_of_fold(workspace, collection, card)
    manifest = read_manifest(workspace, collection, "train")
    for graph in manifest.graphs.keys() - card.folds if manifest else ():
        evaluation.left_out[f"{collection} {graph}"] = "it was not scored out of fold"
    choice = best_of(model)
    evaluation.ranked_by[str(collection)] = choice.reason
    return first_of(rankings, choice.model.name)


def _out_of_fold(
    training: StoredTrainingSet,
    models: Sequence[Model],
    by: str,
    settings: FitSettings,
    evaluation: Evaluation,
) -> Rankings:
    """Fit models on each fold; return their metrics and those of rules.

    A trained model keeps its number of rounds; others are scored at the best one.
    """
    collection = training.collection
    data = training.data
    plan = training.plan if by == KERNEL_FAMILY else FoldPlan.by_family(data)
    graphs = counted(data.groups, "graph")
    if not plan.folds:
        unit = plan.by.replace("-", " ")
        got = f"there is nothing to hold out by {unit} of the {graphs} of {collection}"
        raise CollectionError(got, expected="graphs of two or more program families")
    if plan.by == KERNEL_FAMILY:
        families = {name for graph in data.parts for name in graph.kernel_families}
        folds = f"{len(families)} kernel families in {len(plan.folds)} folds"
        evaluation.notes.append(f"{collection}: {folds}")
        evaluation.notes.append(f"{collection}: fallback for unseen kernel families: {FALLBACK}")
    rankings: Rankings = {}
    title = f"cross-validating {collection}"
    with steps_of(title, len(models) * len(plan.folds)) as step:
        for model in models:
            curves = plan.curves(
                data, model, settings, lambda fold: step(f"held out {len(fold.held)} of {graphs}")
            )
            stage = -1
            if model.card is None:
                stage = curves.best_stage()
                best = f"{counted(curves.rounds[stage], 'round')}, the best on these folds"
                tuned = model.params != params_of(model.name, model.kind)
                parameters = f"{'tuned' if tuned else 'default'} parameters"
                evaluation.notes.append(f"{collection}: {model.name} with {parameters}, {best}")
            rankings[model.name] = curves.at(stage)
    for graph in data.parts:
        if graph.name in curves.metrics:
            add_untrained(rankings, collection, graph)
        else:
            reason = "no fold could hold out its kernel family"
            evaluation.left_out[f"{collection} {graph.name}"] = reason
    return rankings
