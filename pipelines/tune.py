"""Search for good parameters, by folds of program families, or of kinds of kernels for tiles."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.errors import CollectionError, XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.graph import Kind
from xlarank.data.ranges import require_ranges, require_seconds, thread_count
from xlarank.data.workspace import Workspace
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import DEFAULT, ranker_class
from xlarank.models.validation.best_params import BestParams, tuned_members
from xlarank.models.validation.curves import Curves, join_curves, validate_folds
from xlarank.models.validation.fold_plan import FOLDS_OF, FoldPlan
from xlarank.models.validation.rungs import Rung, rungs_of
from xlarank.models.validation.selection import paired_difference, require_selection
from xlarank.pipelines.study.first_points import searched_part, tuned_elsewhere
from xlarank.pipelines.study.heartbeat import INTERVAL
from xlarank.pipelines.study.opening import StoragePlan, StudyPlan, open_study_of
from xlarank.pipelines.study.plot import StudyPicture
from xlarank.pipelines.study.queue import TrialQueue
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.training_sets import StoredTrainingSet, read_training_set
from xlarank.pipelines.support.workspace_collections import chosen_collections

if TYPE_CHECKING:
    import optuna

_FOLDS: Final = 5
#: Standard errors by which the best trial must beat the defaults.
_ERRORS: Final = 2.0


@dataclass(frozen=True)
class TuneResult:
    """The best parameters of one collection, or why there are none.

    Attributes:
        collection: its name.
        trials: finished trials of the study, of them ``fresh`` by this call and ``pruned`` early.
        mean, std: out-of-fold score over graphs of the chosen trial (tau; tiles: 1 - slowdown@5).
        rounds, params: of the chosen trial.
        note: what to know of the choice.
        picture: file with the course of the study and the importance of its parameters, an SVG.
        skipped: the reason where nothing was tuned.
    """

    collection: str
    trials: int = 0
    fresh: int = 0
    pruned: int = 0
    mean: float = float("nan")
    std: float = float("nan")
    rounds: int = 0
    params: dict[str, Any] | None = None
    seconds: float = 0.0
    note: str = ""
    picture: Path | None = None
    skipped: str = ""


def tune(
    workspace: Workspace,
    *,
    trials: int,
    collections: Sequence[str] = (),
    model: str = DEFAULT,
    storage: str | None = None,
    timeout: float | None = None,
    rounds: int = 300,
    select: str = "mean",
    seed: int = 0,
    threads: int = 0,
    worker: bool = False,
    heartbeat: float = INTERVAL,
    whole: bool = False,
    progress: Progress | None = None,
) -> list[TuneResult]:
    """Bring the study of each collection to ``trials`` finished trials and write the best parameters.

    The objective is the mean score over graphs, each judged by a model that never saw its family (of tiles: a
    kernel of its kind; what unseen kinds fall back on is chosen by `train`), at the best number of rounds (by a
    curve smoothed over its neighbours); the spread is kept beside it. With
    ``select`` "robust" it is that mean minus a quarter of the spread (`validation.selection`), in a study of its
    own. A study lives in the workspace (or at ``storage``, an Optuna storage URL) and goes on where it stopped;
    at the end its picture lies among the reports. ``timeout`` is in seconds per collection.

    A trial climbs rungs (`validation.rungs`): it grows few trees at first, and only the best grow all of them. With
    ``whole`` each grows all, until a median pruner gives it up fold by fold; that is a study of its own.

    Each ranker has studies and a file of best parameters of its own; the members of an ensemble take the
    parameters of theirs. The defaults are the first trial, and they stay where the best trial beats them by less
    than two standard errors over graphs. Next come the best parameters of the workspace's other collections of the
    same kind of graphs.

    Several processes of one machine may tune one study: together they run the trials that it lacks. At a
    ``storage`` that several machines can share (`study.place`: a journal file or PostgreSQL) they may be anywhere,
    and one that gives no sign of life for six ``heartbeat`` seconds has its trial run again by another. A
    ``worker`` joins the study that others began and is refused where its rows or settings differ.

    A collection that cannot be tuned is skipped with a reason; it raises `CollectionError` when it was
    asked for by name or when nothing at all could be tuned.
    """
    require_ranges(trials=trials, rounds=rounds, seed=seed)
    require_seconds("timeout", timeout)
    threads = thread_count(threads)
    require_selection(select)
    ranker_class(model)
    at = StoragePlan(storage, worker, heartbeat)
    at.require_possible()
    workspace.require_writable()
    progress = progress or Silent()
    results = []
    for collection in chosen_collections(workspace, collections):
        try:
            training = read_training_set(workspace, collection)
            plan = FoldPlan.of(training, _FOLDS)
            if not plan.folds:
                raise CollectionError(
                    f"{collection} has one program family ({training.data.families[0]}) in train",
                    expected="two or more, to learn from one and judge by another",
                    do="train uses default parameters for it",
                )
        except CollectionError as error:
            if collections:
                raise
            results.append(TuneResult(str(collection), skipped=str(error)))
            continue
        members = tuned_members(workspace.study(collection), model, collection.kind)
        rungs = rungs_of(rounds)[-1 if whole else 0 :]
        name = StudyPlan(training, plan, rungs, model, members, select, rounds, seed)
        study, others = open_study_of(name, at, workspace.study(collection))
        queue = TrialQueue(
            study, others, [_known(model, collection.kind), *tuned_elsewhere(workspace, collection, model)]
        )
        settings = FitSettings(rounds, seed, threads)
        search = _Search(study, queue, training, plan, rungs, model, members, select, settings)
        with closing(others):
            results.append(_tune_one(workspace, search, trials, timeout, progress))
    if all(result.skipped for result in results):
        raise CollectionError("; ".join(result.skipped for result in results))
    return results


@dataclass(frozen=True)
class _Search:
    """Everything one study needs."""

    study: optuna.Study
    queue: TrialQueue
    training: StoredTrainingSet
    plan: FoldPlan
    rungs: list[Rung]
    model: str
    members: dict[str, dict[str, Any]]
    select: str
    settings: FitSettings

    def objective(self, trial: optuna.Trial) -> float:
        kind = self.training.kind
        params = ranker_class(self.model).params_class.suggest(trial, kind).values()
        if self.members:
            params["members"] = {**params["members"], **self.members}
        ranker = ranker_class(self.model)(params, kind=kind)
        if len(self.rungs) > 1:
            from xlarank.pipelines.study.rung_search import score_on_rungs

            defaults = trial.params == self.queue.first[0]
            curves = score_on_rungs(
                trial, self.rungs, self.training, self.plan.folds, ranker, self.settings, self.select,
                to_the_top=defaults,
            )  # fmt: skip
        else:
            curves = self._fold_by_fold(trial, ranker)
        stage = curves.best_stage(self.select)
        scores = curves.column("score")[:, stage]
        trial.set_user_attr("rounds", curves.rounds[stage])
        trial.set_user_attr("mean", float(scores.mean()))
        trial.set_user_attr("std", float(scores.std()))
        trial.set_user_attr("params", params)
        trial.set_user_attr("graphs", dict(zip(curves.metrics, map(float, scores), strict=True)))
        return float(curves.smooth_score(self.select)[stage])

    def _fold_by_fold(self, trial: optuna.Trial, ranker: Ranker[Any]) -> Curves:
        import optuna

        parts = []
        found = validate_folds(self.training, self.plan.held, ranker, self.settings)
        for step, part in enumerate(found):
            parts.append(self.plan.judged(self.training, step, part))
            # Every trial sees the folds in one order, so a running mean compares like with like.
            curves = join_curves(parts)
            trial.report(float(curves.smooth_score(self.select).max()), step)
            if step + 1 < len(self.plan.folds) and trial.should_prune():
                found.close()
                raise optuna.TrialPruned
        return curves


def _tune_one(
    workspace: Workspace, search: _Search, trials: int, timeout: float | None, progress: Progress
) -> TuneResult:
    from optuna.trial import TrialState

    study, started = search.study, time.monotonic()
    finished = (TrialState.COMPLETE, TrialState.PRUNED)
    before = len(study.get_trials(deepcopy=False, states=finished))

    fresh = 0
    progress.begin(f"tuning {search.training.collection}", max(0, trials - before))
    try:
        while timeout is None or time.monotonic() - started < timeout:
            trial, full = search.queue.next(trials)
            if full:
                break
            if trial is None:
                time.sleep(search.queue.others.pause)
                continue
            if not _run_trial(search, trial):
                continue
            fresh += 1
            text = ""
            if _chosen(search) is not None:
                if study.best_trial.number == trial.number:
                    _write_best(
                        workspace.study(search.training.collection), search
                    )  # a killed search leaves its best
                text = "best {mean:.4f} ± {std:.4f}".format(**study.best_trial.user_attrs)
            progress.step(f"{search.training.collection} {text}")
    finally:
        progress.end()
        _write_best(workspace.study(search.training.collection), search)
    chosen = _chosen(search)
    if chosen is None:
        raise XlarankError(
            f"no trial of {search.training.collection} was finished", do="give it more time with a longer --timeout"
        )
    best, note = chosen
    states = [trial.state for trial in study.get_trials(deepcopy=False, states=finished)]
    return TuneResult(
        collection=str(search.training.collection),
        trials=len(states),
        fresh=fresh,
        pruned=states.count(TrialState.PRUNED),
        mean=best.user_attrs["mean"],
        std=best.user_attrs["std"],
        rounds=best.user_attrs["rounds"],
        params=best.user_attrs["params"],
        seconds=time.monotonic() - started,
        note=note,
        picture=_draw(workspace, search, best.number),
    )


def _run_trial(search: _Search, trial: optuna.Trial) -> bool:
    """Run a trial and tell the study; whether that was this process's to do until the end."""
    import optuna
    from optuna.exceptions import UpdateFinishedTrialError
    from optuna.trial import TrialState

    value, state = None, None
    try:
        with search.queue.others.working(trial):
            value = search.objective(trial)
    except optuna.TrialPruned:
        state = TrialState.PRUNED
    except UpdateFinishedTrialError:  # taken for dead (the machine slept?), and another process is at the point
        return False
    except Exception:
        with suppress(Exception):  # whatever happens to the storage, the first error is the one to tell
            search.study.tell(trial, state=TrialState.FAIL)
        raise
    except BaseException:  # Ctrl-C, or a cluster that wants its machine back: not the point's fault
        with suppress(Exception):
            search.queue.give_back(trial)
        raise
    with suppress(UpdateFinishedTrialError):
        search.study.tell(trial, value, state, skip_if_finished=True)
    told = search.study.get_trials(deepcopy=False)[trial.number]
    return told.state in (TrialState.COMPLETE, TrialState.PRUNED)


