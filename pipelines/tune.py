"""Search for the parameters with the best cross-validated score, for each collection."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.study import MaxTrialsCallback, Study
from optuna.trial import FrozenTrial, TrialState

from xlarank.data.collection import Collection, Names
from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.workspace import DEFAULT_ROOT, Workspace, WorkspaceLike
from xlarank.models.losses import DEFAULT, params_of, specs_of
from xlarank.models.model import Model
from xlarank.models.params import Interval, suggest_params
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.tuned import save_best, tuned_members
from xlarank.models.validation.folds import FACTOR, Curves, FoldPlan, rungs_of
from xlarank.models.validation.metrics import paired_difference, require_selection
from xlarank.pipelines.support.progress import Step, steps_of
from xlarank.pipelines.support.workspaces import chosen_collections, leaving_out, workspace_lock
from xlarank.pipelines.training.studies import FINISHED, draw_study, open_storage, open_study
from xlarank.pipelines.training.training_sets import StoredTrainingSet, read_training_set

#: Most rows and most folds of a trial.
MAX_ROWS: Final = 20_000
_FOLDS: Final = 5
#: Attribute of a trial with its result.
RESULT: Final = "result"


@dataclass(frozen=True)
class TuneResult:
    """Best parameters of one collection, or the reason why there are none.

    Attributes:
        trials, fresh, pruned: numbers of finished trials, of new ones, and of ones stopped early.
        defaults: mean score of the default parameters.
        tuned: whether ``params`` are not the defaults.
        note: reason why the chosen trial is not the best one.
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
    note: str = ""
    pictures: Sequence[Path] = ()
    skipped: str = ""


def tune(
    workspace: WorkspaceLike = DEFAULT_ROOT,
    *,
    trials: int,
    collection: Names = (),
    timeout: float | None = None,
    model: str = DEFAULT,
    storage: str | None = None,
    rounds: int = 300,
    select: str = "mean",
    seed: int = 0,
    threads: int = 0,
) -> list[TuneResult]:
    """Continue the study of each collection up to ``trials`` finished trials; save the best.

    The value of a trial is its out-of-fold score on a sample of the rows, at the best number of
    rounds. The defaults are the first trial, and are kept if the best trial beats them by less than
    two standard errors. A study is resumed by the next call; several processes can share it in the
    database at ``storage``, an address of SQLAlchemy. An ensemble takes the best parameters of its
    members. ``timeout`` is in seconds, for all collections.

    Raises `CollectionError` or `ModelError` for a named collection (others are left out with their
    reason), and `CollectionError` if nothing could be tuned.
    """
    Interval(1, whole=True)("`trials`", trials)
    require_selection("select", select)
    specs_of(model)  # raises for an unknown name
    work = Workspace.of(workspace)
    work.require_writable()
    fit = FitSettings(rounds, seed, threads)
    deadline = None if timeout is None else time.monotonic() + timeout
    chosen = chosen_collections(work, collection)
    left_out: dict[str, str] = {}
    results = list[TuneResult]()
    with (
        open_storage(work, storage) as opened,
        steps_of(f"tuning {model}", trials * len(chosen)) as step,
    ):
        for number, each in enumerate(chosen):
            share = deadline and max(0.0, deadline - time.monotonic()) / (len(chosen) - number)
            with leaving_out(each, collection, left_out):
                objective = Objective.of(work, each, model, fit, select)
                study = open_study(opened, objective.study_name, objective.defaults, seed)
                results.append(_optimize(objective, study, trials, share, step))
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    return results + [TuneResult(name, skipped=reason) for name, reason in left_out.items()]


def _optimize(
    objective: Objective, study: Study, trials: int, timeout: float | None, step: Step
) -> TuneResult:
    """Run the missing trials of a study, saving the best after each; return the chosen one."""
    collection = objective.training.collection
    done = len(study.get_trials(deepcopy=False, states=FINISHED))

    def save(study: Study, trial: FrozenTrial) -> None:
        chosen, _ = choose(study, objective)
        if chosen is not None:
            objective.save(chosen)
            step(f"{collection}, out-of-fold score {chosen.user_attrs[RESULT]['mean']:.3f}")

    for _ in range(min(done, trials)):
        step(str(collection))
    if done < trials:
        # other processes may finish trials of this study, too
        stop = MaxTrialsCallback(trials, states=FINISHED)
        study.optimize(objective, trials - done, timeout, callbacks=[save, stop])
    chosen, note = choose(study, objective)
    if chosen is None:
        raise ModelError(f"no trial of {collection} was finished", do="give it a longer `timeout`")
    objective.save(chosen)
    finished = study.get_trials(deepcopy=False, states=FINISHED)
    result = chosen.user_attrs[RESULT]
    defaults = objective.defaults_of(study) or chosen
    picture = "-".join(["tune", *collection.parts, objective.model])
    return TuneResult(
        str(collection),
        trials=len(finished),
        fresh=max(0, len(finished) - done),
        pruned=sum(trial.state == TrialState.PRUNED for trial in finished),
        mean=result["mean"],
        std=result["std"],
        defaults=defaults.user_attrs[RESULT]["mean"],
        tuned=chosen.params != objective.defaults,
        rounds=result["rounds"],
        params=result["params"],
        note=note,
        pictures=draw_study(study, objective.workspace.reports() / f"{picture}.svg"),
    )


