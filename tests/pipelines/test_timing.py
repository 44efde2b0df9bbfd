"""Rounds of made-up times: when measuring stops, what resumes it, what an interval says."""

from itertools import count

import numpy as np
import pytest

from tests.data.hlo.programs import matmul_module
from xlarank.data.hlo.compiler.outcome import Estimate, Journal, Outcome, Status
from xlarank.pipelines.programs.timing import ROUNDS, Stopwatch, Timings, fastest, time_programs

PLAIN = matmul_module()


class Device:
    """Runs programs named by their milliseconds; ``noise`` is relative to them."""

    def __init__(self, noise=0.0):
        self.noise, self.measured, self.asked = noise, 0, list[list[str]]()

    def measure(self, _, programs, *, seed, done):
        rng = np.random.default_rng([seed, done])
        self.asked.append(list(programs))
        for _ in count():
            self.measured += 1
            yield {
                name: "no memory" if name == "0" else int(name) / 1e3 * (1 + self.noise * rng.exponential())
                for name in programs
            }


def programs(*names):
    return dict.fromkeys(names, PLAIN)


def test_measuring_stops_when_the_order_of_the_fastest_no_longer_changes(tmp_path):
    steady, noisy = Device(), Device(noise=0.5)
    timings = time_programs(steady, PLAIN, programs("1", "2", "3"), minutes=1)
    assert steady.measured == ROUNDS == timings.seconds.shape[1]
    assert timings.nanoseconds() == {"1": 10**6, "2": 2 * 10**6, "3": 3 * 10**6}
    close = programs(*map(str, range(1000, 1040)))
    timings = time_programs(noisy, PLAIN, close, minutes=1)
    assert noisy.measured > ROUNDS and noisy.measured % 8 == 0
    best = [
        sorted(timings.names, key=dict(zip(timings.names, fastest(timings.seconds[:, :n]), strict=True)).get)[:5]
        for n in (noisy.measured - 16, noisy.measured - 8, noisy.measured)
    ]
    assert best[0] == best[1] == best[2]
    short = Device()
    time_programs(short, PLAIN, programs("1", "2"), minutes=0)
    assert short.measured == 2


def test_rounds_of_a_journal_count_and_programs_that_fail_are_named(tmp_path):
    device = Device()
    for rounds, known in ((2, 0), (ROUNDS, 2), (ROUNDS, ROUNDS)):
        with Journal(tmp_path / "j", {}) as journal:
            assert len(journal.rounds) == known
            timings = time_programs(
                device, PLAIN, programs("0", "5"), minutes=0 if rounds == 2 else 1, journal=journal
            )
        assert timings.seconds.shape == (1, rounds) and timings.problems == {"0": "no memory"}
    assert device.measured == ROUNDS, "the last of them measured nothing"


def test_standard_errors_and_intervals_are_those_of_repeated_measurements():
    labels, errors, covered = [], [], 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        rounds = [dict(zip("ab", (1 + 0.2 * rng.exponential(size=2)).tolist(), strict=True)) for _ in range(96)]
        timings = Timings(rounds)
        labels.append(timings.nanoseconds()["a"])
        errors.append(timings.standard_errors()["a"])
        _, low, high = timings.speedup("a", "b")
        covered += low <= 1 <= high
    assert np.mean(errors) == pytest.approx(np.std(labels), rel=0.25)
    assert 0.9 <= covered / 200 <= 1
    assert Timings([{"a": 2.0, "b": 1.0}] * 9).speedup("a", "b") == (2, 2, 2)


def test_a_search_is_guided_by_times_beside_the_default(tmp_path):
    device = Device()
    with Journal(tmp_path / "j", {}) as journal:
        stopwatch = Stopwatch(device, journal)
        outcomes = [[Outcome(Status.OK, fingerprint=name) for name in batch] for batch in ("8", "480", "88")]
        timed = [outcome for batch in outcomes for outcome in stopwatch.time(batch, lambda _: PLAIN)]
    assert [outcome.estimate for outcome in timed if outcome.status is Status.OK] == [
        Estimate(ms * 10**6) for ms in (8, 4, 8, 8, 8)
    ]
    assert [outcome.message for outcome in timed if outcome.status is Status.FAILED] == ["no memory"]
    assert device.asked == [["8"], ["8", "4", "0"]], "nothing is measured twice"
