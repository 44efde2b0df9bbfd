"""The relayout model: mappings by numpy, cases by hand, a reference, real compilations."""

from itertools import permutations
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from tests.features.helpers import (
    FITTING_GRAPHS,
    GRAPHS,
    SAMPLE,
    by_name,
    fitting_graph,
    graph_of,
    layout_file,
    load,
)
from tests.features.oracle_relayout import Simulation
from tests.features.test_metamorphic import BY_ID, REWRITES
from tests.graphs import Node, examples, layout_row, parameter
from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.graph import read_graph
from xlarank.features.attribution import walk_between
from xlarank.features.candidates import RelayoutPlaces
from xlarank.features.catalogue import FeatureSettings
from xlarank.features.layout.config_relayouts import ConfigRelayout, config_relayouts
from xlarank.features.layout.hardware import HARDWARE
from xlarank.features.layout.layout_facts import LayoutFacts
from xlarank.features.layout.layout_mapping import inverse, permuted, reshaped, without
from xlarank.features.layout.layout_program import LayoutProgram
from xlarank.features.layout.relayout_blocks import TIME, RelayoutCosts
from xlarank.features.layout.relayout_quantities import QUANTITIES, relayout_quantities
from xlarank.features.rows import Recipe, assemble

FIXTURES = Path(__file__).with_name("relayout_fixtures.npz")
MACHINES = ("cpu", "nvidia-h200", "tpu-v3")
ROOT = {"is_root": 1}


def quantities(arrays, machine):
    """Return the quantities of the distinct configurations by name."""
    hardware, facts = HARDWARE[machine], LayoutFacts(graph_of(arrays))
    program = LayoutProgram(facts, hardware)
    table = relayout_quantities(program, facts.row_type[facts.table.codes])
    return dict(zip(QUANTITIES, table.T, strict=True))


def elements(dims, layout):
    """Return the numbers of the elements in the order of memory."""
    return np.arange(prod(dims)).reshape(dims).transpose(layout[::-1]).reshape(-1)


SHAPES = ((4,), (2, 3), (3, 1, 2), (2, 3, 4), (1, 2, 1, 3))
SPLITS = (
    ((6,), (2, 3)),
    ((2, 6), (2, 2, 3)),
    ((2, 3, 4), (6, 4)),
    ((4, 6), (2, 12)),
    ((3, 1, 2), (2, 3, 1)),
)


@pytest.mark.parametrize("dims", SHAPES)
def test_mappings_move_no_element(dims):
    for layout in permutations(range(len(dims))):
        for order in permutations(range(len(dims))):
            output = np.arange(prod(dims)).reshape(dims).transpose(order)
            in_memory = output.transpose(layout[::-1]).reshape(-1)
            assert np.array_equal(in_memory, elements(dims, permuted(layout, order)))
            assert permuted(permuted(layout, order), inverse(order)) == layout
        for removed in range(len(dims)):
            kept = [dimension for dimension in layout if dimension != removed]
            assert without(layout, frozenset({removed})) == tuple(
                np.argsort(np.argsort(kept)).tolist()
            )


@pytest.mark.parametrize("pair", [*SPLITS, *(pair[::-1] for pair in SPLITS)])
def test_reshapes_are_bitcasts_exactly_if_a_layout_keeps_all_elements_in_place(pair):
    dims, new_dims = pair
    for layout in permutations(range(len(dims))):
        fitting = [
            new
            for new in permutations(range(len(new_dims)))
            if np.array_equal(elements(dims, layout), elements(new_dims, new))
        ]
        found = reshaped(layout, dims, new_dims)
        assert (found in fitting) if fitting else found is None


def test_reshapes_of_unlike_or_empty_shapes_have_no_layout():
    assert reshaped((0,), (4,), (5,)) is None
    assert reshaped((1, 0), (0, 4), (4, 0)) is None


# Hand-computed. f32, so 4 bytes an element; a copy reads and writes: 8 bytes an element.


