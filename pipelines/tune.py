"""Search for the parameters with the best cross-validated score, for each collection."""

from __future__ import annotations

import io
import json
import os
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import optuna
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
from xlarank.models.model import Model
from xlarank.models.params import space_of, suggest_params
from xlarank.models.rankers import DEFAULT, params_of, specs_of
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.tuned import BestParams, tuned_members
from xlarank.models.validation.folds import (
    FACTOR,
    Curves,
    Fold,
    FoldPlan,
    climb,
    rows_in_turn,
    rungs_of,
    validate_fold,
)
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.support.evaluation import score_name
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.workspaces import chosen_collections, each_collection, workspace_lock
from xlarank.pipelines.training.budget import StudyCost
from xlarank.pipelines.training.studies import (
    FINISHED,
    PROCESS,
    StudyOptions,
    open_storage,
    open_study,
)
from xlarank.pipelines.training.training_sets import StoredTrainingSet, read_training_set

#: Rounds of a complete trial.
ROUNDS: Final = 300
#: Attribute of a trial with its result, and prefix of the study's with results on train's folds.
RESULT: Final = "result"
_AS_TRAIN: Final = "as train, trial "
#: Trials of a collection before the next collection's turn.
LAP: Final = 10
#: Most folds of a trial; `train` has more.
_FOLDS: Final = 5
#: Rows of the fits that are timed for the forecast, and their rounds; the first is not counted.
_PROBE_ROWS: Final = 4_000
_PROBE_ROUNDS: Final = (1, 2, 32)
#: Seconds of work, at the speed of the forecast, that the measured speed is averaged with.
_DAMPING: Final = 30.0


