"""Which trial a study runs next, and that it runs as many as were asked for, whoever is killed at one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from xlarank.pipelines.study.crew import Others

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

#: The attribute of a trial that says which draw of the study it is (see `TrialSampler`).
_DRAW: Final = "draw"
#: The attribute that says how many processes were lost at its point before.
_LOST: Final = "lost"
#: Processes that may be lost at one point: then the point is at fault (too large for the memory?), not they.
_MOST_LOST: Final = 3


@dataclass(frozen=True)
class TrialQueue:
    """What a study still has to run.

    Attributes:
        study, others: whose trials, and who else is at them.
        first: the parameters of its first trials, the defaults before all.
    """

    study: optuna.Study
    others: Others
    first: Sequence[dict[str, Any]]

    def next(self, trials: int) -> tuple[optuna.Trial | None, bool]:
        """A trial to run, or None; and whether the study holds as many as it shall.

        Neither, where other processes are at the last trials: one of them may be killed, and its trial is to be
        made up for.
        """
        from optuna.trial import TrialState

        from xlarank.pipelines.study.sampler import TrialSampler

        study = self.study
        with self.others.turn():
            self._make_up_for_lost()
            there = study.get_trials(deepcopy=False)
            finished = sum(trial.state in (TrialState.COMPLETE, TrialState.PRUNED) for trial in there)
            if finished >= trials:
                return None, True
            if finished + sum(map(self._running, there)) >= trials:
                return None, False
            for point in self.first:
                if not any(self._tried(trial, point) or _given_up(trial, point) for trial in there):
                    study.enqueue_trial(point)
            taken = {_draw_of(trial) for trial in there if trial.state != TrialState.FAIL or _given_up(trial)}
            draw = next(number for number in range(len(there) + 1) if number not in taken)
            if isinstance(study.sampler, TrialSampler):
                study.sampler.draw = draw
            trial = study.ask()
            self.others.claim(trial)
            trial.set_user_attr(_DRAW, trial.user_attrs.get(_DRAW, draw))
            return trial, False

    def give_back(self, trial: optuna.Trial) -> None:
        """End a trial that this process was stopped at; whoever comes next runs its point."""
        with self.others.turn():
            begun = self._all()[trial.number]
            self._run_again(begun, lost=_lost(begun))

    def _make_up_for_lost(self) -> None:
        """Trials whose process is gone end as failed; their points come next, unless too many were lost at them."""
        from optuna.trial import TrialState

        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if self.others.gone(trial):
                self._run_again(trial, lost=_lost(trial) + 1)

    def _run_again(self, trial: FrozenTrial, lost: int) -> None:
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        try:
            self.study.tell(trial.number, state=TrialState.FAIL)
        except (ValueError, UpdateFinishedTrialError):  # its process was alive after all, and has just finished
            return
        point = _point(trial)
        if lost < _MOST_LOST and point and not any(self._tried(other, point) for other in self._all()):
            self.study.enqueue_trial(point, user_attrs={_DRAW: _draw_of(trial), _LOST: lost})

    def _all(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _running(self, trial: FrozenTrial) -> bool:
        """Whether another process is at it; one that was killed leaves its trial as if it ran on."""
        from optuna.trial import TrialState

        return trial.state == TrialState.RUNNING and self.others.at_work(trial)

    def _tried(self, trial: FrozenTrial, params: dict[str, Any]) -> bool:
        """Whether a trial of these parameters is over, runs or waits."""
        from optuna.trial import TrialState

        if trial.state == TrialState.WAITING or self._running(trial):
            return bool(trial.system_attrs.get("fixed_params") == params)
        return trial.params == params and trial.state in (TrialState.COMPLETE, TrialState.PRUNED)


def _point(trial: FrozenTrial) -> dict[str, Any]:
    """The parameters of a trial, those that it was still to take included."""
    return {**trial.system_attrs.get("fixed_params", {}), **trial.params}


def _draw_of(trial: FrozenTrial) -> int:
    """Which draw of the study a trial is; its number, where it was made before draws were counted."""
    return int(trial.user_attrs.get(_DRAW, trial.number))


def _lost(trial: FrozenTrial) -> int:
    return int(trial.user_attrs.get(_LOST, 0))


def _given_up(trial: FrozenTrial, params: dict[str, Any] | None = None) -> bool:
    """Whether a trial (of these parameters) is the last one of a point at which processes are lost."""
    from optuna.trial import TrialState

    last = trial.state == TrialState.FAIL and _lost(trial) + 1 >= _MOST_LOST
    return last and (params is None or _point(trial) == params)
