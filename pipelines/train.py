"""Fit the final boosters of each collection."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from xlarank.data.errors import ModelError
from xlarank.data.workspace import Workspace
from xlarank.models.registry import DEFAULT, RANKERS, ranker_class
from xlarank.models.validation.best_params import params_for
from xlarank.models.validation.curves import FoldPlan
from xlarank.pipelines.support.fitting import Choice, Job, TrainRequest, TrainResult, fit_collections
from xlarank.pipelines.support.progress import Progress

#: In place of a ranker's name: whichever scores best out of fold, for each collection.
AUTO: Final = "auto"
#: Rounds where there are no folds to choose by.
_DEFAULT_ROUNDS: Final = 150


def train(
    workspace: Workspace, request: TrainRequest | None = None, *, progress: Progress | None = None
) -> list[TrainResult]:
    """Fit ``seeds`` boosters per collection, with tuned parameters where a study left them.

    The number of rounds is the best of folds with these parameters that hold out program families, or kinds of
    kernels for tiles, which fall back as unseen kinds do (`xlarank.models.fallback`); the folds' scores are kept in
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
    names = [model] if model != AUTO else [*RANKERS] if job.plan.folds else [DEFAULT]
    job.begin(len(names))
    choices: list[Choice] = []
    left_out: list[str] = []
    for name in names:
        params, tuned = params_for(study, name, kind)
        note = f"{name}, " if model == AUTO else ""
        try:
            ranker = ranker_class(name)(params, kind=kind)
            choices.append(job.choose_rounds([ranker], tuned, _DEFAULT_ROUNDS, "one family, no folds", note))
        except ModelError as error:
            if model != AUTO:
                raise
            left_out.append(f"{name} is left out: {error.got}")
    choices.sort(key=lambda choice: -choice.value)  # of equals the first registered
    if model != AUTO:
        return choices[0]
    scores = [f"{one.rankers[0].name}{' (tuned)' if one.tuned else ''} {one.value:.3f}" for one in choices]
    why = "; ".join([f"{', '.join(scores)} out of fold", *left_out])
    one_family = f"{DEFAULT}: one program family, so there are no folds to compare rankers by"
    return replace(choices[0], why=why if job.plan.folds else one_family)
