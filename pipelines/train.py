"""Fit the final boosters of each collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlarank.data.errors import ModelError
from xlarank.data.workspace import Workspace
from xlarank.models.registry import DEFAULT, RANKERS, ranker_class
from xlarank.models.validation.best_params import params_for
from xlarank.models.validation.fold_plan import FoldPlan
from xlarank.models.validation.paired import difference, paired_difference
from xlarank.pipelines.support.fitting import Candidate, Choice, Job, TrainRequest, TrainResult, fit_each
from xlarank.pipelines.support.progress import Progress, Silent

#: In place of a ranker's name: whichever scores best out of fold, for each collection.
AUTO: Final = "auto"
#: Shown beside the score where rankers are compared: a lead in tau may be worth no runtime.
_SLOWDOWNS: Final = ("slowdown@1", "slowdown@5")
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

    A model that learned nothing is not saved, unless with ``allow_constant``. Raises as
    `xlarank.pipelines.support.fitting.fit_each`.
    """
    request = request or TrainRequest()
    if request.model != AUTO:
        ranker_class(request.model)
    return fit_each(
        workspace, request, lambda training: FoldPlan.of(training.data), choose_ranker, progress or Silent()
    )


def choose_ranker(job: Job) -> Choice:
    """Choose the named ranker, or the one of the best out-of-fold score, and its best number of rounds."""
    model, kind = job.request.model, job.training.kind
    study = job.workspace.study(job.training.collection)
    names = [model] if model != AUTO else [*RANKERS] if job.plan.folds else [DEFAULT]
    job.begin(len(names))
    candidates: list[Candidate] = []
    left_out: list[str] = []
    for name in names:
        params, tuned = params_for(study, name, kind)
        try:
            ranker = ranker_class(name)(params, kind=kind)
            candidates.append(job.candidate(ranker, tuned, name=f"{name}, " if model == AUTO else ""))
        except ModelError as error:
            if model != AUTO:
                raise
            left_out.append(f"{name} is left out: {error.got}")
    if not job.plan.folds:
        why = f"{DEFAULT}: one program family, so there are no folds to compare rankers by" if model == AUTO else ""
        return choose_rounds(job, candidates[0], why)
    candidates.sort(key=lambda candidate: -candidate.value)  # of equals the first registered
    why = "; ".join([_comparison(candidates), *left_out]) if model == AUTO else ""
    return choose_rounds(job, candidates[0], why)


def choose_rounds(job: Job, chosen: Candidate, why: str) -> Choice:
    """Choose the best number of rounds of the folds; a default without folds."""
    if chosen.curves is None:
        rounds = min(_DEFAULT_ROUNDS, job.settings.rounds)
        return Choice([chosen.ranker], chosen.tuned, rounds, "default (one family, no folds)", {}, why)
    rounds = chosen.curves.rounds[chosen.stage]
    return Choice([chosen.ranker], chosen.tuned, rounds, job.plan.chosen_by, chosen.metrics, why)


def _comparison(candidates: Sequence[Candidate]) -> str:
    """Describe out-of-fold scores of rankers, the best first, and the lead of the first over the second."""
    shown = [f"{one.ranker.name}{' (tuned)' if one.tuned else ''} {one.value:.3f}" for one in candidates]
    if len(candidates) == 1:
        return shown[0]
    first, second = candidates[:2]
    lead, spread = paired_difference(first.scores, second.scores, first.select)
    apart = " and ".join(f"{name} {difference(first.metrics, second.metrics, name)}" for name in _SLOWDOWNS)
    return (
        f"{', '.join(shown)} out of fold; {first.ranker.name} leads by {lead:.3f} ± {spread:.3f}, less that of "
        f"{second.ranker.name}: {apart}"
    )
