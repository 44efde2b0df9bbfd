"""Training of the rankers of each collection from scratch."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.workspace import Workspace
from xlarank.models.rankers.time_trees import TimeTrees
from xlarank.models.trained import DEFAULT, RANKERS, params_for, ranker_class
from xlarank.models.training_data import target_of
from xlarank.models.validation.folds import FoldPlan
from xlarank.pipelines.support.progress import Progress
from xlarank.pipelines.support.workspaces import chosen_collections, skip_unless_named
from xlarank.pipelines.training import fitting
from xlarank.pipelines.training.fitting import Candidate, TrainingJob, TrainRequest, TrainResult
from xlarank.pipelines.training.training_sets import extra_collections, read_training_set

#: Name that selects the ranker with the best out-of-fold score, for each collection.
AUTO: Final = "auto"
#: Number of rounds without folds.
_DEFAULT_ROUNDS: Final = 150


def train(
    workspace: Workspace, request: TrainRequest | None = None, *, progress: Progress | None = None
) -> list[TrainResult]:
    """Fit ``seeds`` rankers per collection, with tuned parameters if there is a study.

    The number of rounds is the best on folds that hold out program families, or kernel families for tiles. Unseen
    kernel families are ranked with the fallback. Out-of-fold metrics are stored in the model.

    With ``model`` "auto", every ranker is validated on the same folds, each with its tuned parameters or else its
    defaults, and the best is trained, per collection. A ranker that cannot run (without xgboost) is left out. The
    best of several out-of-fold scores is slightly optimistic.

    A model whose scores are all equal is not saved unless ``allow_constant``. A collection that cannot be trained
    is left out with its reason.

    Raises `CollectionError` or `ModelError` for a collection named in the request, `CollectionError` if nothing
    could be trained, and `ClusterError` for a cluster that cannot be used.
    """
    request = request or TrainRequest()
    if request.model != AUTO:
        ranker_class(request.model)
    workspace.require_writable()
    extra = extra_collections(workspace, request.also_from)
    chosen = chosen_collections(workspace, request.collections)
    results: list[TrainResult] = []
    left_out: dict[str, str] = {}
    with fitting.fit_settings(request) as settings:
        for collection in chosen:
            with skip_unless_named(collection, request.collections, left_out):
                began = time.monotonic()
                training = read_training_set(workspace, collection, request.splits, extra, settings)
                job = TrainingJob(workspace, training, FoldPlan.of(training.data), request, settings)
                result = _train(job, progress)
                results.append(replace(result, seconds=time.monotonic() - began))
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    return results + [TrainResult(name, skipped=reason) for name, reason in left_out.items()]


def _train(job: TrainingJob, progress: Progress | None) -> TrainResult:
    """Train the requested ranker, or the one that is best out of fold."""
    kind, auto = job.training.kind, job.request.model == AUTO
    has_time_model = kind == "layout" and "layout" in target_of(job.training.collection).estimate
    names = [job.request.model]
    if auto:
        names = [*RANKERS] if job.plan.folds else [TimeTrees.name if has_time_model else DEFAULT]
    candidates: list[Candidate] = []
    failed: list[str] = []
    with job.steps(len(names), progress) as step:
        for name in names:
            params, tuned = params_for(job.workspace.study(job.training.collection), name, kind)
            try:
                ranker = ranker_class(name)(params, kind=kind)
                if job.plan.folds:
                    candidates.append(fitting.validate(job, [ranker], tuned, step, f"{name}, " if auto else ""))
                else:
                    rounds = 0 if name == TimeTrees.name and has_time_model else _DEFAULT_ROUNDS
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
