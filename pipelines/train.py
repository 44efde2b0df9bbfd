"""Fit the final boosters of each collection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from xlarank.data.errors import ModelError
from xlarank.data.ranges import require_ranges, thread_count
from xlarank.data.workspace import Workspace
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import DEFAULT, RANKERS, ranker_class
from xlarank.models.validation.best_params import params_for
from xlarank.models.validation.fold_plan import FoldPlan
from xlarank.models.validation.paired import difference, paired_difference, require_selection
from xlarank.pipelines.support.engines import require_engine, tree_cluster
from xlarank.pipelines.support.fitting import Candidate, Choice, Job, TrainRequest, TrainResult, fit_each
from xlarank.pipelines.support.progress import Progress, Silent

#: In place of a ranker's name: whichever scores best out of fold, for each collection.
AUTO: Final = "auto"
#: Shown beside the score where rankers are compared: a lead in tau may be worth no runtime.
_SLOWDOWNS: Final = ("slowdown@1", "slowdown@5")
#: Rounds where there are no folds to choose by.
_DEFAULT_ROUNDS: Final = 150


def train(
    workspace: Workspace,
    *,
    collections: Sequence[str] = (),
    also_from: Sequence[str] = (),
    model: str = DEFAULT,
    seeds: int = 3,
    with_valid: bool = False,
    rounds: int = 300,
    select: str = "mean",
    seed: int = 0,
    threads: int = 0,
    engine: str = "local",
    scheduler: str | None = None,
    allow_constant: bool = False,
    progress: Progress | None = None,
) -> list[TrainResult]:
    """Fit ``seeds`` boosters per collection, with tuned parameters where a study left them.

    The number of rounds is the best, at most ``rounds``, of folds with these very parameters that hold out program
    families, or kinds of kernels for tiles, which fall back as kinds never seen do (`xlarank.models.fallback`); the
    folds' scores are kept in the model. ``select`` is what the number is best by, one of
    `xlarank.models.validation.paired.SELECTIONS`. ``with_valid`` also learns from the valid split (for a
    submission: `evaluate` on valid means nothing afterwards).

    ``also_from`` names collections of the same kind that are learned from, too, and not judged on. A fold holds out
    a family in all of them. ``NAME=WEIGHT`` says what each of its graphs counts beside one of the own collection.

    ``model`` "auto" scores every ranker by the same folds, each with its tuned parameters or else its defaults,
    and trains the best, collection by collection. A ranker that cannot run here (no xgboost) is passed over. The
    best of several out-of-fold scores is a little lucky: other graphs tell how good it is.

    ``engine`` "dask" grows the trees, those of the folds too, on the workers of a Dask cluster: ``scheduler`` is
    its address, or "local" for ``threads`` worker processes here. The model is an ordinary one. One worker
    makes the trees that this process would, several make others, and as many always the same.

    A model that learned nothing is not saved, unless with ``allow_constant``. Raises as
    `xlarank.pipelines.support.fitting.fit_each`.
    """
    require_ranges(seeds=seeds, rounds=rounds, seed=seed)
    threads = thread_count(threads)
    require_selection(select)
    if model != AUTO:
        ranker_class(model)
    require_engine(engine, scheduler, model)
    workspace.require_writable()
    with tree_cluster(scheduler, threads) as cluster:
        # On a cluster each booster takes all workers, so folds wait for each other.
        settings = FitSettings(rounds, seed, threads if cluster is None else 1, cluster=cluster)
        request = TrainRequest(
            collections=collections,
            also_from=also_from,
            splits=("train", "valid") if with_valid else ("train",),
            seeds=seeds,
            select=select,
            settings=settings,
            allow_constant=allow_constant,
        )
        return fit_each(
            workspace, request, FoldPlan.of, lambda job: choose_ranker(job, model), progress or Silent()
        )


def choose_ranker(job: Job, model: str) -> Choice:
    """The named ranker, or the one of the best out-of-fold score, with the number of rounds that is best for it."""
    study, kind = job.workspace.study(job.training.collection), job.training.kind
    names = [model] if model != AUTO else [*RANKERS] if job.plan.folds else [DEFAULT]
    job.begin(len(names))
    found: list[Candidate] = []
    passed: list[str] = []
    for name in names:
        params, tuned = params_for(study, name, kind)
        try:
            ranker = ranker_class(name)(params, kind=kind)
            found.append(job.candidate(ranker, tuned, name=f"{name}, " if model == AUTO else ""))
        except ModelError as error:
            if model != AUTO:
                raise
            passed.append(f"{name} is passed over: {error.got}")
    if not job.plan.folds:
        why = f"{DEFAULT}: one program family, so there are no folds to compare rankers by" if model == AUTO else ""
        return choose_rounds(job, found[0], why)
    found.sort(key=lambda candidate: -candidate.value)  # of equals the first registered
    return choose_rounds(job, found[0], "; ".join([_comparison(found), *passed]) if model == AUTO else "")


def choose_rounds(job: Job, chosen: Candidate, why: str) -> Choice:
    """The best number of rounds of the folds; a default where there are none."""
    if chosen.curves is None:
        rounds = min(_DEFAULT_ROUNDS, job.request.settings.rounds)
        return Choice([chosen.ranker], chosen.tuned, rounds, "default (one family, no folds)", {}, why)
    rounds = chosen.curves.rounds[chosen.stage]
    return Choice([chosen.ranker], chosen.tuned, rounds, job.plan.chosen_by, chosen.metrics, why)


def _comparison(found: Sequence[Candidate]) -> str:
    """Out-of-fold scores of rankers, the best first, and the lead of the first over the second."""
    shown = [f"{one.ranker.name}{' (tuned)' if one.tuned else ''} {one.value:.3f}" for one in found]
    if len(found) == 1:
        return shown[0]
    first, second = found[:2]
    lead, spread = paired_difference(first.scores, second.scores, first.select)
    apart = " and ".join(f"{name} {difference(first.metrics, second.metrics, name)}" for name in _SLOWDOWNS)
    return (
        f"{', '.join(shown)} out of fold; {first.ranker.name} leads by {lead:.3f} ± {spread:.3f}, less that of "
        f"{second.ranker.name}: {apart}"
    )
