"""Signs of life, and who is taken for dead."""

from __future__ import annotations

import threading

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from xlarank.pipelines.study.heartbeat import BEAT, MISSED, Heartbeat, Watch


def running(count: int | None, interval: float = 10.0, number: int = 0) -> FrozenTrial:
    attributes = {} if count is None else {BEAT: [count, interval]}
    trial = optuna.create_trial(state=TrialState.RUNNING, user_attrs=attributes)
    trial.number = number
    return trial


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_count_that_stands_still(clock: Clock) -> None:
    """Six intervals of ten seconds, looked at every two."""
    watch = Watch(10.0, clock)
    verdicts = []
    for _ in range(2 + 60 // 2):
        verdicts.append(watch.silent(running(4)))
        clock.now += 2.0
    assert MISSED == 6
    assert verdicts.index(True) == 30
    assert verdicts[30:] == [True, True]


def test_a_count_that_moves(clock: Clock) -> None:
    watch = Watch(10.0, clock)
    for count in range(50):
        for _ in range(5):
            assert not watch.silent(running(count // 5)), "one of five counts is seen late"
            clock.now += 2.0


def test_it_comes_back_to_life(clock: Clock) -> None:
    watch = Watch(10.0, clock)
    for _ in range(29):
        assert not watch.silent(running(4))
        clock.now += 2.0
    assert not watch.silent(running(5))
    clock.now += 19.0
    assert not watch.silent(running(5))


def test_time_in_which_nobody_looked_is_no_silence(clock: Clock) -> None:
    """After an hour's outage of the storage the others get the time to be seen again."""
    watch = Watch(10.0, clock)
    watch.silent(running(4))
    clock.now += 3600.0
    assert not watch.silent(running(4))
    for _ in range(3):
        clock.now += 10.0
        assert not watch.silent(running(4))
    clock.now += 10.0
    assert watch.silent(running(4)), "20 s of the hour count, and 40 s since"


def test_each_trial_by_its_own_interval(clock: Clock) -> None:
    watch = Watch(10.0, clock)
    verdicts = []
    for _ in range(8):
        verdicts.append((watch.silent(running(1, 1.0, 0)), watch.silent(running(1, 10.0, 1))))
        clock.now += 1.0
    assert verdicts[5] == (False, False)
    assert verdicts[6:] == [(True, False)] * 2


def test_a_trial_whose_worker_was_lost_before_its_first_sign(clock: Clock) -> None:
    watch = Watch(10.0, clock)
    for _ in range(6):
        assert not watch.silent(running(None))
        clock.now += 10.0
    assert watch.silent(running(None))


def test_the_heart_beats_until_it_is_left() -> None:
    beats: list[int] = []
    three = threading.Event()

    def beat(count: int) -> None:
        beats.append(count)
        if count == 2:
            raise ConnectionError("one that is lost is left out")
        if count >= 4:
            three.set()

    with Heartbeat(beat, 0.01):
        assert three.wait(30)
    after = list(beats)
    assert after[:4] == [1, 2, 3, 4]
    assert not three.wait(0) or beats == after
    assert not any(thread.name == "heartbeat" and thread.is_alive() for thread in threading.enumerate())
