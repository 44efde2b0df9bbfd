"""Calibration of the certainty of trained models on out-of-fold scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, reasons
from xlarank.data.workspace import Workspace
from xlarank.models.card import KIND, read_card
from xlarank.models.stored import model_of
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.calibration import Calibration
from xlarank.models.validation.folds import MIN_NEW_FAMILIES, FoldPlan, out_of_fold_scores
from xlarank.pipelines.ranking.model_choice import models_named
from xlarank.pipelines.ranking.winner import best_of
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.workspaces import each_collection, workspace_lock
from xlarank.pipelines.training.training_sets import training_set_of


def calibrate(
    workspace: Workspace,
    *,
    collections: Sequence[str] = (),
    threads: int = 0,
    progress: Progress | None = None,
) -> tuple[dict[str, Calibration], dict[str, str]]:
    """Calibrate trained models by refitting their rankers on folds, and save each calibration with
    its model.

    Folds are those of `train`: by kernel or program family, for a fine-tuned model over the
    families that are new to its start. Extra collections of a model are used for fitting, except
    the held-out families, but not for calibration. A collection that a simpler ranker ranks is left
    out unless it is named.

    Returns the calibrations, and the reasons for those that are missing, by collection. Raises
    `CollectionError` if all are missing, and the error of any collection named in ``collections``.
    """
    workspace.require_writable()
    chosen = models_named(workspace, collections)
    left_out = dict[str, str]()
    seeds = 0
    for collection in chosen:
        with suppress(ModelError):  # reported when the collection is calibrated
            seeds += read_card(workspace.model(collection)).seeds
    with steps_of(progress, "calibrating", seeds) as step:

        def run(collection: Collection) -> Calibration:
            if str(collection) not in collections:
                _require_use(workspace, collection)
            return _calibrate_model(workspace, collection, threads, step)

        calibrations = each_collection(chosen, collections, left_out, run)
    if not calibrations:
        raise CollectionError("; ".join(reasons(left_out)))
    return calibrations, left_out


def _require_use(workspace: Workspace, collection: Collection) -> None:
    """Raise `ModelError` if the model of a collection does not rank it."""
    model = model_of(workspace, collection)
    ranker, _ = best_of(model)
    if ranker is not model:
        name = ranker.title if ranker.shipped else ranker.name
        got = f"it is ranked by {name}"
        do = f"pass `collections={collection}` to calibrate the trained model"
        raise ModelError(got, expected="a model whose seeds can disagree", do=do)


def _calibrate_model(
    workspace: Workspace, collection: Collection, threads: int, step: Callable[[str], None]
) -> Calibration:
    model = model_of(workspace, collection)
    card = model.require_card()
    seeds = len(model.by_seed)
    if seeds < 2:
        got = f"the model of {collection} has one seed, which cannot disagree with itself"
        raise ModelError(got, expected="2 seeds or more", do="train with `seeds=2` or more")
    data = training_set_of(workspace, collection, model).data
    plan = FoldPlan.of(data)
    if card.continues:
        plan = FoldPlan.of_new(data, card.continues.graphs)
        if not plan.folds:
            got = f"too few families of {collection} are new to the model that was fine-tuned"
            do = "measure graphs of more families and train again"
            raise ModelError(got, expected=f"{MIN_NEW_FAMILIES} or more", do=do)
    if not plan.folds:
        raise CollectionError(f"{collection} has one program family, so none can be held out")
    scores = np.empty((seeds, len(data.cost)))
    for seed, members in enumerate(model.by_seed):
        settings = FitSettings(card.rounds, seed, threads)
        of_seed = replace(model, members=members)  # may continue trees of its own
        scores[seed] = out_of_fold_scores(of_seed, data, plan.folds, settings)
        step(f"{collection}, seed {seed}")
    graphs = sorted(chain.from_iterable(fold.scored for fold in plan.folds))
    families = data.families
    if plan.by == KIND:
        families = [" or ".join(part.kinds) for part in data.parts]
    calibration = Calibration.of(
        [families[graph] for graph in graphs],
        [scores[:, data.rows_of(graph)] for graph in graphs],
        [data.cost[data.rows_of(graph)] for graph in graphs],
        plan.by,
    )
    digest = card.fingerprint
    with workspace_lock(workspace):
        if read_card(workspace.model(collection)).fingerprint != digest:
            got = f"the model of {collection} was replaced meanwhile"
            raise ModelError(got, do="run the same command again")
        calibration.save(workspace.model(collection), digest)
    return calibration
