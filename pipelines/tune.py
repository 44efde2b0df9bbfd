"""Search for the parameters with the best cross-validated score, for each collection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from optuna.study import MaxTrialsCallback, Study
from optuna.trial import FrozenTrial, TrialState

from xlarank.data.collection import Collection
from xlarank.data.errors import (
    CollectionError,
    ModelError,
    counted,
    duration,
    require_ranges,
    require_seconds,
)
from xlarank.data.files import atomic_write
from xlarank.data.workspace import Workspace
from xlarank.models.params import space_of
from xlarank.models.rankers import DEFAULT, specs_of
from xlarank.models.training_data import FitSettings
from xlarank.models.tuned import BestParams, tuned_members
from xlarank.models.validation.folds import FoldPlan
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.workspaces import chosen_collections, each_collection, workspace_lock
from xlarank.pipelines.training.objective import (
    Objective,
    choose,
    defaults_of,
    finalists,
    results_of,
    scored_as_train,
)
from xlarank.pipelines.training.studies import FINISHED, StudyOptions, open_storage, open_study
from xlarank.pipelines.training.study_chart import draw_study
from xlarank.pipelines.training.training_sets import read_training_set

#: Rounds of a complete trial.
ROUNDS: Final = 300
#: Trials of a collection before the next collection's turn.
LAP: Final = 10
#: Most folds of a trial; `train` has more.
_FOLDS: Final = 5
#: Seconds of work, at the speed of the forecast, that the measured speed is averaged with.
_DAMPING: Final = 30.0


@dataclass(frozen=True)
class TuneResult:
    """Best parameters of one collection, or the reason why there are none.

    Attributes:
        trials, fresh, pruned: finished trials, those of this call, and those stopped early.
        defaults: mean score of the default parameters.
        tuned: whether ``params`` are not the defaults.
        note: reason why the chosen trial is not the best one, or why `train` has another score.
        seconds, expected_seconds: duration, and its forecast before the start; 0 without one.
    """

    collection: str
    trials: int = 0
    fresh: int = 0
    pruned: int = 0
    mean: float = float("nan")
    std: float = float("nan")
    defaults: float = float("nan")
    tuned: bool = False
    rounds: int = 0
    params: dict[str, Any] | None = None
    seconds: float = 0.0
    expected_seconds: float = 0.0
    note: str = ""
    pictures: Sequence[Path] = ()
    skipped: str = ""


def tune(
    workspace: Workspace,
    *,
    trials: int,
    collections: Sequence[str] = (),
    timeout: float | None = None,
    model: str = DEFAULT,
    fit: FitSettings | None = None,
    study: StudyOptions | None = None,
    progress: Progress | None = None,
    report: Callable[[str], object] | None = None,
) -> list[TuneResult]:
    """Continue studies up to ``trials`` finished trials, `LAP` of each in turn; write the best.

    The value of a trial is its mean out-of-fold score on a sample of the rows, with families
    (tiles: kernel families) held out, at the best number of rounds; ``study.select`` "robust"
    subtracts a quarter of the standard deviation over graphs. The defaults are the first trial; in
    the end they and the best trial are scored on the rows and folds of `train`, and they are kept
    if the best trial beats them by less than two standard errors. A study is resumed by the next
    call; several processes can optimize it at once. An ensemble takes the best parameters of its
    members. ``timeout`` is in seconds, for all collections; ``report`` is called with a forecast
    of the time, the space that is searched, and the best trials so far.

    Raises `CollectionError` or `ModelError` for a named collection (others are left out with their
    reason), and `CollectionError` if nothing could be tuned.
    """
    options = study or StudyOptions()
    require_ranges(trials=trials)
    require_seconds("timeout", timeout)
    specs_of(model)
    workspace.require_writable()
    deadline = None if timeout is None else time.monotonic() + timeout
    tuning = _Tuning(workspace, trials, model, fit or FitSettings(ROUNDS), options, report)
    left_out = dict[str, str]()
    chosen = chosen_collections(workspace, collections)
    kinds = sorted({f"{collection.kind}s" for collection in chosen})
    space = space_of(specs_of(model)).items()
    searched = ", ".join(f"{name} {values}" for name, values in space)
    tuning.say(f"searched for {' and '.join(kinds)}: {searched}")
    missing = each_collection(chosen, collections, left_out, tuning.plan)
    expected = tuning.expected_seconds
    if timeout is not None and expected > timeout:
        fits = f"all trials take about {duration(expected)}, the time is {duration(timeout)}"
        tuning.say(f"{fits}: pass fewer `trials`, a smaller `max_rows` or a longer `timeout`")
    tuning.began = time.monotonic()
    waiting = [collection for collection in chosen if str(collection) in missing]
    title = f"tuning {waiting[0] if len(waiting) == 1 else counted(len(waiting), 'collection')}"
    try:
        with steps_of(progress, title, sum(missing.values())) as step:
            while waiting:
                lap = partial(tuning.lap, _shares(deadline, len(waiting)), step)
                laps = each_collection(waiting, collections, left_out, lap)
                waiting = [collection for collection in waiting if laps.get(str(collection))]
    except (KeyboardInterrupt, SystemExit):
        for status in tuning.status.values():
            tuning.say(f"{status}: rerun to continue")
        raise
    tuned = [result for result in tuning.results.values() if result.params is not None]
    if not tuned:
        raise CollectionError("; ".join(left_out.values()))
    return tuned + [TuneResult(name, skipped=reason) for name, reason in left_out.items()]


def _shares(deadline: float | None, count: int) -> Iterator[float | None]:
    """Yield the seconds of each of ``count`` laps: an even share of the time that is then left."""
    for left in range(count, 0, -1):
        yield None if deadline is None else max(0.0, deadline - time.monotonic()) / left


@dataclass
class _Tuning:
    """Studies of several collections, one of them with its rows in memory.

    Attributes:
        results, status: latest result, and description of the finished trials, by collection.
        forecast: functions that return the expected seconds, by collection (`study_seconds`).
        began: time at which the first trial began.
    """

    workspace: Workspace
    trials: int
    model: str
    fit: FitSettings
    options: StudyOptions
    report: Callable[[str], object] | None
    results: dict[Collection, TuneResult] = field(default_factory=dict)
    status: dict[Collection, str] = field(default_factory=dict)
    forecast: dict[Collection, Callable[[int, int], float]] = field(default_factory=dict)
    began: float = 0.0
    _objective: Objective | None = None

    def say(self, line: str) -> None:
        if self.report is not None:
            self.report(line)

    @contextmanager
    def opened(self, collection: Collection) -> Iterator[tuple[Objective, Study]]:
        """Yield the objective and the study of a collection."""
        if self._objective is None or self._objective.training.collection != collection:
            self._objective = None  # its rows are released before others are read
            self._objective = self._read(collection)
        objective = self._objective
        options = self.options
        family = f"{collection}/{self.model}/{options.select}/"
        with open_storage(options, self.workspace.study(collection)) as storage:
            identity = objective.identity()
            seed = self.fit.seed
            study = open_study(storage, options, family, identity, objective.defaults, seed)
            yield objective, study

    def _read(self, collection: Collection) -> Objective:
        training = read_training_set(self.workspace, collection)
        seed = training.manifest.recipe.seed  # the same rows for all trials of a study
        data = training.sampled(self.options.max_rows, seed)
        plan = FoldPlan.of(data, limit=_FOLDS)
        if not plan.folds:
            got = f"{collection} has one program family ({training.data.families[0]}) in train"
            expected = "two or more, to train on one and score another"
            raise CollectionError(got, expected=expected, do="train uses default parameters for it")
        members = tuned_members(self.workspace.study(collection), self.model, collection.kind)
        return Objective(training, data, plan, self.model, members, self.fit, self.options.select)

    def plan(self, collection: Collection) -> int:
        """Return the number of missing trials; report a forecast of their time."""
        with self.opened(collection) as (objective, study):
            missing = self._update(collection, objective, study)
        if missing and self.report is not None:
            self.forecast[collection] = objective.forecast()
            seconds = self.forecast[collection](self.trials - missing, self.trials)
            self.results[collection] = replace(self.results[collection], expected_seconds=seconds)
            rows = counted(len(objective.data.cost), "row")
            needed = duration(seconds)
            self.say(f"{collection}: {counted(missing, 'trial')} on {rows}, about {needed}")
        return missing

    @property
    def expected_seconds(self) -> float:
        """Forecast for all collections before the start."""
        return sum(result.expected_seconds for result in self.results.values())

    def _update(self, collection: Collection, objective: Objective, study: Study) -> int:
        """Store the number of finished trials and their description; return that of missing."""
        done = len(study.get_trials(deepcopy=False, states=FINISHED))
        best = _best_text(study, objective)
        result = self.results.get(collection, TuneResult(str(collection)))
        self.results[collection] = replace(result, trials=done)
        self.status[collection] = f"{collection}: {done} of {self.trials} trials done{best}"
        return max(0, self.trials - done)

    def lap(
        self, limits: Iterator[float | None], step: Callable[..., None], collection: Collection
    ) -> bool:
        """Run up to `LAP` missing trials, saving the best; return whether there is more to do."""
        began = time.monotonic()
        timeout = next(limits)
        before = self.results[collection]
        fresh = 0
        with self.opened(collection) as (objective, study):

            def save_best(study: Study, trial: FrozenTrial) -> None:
                nonlocal fresh
                fresh += 1
                self._update(collection, objective, study)
                chosen, _ = _save(self.workspace, objective, study)
                score = ""
                if chosen is not None:
                    (result,) = results_of(study, chosen)
                    score = " out-of-fold score {mean:.3f} ± {std:.3f}".format(**result)
                    if study.best_trial.number == trial.number:
                        self.say(self.status[collection])
                step(f"{collection}{score}", self._left())

            missing = self._update(collection, objective, study)
            if missing:
                number = [*self.status].index(collection) + 1
                status = f"collection {number} of {len(self.status)}, {self.status[collection]}"
                seconds = self._left()
                left = "" if seconds is None else f"; about {duration(seconds)} left for all"
                self.say(status + left)
                # Running trials of other processes count, too: otherwise each process would run
                # one too many.
                stop = MaxTrialsCallback(self.trials, states=(*FINISHED, TrialState.RUNNING))
                laps = min(LAP, missing)
                study.optimize(objective, laps, timeout, callbacks=[save_best, stop])
            in_time = timeout is None or time.monotonic() - began < timeout
            if not self._update(collection, objective, study) and in_time:
                unscored = objective.unscored(study)
                if unscored:
                    self.say(f"{collection}: scoring the best trial and the defaults as train does")
                for trial in unscored:
                    objective.score_as_train(study, trial)
            result = self._result(collection, objective, study)
        seconds = before.seconds + time.monotonic() - began
        self.results[collection] = replace(result, fresh=before.fresh + fresh, seconds=seconds)
        return 0 < fresh < missing

    def _left(self) -> float | None:
        """Return the forecast of the seconds left, corrected by the speed so far."""
        if not self.forecast:
            return None
        left = sum(of(self.results[name].trials, self.trials) for name, of in self.forecast.items())
        planned = self.expected_seconds - left
        passed = time.monotonic() - self.began
        return left * (_DAMPING + passed) / (_DAMPING + planned)

    def _result(self, collection: Collection, objective: Objective, study: Study) -> TuneResult:
        """Save and return the chosen parameters; raises `ModelError` without a complete trial."""
        chosen, note = _save(self.workspace, objective, study)
        if chosen is None:
            got = f"no trial of {collection} was finished"
            raise ModelError(got, do="give it more time with a longer `timeout`")
        defaults = defaults_of(study, objective) or chosen
        result, of_defaults = results_of(study, chosen, defaults)
        if not (objective.is_as_train or scored_as_train(study, chosen, defaults)):
            rows = f"{len(objective.data.cost):,} of {len(objective.training.data.cost):,} rows"
            sampled = f"{rows}, {counted(len(objective.plan.folds), 'fold')}"
            note = "; ".join(filter(None, (note, f"the score is that of {sampled}, not of train")))
        robust = ("robust",) if objective.select == "robust" else ()
        picture = "-".join(("tune", *collection.parts, objective.model, *robust)) + ".svg"
        states = [trial.state for trial in study.get_trials(deepcopy=False, states=FINISHED)]
        return replace(
            self.results[collection],
            trials=len(states),
            pruned=states.count(TrialState.PRUNED),
            mean=result["mean"],
            std=result["std"],
            defaults=of_defaults["mean"],
            tuned=chosen.params != objective.defaults,
            rounds=result["rounds"],
            params=result["params"],
            note=note,
            pictures=draw_study(study, objective, self.workspace.reports() / picture),
        )


def params_text(params: Mapping[str, Any]) -> str:
    """Return parameters as ``name=value, ...``.

    >>> params_text({"learning_rate": 0.0512345, "labels": "rank"})
    'learning_rate=0.0512, labels=rank'
    """
    shown = {name: f"{x:.3g}" if isinstance(x, float) else x for name, x in params.items()}
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def _save(
    workspace: Workspace, objective: Objective, study: Study
) -> tuple[FrozenTrial | None, str]:
    """Save the chosen parameters for `train` and a table of trials; return as `choose`."""
    chosen, note = choose(study, objective)
    if chosen is not None:
        training = objective.training
        model = objective.model
        folder = workspace.study(training.collection)
        (result,) = results_of(study, chosen)
        as_train = scored_as_train(study, chosen)
        data = training.data if as_train else objective.data
        plan = objective.train_plan if as_train else objective.plan
        folds = [sorted({data.families[group] for group in fold.held}) for fold in plan.folds]
        best = BestParams(
            model,
            **result,
            select=objective.select,
            trial=chosen.number,
            folds=folds,
            columns_version=training.manifest.recipe.columns_version,
        )
        with workspace_lock(workspace):
            training.require_current(workspace)
            best.save(folder)
        with atomic_write(folder / f"trials-{model}.csv") as file:
            table = study.trials_dataframe(attrs=("number", "value", "duration", "params", "state"))
            table.to_csv(file, index=False)
    return chosen, note


def _best_text(study: Study, objective: Objective) -> str:
    """Describe the best trial beside the defaults; return "" before a complete trial."""
    compared = finalists(study, objective)
    if not compared:
        return ""
    best = compared[0]
    result, *of_defaults = results_of(study, *compared)
    others = ""
    for defaults in of_defaults:
        lead, error = paired_difference(result["graphs"], defaults["graphs"], objective.select)
        others = f" (defaults {defaults['mean']:.3f}, difference {lead:+.3f} ± {error:.3f})"
    is_default = best.params == objective.defaults
    params = "the defaults" if is_default else params_text(best.params)
    return f", best out-of-fold score {result['mean']:.3f}{others} with {params}"
