"""Who else is at a study: the processes of this machine, or workers anywhere."""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from xlarank.pipelines.study.heartbeat import BEAT, INTERVAL, Heartbeat, Watch
from xlarank.pipelines.study.place import OpenPlace
from xlarank.pipelines.study.sharing import at_work, gone, myself, one_at_a_time

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

#: The attribute of a trial that names the process at it.
PROCESS = "process"


class Others(Protocol):
    """The other processes at a study.

    Attributes:
        pause: seconds between looks at trials that they are to finish.
    """

    @property
    def pause(self) -> float: ...

    def turn(self) -> AbstractContextManager[None]:
        """A block that one process at a time is in."""

    def claim(self, trial: optuna.Trial) -> None:
        """This process is at a trial from now on."""

    def working(self, trial: optuna.Trial) -> AbstractContextManager[Any]:
        """While this block lasts, the others can see that somebody is at the trial."""

    def at_work(self, trial: FrozenTrial) -> bool:
        """Whether another process is at a running trial."""

    def gone(self, trial: FrozenTrial) -> bool:
        """Whether the process at a running trial is no more, as far as can be told."""

    def close(self) -> None:
        """This process has ended its part."""


class Neighbours:
    """Processes of one machine that share a folder; of other machines nothing is known."""

    pause = 0.2

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def turn(self) -> AbstractContextManager[None]:
        return one_at_a_time(self._folder)

    def claim(self, trial: optuna.Trial) -> None:
        trial.set_user_attr(PROCESS, myself())

    def working(self, trial: optuna.Trial) -> AbstractContextManager[Any]:
        return nullcontext()

    def at_work(self, trial: FrozenTrial) -> bool:
        return at_work(trial.user_attrs.get(PROCESS))

    def gone(self, trial: FrozenTrial) -> bool:
        return gone(trial.user_attrs.get(PROCESS))

    def close(self) -> None: ...


class Crew:
    """Workers of any machine, told by their signs of life (`heartbeat`)."""

    def __init__(self, place: OpenPlace, study: optuna.Study, turns: str, interval: float = INTERVAL) -> None:
        self._place, self._study, self._turns, self._interval = place, study, turns, interval
        self._watch = Watch(interval)
        self.pause = min(2.0, interval)

    def turn(self) -> AbstractContextManager[None]:
        return self._place.turn(self._turns)

    def claim(self, trial: optuna.Trial) -> None:
        trial.set_user_attr(BEAT, [0, self._interval])
        trial.set_user_attr(PROCESS, f"{socket.gethostname()}:{os.getpid()}")  # for people

    def working(self, trial: optuna.Trial) -> AbstractContextManager[Any]:
        def beat(count: int) -> None:
            self._place.bare.set_trial_user_attr(trial._trial_id, BEAT, [count, self._interval])
            for other in self._running():  # so that silence is noticed during a long trial of one's own
                self._watch.silent(other)

        return Heartbeat(beat, self._interval)

    def at_work(self, trial: FrozenTrial) -> bool:
        return not self._watch.silent(trial)

    def gone(self, trial: FrozenTrial) -> bool:
        return self._watch.silent(trial)

    def close(self) -> None:
        self._place.close()

    def _running(self) -> list[FrozenTrial]:
        from optuna.trial import TrialState

        return self._place.bare.get_all_trials(self._study._study_id, deepcopy=False, states=(TrialState.RUNNING,))