def test_a_transposed_dot():
    """x[512,128] @ w[128,256], output set to {0,1}: copied there, and back for the result.

    The dot of a GPU writes what the constraint wants. The dot reads x along the contracted
    dimension and w {1,0} across it: strided on one side only.
    """
    program = (
        parameter(512, 128),
        parameter(128, 256),
        Node("dot", (512, 256), (0, 1), columns=ROOT),
    )
    arrays = layout_file(program, (2,), [[layout_row()], [layout_row((0, 1))]])
    size, flops = 512 * 256 * 4, 2 * 512 * 128 * 256
    for machine in MACHINES:
        values = quantities(arrays, machine)
        assert values["every_transposed"].tolist() == (
            [0, 2 * size] if machine == "nvidia-h200" else [0, 4 * size]
        )
        assert values["constrained_turned"].tolist() == [0, size]
        assert values["half_strided_dots"].tolist() == [flops] * 2
        assert not values["strided_dots"].any()
    # reads at strides of 256 and 512 elements
    expected = round(size * np.log2(1 + 256)) + round(size * np.log2(1 + 512))
    assert quantities(arrays, "cpu")["strided"].tolist() == [0, expected]
    # the chain of two copies cancels; that of a GPU is a single copy
    assert quantities(arrays, "nvidia-h200")["transposed"].tolist() == [0, 2 * size]
    assert quantities(arrays, "cpu")["transposed"].tolist() == [0, 0]
    assert quantities(arrays, "tpu-v3")["padded"].tolist() == [0, 0]


def test_operands_that_both_lie_wrongly():
    """With x set to {0,1}, the dot reads both operands across their contracted dimension."""
    program = (
        parameter(256, 128),
        Node("negate", (256, 128), (0,)),
        parameter(128, 64),
        Node("dot", (256, 64), (1, 2), columns=ROOT),
    )
    arrays = layout_file(program, (1,), [[layout_row()], [layout_row((0, 1))]])
    assert quantities(arrays, "nvidia-h200")["strided_dots"].tolist() == [0, 2 * 256 * 128 * 64]
    # a core reads row-major operands: it copies instead
    assert quantities(arrays, "cpu")["strided_dots"].tolist() == [0, 0]
    assert quantities(arrays, "cpu")["every_transposed"].tolist() == [0, 2 * 2 * 256 * 128 * 4]


def test_a_reshape_that_is_a_bitcast_and_one_that_is_not():
    """x[256,128] set to {1,0} or {0,1}, reshaped to [32768]: only the first moves nothing."""
    program = (
        parameter(256, 128),
        Node("tanh", (256, 128), (0,)),
        Node("reshape", (32768,), (1,)),
        Node("tanh", (32768,), (2,), columns=ROOT),
    )
    arrays = layout_file(program, (1,), [[layout_row((1, 0))], [layout_row((0, 1))]])
    size = 256 * 128 * 4
    for machine in ("nvidia-h200", "tpu-v3"):
        assert quantities(arrays, machine)["every_transposed"].tolist() == [0, 4 * size]
    for machine in MACHINES:
        assert quantities(arrays, machine)["every_copies"].tolist() == [0, 2]


def test_a_chain_that_cancels():
    """x[256,128] is transposed twice; set to {1,0} in between, it is copied there and back.

    Both copies compose to the order of x, so none remains.
    """
    program = (
        parameter(256, 128),
        Node("transpose", (128, 256), (0,), columns={"dimensions_0": 1, "dimensions_1": 0}),
        Node("transpose", (256, 128), (1,), columns={**ROOT, "dimensions_0": 1, "dimensions_1": 0}),
    )
    arrays = layout_file(program, (1,), [[layout_row()], [layout_row((1, 0))]])
    for machine in ("nvidia-h200", "tpu-v3"):
        values = quantities(arrays, machine)
        assert values["copies"].tolist() == [0, 0]
        assert values["every_transposed"].tolist() == [0, 4 * 256 * 128 * 4]


def test_a_batched_dot_that_swaps_its_last_two_dimensions():
    """[8,64,32] x [8,32,16], set to {1,2,0}, which a dot writes, or to {0,1,2}, which not."""
    program = (
        parameter(8, 64, 32),
        parameter(8, 32, 16),
        Node("dot", (8, 64, 16), (0, 1)),
        Node("tanh", (8, 64, 16), (2,)),
        Node("reduce", (8, 64), (3,), columns={**ROOT, "dimensions_0": 2}),
    )
    choices = [layout_row(), layout_row((1, 2, 0)), layout_row((0, 1, 2))]
    arrays = layout_file(program, (2,), [[choice] for choice in choices])
    assert quantities(arrays, "nvidia-h200")["copies"].tolist() == [0, 0, 2]
    assert (
        quantities(arrays, "nvidia-h200")["transposed"][2] == 2 * 8 * 64 * 4 + 2 * 8 * 64 * 16 * 4
    )


def test_compact_layouts_of_a_tpu():
    """x[128,8,64] lies with 128 along the lanes."""
    facts = LayoutFacts(graph_of(layout_file((parameter(128, 8, 64),), (), [[]])))
    assert LayoutProgram(facts, HARDWARE["tpu-v3"]).preferred == [(0, 2, 1)]
    assert LayoutProgram(facts, HARDWARE["cpu"]).preferred == [(2, 1, 0)]


