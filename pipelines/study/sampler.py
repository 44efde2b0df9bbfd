"""Optuna's TPE sampler, drawing anew for every trial."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState


class TrialSampler(BaseSampler):
    """TPE whose draws depend on the seed and the number of the trial.

    A sampler with one seed for a whole call draws the same parameters again in a second call, or in another
    process beside it; the number of a trial is its own.

    Attributes:
        draw: in place of the trial's number, where it is set: a trial that makes up for one that was killed has
            another number, and what comes after it shall be drawn as if nothing had happened.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.draw: int | None = None
        self._tpe = self._of(0)

    def _of(self, number: int) -> TPESampler:
        own = zlib.crc32(f"{self._seed}/{number}".encode())
        return TPESampler(seed=own, multivariate=True, n_startup_trials=20)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._tpe = self._of(trial.number if self.draw is None else self.draw)
        self._tpe.before_trial(study, trial)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._tpe.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._tpe.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._tpe.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._tpe.after_trial(study, trial, state, values)
