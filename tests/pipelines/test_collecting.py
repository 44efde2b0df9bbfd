"""Candidate configurations, rounds of made-up times, and tiles of a fake compiler."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.hlo.programs import instruction, matmul_module
from tests.features.helpers import SCRAMBLED_GRAPHS
from tests.graphs import Node, examples, parameter, unconfigured
from tests.pipelines.trees import Listener, contents
from xlarank.data.errors import CompilerError
from xlarank.data.graph import read_graph
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.data.hlo.reading import module_graph
from xlarank.data.schema import OPCODE
from xlarank.data.writing import write_graph
from xlarank.pipelines.programs import candidates as drawn
from xlarank.pipelines.programs.candidates import (
    CandidateLayouts,
    breed,
    evolve,
    random_configurations,
    tied_candidates,
)
from xlarank.pipelines.programs.collect import collect
from xlarank.pipelines.programs.collect_tiles import (
    NO_ESTIMATE,
    add_tiles,
    collect_tiles,
    remaining,
)
from xlarank.pipelines.programs.compiler.chips import chip_named
from xlarank.pipelines.programs.compiler.outcome import Journal, Outcome, Status
from xlarank.pipelines.programs.compiler.xla import Program
from xlarank.pipelines.programs.sources import Evaluator, SearchSettings
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
    assert len(breed(candidates, codes[:1], 100, rng())) == candidates.space - 1 == 8


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def graph():
    """Configurable are a dot (8, 128) of (8, 64) and (64, 128), and its reshape to (8, 16, 8)."""
    return module_graph(matmul_module(), Path("matmul.pb"))


def free(nodes):
    """Return candidates of nodes with five rows each."""
    return CandidateLayouts((np.arange(-1, 4, dtype=np.int8).repeat(18).reshape(5, 18),) * nodes)


def test_rows_are_orders_of_the_output_s_dimensions(graph):
    candidates = drawn.candidate_rows(graph, rng(), per_node=100)
    dot, reshape = candidates.rows
    assert sorted(dot[:, :2].tolist()) == [[-1, -1], [0, 1], [1, 0]]
    # 3! and the compiler's choice
    assert len({tuple(row[:3]) for row in reshape.tolist()}) == len(reshape) == 7
    assert all((rows[0] == -1).all() and (rows[:, 3:] == -1).all() for rows in candidates.rows)
    assert candidates.space == 3 * 7
    small = drawn.candidate_rows(graph, rng(), min_elements=1025)  # left to the compiler
    assert small.choices.tolist() == [1, 1]
    assert random_configurations(small, 10, rng()).tolist() == [[0, 0]]
    # a default layout that is stated comes first
    columns = graph.node_feat.copy()
    columns[5, 134:137] = (1, 2, 0)
    for program, order in ((graph, [2, 1, 0]), (replace(graph, node_feat=columns), [1, 2, 0])):
        assert drawn.candidate_rows(program, rng(), per_node=2).rows[1][1, :3].tolist() == order


@examples(20)
@given(arrays=SCRAMBLED_GRAPHS, seed=st.integers(0, 99), tie=st.booleans())
def test_whatever_the_program_every_configuration_is_valid(next_path, arrays, seed, tie):
    graph = write_graph(next_path(), **arrays)
    made = drawn.candidate_rows(graph, rng(seed), min_elements=0)
    if tie:
        made = tied_candidates(graph, min_elements=0)
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


def test_children_are_new_and_near_a_parent():
    parent = np.zeros((1, 50), np.int32)
    children = breed(free(50), parent, 40, rng())
    assert len(np.unique(children, axis=0)) == len(children) == 40
    assert children.any(axis=1).all() and ((children > 0).sum(axis=1) <= 5).all()
    again = breed(free(50), parent, 40, rng(), known=children)
    assert not {row.tobytes() for row in children} & {row.tobytes() for row in again}


@pytest.mark.slow
def test_evolving_finds_the_best_rows_that_a_score_prefers():
    best = rng(9).integers(0, 5, 12)

    def distance(codes):
        return (codes != best[: codes.shape[1]]).sum(axis=1).astype(float)

    search = {"population": 40, "generations": 25}
    evolved, again = (evolve(free(12), distance, 20, rng(), **search) for _ in range(2))
    assert not evolved[0].any() and len(np.unique(evolved, axis=0)) == len(evolved) == 20
    assert distance(evolved[1:2])[0] == 0, "random draws of this many would reach about 6 of 12"
    assert (np.diff(distance(evolved[1:])) >= 0).all() and np.array_equal(evolved, again)
    seen = evolve(free(2), distance, 100, rng(), population=64, generations=2)
    assert len(seen) == 25, "everything"


PLAIN = matmul_module()


class Device:
    """Device on which a program takes the milliseconds of its name, with relative ``noise``; the
    one named ``fails`` does not run.
    """

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


class Watched(Listener):
    """Progress that records the number of steps left after each step."""

    def __init__(self):
        super().__init__()
        self.left = []

    def _step(self, *args, **options):
        super()._step(*args, **options)
        self.left.append(self.jobs[-1][1] - len(self.notes))


def test_measuring_stops_when_the_order_of_the_fastest_no_longer_changes(tmp_path):
    steady = Device()
    noisy = Device(noise=0.5)
    listener = Listener()
    timings = time_programs(steady, PLAIN, programs("1", "2", "3"), minutes=1, progress=listener)
    notes = ["1 loaded", "2 loaded", "3 loaded"]
    notes += [f"round {number}" for number in range(1, ROUNDS + 1)]
    assert listener.notes == notes and listener.jobs[0][1] == len(notes)
    assert steady.rounds == ROUNDS == timings.seconds.shape[1]
    assert timings.nanoseconds() == {"1": 10**6, "2": 2 * 10**6, "3": 3 * 10**6}
    listener = Watched()
    many = programs(*map(str, range(1000, 1040)))
    timings = time_programs(noisy, PLAIN, many, minutes=1, progress=listener)
    assert noisy.rounds > ROUNDS and noisy.rounds % 8 == 0
    assert listener.left[-1] == 0 < min(listener.left[:-1]), "complete at the end alone"
    earlier = [timings.seconds[:, : noisy.rounds - back] for back in (16, 8, 0)]
    assert len({tuple(np.argsort(fastest(times))[:5]) for times in earlier}) == 1
    short = Device()
    time_programs(short, PLAIN, programs("1", "2"), minutes=0)
    assert short.rounds == 2


def test_the_time_to_load_programs_counts(monkeypatch):
    clock = iter([0.0, *range(30, 10_000, 30)])
    time = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("xlarank.pipelines.programs.timing.time", time)
    device = Device(noise=0.5)
    time_programs(device, PLAIN, programs(*map(str, range(1000, 1040))), minutes=3)
    assert device.rounds == 8, "30 s each: the second to the eighth look at the clock"


def test_rounds_of_a_journal_count_and_programs_that_fail_are_named(tmp_path):
    device = Device()
    for minutes, rounds, known in ((0, 2, 0), (1, ROUNDS, 2), (1, ROUNDS, ROUNDS)):
        with Journal(tmp_path / "j", {}) as journal:
            assert len(journal.rounds) == known
            both = programs("0", "5")
            timings = time_programs(device, PLAIN, both, minutes=minutes, journal=journal)
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


def test_a_search_is_guided_by_times_beside_the_default(tmp_path):
    device = Device()
    with Journal(tmp_path / "j", {}) as journal:
        evaluation = Evaluator(device, journal, timed=True)
        timed = []
        for batch in ("8", "480", "88"):
            outcomes = [Outcome(Status.OK, fingerprint=name) for name in batch]
            timed += evaluation.time(outcomes, lambda _: PLAIN)
    times = [outcome.cycles for outcome in timed if outcome.status is Status.OK]
    assert times == [ms * 10**6 for ms in (8, 4, 8, 8, 8)]
    (failed,) = [outcome for outcome in timed if outcome.status is Status.FAILED]
    assert failed.message == "no memory"
    assert device.requests == [["8"], ["8", "4", "0"]], "nothing is measured twice"


class Searched(Device):
    """Compiler of programs, each of which takes longer than the one before unless ``alike``."""

    limit = effort = 1.0

    def __init__(self, chip, *, alike=False):
        super().__init__()
        self.versions = {"jax": "0"}
        self.compiled = 0
        self.target = chip_named(chip)
        self.alike = alike

    def lower(self, **_):
        return Program(PLAIN.SerializeToString())

    def add_estimates(self, _):
        pass

    def compile(self, modules):
        for at, _ in enumerate(modules):
            self.compiled += 1
            number = 1 if self.alike else self.compiled
            yield at, Outcome(Status.OK, 940 * number, fingerprint=str(number))


def test_the_order_of_a_file_does_not_tell_that_of_the_search(tmp_path):
    collected = collect("mine:prog", tmp_path, Searched("tpu-v3"), SearchSettings())
    first, *others = read_graph(collected.path).runtime.tolist()
    assert first < min(others) and len(others) > 4
    assert others != sorted(others)


def test_a_timed_search_shows_what_is_compiled_and_what_is_timed(tmp_path):
    listener = Listener()
    settings = SearchSettings(search="evolve", configs=3)
    collect("mine:prog", tmp_path, Searched("cpu"), settings, progress=listener)
    assert listener.jobs == [("compiling and timing prog for cpu", 2 * 3)], "rounds are known"
    assert len(listener.notes) == 2 * 3


def test_programs_that_cannot_be_measured_are_left_out(tmp_path):
    compiler = Searched("cpu")
    compiler.fails = "2"
    collected = collect("mine:prog", tmp_path, compiler, SearchSettings(configs=3))
    assert read_graph(collected.path).runtime.tolist() == [10**6, 3 * 10**6]
    assert collected.manifest["left_out"] == {"2": "no memory"}
    records = [[*record.values()] for record in collected.manifest["configurations"]]
    assert records == [
        [0, "ok", "1", True, 0.0, ""],
        [1, "ok", "3", True, 0.0, ""],
        [None, "failed", "2", False, 0.0, "no memory"],
    ]


def test_a_single_program_has_no_order_to_test_again(tmp_path):
    settings = SearchSettings(configs=3)
    collected = collect("mine:prog", tmp_path, Searched("cpu", alike=True), settings)
    assert collected.manifest["distinct_programs"] == 1
    assert collected.manifest["retest_tau"] is None
    assert read_graph(collected.path).runtime.tolist() == [10**6] * 3


def tile(cycles, output, kernel=()):
    """Return the backend configuration of an operation that uses 13,672 KiB."""
    window = {"kernel_window_bounds": kernel, "output_window_bounds": output}
    used = {"memory_space": "1", "offset": "0", "size": "14000000"}
    config = {"window_config": window | {"estimated_cycles": str(cycles)}}
    text = json.dumps(config | {"used_scoped_memory_configs": [used]}, separators=(",", ":"))
    return {"backend_config": text.encode()}


def module(limit=0):
    """Return a product whose tile has as many rows as fit, and a copy with one tile."""
    made = HloModuleProto(name="jit_f", entry_computation_id=2, entry_computation_name="main")
    main = made.computations.add(name="main", id=2)
    instruction(main, "parameter", (4096, 128), id=20)
    rows = (limit or 16384) // 64
    for number, opcode, bound in ((21, "negate", rows), (22, "copy", 4)):
        cycles = NO_ESTIMATE + 7 if rows < 10 else 940 + 94000 // bound
        instruction(main, opcode, (4096, 128), (20,), id=number, **tile(cycles, [str(bound), "1"]))
    return made


class Compiler:
    """Compiler that is interrupted after ``dies`` limits."""

    target = chip_named("tpu-v3")

    def __init__(self, dies=99):
        self.versions = {"jax": "0"}
        self.dies = dies
        self.compiled = []

    def lower(self, **_):
        return Program(module().SerializeToString())

    def under_limit(self, program, kib, seconds):
        assert 0 < seconds <= 9 * 120
        if len(self.compiled) == self.dies:
            raise KeyboardInterrupt
        self.compiled.append(kib)
        return "out of vector memory" if kib in (790, 1218) else module(kib).SerializeToString()


def tiles(out, compiler=None, **given):
    return collect_tiles("mine:prog", out, compiler or Compiler(), limits=8, **given)


def test_a_kernels_tiles_are_those_met_and_the_first_is_the_compilers_own(tmp_path):
    collected = tiles(tmp_path)
    (name,) = collected.files
    graph = read_graph(collected.path.parent / f"{name}.npz", "tile")
    assert graph.config_feat[0, 8:10].tolist() == [256, 1]
    rows = graph.config_feat[:, 8]
    assert graph.runtime.tolist() == [round((940 + 94000 // int(row)) / 0.94) for row in rows]
    assert (graph.normalizers == graph.runtime[0]).all()
    assert len(np.unique(rows)) == len(rows)
    written, copy = collected.manifest["kernels"]
    assert copy["status"] == "fewer than 5 tiles" and written["tiles_without_estimate"] == 1
    assert collected.statuses == {"written": 1, "fewer than 5 tiles": 1}
    assert replace(collected, manifest={"kernels": []}).statuses == {}, "a program may have none"
    assert collected.manifest["limits_kib"]["1218"] == "out of vector memory"
    assert not tiles(tmp_path).fresh
    second = tiles(tmp_path, split="valid", name="other")
    assert not second.files, "a kernel of another program is one file"
    assert [kernel["file"] for kernel in second.manifest["kernels"]] == [name, None]


def kernels_of(made):
    kernels = {}
    add_tiles(kernels, made)
    return list(kernels.values())


def test_kernels_that_differ_in_shape_alone_are_two():
    made = module()
    (main,) = made.computations
    instruction(main, "parameter", (2048, 128), id=23)
    instruction(main, "negate", (2048, 128), (23,), id=24, **tile(9, ["1", "1"]))
    assert [kernel.opcode for kernel in kernels_of(made)] == ["negate", "copy", "negate"]


def with_fusion(cycles=700, placed=0, first=1):
    """Return a fusion, a copy whose operand may be in vector memory, and a reshape."""
    made = HloModuleProto(name="jit_f", entry_computation_id=2, entry_computation_name="main")
    fused = made.computations.add(name="fused_computation", id=1, is_fusion_computation=True)
    instruction(fused, "parameter", (64, 128), id=10)
    instruction(fused, "add", (64, 128), (10, 10), id=11, **tile(1, ["9"]))
    main = made.computations.add(name="main", id=2)
    instruction(main, "parameter", (64, 128), id=20).shape.layout.memory_space = placed
    copied = tile(cycles, ["2", "1"])
    instruction(main, "copy", (64, 128), (20,), id=21, layout=(0, 1), **copied)
    instruction(main, "reshape", (8192,), (21,), id=22)
    added = tile(50, [str(first), "1"], ["4"])
    instruction(main, "fusion", (64, 128), (21,), id=23, calls=(1,), **added)
    return made


def test_a_kernel_is_a_module_with_parameters_for_operands():
    copy, fusion = kernels_of(with_fusion())
    for kernel, opcodes in ((copy, "parameter copy"), (fusion, "parameter add parameter fusion")):
        expected = [OPCODE[name] for name in opcodes.split()]
        assert kernel.program["node_opcode"].tolist() == expected
    assert fusion.program["edge_index"].tolist() == [[1, 0], [3, 1], [3, 2]]
    assert fusion.tiles == {((4,), (1, 1)): 50}
    other = kernels_of(with_fusion(cycles=NO_ESTIMATE, first=2))
    digests = [kernel.digest for kernel in other]
    assert digests == [copy.digest, fusion.digest], "independent of the tile"
    assert copy.digest != fusion.digest
    (kernel,) = kernels_of(with_fusion(placed=1))
    assert kernel.opcode == "fusion", "not in vector memory"


def test_interrupted_and_run_again_it_gives_the_same_files(tmp_path):
    tiles(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        tiles(tmp_path / "killed", Compiler(dies=4))
    again = Compiler()
    listener = Listener()
    tiles(tmp_path / "killed", again, progress=listener)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert len(again.compiled) == len(listener.notes) == 9 - 4
    assert listener.jobs == [("compiling prog under limits of memory", 9 - 4)]
    tiles(tmp_path / "whole").path.unlink()  # as if killed before the manifest was written
    assert tiles(tmp_path / "whole").statuses == {"written": 1, "fewer than 5 tiles": 1}


def test_only_limits_that_may_change_something_are_compiled_in_time_and_for_tpus(tmp_path):
    (tmp_path / "0.pb").write_bytes(module().SerializeToString())  # uses 13,672 KiB
    assert remaining(tmp_path, [0, 1024, 16384, 18000]) == [1024, 16384]
    with pytest.raises(CompilerError, match=r"for tpu-v3 \(not compiled within 0 s in all\)"):
        tiles(tmp_path, limit=0.0)
    failed = [path.name for path in tmp_path.rglob("*.txt")]
    assert failed == ["0.txt"], "nothing else is compiled if the default fails"
    cpu = Compiler()
    cpu.target = chip_named("cpu")
    with pytest.raises(CompilerError, match="no tiles for cpu"):
        tiles(tmp_path, cpu)