@dataclass(frozen=True)
class TuneResult:
    """Best parameters of one collection, or the reason why there are none.

    Attributes:
        trials, fresh, pruned: finished trials of the study, those of this call, and those stopped
            early.
        defaults: mean score of the default parameters.
        note: reason why the chosen trial is not the best one, or why `train` has another score.
    """

    collection: str
    trials: int = 0
    fresh: int = 0
    pruned: int = 0
    mean: float = float("nan")
    std: float = float("nan")
    defaults: float = float("nan")
    rounds: int = 0
    params: dict[str, Any] | None = None
    seconds: float = 0.0
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
    """Continue the study of each collection up to ``trials`` finished trials, `LAP` trials of each
    in turn, and write the best parameters.

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
    say = report or (lambda line: None)
    tuning = _Tuning(workspace, trials, model, fit or FitSettings(ROUNDS), options, say)
    left_out = dict[str, str]()
    chosen = chosen_collections(workspace, collections)
    for kind in sorted({collection.kind for collection in chosen}):
        space = space_of(specs_of(model), kind).items()
        say(f"searched for {kind}s: {', '.join(f'{name} {values}' for name, values in space)}")
    tuning.forecasts = report is not None
    missing = each_collection(chosen, collections, left_out, tuning.plan)
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
            say(f"{status}: rerun to continue")
        raise
    if not tuning.results:
        raise CollectionError("; ".join(left_out.values()))
    skipped = [TuneResult(name, skipped=reason) for name, reason in left_out.items()]
    return [*tuning.results.values(), *skipped]


def _shares(deadline: float | None, count: int) -> Iterator[float | None]:
    """Yield the seconds of each of ``count`` laps: an even share of the time that is then left."""
    for left in range(count, 0, -1):
        yield None if deadline is None else max(0.0, deadline - time.monotonic()) / left


@dataclass
class _Tuning:
    """Studies of several collections, one of them with its rows in memory.

    Attributes:
        results, status: latest result, and description of the finished trials, by collection.
        costs: forecast by collection.
        spent, planned: seconds of the laps so far, and their forecast.
    """

    workspace: Workspace
    trials: int
    model: str
    fit: FitSettings
    options: StudyOptions
    say: Callable[[str], object]
    forecasts: bool = False
    results: dict[Collection, TuneResult] = field(default_factory=dict)
    status: dict[Collection, str] = field(default_factory=dict)
    costs: dict[Collection, StudyCost] = field(default_factory=dict)
    done: dict[Collection, int] = field(default_factory=dict)
    spent: float = 0.0
    planned: float = 0.0
    _objective: Objective | None = None

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
        training = read_training_set(self.workspace, collection, fit=self.fit)
        data = training.sampled(self.options.max_rows, self.fit.seed)
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
            done = self._update(collection, objective, study)
        missing = max(0, self.trials - done)
        if missing and self.forecasts:
            self.costs[collection] = objective.cost()
            needed = duration(self.costs[collection].seconds(done, self.trials))
            rows = counted(len(objective.data.cost), "row")
            self.say(f"{collection}: {counted(missing, 'trial')} on {rows}, about {needed}")
        return missing

    def _update(self, collection: Collection, objective: Objective, study: Study) -> int:
        """Store the number of finished trials and their description; return the number."""
        done = len(study.get_trials(deepcopy=False, states=FINISHED))
        best = _best_text(study, objective)
        self.done[collection] = done
        self.status[collection] = f"{collection}: {done} of {self.trials} trials done{best}"
        return done

    def lap(
        self, limits: Iterator[float | None], step: Callable[[str], None], collection: Collection
    ) -> bool:
        """Run up to `LAP` missing trials and save the best parameters after each; return whether
        there is more to do.
        """
        began = time.monotonic()
        timeout = next(limits)
        before = self.results.get(collection, TuneResult(str(collection)))
        fresh = 0
        with self.opened(collection) as (objective, study):

            def save_best(study: Study, trial: FrozenTrial) -> None:
                nonlocal fresh
                fresh += 1
                self._update(collection, objective, study)
                chosen, _ = _save(self.workspace, objective, study)
                score = ""
                if chosen is not None:
                    (result,) = _results(study, chosen)
                    score = " out-of-fold score {mean:.3f} ± {std:.3f}".format(**result)
                    if study.best_trial.number == trial.number:
                        self.say(self.status[collection])
                step(f"{collection}{score}")

            done = self._update(collection, objective, study)
            missing = max(0, self.trials - done)
            if missing:
                self._say_left(collection)
                # Running trials of other processes count, too: otherwise each process would run
                # one too many.
                stop = MaxTrialsCallback(self.trials, states=(*FINISHED, TrialState.RUNNING))
                laps = min(LAP, missing)
                study.optimize(objective, laps, timeout, callbacks=[save_best, stop])
            in_time = timeout is None or time.monotonic() - began < timeout
            if self._update(collection, objective, study) >= self.trials and in_time:
                unscored = objective.unscored(study)
                if unscored:
                    self.say(f"{collection}: scoring the best trial and the defaults as train does")
                for trial in unscored:
                    objective.score_as_train(study, trial)
            result = self._result(collection, objective, study)
        seconds = time.monotonic() - began
        self.spent += seconds
        if (cost := self.costs.get(collection)) is not None:
            self.planned += cost.seconds(done, self.trials)
            self.planned -= cost.seconds(done + fresh, self.trials)
        self.results[collection] = replace(
            result, fresh=before.fresh + fresh, seconds=before.seconds + seconds
        )
        return 0 < fresh < missing

    def _say_left(self, collection: Collection) -> None:
        """Report which collection is next, and the time left for all."""
        seconds = sum(
            cost.seconds(self.done[name], self.trials) for name, cost in self.costs.items()
        )
        pace = (_DAMPING + self.spent) / (_DAMPING + self.planned)
        number = [*self.done].index(collection) + 1
        left = f"; about {duration(pace * seconds)} left for all" if self.costs else ""
        self.say(f"collection {number} of {len(self.done)}, {self.status[collection]}{left}")

    def _result(self, collection: Collection, objective: Objective, study: Study) -> TuneResult:
        """Save and return the chosen parameters; raises `ModelError` without a complete trial."""
        chosen, note = _save(self.workspace, objective, study)
        if chosen is None:
            got = f"no trial of {collection} was finished"
            raise ModelError(got, do="give it more time with a longer `timeout`")
        defaults = _defaults_of(study, objective) or chosen
        result, of_defaults = _results(study, chosen, defaults)
        if not (objective.is_as_train or _scored_as_train(study, chosen, defaults)):
            rows = f"{len(objective.data.cost):,} of {len(objective.training.data.cost):,} rows"
            sampled = f"{rows}, {counted(len(objective.plan.folds), 'fold')}"
            note = "; ".join(filter(None, (note, f"the score is that of {sampled}, not of train")))
        robust = ("robust",) if objective.select == "robust" else ()
        picture = "-".join(("tune", *collection.parts, objective.model, *robust)) + ".svg"
        states = [trial.state for trial in study.get_trials(deepcopy=False, states=FINISHED)]
        return TuneResult(
            str(collection),
            len(states),
            pruned=states.count(TrialState.PRUNED),
            mean=result["mean"],
            std=result["std"],
            defaults=of_defaults["mean"],
            rounds=result["rounds"],
            params=result["params"],
            note=note,
            pictures=draw_study(study, objective, self.workspace.reports() / picture),
        )


@dataclass(frozen=True)
class Objective:
    """Out-of-fold score of a ranker with the parameters of a trial at the best number of rounds,
    for Optuna.

    A trial grows few trees at first; successive halving lets the best quarter of the trials grow
    more. The defaults always grow all trees, because the best trial is compared with them.
    ``data`` are the rows of a trial, a sample of ``training``; ``members`` are the parameters of
    ensemble members that have studies of their own.
    """

    training: StoredTrainingSet
    data: TrainingData
    plan: FoldPlan
    model: str
    members: dict[str, dict[str, Any]]
    settings: FitSettings
    select: str

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Default values of the parameters that are searched."""
        kind = self.training.kind
        probe = optuna.trial.FixedTrial(params_of(self.model, kind))
        suggest_params(specs_of(self.model), probe, kind)
        return probe.params

    @cached_property
    def train_plan(self) -> FoldPlan:
        """Folds of `train`."""
        return FoldPlan.of(self.training.data)

    @property
    def is_as_train(self) -> bool:
        """Whether trials have the rows and folds of `train`."""
        return self.data is self.training.data and self.plan == self.train_plan

    def __call__(self, trial: optuna.Trial) -> float:
        trial.set_user_attr(PROCESS, f"{socket.gethostname()}:{os.getpid()}")
        kind = self.training.kind
        params = suggest_params(specs_of(self.model), trial, kind)
        if self.members:
            params["members"] = self.members
        model = Model.of(self.model, kind, params)
        rungs = rungs_of(self.settings.rounds)
        with closing(
            climb(rungs, self.data, self.plan.folds, model, self.settings, self.plan.fallback)
        ) as scored:
            for number, curves in enumerate(scored):
                trial.report(float(curves.smooth_score(self.select).max()), FACTOR**number)
                # called for the defaults, too, because the pruner compares other trials with them
                poor = number + 1 < len(rungs) and trial.should_prune()
                if poor and trial.params != self.defaults:
                    raise optuna.TrialPruned
        trial.set_user_attr(RESULT, self._result(model, curves))
        return float(curves.smooth_score(self.select).max())

    def _result(self, model: Model, curves: Curves) -> dict[str, Any]:
        stage = curves.best_stage(self.select)
        scores = curves.column("score")[:, stage]
        return {
            "rounds": curves.rounds[stage],
            "mean": float(scores.mean()),
            "std": float(scores.std()),
            "params": dict(model.params),
            "graphs": dict(zip(curves.metrics, map(float, scores), strict=True)),
        }

    def unscored(self, study: Study) -> list[FrozenTrial]:
        """Return the best trial and the defaults, unless they are scored as `train` does."""
        finalists = [] if self.is_as_train else _finalists(study, self)
        return [trial for trial in finalists if not _scored_as_train(study, trial)]

    def score_as_train(self, study: Study, trial: FrozenTrial) -> None:
        """Store a trial's result on the rows and folds of `train`."""
        model = Model.of(self.model, self.training.kind, trial.user_attrs[RESULT]["params"])
        data = self.training.data
        curves = self.train_plan.curves(data, model, self.settings, lambda fold: None)
        study.set_user_attr(f"{_AS_TRAIN}{trial.number}", self._result(model, curves))

    def cost(self) -> StudyCost:
        """Time two short fits of one fold on a few graphs and extrapolate."""
        data = self.data
        count = int(np.searchsorted(data.indptr[1:], _PROBE_ROWS)) + 1
        few = data.take(range(min(count, data.groups)))
        model = Model.of(self.model, self.training.kind)
        seconds = []
        for rounds in _PROBE_ROUNDS:
            began = time.perf_counter()
            settings = replace(self.settings, rounds=rounds, threads=1)
            validate_fold(few, Fold([0], []), model, settings, self.plan.fallback)
            seconds.append((time.perf_counter() - began) / len(few.cost))
        _, first, second = seconds
        _, low, high = _PROBE_ROUNDS
        by_round = max(0.0, second - first) / (high - low)
        by_row = max(0.0, first - low * by_round)
        threads = self.settings.threads
        rows = rows_in_turn(data, self.plan.folds, threads)
        last_rows = 0.0
        if not self.is_as_train:
            last_rows = 2 * rows_in_turn(self.training.data, self.train_plan.folds, threads)
        return StudyCost.of(by_row, by_round, rows, last_rows, rungs_of(self.settings.rounds))

    def identity(self) -> dict[str, str]:
        """Return the values that all trials of a study share, by their description in error
        messages.
        """
        data = self.training.data
        rows = repr((data.names, data.indptr.tolist())).encode() + data.cost.tobytes()
        members = json.dumps(self.members, sort_keys=True).encode()
        return {
            "feature columns": self.training.manifest.recipe.code_hash,
            "graphs, rows or runtimes": f"{zlib.crc32(rows):08x}",
            "rows of a trial (`max_rows`)": str(len(self.data.cost)),
            "folds": f"{self.plan.by} with fallback" if self.plan.fallback else self.plan.by,
            "`rounds`": str(self.settings.rounds),
            "parameters of members": f"{zlib.crc32(members):08x}",
        }


