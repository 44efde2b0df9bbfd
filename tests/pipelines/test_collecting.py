"""Candidate configurations and rounds of made-up times."""

from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.data.hlo.programs import matmul_module
from tests.features.helpers import SCRAMBLED_GRAPHS
from tests.graphs import Node, examples, parameter, unconfigured
from tests.pipelines.trees import Listener
from xlarank.data.errors import CompilerError
from xlarank.data.graph import read_graph
from xlarank.data.writing import write_graph
from xlarank.pipelines.programs.candidates import random_configurations, tied_candidates
from xlarank.pipelines.programs.collect import Journal, collect
from xlarank.pipelines.programs.compiler.chips import chip_named
from xlarank.pipelines.programs.compiler.xla import Outcome, Program
from xlarank.pipelines.programs.timing import ROUNDS, Timings, fastest, time_programs


def test_random_tied_configurations_set_dots_always_and_reshapes_sometimes():
    graph = unconfigured(
        parameter(256, 512),
        parameter(512, 1024),
        Node("dot", (256, 1024), (0, 1)),
        Node("reshape", (4, 64, 1024), (2,)),
        Node("dot", (256, 1024), (0, 1)),
        Node("reshape", (4, 2), (3,)),
        configurable=(2, 3, 4, 5),
    )
    candidates = tied_candidates(graph)
    assert candidates.group.tolist() == [0, 1, 0, -1]  # 8 elements: left alone
    assert candidates.free.tolist() == [0, 1]
    codes = random_configurations(candidates, 100, rng())
    # two orders of the dots, three rows of the reshape, and the compiler's choice
    assert len(codes) == 1 + 2 * 3
    assert (codes[1:, 0] > 0).all() and set(codes[1:, 1].tolist()) == {0, 1, 2}


def rng(seed=0):
    return np.random.default_rng(seed)


@examples(20)
@given(arrays=SCRAMBLED_GRAPHS, seed=st.integers(0, 99))
def test_whatever_the_program_every_configuration_is_valid(next_path, arrays, seed):
    graph = write_graph(next_path(), **arrays)
    with mock.patch("xlarank.pipelines.programs.candidates.MIN_ELEMENTS", 0):
        made = tied_candidates(graph)
    assume(len(made.free))
    codes = random_configurations(made, 6, rng(seed))
    assert (codes >= 0).all() and (codes < made.choices).all() and not codes[0].any()
    rows = made.expand(codes)
    for node, group in enumerate(made.group.tolist()):
        expected = np.full((len(codes), 18), -1) if group < 0 else made.rows[group][codes[:, group]]
        assert np.array_equal(rows[:, node], expected), "nodes of a group change together"
    arrays |= {"node_config_ids": graph.configurable, "node_config_feat": rows}
    arrays["config_runtime"] = np.zeros(len(codes), np.int64)
    # refuses what is no permutation of the tensor's dimensions
    read = write_graph(next_path(), **arrays)
    assert np.array_equal(made.graph(graph, codes).table.codes, read.table.codes)


PLAIN = matmul_module()


class Device:
    """Device on which a program takes the milliseconds of its name; ``fails`` does not run."""

    fails = "0"

    def __init__(self, noise=0.0):
        self.noise = noise
        self.rounds = 0
        self.requests = []

    def measure(self, _, programs, *, seed, done, step):
        for name in programs:
            step(f"{name} loaded")
        random = rng([seed, done])
        self.requests.append(list(programs))
        while True:
            self.rounds += 1
            seconds = {}
            for name in programs:
                slower = 1 + self.noise * random.exponential()
                seconds[name] = "no memory" if name == self.fails else int(name) / 1e3 * slower
            yield seconds


def programs(*names):
    return dict.fromkeys(names, PLAIN)


def test_measuring_stops_when_the_order_of_the_fastest_no_longer_changes(tmp_path):
    steady = Device()
    noisy = Device(noise=0.5)
    with Listener() as listener:
        timings = time_programs(steady, PLAIN, programs("1", "2", "3"), minutes=1)
    notes = ["1 loaded", "2 loaded", "3 loaded"]
    notes += [f"round {number}" for number in range(1, ROUNDS + 1)]
    assert listener.notes == notes and listener.jobs[0][1] == len(notes)
    assert steady.rounds == ROUNDS == timings.seconds.shape[1]
    assert timings.nanoseconds() == {"1": 10**6, "2": 2 * 10**6, "3": 3 * 10**6}
    many = programs(*map(str, range(1000, 1040)))
    timings = time_programs(noisy, PLAIN, many, minutes=1)
    assert noisy.rounds > ROUNDS and noisy.rounds % 8 == 0
    earlier = [timings.seconds[:, : noisy.rounds - back] for back in (16, 8, 0)]
    assert len({tuple(np.argsort(fastest(times))[:5]) for times in earlier}) == 1
    with pytest.raises(CompilerError, match="1 round of measurements in 0 minutes; expected at le"):
        time_programs(Device(), PLAIN, programs("1", "2"), minutes=0)


