"""Which trial comes next, with others that are at work or lost."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from xlarank.pipelines.study.queue import TrialQueue
from xlarank.pipelines.study.sampler import TrialSampler

KNOWN = {"x": 0.5}


class Said:
    """Others of whom a test says which trials they lost."""

    pause = 0.0

    def __init__(self) -> None:
        self.lost: set[int] = set()
        self.turns = 0

    def turn(self) -> AbstractContextManager[None]:
        self.turns += 1
        return nullcontext()

    def claim(self, trial: optuna.Trial) -> None: ...

    def working(self, trial: optuna.Trial) -> AbstractContextManager[Any]:
        return nullcontext()

    def at_work(self, trial: FrozenTrial) -> bool:
        return trial.number not in self.lost

    def gone(self, trial: FrozenTrial) -> bool:
        return trial.number in self.lost

    def close(self) -> None: ...


@pytest.fixture
def queue() -> TrialQueue:
    study = optuna.create_study(direction="maximize", sampler=TrialSampler(0))
    return TrialQueue(study, Said(), [KNOWN])


def begin(queue: TrialQueue, trials: int = 100) -> tuple[optuna.Trial, float]:
    trial, full = queue.next(trials)
    assert trial is not None and not full
    return trial, trial.suggest_float("x", 0, 1)


def lose(queue: TrialQueue, trial: optuna.Trial) -> None:
    queue.others.lost.add(trial.number)  # type: ignore[attr-defined]


def states(queue: TrialQueue) -> list[TrialState]:
    return [trial.state for trial in queue.study.trials]


def test_the_total_is_the_study_s(queue: TrialQueue) -> None:
    """Trials at work count; nobody begins one too many."""
    first, second = begin(queue, 2)[0], begin(queue, 2)[0]
    assert queue.next(2) == (None, False), "to be waited for"
    queue.study.tell(first, 1.0)
    assert queue.next(2) == (None, False)
    queue.study.tell(second, 1.0)
    assert queue.next(2) == (None, True)
    assert queue.next(1) == (None, True)


def test_a_lost_trial_is_run_again(queue: TrialQueue) -> None:
    begin(queue)
    lost, x = begin(queue, 2)
    assert queue.next(2) == (None, False)
    lose(queue, lost)
    again, same = begin(queue, 2)
    assert (again.number, same) == (2, x)
    assert states(queue) == [TrialState.RUNNING, TrialState.FAIL, TrialState.RUNNING]
    assert queue.next(2) == (None, False), "once is enough"


def test_what_comes_after_a_lost_trial_is_drawn_as_if_nothing_had_happened(queue: TrialQueue) -> None:
    undisturbed = TrialQueue(optuna.create_study(direction="maximize", sampler=TrialSampler(0)), Said(), [KNOWN])
    expected = [begin(undisturbed)[1] for _ in range(5)]
    drawn = [begin(queue)[1] for _ in range(2)]
    lost = queue.study.trials[1]
    queue.others.lost.add(lost.number)  # type: ignore[attr-defined]
    drawn += [begin(queue)[1] for _ in range(4)]
    assert sorted({*drawn}) == sorted(expected)
    assert len(drawn) == 6, "one twice"


def test_a_trial_that_was_given_back_is_run_again(queue: TrialQueue) -> None:
    """As often as its processes are stopped: that is not the point's fault."""
    begin(queue)
    _, expected = begin(queue)
    for number in range(2, 8):
        queue.give_back(trial := optuna.trial.Trial(queue.study, number - 1))
        assert queue.study.trials[trial.number].state == TrialState.FAIL
        again, x = begin(queue)
        assert (again.number, x) == (number, expected)
    undisturbed = TrialQueue(optuna.create_study(direction="maximize", sampler=TrialSampler(0)), Said(), [KNOWN])
    assert [begin(undisturbed)[1] for _ in range(3)][2] == begin(queue)[1]


def test_one_that_was_alive_after_all(queue: TrialQueue) -> None:
    """Taken for lost, and finished at the same moment."""
    trial, _ = begin(queue)
    lose(queue, trial)
    frozen = queue.study.trials[0]
    queue.study.tell(trial, 1.0)
    study = queue.study
    real = study.get_trials

    def late(deepcopy: bool = True, states: Any = None) -> list[FrozenTrial]:
        return [frozen] if states == (TrialState.RUNNING,) else real(deepcopy, states)

    study.get_trials = late  # type: ignore[method-assign]
    assert queue.next(1) == (None, True)
    assert states(queue) == [TrialState.COMPLETE]


def test_a_point_at_which_three_are_lost_is_given_up(queue: TrialQueue) -> None:
    """The study goes on with other points and still reaches its total."""
    queue.study.tell(begin(queue)[0], 1.0)
    deadly = None
    for number in range(3):
        trial, x = begin(queue, 4)
        assert trial.number == number + 1
        assert deadly in (None, x)
        deadly = x
        lose(queue, trial)
    for _ in range(3):
        trial, x = begin(queue, 4)
        assert x != deadly
        queue.study.tell(trial, 1.0)
    assert queue.next(4) == (None, True)
    assert states(queue).count(TrialState.FAIL) == 3


def test_defaults_at_which_three_are_lost_are_given_up(queue: TrialQueue) -> None:
    for _ in range(3):
        trial, x = begin(queue)
        assert x == KNOWN["x"]
        lose(queue, trial)
    assert begin(queue)[1] != KNOWN["x"]


def test_the_first_points_in_their_order(queue: TrialQueue) -> None:
    several = TrialQueue(queue.study, queue.others, [KNOWN, {"x": 0.25}])
    drawn = [begin(several)[1] for _ in range(4)]
    assert drawn[:2] == [0.5, 0.25]
    assert len({*drawn}) == 4


def test_each_look_is_a_turn(queue: TrialQueue) -> None:
    begin(queue, 1)
    queue.next(1)
    assert queue.others.turns == 2  # type: ignore[attr-defined]