def params_text(params: Mapping[str, Any]) -> str:
    """Return parameters as ``name=value, ...``.

    >>> params_text({"learning_rate": 0.0512345, "labels": "rank"})
    'learning_rate=0.0512, labels=rank'
    """
    return ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in params.items()
    )


def _save(
    workspace: Workspace, objective: Objective, study: Study
) -> tuple[FrozenTrial | None, str]:
    """Save the chosen parameters for `train`, and a table of all trials; return the result of
    `choose`.
    """
    chosen, note = choose(study, objective)
    if chosen is not None:
        training = objective.training
        model = objective.model
        folder = workspace.study(training.collection)
        (result,) = _results(study, chosen)
        as_train = _scored_as_train(study, chosen)
        data = training.data if as_train else objective.data
        plan = objective.train_plan if as_train else objective.plan
        folds = [sorted({data.families[group] for group in fold.held}) for fold in plan.folds]
        best = BestParams(
            model,
            **result,
            select=objective.select,
            trial=chosen.number,
            folds=folds,
            code_hash=training.manifest.recipe.code_hash,
        )
        with workspace_lock(workspace):
            training.require_current(workspace)
            best.save(folder)
        with atomic_write(folder / f"trials-{model}.csv") as file:
            table = study.trials_dataframe(attrs=("number", "value", "duration", "params", "state"))
            table.to_csv(file, index=False)
    return chosen, note