def test_minutes_begin_when_the_programs_are_loaded(monkeypatch):
    clock = iter(range(0, 10_000, 20))
    time = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("xlarank.pipelines.programs.timing.time", time)
    device = Device(noise=0.5)
    time_programs(device, PLAIN, programs(*map(str, range(1000, 1040))), minutes=3)
    assert device.rounds == 10, "20 s each: the first begins at 0"


def test_rounds_of_a_journal_count_and_programs_that_fail_are_named(tmp_path):
    device = Device()
    both = programs("0", "5")
    with Journal(tmp_path / "j", {}) as journal, pytest.raises(CompilerError, match="1 round"):
        time_programs(device, PLAIN, both, minutes=0, keep=journal.add_round)
    for minutes, rounds, known in ((1, ROUNDS, 1), (1, ROUNDS, ROUNDS)):
        with Journal(tmp_path / "j", {}) as journal:
            assert len(journal.rounds) == known
            kept = {"known": list(journal.rounds), "keep": journal.add_round}
            timings = time_programs(device, PLAIN, both, minutes=minutes, **kept)
        assert timings.seconds.shape == (1, rounds) and timings.problems == {"0": "no memory"}
    assert device.rounds == ROUNDS, "the last of them measured nothing"


def test_standard_errors_and_intervals_are_those_of_repeated_measurements():
    labels = []
    errors = []
    covered = []
    for seed in range(200):
        noise = 1 + 0.2 * rng(seed).exponential(size=(96, 2))
        timings = Timings([{"a": a, "b": b} for a, b in noise.tolist()])
        labels.append(timings.nanoseconds()["a"])
        errors.append(timings.standard_errors()["a"])
        _, low, high = timings.speedup("a", "b")
        covered.append(low <= 1 <= high)
    assert np.mean(errors) == pytest.approx(np.std(labels), rel=0.25)
    assert 0.9 <= np.mean(covered) <= 1
    assert Timings([{"a": 2.0, "b": 1.0}] * 9).speedup("a", "b") == (2, 2, 2)


class Searched(Device):
    """Compiler of programs, each of which takes longer than the one before unless ``alike``."""

    limit = 1.0

    def __init__(self, chip, *, alike=False):
        super().__init__()
        self.versions = {"jax": "0"}
        self.compiled = 0
        self.target = chip_named(chip)
        self.alike = alike

    def lower(self, **_):
        return Program(PLAIN.SerializeToString())

    def compile(self, modules):
        for at, _ in enumerate(modules):
            self.compiled += 1
            number = 1 if self.alike else self.compiled
            yield at, Outcome("ok", 940 * number, fingerprint=str(number))


def collected(out, compiler, **settings):
    opened = nullcontext(compiler)
    with mock.patch("xlarank.pipelines.programs.collect.Compiler", return_value=opened):
        return collect("mine:prog", out, **settings)


def test_the_order_of_a_file_does_not_tell_that_of_the_search(tmp_path):
    path, _, _ = collected(tmp_path, Searched("tpu-v3"))
    first, *others = read_graph(path).runtime.tolist()
    assert first < min(others) and len(others) > 4
    assert others != sorted(others)


def test_programs_that_cannot_be_measured_are_left_out(tmp_path):
    compiler = Searched("cpu")
    compiler.fails = "2"
    path, manifest, _ = collected(tmp_path, compiler, configs=3)
    assert read_graph(path).runtime.tolist() == [10**6, 3 * 10**6]
    assert manifest["left_out"] == {"2": "no memory"}
    records = [[*record.values()] for record in manifest["configurations"]]
    assert records == [
        [0, "ok", "1", 0.0, ""],
        [1, "ok", "3", 0.0, ""],
        [None, "failed", "2", 0.0, "no memory"],
    ]


def test_a_single_program_has_no_order_to_test_again(tmp_path):
    path, manifest, _ = collected(tmp_path, Searched("cpu", alike=True), configs=3)
    assert (manifest["distinct_programs"], manifest["retest_tau"]) == (1, None)
    assert read_graph(path).runtime.tolist() == [10**6] * 3
