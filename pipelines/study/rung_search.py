"""A trial on rungs: little work for every point, all of it for the few that do best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna.pruners import BasePruner, SuccessiveHalvingPruner
from optuna.trial import FrozenTrial, TrialState

from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.curves import Curves
from xlarank.models.validation.folds import Fold
from xlarank.models.validation.rungs import FACTOR, Rung, climb

if TYPE_CHECKING:
    import optuna


class RungPruner(BasePruner):
    """Optuna's asynchronous successive halving over `Rung.resource`, blind to trials that failed.

    A trial climbs on if it is among the best of those that reached its rung, one in `FACTOR` (Li et al. 2020, *A
    System for Massively Parallel Hyperparameter Tuning*). One whose process was killed is run again from the start;
    counted twice it would be its own rival.
    """

    def __init__(self) -> None:
        self._halving = SuccessiveHalvingPruner(min_resource=1, reduction_factor=FACTOR)

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        return self._halving.prune(_WithoutFailed(study), trial)  # type: ignore[arg-type]


class _WithoutFailed:
    """A study as if its failed trials had never been."""

    def __init__(self, study: optuna.Study) -> None:
        self._study = study

    def __getattr__(self, name: str) -> Any:
        return getattr(self._study, name)

    def get_trials(self, deepcopy: bool = True) -> list[FrozenTrial]:
        return [trial for trial in self._study.get_trials(deepcopy=deepcopy) if trial.state != TrialState.FAIL]


def score_on_rungs(
    trial: optuna.Trial,
    rungs: Sequence[Rung],
    training: TrainingSet,
    folds: Sequence[Fold],
    ranker: Ranker[Any],
    settings: FitSettings,
    select: str,
    *,
    to_the_top: bool,
) -> Curves:
    """The curves of the last rung; raises `optuna.TrialPruned` where the trial is given up on the way.

    Args:
        to_the_top: never give it up: of the defaults the whole score is needed, to compare the best trial with.
    """
    import optuna

    found = climb(rungs, training, folds, ranker, settings)
    for rung, curves in zip(rungs, found, strict=True):
        trial.report(float(curves.smooth_score(select).max()), rung.resource)
        if rung is not rungs[-1] and trial.should_prune() and not to_the_top:
            found.close()
            raise optuna.TrialPruned
    return curves


def rungs_mark(rungs: Sequence[Rung]) -> str:
    """What tells a study on these rungs from others; scores on different rungs cannot be compared.

    Empty for a single rung: then every trial does all the work.
    """
    if len(rungs) == 1:
        return ""
    return "/rungs-" + "-".join(str(rung.rounds) for rung in rungs)