def choose(study: Study, objective: Objective) -> tuple[FrozenTrial | None, str]:
    """Return the trial to train with (None before one is complete), and why it is not the best (""
    if it is).

    The best of many trials is partly luck, so the defaults stay unless it beats them by two
    standard errors.
    """
    finalists = _finalists(study, objective)
    if len(finalists) < 2:
        return finalists[0] if finalists else None, ""
    best, defaults = finalists
    scores, defaults_scores = (result["graphs"] for result in _results(study, *finalists))
    mean, error = paired_difference(scores, defaults_scores, objective.select)
    if mean > 2 * error:
        return best, ""
    beats = f"the best trial beats the defaults by {mean:.3f} ± {error:.3f} only"
    return defaults, f"{beats}, so the defaults stay"


def _finalists(study: Study, objective: Objective) -> list[FrozenTrial]:
    """Return the best trial and the defaults: one if they are the same, none before a complete
    trial.
    """
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        return []
    best = study.best_trial
    defaults = _defaults_of(study, objective)
    return [best] if defaults is None or defaults.number == best.number else [best, defaults]


def _defaults_of(study: Study, objective: Objective) -> FrozenTrial | None:
    """Return the complete trial of the default parameters, if any."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return next((trial for trial in complete if trial.params == objective.defaults), None)


def _scored_as_train(study: Study, *trials: FrozenTrial) -> bool:
    """Return whether all trials have stored results on the rows and folds of `train`."""
    return {f"{_AS_TRAIN}{trial.number}" for trial in trials} <= study.user_attrs.keys()


def _results(study: Study, *trials: FrozenTrial) -> list[dict[str, Any]]:
    """Return the results of trials on the rows and folds of `train` if all have them, else those of
    the study.
    """
    if _scored_as_train(study, *trials):
        return [study.user_attrs[f"{_AS_TRAIN}{trial.number}"] for trial in trials]
    return [trial.user_attrs[RESULT] for trial in trials]


def _best_text(study: Study, objective: Objective) -> str:
    """Describe the best trial and the defaults; return "" before a complete trial."""
    finalists = _finalists(study, objective)
    if not finalists:
        return ""
    best, *defaults = finalists
    others = "".join(f" (defaults {trial.value:.3f})" for trial in defaults)
    is_default = best.params == objective.defaults
    params = "the defaults" if is_default else params_text(best.params)
    return f", best out-of-fold score {best.value:.3f}{others} with {params}"


def draw_study(study: Study, objective: Objective, path: Path) -> list[Path]:
    """Write SVGs of the optimization history beside the defaults and, from ten different scores on,
    of the parameter importances.
    """
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization import matplotlib as draw

    collection = objective.training.collection
    score = f"{score_name(str(collection))}, {objective.select}"
    history = draw.plot_optimization_history(study, target_name=score)
    plots: dict[Path, Any] = {path: history}
    defaults = _defaults_of(study, objective)
    if defaults is not None and defaults.value is not None:
        result = defaults.user_attrs[RESULT]
        error = result["std"] / len(result["graphs"]) ** 0.5
        label = "defaults ± standard error over graphs"
        history.axhline(defaults.value, color="black", linestyle="--", label=label)
        history.axhspan(defaults.value - error, defaults.value + error, color="black", alpha=0.1)
        history.legend()
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len({trial.value for trial in complete}) >= 10:
        importances = draw.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        plots[path.with_stem(f"{path.stem}-importance")] = importances
    for file, axes in plots.items():
        axes.set_title(f"{collection}, {objective.model}: {axes.get_title()}")
        stream = io.StringIO()
        metadata = {"Date": None, "Creator": None}
        with mpl.rc_context({"svg.hashsalt": file.stem, "svg.fonttype": "none"}):
            axes.figure.savefig(stream, format="svg", bbox_inches="tight", metadata=metadata)
        plt.close(axes.figure)
        with atomic_write(file) as temporary:
            temporary.write_text("<svg" + stream.getvalue().partition("<svg")[2], encoding="utf-8")
    return list(plots)
