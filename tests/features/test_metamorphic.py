"""What must stay when a graph is written down in another way, and what may move when it changes a little."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.features.helpers import (
    SAMPLE,
    by_name,
    graph_of,
    kernel_graphs,
    layout_file,
    layout_of,
    load,
    shared_shape_graphs,
    tile_file,
    tile_of,
)
from tests.features.programs import fitting_graph, fitting_graphs
from tests.graphs import (
    TILE_PROGRAM,
    Arrays,
    Node,
    layout_arrays,
    layout_graphs,
    layout_row,
    node_row,
    relabelled,
    save_npz,
    tile_arrays,
    tile_graphs,
    tile_row,
)
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import MAX_ELEMENTS, MAX_FEATURE, read_graph
from xlarank.data.schema import NODE_COLUMNS, OPCODE
from xlarank.features.assemble import assemble
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows

PER_CONFIG = ("node_config_feat", "config_feat", "config_runtime", "config_runtime_normalizers")
TILE_FILES = ("train/matmul_bias_relu__b", "train/conv3x3_bias_relu__a", "train/maxpool__a", "valid/expsum__a")
INDUCTIVE = FeatureSettings(candidates=False)
#: Layout graphs with configurable nodes, and any graphs.
CONFIGURABLE = st.one_of(shared_shape_graphs(min_configurable=1), fitting_graphs())
GRAPHS = st.one_of(CONFIGURABLE, kernel_graphs())
#: Programs that a property in a loop goes through: a few, or all of them.
SEEDS = [range(6), pytest.param(range(6, 60), marks=pytest.mark.exhaustive)]


def tile_sample(place: str) -> Arrays:
    return load(SAMPLE / "tile" / "cpu" / f"{place}.npz")


def of_configs(arrays: Arrays, configs: np.ndarray) -> Arrays:
    """The same graph with these configurations."""
    return {name: array[configs] if name in PER_CONFIG else array for name, array in arrays.items()}


def distinct(arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """First configuration of each distinct one in order of appearance, and the place of each in that list."""
    rows = arrays["node_config_feat"] if "node_config_feat" in arrays else arrays["config_feat"]
    keys = [row.tobytes() for row in rows]
    order = list(dict.fromkeys(keys))
    return np.array([keys.index(key) for key in order]), np.array([order.index(key) for key in keys])


def numbering(arrays: Arrays, priority: Sequence[int]) -> np.ndarray:
    """New ids for the nodes: by priority, but operands before their consumers."""
    left = {node: set() for node in range(len(priority))}
    for consumer, operand in arrays["edge_index"].tolist():
        left[consumer].add(operand)
    new_id = np.empty(len(priority), np.int64)
    for number in range(len(priority)):
        node = min((node for node, operands in left.items() if not operands), key=priority.__getitem__)
        new_id[node] = number
        del left[node]
        for operands in left.values():
            operands.discard(node)
    return new_id


def shuffled(arrays: Arrays) -> Arrays:
    """The same graph with its nodes numbered in another order, one that is really another."""
    new_id = numbering(arrays, np.random.default_rng(0).permutation(len(arrays["node_feat"])).tolist())
    assert not np.array_equal(new_id, np.arange(len(new_id)))
    return relabelled(arrays, new_id)


def assert_same(found: GraphRows, expected: GraphRows) -> None:
    """Equal rows (to the bit), and graph columns but for the order in which they were added up."""
    assert found.config_columns == expected.config_columns
    np.testing.assert_array_equal(found.config_values, expected.config_values)
    assert found.constants == pytest.approx(expected.constants, rel=1e-6, abs=1e-9)


def named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def assert_close(found: GraphRows, expected: GraphRows, *but: str) -> None:
    """Equal but for the order in which things were added up, and for some columns."""
    others = by_name(found)
    for name, values in by_name(expected).items():
        if not named(name, but):
            np.testing.assert_allclose(others[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
    for name, value in expected.constants.items():
        if not named(name, but):
            assert found.constants[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


# Another order --------------------------------------------------------------------------------------------------

#: Readers of a tensor stand side by side, and of several producers one hands its layout on, by their ids.
BY_ID = ("siblings__*", "propagation__*")


@given(arrays=CONFIGURABLE, data=st.data())
@examples(40)
def test_numbering_of_nodes_does_not_matter(arrays, data):
    """Nor need it be topological."""
    before, priority = assemble(layout_of(arrays)), data.draw(st.permutations(range(len(arrays["node_feat"]))))
    for new_id in (numbering(arrays, priority), priority):
        assert_close(assemble(layout_of(relabelled(arrays, new_id))), before, *BY_ID)


def test_numbering_of_a_real_program_does_not_matter():
    """Of kernels, those without two candidates for the main node: between equal ones the numbers decide."""
    arrays = load(SAMPLE / "layout" / "cpu" / "random" / "valid" / "mlp_train__a.npz")
    assert_close(assemble(layout_of(shuffled(arrays))), assemble(layout_of(arrays)), *BY_ID)
    for arrays in map(tile_sample, TILE_FILES):
        assert_same(assemble(tile_of(shuffled(arrays))), assemble(tile_of(arrays)))


@given(arrays=CONFIGURABLE, data=st.data())
@examples(30)
def test_order_of_configurable_nodes_and_of_consumers_among_the_edges_does_not_matter(arrays, data):
    order = data.draw(st.permutations(range(len(arrays["node_config_ids"]))))
    other = {
        **arrays,
        "node_config_ids": arrays["node_config_ids"][order],
        "node_config_feat": arrays["node_config_feat"][:, order],
    }
    edges = arrays["edge_index"]
    if len(edges):
        consumers = data.draw(st.permutations(sorted(set(edges[:, 0].tolist()))))
        other["edge_index"] = np.concatenate([edges[edges[:, 0] == consumer] for consumer in consumers])
    before, after = layout_of(arrays), layout_of(other)
    assert after.configurable.tolist() == before.configurable.tolist()
    assert after.table.codes.tobytes() == before.table.codes.tobytes()
    assert_same(assemble(after), assemble(before))


# Other configurations ---------------------------------------------------------------------------------------


@given(arrays=GRAPHS, data=st.data())
@examples(60)
def test_permuted_and_repeated_configurations_give_permuted_rows(arrays, data):
    """Not even the columns about the candidates change: those are the distinct configurations."""
    configs = len(arrays["config_runtime"])
    again = data.draw(st.lists(st.integers(0, configs - 1), max_size=8))
    order = np.array([*data.draw(st.permutations(range(configs))), *again])
    moved = of_configs(arrays, order)
    first, _ = distinct(moved)
    _, place = distinct(arrays)
    before, after = assemble(graph_of(arrays)), assemble(graph_of(moved))
    assert after.config_values.tobytes() == before.config_values[place[order[first]]].tobytes()
    assert after.constants == before.constants


def test_no_column_knows_the_runtimes():
    for make in (layout_arrays, tile_arrays):
        arrays = make()
        other = {**arrays, "config_runtime": 10**6 * arrays["config_runtime"][::-1]}
        before, after = (assemble(graph_of(some)) for some in (arrays, other))
        assert after.matrix().tobytes() == before.matrix().tobytes() and after.cost.tolist() != before.cost.tolist()
        if before.instances is not None:
            assert after.instances.value.values.tobytes() == before.instances.value.values.tobytes()


def same_slots(one: Arrays, other: Arrays) -> bool:
    """Whether other layouts leave it as it is which operands they are about."""
    first, second = (LayoutContext(layout_of(arrays)).slot_tensor.tolist() for arrays in (one, other))
    return first == second


@given(arrays=shared_shape_graphs(min_configurable=1), data=st.data())
@examples(30)
def test_only_transductive_columns_of_a_layout_know_the_other_candidates(arrays, data):
    """As long as the other candidates say nothing new about which operand a layout is about."""
    first, _ = distinct(arrays)
    kept = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(first))), min_size=1))))
    fewer = of_configs(arrays, first[kept])
    assume(same_slots(arrays, fewer))
    before, after = (assemble(layout_of(some), INDUCTIVE) for some in (arrays, fewer))
    assert after.config_values.tobytes() == before.config_values[kept].tobytes()


@given(choice=st.lists(st.integers(0, 63), min_size=1, max_size=10, unique=True), place=st.sampled_from(TILE_FILES))
@examples(20)
def test_only_transductive_columns_of_a_tile_know_the_other_candidates(choice, place):
    """The largest bounds decide what they divide, so one candidate with those is kept."""
    arrays = tile_sample(place)
    first, where = distinct(arrays)
    largest = arrays["config_feat"][:, 8:14].argmax(axis=0)
    kept = np.array(sorted({*where[choice].tolist(), *where[largest].tolist()}))
    before, after = (assemble(tile_of(a), INDUCTIVE) for a in (arrays, of_configs(arrays, first[kept])))
    assert after.constants == before.constants
    assert after.config_values.tobytes() == before.config_values[kept].tobytes()


@pytest.mark.parametrize("seeds", SEEDS)
def test_a_configuration_by_itself_has_the_row_that_it_has_among_others(seeds):
    """Sums must not depend on how many configurations are summed up together."""
    compared = 0
    for seed in seeds:
        arrays = fitting_graph(seed)
        among = assemble(layout_of(arrays), INDUCTIVE).config_values
        for number, config in enumerate(distinct(arrays)[0][:3]):
            one = of_configs(arrays, np.array([config]))
            if same_slots(arrays, one):
                assert assemble(layout_of(one), INDUCTIVE).config_values.tobytes() == among[number].tobytes()
                compared += 1
    assert compared > len(seeds)


# The same in other words ------------------------------------------------------------------------------------


def completed(arrays: Arrays, *, unset_too: bool) -> Arrays:
    """The same configurations with full layouts written down; on request where none is set, too."""
    context = LayoutContext(layout_of(arrays))
    feat = arrays["node_config_feat"].copy()
    order = np.argsort(arrays["node_config_ids"])  # a graph has its nodes sorted, a file need not
    for place, tensors in zip(order, context.slot_tensor.tolist(), strict=True):
        for slot, tensor in enumerate(tensors):
            default = [entry for entry in context.default_layout[tensor].tolist() if entry >= 0]
            for row in feat[:, place, 6 * slot : 6 * slot + 6]:
                given_ = [int(entry) for entry in row if entry >= 0]
                if tensor >= 0 and (given_ or unset_too):
                    row[: len(default)] = [*given_, *(entry for entry in default if entry not in given_)]
    return {**arrays, "node_config_feat": feat}


#: What counts layouts that are set, be it to the default.
ABOUT_SET = (
    *("change__*_set__share", "change__*_set_like_*__share", "propagation__*"),
    *("disagreement__clash_*", "disagreement__half_*", "disagreement__agree_*"),
    *("siblings__clash_*", "siblings__half_*", "siblings__agree_*"),
    "outputs__*",  # of unset outputs they say nothing
)


@pytest.mark.parametrize("seeds", SEEDS)
def test_what_a_layout_leaves_out_is_the_default(seeds):
    """Written in full, a layout gives the same numbers; written where it was unset, it counts as set."""
    compared = 0
    for but in ((), ABOUT_SET):
        for seed in seeds:
            arrays = fitting_graph(seed)
            full = completed(arrays, unset_too=but == ABOUT_SET)
            if np.array_equal(arrays["node_config_feat"], full["node_config_feat"]) or not same_slots(arrays, full):
                continue
            before, after = (  # of every configuration, the repeated ones too
                assemble(layout_of(words), INDUCTIVE).to_polars() for words in (arrays, full)
            )
            moved = {name for name in before.columns if not before[name].equals(after[name])}
            assert [name for name in moved if not named(name, but)] == []
            compared += 1
    assert compared > len(seeds) / 2


def twice(arrays: Arrays) -> Arrays:
    """The graph and its copy side by side, configured alike."""
    nodes, end, feat = len(arrays["node_feat"]), arrays["node_splits"], arrays["node_config_feat"]
    shifted = {
        name: np.concatenate([arrays[name], arrays[name] + nodes]) for name in ("edge_index", "node_config_ids")
    }
    return {
        **{name: np.concatenate([arrays[name]] * 2) for name in ("node_feat", "node_opcode")},
        **shifted,
        "node_splits": np.concatenate([end, end + nodes], axis=1),
        "node_config_feat": np.concatenate([feat, feat], axis=1),
        "config_runtime": arrays["config_runtime"],
    }


#: What counts nodes, bytes or work without dividing by them, or the largest part of a whole.
OF_SIZE = (
    *("*__log", "candidates__log_frequency__sum", "size__depth__ratio", "size__*__max"),
    *("work__largest_flops__share", "computations__*", "degrees__*__q*"),
    *("outputs__excess__max", "outputs__padded__max"),  # one region over the bytes of all
)


@pytest.mark.parametrize("seeds", SEEDS)
def test_a_graph_beside_its_copy_has_the_same_shares(seeds):
    """Everything but plain sizes is per node, per pair or per byte."""
    for arrays in map(fitting_graph, seeds):
        assert_close(assemble(layout_of(twice(arrays))), assemble(layout_of(arrays)), *OF_SIZE)


# One node more ----------------------------------------------------------------------------------------------

#: What a parameter that nothing uses may move.
MOVED_BY_A_NODE = (
    *("degrees__*__mean", "degrees__*__std", "degrees__*__q*"),
    *("size__nodes__log", "size__depth__ratio", "size__width__max", "size__roots__share", "size__rank__mean"),
    *("size__bytes__log", "size__bytes__max", "size__narrow__share", "size__*_bytes__share"),
    *("opcodes__*__share", "opcodes__parameter__log", "elements__*__share", "work__intensity__log"),
)
MOVED_IN_A_LAYOUT_GRAPH = (
    *MOVED_BY_A_NODE,
    *("configurable__nodes__share", "configurable__within_*hop__share"),
    "change__all_bytes__ratio",  # over the bytes of all outputs
    *("outputs__*__ratio", "outputs__excess__max", "outputs__padded__max"),  # over those of all stored ones
    "computations__*",  # it stands outside the others
)
#: Its mean and deviation move with the column, so that only the last digits do.
ROUNDED = ("zscore__change_all_bytes__ratio",)
MOVED_IN_A_TILE_GRAPH = (
    *MOVED_BY_A_NODE,
    *("kernel__parameters__log", "kernel__read_bytes__log", "kernel__intensity__log"),
)


def with_node(arrays: Arrays, node: Node) -> Arrays:
    """The graph and a node that nothing uses, in front of all others."""
    opcode = np.array([OPCODE[node.opcode]], arrays["node_opcode"].dtype)
    return {
        **arrays,
        "node_feat": np.concatenate([node_row(node)[None], arrays["node_feat"]]),
        "node_opcode": np.concatenate([opcode, arrays["node_opcode"]]),
        **{n: arrays[n] + 1 for n in ("edge_index", "node_config_ids", "node_splits") if n in arrays},
    }


def moved_columns(arrays: Arrays, node: Node) -> set[str]:
    """Names of the columns that are not what they were, to the bit."""
    before, after = assemble(graph_of(arrays)), assemble(graph_of(with_node(arrays, node)))
    rows, others = by_name(before), by_name(after)
    moved = {name for name in rows if rows[name].tobytes() != others[name].tobytes()}
    return moved | {name for name, value in before.constants.items() if after.constants[name] != value}


@given(arrays=CONFIGURABLE, dims=st.sampled_from(((), (7,), (8, 128), (3, 5, 2))))
@examples(30)
def test_a_parameter_that_nothing_uses_moves_few_columns_of_a_layout_graph(arrays, dims):
    moved = moved_columns(arrays, Node("parameter", dims))
    assert [name for name in moved if not named(name, MOVED_IN_A_LAYOUT_GRAPH + ROUNDED)] == []


def test_a_parameter_that_nothing_uses_moves_few_columns_of_a_tile_graph():
    for place in TILE_FILES:
        moved = moved_columns(tile_sample(place), Node("parameter", ()))
        assert [name for name in moved if not named(name, MOVED_IN_A_TILE_GRAPH)] == []


def test_every_column_declared_to_move_does():
    apart = {**layout_arrays(), "node_config_ids": np.array([1, 4])}  # the convolution is two edges from the add
    for arrays, dims, declared in (
        (apart, (3, 5), MOVED_IN_A_LAYOUT_GRAPH),
        (tile_arrays(), (64, 64, 3), MOVED_IN_A_TILE_GRAPH),
    ):
        moved = moved_columns(arrays, Node("parameter", dims, element="bf16"))
        assert [pattern for pattern in declared if not any(fnmatch(name, pattern) for name in moved)] == []


# Numbers that can be learned from ---------------------------------------------------------------------------

#: Not shares: differences to the default, and how many standard deviations a share lies off.
NO_SHARES = ("violation__*_change__share", "zscore__*")


def assert_numbers(features: GraphRows) -> None:
    """Finite float32, and shares from 0 to 1."""
    matrix = features.matrix()
    assert (matrix.dtype, features.config_values.dtype) == (np.float32, np.float32)
    columns = dict(zip(features.columns, matrix.T, strict=True))
    assert [name for name, values in columns.items() if not np.isfinite(values).all()] == []
    shares = {n: v for n, v in columns.items() if n.endswith(("__share", "__flag")) and not named(n, NO_SHARES)}
    assert [name for name, values in shares.items() if values.min() < 0 or values.max() > 1 + 1e-6] == []


@given(arrays=st.one_of(GRAPHS, shared_shape_graphs(), layout_graphs(), tile_graphs()))
@examples(60)
def test_all_numbers_are_finite_and_shares_lie_between_0_and_1(arrays):
    assert_numbers(assemble(graph_of(arrays)))


def test_tensors_without_elements_and_scalars():
    """A dimension of size 0 is legal in HLO."""
    nodes = (
        Node("parameter", (0, 128)),
        Node("parameter", ()),
        Node("add", (0, 128), (0, 1)),
        Node("reshape", (4, 0), (2,), columns={"is_root": 1}),
    )
    rows = [[layout_row()] * 3, [layout_row(output=(0, 1)), layout_row(output=(0, 1), input=(0,)), layout_row()]]
    features = assemble(layout_of(layout_file(nodes, (0, 2, 3), rows)))
    assert_numbers(features)
    assert by_name(features)["change__nodes_changed__share"].tolist() == pytest.approx([0, 2 / 3])
    assert_numbers(assemble(tile_of(tile_file(nodes, (tile_row(), tile_row(output=(4, 1)))))))


def test_the_largest_tensors_and_bounds_that_can_be_written_down():
    """As many elements as the reader admits, spread over the dimensions or nearly all in one."""
    for dims in ((2**8,) * 6, (2**31, 2**13, 2**4, 1, 1, 1)):
        assert np.prod(dims, dtype=float) == MAX_ELEMENTS
        huge = (Node("parameter", dims), Node("dot", dims, (0,), columns={"is_root": 1}))
        rows = [[layout_row()], [layout_row(output=(0, 1, 2, 3, 4, 5), kernel=(3,))]]
        assert_numbers(assemble(layout_of(layout_file(huge, (1,), rows))))
    assert_numbers(assemble(tile_of(tile_file(TILE_PROGRAM, (tile_row(kernel=(2**24,) * 6), tile_row())))))


@pytest.mark.parametrize("step", [14, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_every_node_column_at_its_limit_gives_finite_columns_or_is_refused(step, tmp_path):
    """Warnings are errors here."""
    for make in (layout_arrays, tile_arrays):
        for value in (MAX_FEATURE * 0.99, -MAX_FEATURE * 0.99):
            read = 0
            for number in range(0, len(NODE_COLUMNS), step):
                arrays = make()
                arrays["node_feat"] = arrays["node_feat"].astype(np.float32)
                arrays["node_feat"][:, number : number + step] = value
                try:
                    graph = read_graph(save_npz(tmp_path / "a.npz", arrays))
                except GraphFileError:
                    continue
                read += 1
                assert np.isfinite(assemble(graph).matrix()).all(), number
            assert read > 1, (make, value)


def test_same_graph_same_bytes():
    first, second = (assemble(layout_of(layout_arrays())) for _ in range(2))
    assert first.matrix().tobytes() == second.matrix().tobytes()
