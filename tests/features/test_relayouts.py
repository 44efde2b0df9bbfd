"""Simulated layout assignment: mappings by numpy, cases by hand, a slow reference."""

from itertools import permutations
from math import prod

import numpy as np
import pytest
from hypothesis import given

from tests.features.helpers import GRAPHS, SAMPLE, fitting_graph, graph_of, layout_file, load
from tests.features.oracle_relayout import Relayouts
from tests.graphs import Node, dot_arrays, examples, layout_row, parameter
from xlarank.features.layout.hardware import HARDWARE
from xlarank.features.layout.layout_assignment import Assignment
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.layout_mapping import permuted, renumbered, reshaped
from xlarank.features.layout.layout_program import LayoutProgram
from xlarank.features.layout.relayout_quantities import QUANTITIES, relayout_quantities

MACHINES = ("cpu", "nvidia-h200", "tpu-v3")


def program_of(arrays, machine):
    """Return the program of a file as a machine's compiler sees it."""
    return LayoutProgram(LayoutContext(graph_of(arrays)), HARDWARE[machine])


def quantities(arrays, machine):
    """Return the quantities of the distinct configurations by name."""
    program = program_of(arrays, machine)
    table = relayout_quantities(program, program.context.row_type[program.context.table.codes])
    return dict(zip(QUANTITIES, table.T, strict=True))


def op(opcode, dims, operands, *listed, **columns):
    """Return a node whose ``dimensions`` are as listed."""
    columns |= {f"dimensions_{at}": dimension for at, dimension in enumerate(listed)}
    return Node(opcode, dims, operands, columns=columns)


def root(opcode, dims, operands, *listed):
    return op(opcode, dims, operands, *listed, is_root=1)


def file_of(program, configurable, *outputs):
    """Return the file of a program; configurations set the output of one node, or of several."""
    rows = [layouts if isinstance(layouts, list) else [layouts] for layouts in outputs]
    return layout_file(program, configurable, [[*map(layout_row, layouts)] for layouts in rows])


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
            assert renumbered(permuted(layout, order), order) == layout
        for removed in range(len(dims)):
            kept = [dimension for dimension in layout if dimension != removed]
            places = tuple(np.argsort(np.argsort(kept)).tolist())
            assert renumbered(layout, sorted(kept)) == places


@pytest.mark.parametrize("pair", [*SPLITS, *(pair[::-1] for pair in SPLITS)])
def test_reshapes_are_bitcasts_exactly_if_a_layout_keeps_all_elements_in_place(pair):
    dims, new_dims = pair
    for layout in permutations(range(len(dims))):
        before = elements(dims, layout)
        orders = permutations(range(len(new_dims)))
        fitting = [new for new in orders if np.array_equal(before, elements(new_dims, new))]
        found = reshaped(layout, dims, new_dims)
        assert (found in fitting) if fitting else found is None
    assert reshaped((0,), (4,), (5,)) is reshaped((1, 0), (0, 4), (4, 0)) is None


# Hand-computed. f32, so 4 bytes an element; a copy reads and writes: 8 bytes an element.


def test_a_transposed_dot():
    """x[512,128] @ w[128,256], output set to {0,1}: copied there, and back for the result.

    The dot of a GPU writes what the constraint wants. The dot reads x along the contracted
    dimension and w {1,0} across it: strided on one side only.
    """
    program = parameter(512, 128), parameter(128, 256), root("dot", (512, 256), (0, 1))
    arrays = file_of(program, (2,), (), (0, 1))
    size = 512 * 256 * 4
    of_machine = {machine: quantities(arrays, machine) for machine in MACHINES}
    for machine, values in of_machine.items():
        copies = 1 if machine == "nvidia-h200" else 2
        assert values["every_transposed"].tolist() == [0, copies * 2 * size]
        assert values["constrained_turned"].tolist() == [0, size]
        assert values["half_strided_dots"].tolist() == [2 * 512 * 128 * 256] * 2
        assert not values["strided_dots"].any()
    # reads at strides of 256 and 512 elements
    expected = round(size * np.log2(1 + 256)) + round(size * np.log2(1 + 512))
    assert of_machine["cpu"]["strided"].tolist() == [0, expected]
    # the chain of two copies cancels; that of a GPU is a single copy
    assert of_machine["nvidia-h200"]["transposed"].tolist() == [0, 2 * size]
    assert of_machine["cpu"]["transposed"].tolist() == [0, 0]
    assert of_machine["tpu-v3"]["padded"].tolist() == [0, 0]


