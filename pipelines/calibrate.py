"""Calibration of the certainty of trained models on out-of-fold scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, reasons
from xlarank.data.workspace import Workspace
from xlarank.models.trained import fingerprint, model_of, read_card
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.calibration import Calibration, ScoredGraph
from xlarank.models.validation.folds import KIND, FoldPlan, out_of_fold_scores
from xlarank.pipelines.ranking.model_choice import models_named
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.workspaces import skip_unless_named, workspace_lock
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

    Folds are those of `FoldPlan.of`, by kernel or program family. Extra collections of a model are
    used for fitting, except the held-out families, but not for calibration.

    Returns the calibrations, and the reasons for those that are missing, by collection. Raises
    `CollectionError` if all are missing, and the error of any collection named in ``collections``.
    """
    workspace.require_writable()
    chosen = models_named(workspace, collections)
    calibrations = dict[str, Calibration]()
    left_out = dict[str, str]()
    seeds = 0
    for collection in chosen:
        with suppress(ModelError):  # reported when the collection is calibrated
            seeds += len(read_card(workspace.model(collection)).seeds)
    with steps_of(progress, "calibrating", seeds) as step:
        for collection in chosen:
            with skip_unless_named(collection, collections, left_out):
                calibrations[str(collection)] = _calibrate_model(
                    workspace, collection, threads, step
                )
    if not calibrations:
        raise CollectionError("; ".join(reasons(left_out)))
    return calibrations, left_out


def _calibrate_model(
    workspace: Workspace, collection: Collection, threads: int, step: Callable[[str], None]
) -> Calibration:
    model = model_of(workspace, collection)
    if len(model.rankers) < 2:
        got = f"the model of {collection} has one seed, which cannot disagree with itself"
        raise ModelError(got, expected="2 seeds or more", do="train with `seeds=2` or more")
    data = training_set_of(workspace, collection, model).data
    plan = FoldPlan.of(data)
    if not plan.folds:
        raise CollectionError(f"{collection} has one program family, so none can be held out")
    scores = np.empty((len(model.rankers), len(data.cost)))
    for seed in range(len(scores)):
        settings = FitSettings(model.card.rounds, seed, threads)
        scores[seed] = out_of_fold_scores(model.rankers[0], data, plan.folds, settings)
        step(f"{collection}, seed {seed}")
    graphs = []
    for graph in sorted(graph for fold in plan.folds for graph in fold.scored):
        rows = data.rows_of(graph)
        family = " or ".join(data.parts[graph].kinds) if plan.by == KIND else data.families[graph]
        graphs.append(ScoredGraph(family, scores[:, rows], data.cost[rows]))
    calibration = Calibration.of(graphs, plan.by)
    digest = fingerprint(model.card)
    with workspace_lock(workspace):
        if fingerprint(read_card(workspace.model(collection))) != digest:
            raise ModelError(
                f"the model of {collection} was replaced meanwhile", do="run the same command again"
            )
        calibration.save(workspace.model(collection), digest)
    return calibration