@dataclass(frozen=True)
class Objective:
    """Out-of-fold score of a ranker by the parameters of a trial, at the best number of rounds.

    A trial grows few trees at first; the best quarter of the trials grow more. The defaults always
    grow all, because the best trial is compared with them. ``members`` are the parameters of
    ensemble members that have studies of their own.
    """

    workspace: Workspace
    training: StoredTrainingSet
    data: TrainingData
    plan: FoldPlan
    model: str
    members: dict[str, dict[str, Any]]
    settings: FitSettings
    select: str

    @classmethod
    def of(
        cls, workspace: Workspace, collection: Collection, model: str, fit: FitSettings, select: str
    ) -> Objective:
        """Read the rows of a collection; raises `CollectionError` if it has one family."""
        training = read_training_set(workspace, collection)
        data = training.sampled(MAX_ROWS)
        plan = FoldPlan.of(data, limit=_FOLDS)
        if not plan.folds:
            got = f"{collection} has one program family ({training.data.families[0]}) in train"
            do = "train uses default parameters for it"
            raise CollectionError(got, expected="two or more", do=do)
        members = tuned_members(workspace.study(collection), model, collection.kind)
        return cls(workspace, training, data, plan, model, members, fit, select)

    @property
    def defaults(self) -> dict[str, Any]:
        """Default values of the parameters that are searched."""
        params = params_of(self.model, self.training.collection.kind)
        return {name: params[name] for name, spec in specs_of(self.model).items() if spec.search}

    def __call__(self, trial: optuna.Trial) -> float:
        params = suggest_params(specs_of(self.model), trial)
        if self.members:
            params["members"] = self.members
        model = Model.of(self.model, self.training.collection.kind, params)
        rungs = rungs_of(self.settings.rounds)
        for number, rounds in enumerate(rungs):
            settings = replace(self.settings, rounds=rounds)
            curves = self.plan.curves(self.data, model, settings)
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

    @property
    def study_name(self) -> str:
        """Name of the study: the settings that all its trials share."""
        data = self.training.data
        rows = repr((data.names, data.indptr.tolist())).encode() + data.cost.tobytes()
        members = json.dumps(self.members, sort_keys=True).encode()
        ranker = f"{self.training.collection}/{self.model}/{self.select}"
        version = self.training.manifest.recipe.columns_version
        crcs = f"{zlib.crc32(rows):08x}/{zlib.crc32(members):08x}"
        return f"{ranker}/{version}/{self.plan.by}/{self.settings.rounds}/{crcs}"

    def defaults_of(self, study: Study) -> FrozenTrial | None:
        """Return the complete trial of the default parameters, if any."""
        complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return next((trial for trial in complete if trial.params == self.defaults), None)

    def save(self, trial: FrozenTrial) -> None:
        """Save the parameters of a trial for `train`."""
        result = trial.user_attrs[RESULT] | {"select": self.select}
        with workspace_lock(self.workspace):
            self.training.require_current(self.workspace)
            save_best(self.workspace.study(self.training.collection), self.model, result)


def choose(study: Study, objective: Objective) -> tuple[FrozenTrial | None, str]:
    """Return the trial to train with, if one is complete, and why it is not the best.

    The best of many trials is partly luck, so the defaults stay unless it beats them by two
    standard errors.
    """
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        return None, ""
    best = study.best_trial
    defaults = objective.defaults_of(study)
    if defaults is None or defaults.number == best.number:
        return best, ""
    gain = paired_difference(
        best.user_attrs[RESULT]["graphs"], defaults.user_attrs[RESULT]["graphs"], objective.select
    )
    if gain.mean > 2 * gain.error:
        return best, ""
    beats = f"the best trial beats the defaults by {gain.mean:.3f} ± {gain.error:.3f} only"
    return defaults, f"{beats}, so the defaults stay"