def test_a_reshape_between_two_copies():
    """x[64,256] set to {0,1}, split into [64,16,16] and set to {1,0,2} or {0,2,1}.

    {0,2,1} keeps the split dimensions together: one copy from the order of x is enough.
    """
    read = parameter(64, 256), op("tanh", (64, 256), (0,))
    split = op("reshape", (64, 16, 16), (1,)), op("tanh", (64, 16, 16), (2,))
    program = *read, *split, root("reduce", (), (3,), 0, 1, 2)
    arrays = file_of(program, (1, 2), [(0, 1), (1, 0, 2)], [(0, 1), (0, 2, 1)])
    for machine in ("nvidia-h200", "tpu-v3"):
        values = quantities(arrays, machine)
        assert values["copies"].tolist() == [2, 1]
        assert values["transposed"].tolist() == [4 * 64 * 256 * 4, 2 * 64 * 256 * 4]


def test_a_dot_that_exchanges_its_operands():
    """x[64,128] @ w[128,256] set to {1,0}, reshaped to [64,16,16] and set to {0,2,1}.

    The latter is {0,1} at the dot, which a row-major dot of a GPU writes too; a TPU copies.
    """
    split = op("reshape", (64, 16, 16), (2,)), op("tanh", (64, 16, 16), (3,))
    dot = parameter(64, 128), parameter(128, 256), op("dot", (64, 256), (0, 1))
    arrays = file_of((*dot, *split, root("reduce", (), (4,), 0, 1, 2)), (2, 3), [(1, 0), (0, 2, 1)])
    assert quantities(arrays, "nvidia-h200")["copies"].tolist() == [0]
    assert quantities(arrays, "tpu-v3")["copies"].tolist() == [1]


def test_dots_of_one_operand_are_merged_on_a_gpu():
    """x @ v and x @ w are slices of one output: set to {0,1} and {1,0}, one of them is copied."""
    dots = [op("dot", (64, 256), (0, number)) for number in (1, 2)]
    reduced = op("reduce", (64,), (3,), 1), root("reduce", (64,), (4,), 1)
    program = parameter(64, 128), parameter(128, 256), parameter(128, 256), *dots, *reduced
    arrays = file_of(program, (3, 4), [(0, 1), (1, 0)])
    assert program_of(arrays, "nvidia-h200").merged == {3: [4], 4: [3]}
    assert not program_of(arrays, "cpu").merged
    assert quantities(arrays, "nvidia-h200")["copies"].tolist() == [1]


def test_a_copy_that_moves_behind_slices():
    """x[64,128] set to {0,1}, of which two halves are read row-major by dots of a GPU.

    The copies are of the halves. A reduction reads any layout.
    """
    read = parameter(8, 64, 64), op("tanh", (8, 64, 64), (0,))
    halves = op("slice", (8, 32, 64), (1,)), op("slice", (8, 64, 32), (1,))
    program = *read, *halves, root("dot", (8, 32, 32), (2, 3)), op("reduce", (8, 64), (1,), 2)
    values = quantities(file_of(program, (1,), (), (0, 2, 1)), "nvidia-h200")
    half = 2 * 8 * 64 * 32 * 4
    assert values["transposed"].tolist() == [0, 2 * half + 2 * half]
    assert values["column_reduced"].tolist() == [0, 8 * 64 * 64 * 4]


def test_a_broadcast_wants_its_operand_in_its_own_order():
    """y[32,64] is broadcast to the layout {0,2,1} of x[16,32,64]: its own is then {1,0}."""
    dims = (16, 32, 64)
    operands = op("tanh", dims, (0,)), op("broadcast", dims, (1,), 1, 2)
    program = parameter(*dims), parameter(32, 64), *operands, root("add", dims, (2, 3))
    moved = quantities(file_of(program, (2,), (0, 2, 1), (1, 2, 0)), "nvidia-h200")["transposed"]
    assert moved[1] - moved[0] == 2 * 32 * 64 * 4