def test_a_column_reduction():
    """x[64,32] is reduced along dimension 1; with {0,1} the minor-most dimension is kept."""
    program = (
        parameter(64, 32),
        Node("tanh", (64, 32), (0,)),
        Node("reduce", (64,), (1,), columns={**ROOT, "dimensions_0": 1}),
    )
    arrays = layout_file(program, (1,), [[layout_row()], [layout_row((0, 1))]])
    assert quantities(arrays, "nvidia-h200")["column_reduced"].tolist() == [0, 64 * 32 * 4]
    # on a CPU the operand is copied to row-major instead
    assert quantities(arrays, "cpu")["column_reduced"].tolist() == [0, 0]


def test_square_operands_are_contracted_the_other_way_the_second_time():
    """w[64,64] is read by the dots of a forward pass and of its gradient."""
    program = (
        parameter(32, 64),
        parameter(64, 64),
        Node("dot", (32, 64), (0, 1)),
        Node("dot", (32, 64), (2, 1), columns=ROOT),
    )
    arrays = layout_file(program, (2,), [[layout_row()]])
    roles = LayoutProgram(LayoutFacts(graph_of(arrays)), HARDWARE["cpu"]).roles
    assert roles[2][2][:2] != roles[3][2][:2]


def compare(arrays, machines=MACHINES):
    graph = graph_of(arrays)
    facts = LayoutFacts(graph)
    types = facts.row_type[facts.table.codes]
    for machine in machines:
        hardware = HARDWARE[machine]
        program = LayoutProgram(facts, hardware)
        table = relayout_quantities(program, types)
        for config, rows in enumerate(types.tolist()):
            expected = Simulation(program, hardware, rows).quantities()
            wrong = {
                name: (value, expected[name])
                for name, value in zip(QUANTITIES, table[config], strict=True)
                if value != expected[name]
            }
            assert not wrong, (machine, config)


@pytest.mark.parametrize("seed", range(30))
def test_programs_that_make_sense(seed):
    compare(fitting_graph(seed))


@pytest.mark.slow
@given(arrays=GRAPHS)
@examples(60)
def test_any_graph(arrays):
    compare(arrays)


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["default/train/dlrm__a", "random/train/gan__c", "random/valid/mlp__a"]
)
def test_files_of_the_sample(place):
    compare(load(SAMPLE / "layout" / "cpu" / f"{place}.npz"))


@pytest.fixture
def priced(monkeypatch):
    """Make every graph's columns those of one machine."""

    def price(machine):
        settings = FeatureSettings(hardware=machine)
        monkeypatch.setattr(
            "tests.features.test_metamorphic.assemble", lambda graph: assemble(graph, settings)
        )

    return price


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", REWRITES)
def test_columns_of_a_graph_in_other_words(name, machine, priced):
    priced(machine)
    moved = {
        "nodes renumbered": (
            *BY_ID,
            "*relayout*",
        ),  # propagation follows the order of the instructions
        "the default written for unset ones": ("*relayout*",),  # a constraint stops propagation
        "with a copy beside it": (
            "relayout",
        ),  # numbers of copies, and the sum of nanoseconds of twice the copies
    }
    for seed in range(6):
        wrong = REWRITES[name].wrong_columns(fitting_graph(seed), seed)
        allowed = [pattern.strip("*") for pattern in moved.get(name, ())]
        assert not [
            column for column in wrong if not any(part in column for part in allowed if part)
        ], wrong


@given(arrays=FITTING_GRAPHS, machine=st.sampled_from(MACHINES))
@examples(20)
def test_columns_are_finite_and_the_time_is_at_least_that_without_relayouts(arrays, machine):
    rows = assemble(graph_of(arrays), FeatureSettings(hardware=machine))
    values = {
        name: rows.matrix()[:, rows.columns.index(name)]
        for name in (*RelayoutCosts.columns, *RelayoutPlaces.columns)
    }
    assert all(np.isfinite(column).all() for column in values.values())
    assert (values["relayout__time__ratio"] >= 0).all()
    assert (values[TIME] >= 0).all()


def test_columns_of_a_transposed_dot():
    """One copy of the output on an H200: 4.8 TB/s, 494.7 TFLOP/s, 1 us a launch."""
    program = (
        parameter(512, 128),
        parameter(128, 256),
        Node("dot", (512, 256), (0, 1), columns=ROOT),
    )
    arrays = layout_file(program, (2,), [[layout_row()], [layout_row((0, 1))]])
    columns = by_name(assemble(graph_of(arrays), FeatureSettings(hardware="nvidia-h200")))
    output, everything = 512 * 256 * 4, (512 * 128 + 128 * 256 + 512 * 256) * 4
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


