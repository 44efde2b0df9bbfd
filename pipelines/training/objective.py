"""Objective of a study, and the choice between its best trial and the defaults."""

from __future__ import annotations

import json
import os
import socket
import zlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import optuna
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from xlarank.models.model import Model
from xlarank.models.params import suggest_params
from xlarank.models.rankers import params_of, specs_of
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.folds import (
    FACTOR,
    Curves,
    FoldPlan,
    climb,
    rows_per_worker,
    rungs_of,
)
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.training.fit_cost import study_seconds, time_fits
from xlarank.pipelines.training.studies import PROCESS
from xlarank.pipelines.training.training_sets import StoredTrainingSet

#: Attribute of a trial with its result, and prefix of the study's with results on train's folds.
RESULT: Final = "result"
_AS_TRAIN: Final = "as train, trial "


@dataclass(frozen=True)
class Objective:
    """Out-of-fold score of a ranker by the parameters of a trial, at the best number of rounds.

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
        suggest_params(specs_of(self.model), probe)
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
        params = suggest_params(specs_of(self.model), trial)
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
        compared = [] if self.is_as_train else finalists(study, self)
        return [trial for trial in compared if not scored_as_train(study, trial)]

    def score_as_train(self, study: Study, trial: FrozenTrial) -> None:
        """Store a trial's result on the rows and folds of `train`."""
        model = Model.of(self.model, self.training.kind, trial.user_attrs[RESULT]["params"])
        data = self.training.data
        curves = self.train_plan.curves(data, model, self.settings, lambda fold: None)
        study.set_user_attr(f"{_AS_TRAIN}{trial.number}", self._result(model, curves))

    def forecast(self) -> Callable[[int, int], float]:
        """Time short fits on a few graphs; return the result of `study_seconds`."""
        data = self.data
        model = Model.of(self.model, self.training.kind)
        fit_seconds = time_fits(data, model, self.settings, self.plan.fallback)
        threads = self.settings.threads
        rows = rows_per_worker(data, self.plan.folds, threads)
        last_rows = 0.0
        if not self.is_as_train:
            last_rows = 2 * rows_per_worker(self.training.data, self.train_plan.folds, threads)
        return study_seconds(fit_seconds, rows, last_rows, rungs_of(self.settings.rounds))

    def identity(self) -> dict[str, str]:
        """Return the values that all trials of a study share, by their description."""
        data = self.training.data
        rows = repr((data.names, data.indptr.tolist())).encode() + data.cost.tobytes()
        members = json.dumps(self.members, sort_keys=True).encode()
        return {
            "feature columns": self.training.manifest.recipe.columns_version,
            "graphs, rows or runtimes": f"{zlib.crc32(rows):08x}",
            "rows of a trial (`max_rows`)": str(len(self.data.cost)),
            "folds": f"{self.plan.by} with fallback" if self.plan.fallback else self.plan.by,
            "`rounds`": str(self.settings.rounds),
            "parameters of members": f"{zlib.crc32(members):08x}",
        }


def choose(study: Study, objective: Objective) -> tuple[FrozenTrial | None, str]:
    """Return the trial to train with, if one is complete, and why it is not the best.

    The best of many trials is partly luck, so the defaults stay unless it beats them by two
    standard errors.
    """
    compared = finalists(study, objective)
    if len(compared) < 2:
        return compared[0] if compared else None, ""
    best, defaults = compared
    scores, defaults_scores = (result["graphs"] for result in results_of(study, *compared))
    mean, error = paired_difference(scores, defaults_scores, objective.select)
    if mean > 2 * error:
        return best, ""
    beats = f"the best trial beats the defaults by {mean:.3f} ± {error:.3f} only"
    return defaults, f"{beats}, so the defaults stay"


def finalists(study: Study, objective: Objective) -> list[FrozenTrial]:
    """Return the best trial and the defaults; one if they are the same, none at first."""
    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        return []
    best = study.best_trial
    defaults = defaults_of(study, objective)
    return [best] if defaults is None or defaults.number == best.number else [best, defaults]


def defaults_of(study: Study, objective: Objective) -> FrozenTrial | None:
    """Return the complete trial of the default parameters, if any."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    return next((trial for trial in complete if trial.params == objective.defaults), None)


def scored_as_train(study: Study, *trials: FrozenTrial) -> bool:
    """Return whether all trials have stored results on the rows and folds of `train`."""
    return {f"{_AS_TRAIN}{trial.number}" for trial in trials} <= study.user_attrs.keys()


def results_of(study: Study, *trials: FrozenTrial) -> list[dict[str, Any]]:
    """Return the results of trials, on the rows and folds of `train` if all have them."""
    if scored_as_train(study, *trials):
        return [study.user_attrs[f"{_AS_TRAIN}{trial.number}"] for trial in trials]
    return [trial.user_attrs[RESULT] for trial in trials]