def test_a_batched_dot_that_swaps_its_last_two_dimensions():
    """[8,64,32] x [8,32,16], set to {1,2,0}, which a dot writes, or to {0,1,2}, which not."""
    dot = parameter(8, 64, 32), parameter(8, 32, 16), op("dot", (8, 64, 16), (0, 1))
    program = *dot, op("tanh", (8, 64, 16), (2,)), root("reduce", (8, 64), (3,), 2)
    values = quantities(file_of(program, (2,), (), (1, 2, 0), (0, 1, 2)), "nvidia-h200")
    # the reduction writes row-major whatever it reads
    assert values["copies"].tolist() == [0, 0, 1]
    assert values["transposed"][2] == 2 * 8 * 64 * 16 * 4


def test_parameters_of_a_tpu_are_compact_and_propagated_before_demands():
    """tanh(x) lies as x[128,8,64] does, 128 along the lanes, and is copied for a batched dot."""
    dims = (128, 8, 64)
    operands = parameter(*dims), op("tanh", dims, (0,)), parameter(128, 64, 16)
    arrays = file_of((*operands, root("dot", (128, 8, 16), (1, 2))), (3,), ())
    assert program_of(arrays, "cpu").preferred[0] == (2, 1, 0)
    program = program_of(arrays, "tpu-v3")
    assert program.preferred[0] == (0, 2, 1)
    assignment = Assignment(program, program.context.row_type[program.context.table.codes])
    (read,) = assignment.wanted[3, 0]
    assert [*assignment.written[1]] == [*assignment.wanted[1, 0]] == [(0, 2, 1)]
    assert read[-1] == 0, "the batch dimension is major-most"


def test_a_reduction_hands_its_order_on_for_a_tpu_alone():
    """x[8,64,32] is reduced along dimension 1: from {0,1,2} to {0,1}."""
    program = parameter(8, 64, 32), root("reduce", (8, 32), (0,), 1)
    arrays = layout_file(program, (), [[]])
    orders = [program_of(arrays, machine).to_output(1, (0, 1, 2)) for machine in MACHINES]
    assert orders == [None, None, (0, 1)]


def test_square_operands_are_contracted_the_other_way_the_second_time():
    """w[64,64] is read by the dots of a forward pass and of its gradient."""
    dots = op("dot", (32, 64), (0, 1)), root("dot", (32, 64), (2, 1))
    arrays = file_of((parameter(32, 64), parameter(64, 64), *dots), (2,), ())
    groups = program_of(arrays, "cpu").groups
    assert groups[2][2] != groups[3][2]


def test_dimension_numbers_of_the_file_are_used():
    """x[64,64] @ w[64,64], w contracted along dimension 1."""
    square = parameter(64, 64), parameter(64, 64), root("dot", (64, 64), (0, 1))
    numbers = dot_arrays(((1, 0),), [[(1,), (1,), (), ()]])
    program = program_of(file_of(square, (2,), ()) | numbers, "cpu")
    assert program.operands[2] == [1, 0]
    assert program.groups[2][1:] == [((), (0,), (1,))] * 2
    assert program.flops[2] == 2 * 64**3


def test_a_dot_may_follow_any_number_of_elementwise_operations():
    """Set to {0,1,2}, which is no matrix, x[4,16,8] is copied there, and back for a batched dot."""
    for length in (1, 1000):
        chain = [op("negate", (4, 16, 8), (node,)) for node in range(length)]
        dot = root("dot", (4, 16, 32), (length, length + 1))
        program = parameter(4, 16, 8), *chain, parameter(4, 8, 32), dot
        arrays = file_of(program, (1,), (), (0, 1, 2))
        assert quantities(arrays, "nvidia-h200")["every_copies"].tolist() == [0, 2]


def compare(arrays):
    for machine in MACHINES:
        program = program_of(arrays, machine)
        computed = quantities(arrays, machine)
        types = program.context.row_type[program.context.table.codes]
        for config, rows in enumerate(types.tolist()):
            expected = Relayouts(program, HARDWARE[machine], rows).quantities()
            assert {name: of_all[config] for name, of_all in computed.items()} == expected, machine


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