def test_copies_of_a_configuration():
    """As above: dot 2 writes {0,1} and is returned {1,0}."""
    program = (
        parameter(512, 128),
        parameter(128, 256),
        Node("dot", (512, 256), (0, 1), columns=ROOT),
    )
    graph = graph_of(layout_file(program, (2,), [[layout_row()], [layout_row((0, 1))]]))
    assert config_relayouts(graph, 0, "nvidia-h200") == []
    size = 512 * 256 * 4
    ns = pytest.approx(1e9 * 2 * size / 4.8e12 + 1000)
    (copy,) = config_relayouts(graph, 1, "nvidia-h200")
    assert copy == ConfigRelayout(2, (0, 1), (1, 0), 2, (), size, ns)
    there, back = config_relayouts(graph, 1, "cpu")
    assert {(there.before, there.after), (back.before, back.after)} == {
        ((1, 0), (0, 1)),
        ((0, 1), (1, 0)),
    }


def test_steps_between_configurations_are_priced_too():
    path = SAMPLE / "layout" / "cpu" / "random" / "valid" / "mlp__a.npz"
    graph, settings = read_graph(path), FeatureSettings(hardware="cpu")
    rows = assemble(graph, settings)
    walk = walk_between(graph, rows, settings, 3, 0)
    time = rows.columns.index(TIME)
    by_node = walk.by_node(walk.matrix[:, time].astype(np.float64))
    matrix = rows.matrix()[rows.group]
    assert sum(by_node.values()) == pytest.approx(
        float(matrix[3, time] - matrix[0, time]), abs=1e-4
    )


def test_without_hardware_the_columns_are_0_and_nothing_is_simulated(monkeypatch):
    path = SAMPLE / "layout" / "cpu" / "random" / "valid" / "mlp__a.npz"
    priced_rows = assemble(
        read_graph(path), FeatureSettings().for_collection(Collection.parse("layout:cpu:random"))
    )
    monkeypatch.setattr("xlarank.features.layout.relayout_blocks.relayout_quantities", None)
    plain = assemble(
        read_graph(path), FeatureSettings().for_collection(Collection.parse("layout:xla:random"))
    )
    assert plain.columns == priced_rows.columns
    at = [plain.columns.index(name) for name in RelayoutCosts.columns]
    assert not plain.matrix()[:, at].any()
    assert priced_rows.matrix()[:, at].any()
    assert Recipe.of(FeatureSettings(), "layout") != Recipe.of(
        FeatureSettings(hardware="cpu"), "layout"
    )


def test_unknown_hardware_is_refused():
    with pytest.raises(XlarankError, match="abacus"):
        FeatureSettings(hardware="abacus")


#: Lowest mean over programs of Kendall's tau between simulated and real volume, by compiler.
REACHED = {"cpu": 0.94, "gpu": 0.89, "tpu": 0.77}


@pytest.mark.parametrize("backend", REACHED)
def test_simulated_volume_follows_real_compilations(backend):
    """Bytes of copies and transposes in optimised modules (`benchmarks.relayout_fixtures`)."""
    machine = dict(zip(REACHED, MACHINES, strict=True))[backend]
    prefix = "every_" if backend == "cpu" else ""  # a CPU's compiler does not simplify chains
    copied = [f"{prefix}transposed", f"{prefix}straight"]
    with np.load(FIXTURES) as stored:
        arrays = {name: stored[name] for name in stored.files}
    taus = {}
    for volume_name in [name for name in arrays if name.startswith(f"volume/{backend}/")]:
        name = volume_name.split("/")[-1]
        program = f"graph/{'tpu' if backend == 'tpu' else 'cpu'}/{name}/"
        file = {
            key.removeprefix(program): array
            for key, array in arrays.items()
            if key.startswith(program)
        }
        real = arrays[volume_name]
        graph = graph_of({**file, "config_runtime": np.arange(1, len(real) + 1)})
        facts = LayoutFacts(graph)
        types = facts.row_type[facts.table.codes][graph.duplicates.group]
        table = relayout_quantities(LayoutProgram(facts, HARDWARE[machine]), types)
        volume = table[:, [name in copied for name in QUANTITIES]].sum(axis=1)
        compiled = real >= 0
        taus[name] = kendalltau(volume[compiled], real[compiled]).statistic
    assert len(taus) == 12
    assert np.mean([*taus.values()]) >= REACHED[backend], taus