def _known(model: str, kind: Kind) -> dict[str, Any]:
    """The defaults as a first trial: what the others have to beat."""
    return searched_part(model, kind, ranker_class(model).params_class.of(kind).values())


def _chosen(search: _Search) -> tuple[optuna.trial.FrozenTrial, str] | None:
    """The trial to train with and, where it is not the best one, why; None before any trial is complete.

    The best of many trials is partly the luckiest, and with few graphs luck is large: the defaults stay
    unless the best beats them, graph by graph, by two standard errors.
    """
    try:
        best = search.study.best_trial
    except ValueError:
        return None
    defaults = _defaults(search)
    if defaults is None or defaults.number == best.number:
        return best, ""
    mean, error = paired_difference(best.user_attrs["graphs"], defaults.user_attrs["graphs"], search.select)
    if mean > _ERRORS * error:
        return best, ""
    return defaults, f"the best trial beats the defaults by {mean:.3f} ± {error:.3f} only, so the defaults stay"


def _defaults(search: _Search) -> optuna.trial.FrozenTrial | None:
    """The complete trial of the default parameters."""
    from optuna.trial import TrialState

    known = _known(search.model, search.training.kind)
    complete = search.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return next((trial for trial in complete if trial.params == known), None)


def _draw(workspace: Workspace, search: _Search, chosen: int) -> Path:
    """Leave a picture of the study among the reports."""
    collection, robust = search.training.collection, search.select == "robust"
    defaults = _defaults(search)
    picture = StudyPicture.of(
        search.study,
        f"{collection}: {search.model} on folds of {FOLDS_OF[search.plan.by]}",
        ("Kendall's tau" if collection.kind == "layout" else "1 - slowdown@5")
        + (", mean less a quarter of the spread" if robust else ", mean over graphs"),
        chosen=chosen,
        defaults=defaults.value if defaults is not None else None,
    )
    names = ["tune", *collection.parts, search.model, *(["robust"] if robust else [])]
    path = workspace.reports() / ("-".join(names) + ".svg")
    with atomic_write(path) as partial:
        partial.write_text(picture.svg(), encoding="utf-8")
    return path


def _write_best(folder: Path, search: _Search) -> None:
    """Leave the best parameters where `train` finds them, and all trials as a table."""
    chosen = _chosen(search)
    if chosen is None:
        return
    best, _ = chosen
    BestParams(
        model=search.model,
        params=best.user_attrs["params"],
        rounds=best.user_attrs["rounds"],
        mean=best.user_attrs["mean"],
        std=best.user_attrs["std"],
        select=search.select,
        graphs=best.user_attrs["graphs"],
        trial=best.number,
        folds=[sorted({search.training.data.families[g] for g in held}) for held in search.plan.held],
        code_hash=search.training.manifest.recipe.code_hash,
    ).save(folder)
    with atomic_write(folder / f"trials-{search.model}.csv") as partial:
        search.study.trials_dataframe(attrs=("number", "value", "duration", "params", "state")).to_csv(
            partial, index=False
        )
