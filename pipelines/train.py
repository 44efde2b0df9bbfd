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
#: Number of rounds without folds, except for a time model.
_DEFAULT_ROUNDS: Final = 150


def train(
    workspace: Workspace, request: TrainRequest | None = None, *, progress: Progress | None = None
) -> list[TrainResult]:
    """Fit ``seeds`` rankers per collection, with tuned parameters if any and the number of rounds
    best out of fold.

    If folds hold out kernel families, unseen ones are ranked with the fallback. A model whose
    scores are all equal is not saved unless ``allow_constant``. With ``model`` "auto", every ranker
    is validated on the same folds and the best is trained, per collection; its score, the best of
    several, is slightly optimistic. A ranker that cannot run (without xgboost) is left out.

    Raises `CollectionError` or `ModelError` for a collection named in the request (others are left
    out with their reason), `CollectionError` if nothing could be trained, and `ClusterError` for an
    unusable cluster.
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
                job = TrainingJob(
                    workspace, training, FoldPlan.of(training.data), request, settings, progress
                )
                results.append(replace(_train(job), seconds=time.monotonic() - began))
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    return results + [TrainResult(name, skipped=reason) for name, reason in left_out.items()]


def _train(job: TrainingJob) -> TrainResult:
    """Train the requested ranker, or the one that is best out of fold."""
    kind = job.training.kind
    auto = job.request.model == AUTO
    has_time_model = kind == "layout" and "layout" in target_of(job.training.collection).estimate
    names = [job.request.model]
    if auto:
        names = [*RANKERS] if job.plan.folds else [TimeTrees.name if has_time_model else DEFAULT]
    candidates: list[Candidate] = []
    failed: list[str] = []
    with job.steps(len(names)) as step:
        for name in names:
            params, tuned = params_for(job.workspace.study(job.training.collection), name, kind)
            try:
                ranker = ranker_class(name)(params, kind=kind)
                rounds = 0 if name == TimeTrees.name and has_time_model else _DEFAULT_ROUNDS
                default = (rounds, "one family, no folds")
                note = f"{name}, " if auto else ""
                candidates.append(fitting.validate(job, [ranker], tuned, step, default, note))
            except ModelError as error:
                if not auto:
                    raise
                failed.append(f"{name} is left out: {error.got}")
        choice = max(
            candidates, key=lambda candidate: candidate.value
        )  # ties: the first registered
        rankers = fitting.fit_seeds(job, choice, step)
    why = ""
    if auto and not job.plan.folds:
        why = f"{choice.name}: one program family, so there are no folds to compare rankers by"
    elif auto:
        scores = [
            f"{candidate.name}{' (tuned)' if candidate.tuned else ''} {candidate.value:.3f}"
            for candidate in sorted(candidates, key=lambda candidate: -candidate.value)
        ]
        why = "; ".join([f"{', '.join(scores)} out of fold", *failed])
    return fitting.save(job, choice, rankers, candidates, why)
