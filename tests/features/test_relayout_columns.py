"""Columns of relayouts by hand and in other words; volumes of real compilations."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from tests.features.helpers import SAMPLE, by_name, fitting_graph, graph_of
from tests.features.test_metamorphic import REWRITES
from tests.features.test_relayouts import MACHINES, file_of, op, program_of, root
from tests.graphs import parameter
from xlarank.data.collection import Collection
from xlarank.data.graph import read_graph
from xlarank.features.assembly import assemble
from xlarank.features.layout.config_costs import ConfigCopy, SlowNode, config_costs
from xlarank.features.layout.layout_assignment import Assignment
from xlarank.features.layout.layout_mapping import element_order
from xlarank.features.layout.relayout_quantities import (
    QUANTITIES,
    TIME,
    relayout_costs,
    relayout_quantities,
)
from xlarank.features.rows import Recipe

MLP = SAMPLE / "layout/cpu/random/valid/mlp__a.npz"
FIXTURES = Path(__file__).with_name("relayout_fixtures.npz")


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", REWRITES)
def test_columns_of_a_graph_in_other_words(name, machine):
    may_move = name in (
        "nodes renumbered",  # propagation follows the order of the instructions
        "the default written for unset ones",  # a constraint stops propagation
        "with a copy beside it",  # numbers of copies, and the time of twice the copies
    )
    for seed in range(4):
        wrong = REWRITES[name].wrong_columns(fitting_graph(seed), seed, machine)
        assert not [column for column in wrong if not may_move or "relayout" not in column], wrong


def test_columns_of_a_transposed_dot():
    """One copy of the output on an H200: 4.8 TB/s, 494.7 TFLOP/s, 1 us a launch."""
    program = parameter(512, 128), parameter(128, 256), root("dot", (512, 256), (0, 1))
    arrays = file_of(program, (2,), (), (0, 1))
    columns = by_name(assemble(graph_of(arrays), "nvidia-h200"))
    output = 512 * 256 * 4
    everything = (512 * 128 + 128 * 256 + 512 * 256) * 4
    program_ns = 1e9 * (2 * 512 * 128 * 256 / 494.7e12 + 2 * everything / 4.8e12)
    copy_ns = 1e9 * 2 * output / 4.8e12 + 1000
    expected = {
        "relayout__transposed__ratio": (0, 2 * output / everything),
        "relayout__transposes__log": (0, 1),
        "relayout__constrained_turned__ratio": (0, output / everything),
        "relayout__half_strided_dots__share": (1, 1),
        "relayout__strided_dots__share": (0, 0),
        TIME: (np.log2(program_ns), np.log2(program_ns + copy_ns)),
        "relayout__time__ratio": (0, copy_ns / program_ns),
        "rank__relayout_time__log": (0, 1),
        "zscore__relayout_time__log": (-1, 1),
    }
    for name, values in expected.items():
        assert columns[name].tolist() == pytest.approx(values, rel=1e-5), name


def test_costs_of_a_configuration():
    """Set to {0,1}, a dot is copied back; with x set to {0,1}, it reads both operands across."""
    negated = parameter(512, 128), op("negate", (512, 128), (0,))
    program = *negated, parameter(128, 256), root("dot", (512, 256), (1, 2))
    graph = graph_of(file_of(program, (1, 3), [(), ()], [(), (0, 1)], [(0, 1), ()]))
    assert config_costs(graph, 0, "nvidia-h200") == ([], [])
    size = 512 * 256 * 4
    copy_ns = 1e9 * 2 * size / 4.8e12 + 1000
    ((copy,), _) = config_costs(graph, 1, "nvidia-h200")
    assert copy == ConfigCopy(3, (0, 1), (1, 0), (), size, pytest.approx(copy_ns))
    dot_ns = pytest.approx(0.87 * 1e9 * 2 * 512 * 128 * 256 / 494.7e12)
    assert config_costs(graph, 2, "nvidia-h200")[1] == [SlowNode(3, "strided_dots", dot_ns)]
    (there, back), (turned_dot,) = config_costs(graph, 1, "cpu")
    assert turned_dot == SlowNode(3, "constrained_turned", pytest.approx(0.3 / 4 * size))
    orders = {(copy.before, copy.after) for copy in (there, back)}
    assert orders == {((1, 0), (0, 1)), ((0, 1), (1, 0))}


def test_without_hardware_the_columns_are_0_and_nothing_is_simulated(monkeypatch):
    names = ("layout:cpu:random", "layout:xla:random")
    cpu, xla = (Collection.parse(name).hardware for name in names)
    priced = assemble(read_graph(MLP), cpu)
    monkeypatch.setattr("xlarank.features.layout.relayout_quantities.relayout_quantities", None)
    plain = assemble(read_graph(MLP), xla)
    assert plain.columns == priced.columns
    at = [plain.columns.index(name) for name in relayout_costs.columns]
    assert priced.matrix()[:, at].any() and not plain.matrix()[:, at].any()
    assert Recipe.of("layout", cpu) != Recipe.of("layout", xla) == Recipe.of("layout")


@pytest.fixture(scope="module")
def fixtures():
    """Arrays of real compilations (`benchmarks.relayout_fixtures`), by the parts of their names."""
    tree = {}
    with np.load(FIXTURES) as stored:
        for name, array in stored.items():
            *folders, last = name.split("/")
            folder = tree
            for part in folders:
                folder = folder.setdefault(part, {})
            folder[last] = array
    return tree


@pytest.mark.parametrize(("backend", "programs"), [("cpu", 12), ("gpu", 9)])
def test_simulated_layouts_are_those_of_xla(backend, programs, fixtures):
    """Of all tensors, in all configurations of all programs without library convolutions."""
    assert len(fixtures["layouts"][backend]) == programs
    for name, arrays in fixtures["layouts"][backend].items():
        assigned = arrays["assigned"]
        program, types = simulated(arrays, len(assigned), backend)
        written = Assignment(program, types).written
        for node, dims in enumerate(program.dims):
            for config, layout in enumerate(assigned[:, node, : len(dims)].tolist()):
                if len(dims) < 2 or layout[0] < 0:
                    continue
                order = next(o for o, mask in written[node].items() if mask >> config & 1)
                where = (name, config, node, program.opcode[node])
                assert element_order(order, dims) == element_order(tuple(layout), dims), where


def simulated(arrays, configs, backend):
    """Return the program of a file as the compiler of a back end sees it, and types of rows."""
    machine = dict(zip(REACHED, MACHINES, strict=True))[backend]
    program = program_of({**arrays, "config_runtime": np.ones(configs, np.int64)}, machine)
    context = program.context
    return program, context.row_type[context.table.codes][context.graph.group]


#: Lowest mean over programs of Kendall's tau between simulated and real volume, by compiler.
REACHED = {"cpu": 0.97, "gpu": 0.94, "tpu": 0.8}


@pytest.mark.parametrize("backend", REACHED)
def test_simulated_volume_follows_real_compilations(backend, fixtures):
    """Bytes of copies and transposes in optimised modules (`benchmarks.relayout_fixtures`)."""
    prefix = "every_" if backend == "cpu" else ""  # a CPU's compiler does not simplify chains
    copied = [f"{prefix}transposed", f"{prefix}straight"]
    taus = {}
    for name, real in fixtures["volume"][backend].items():
        file = fixtures["graph"]["tpu" if backend == "tpu" else "cpu"][name]
        table = relayout_quantities(*simulated(file, len(real), backend))
        volume = table[:, [name in copied for name in QUANTITIES]].sum(axis=1)
        compiled = real >= 0
        taus[name] = kendalltau(volume[compiled], real[compiled]).statistic
    assert len(taus) == 12
    assert np.mean([*taus.values()]) >= REACHED[backend], taus
