"""What must stay when a graph is written down in another way, and what may move when it changes a little."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.examples import examples, first_is_quick
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
    tile_arrays,
    tile_graphs,
    tile_row,
)
from xlarank.data.graph import MAX_ELEMENTS
from xlarank.data.schema import OPCODE
from xlarank.features.assemble import assemble
from xlarank.features.layout.context import LayoutContext
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows

PER_CONFIG = ("node_config_feat", "config_feat", "config_runtime", "config_runtime_normalizers")
TILE_FILES = ("train/matmul_bias_relu__b", "train/conv3x3_bias_relu__a", "train/maxpool__a", "valid/expsum__a")


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


def shuffled(arrays: Arrays, seed: int) -> Arrays:
    """The same graph with its nodes numbered in another order, one that is really another."""
    priority = np.random.default_rng(seed).permutation(len(arrays["node_feat"])).tolist()
    new_id = numbering(arrays, priority)
    assert not np.array_equal(new_id, np.arange(len(new_id)))
    return relabelled(arrays, new_id)


def assert_same(found: GraphRows, expected: GraphRows) -> None:
    """Equal rows (to the bit), and graph columns but for the order in which they were added up."""
    assert found.config_columns == expected.config_columns
    np.testing.assert_array_equal(found.config_values, expected.config_values)
    assert found.constants == pytest.approx(expected.constants, rel=1e-6, abs=1e-9)


def assert_close(found: GraphRows, expected: GraphRows, *but: str) -> None:
    """Equal but for the order in which things were added up, and for some columns."""
    others = by_name(found)
    for name, values in by_name(expected).items():
        if not any(fnmatch(name, pattern) for pattern in but):
            np.testing.assert_allclose(others[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


# Another numbering ------------------------------------------------------------------------------------------

#: Readers of a tensor stand side by side, and of several producers one hands its layout on, by their ids.
BY_ID = ("siblings__*", "propagation__*")


@given(arrays=st.one_of(shared_shape_graphs(min_configurable=1), fitting_graphs()), data=st.data())
@examples(40)
def test_numbering_of_nodes_does_not_matter(arrays, data):
    """Nor need it be topological."""
    before, priority = assemble(layout_of(arrays)), data.draw(st.permutations(range(len(arrays["node_feat"]))))
    for new_id in (numbering(arrays, priority), priority):
        after = assemble(layout_of(relabelled(arrays, new_id)))
        assert_close(after, before, *BY_ID)
        assert after.constants == pytest.approx(before.constants, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("place", ["default/train/cnn__nhwc_a", "random/valid/mlp_train__a"])
def test_numbering_of_a_real_program_does_not_matter(place):
    arrays = load(SAMPLE / "layout" / "cpu" / f"{place}.npz")
    assert_close(assemble(layout_of(shuffled(arrays, 0))), assemble(layout_of(arrays)), *BY_ID)


@pytest.mark.parametrize("place", TILE_FILES)
def test_numbering_of_a_kernel_does_not_matter(place):
    """Kernels without two candidates for the main node: between equal ones the numbers decide."""
    arrays = load(SAMPLE / "tile" / "cpu" / f"{place}.npz")
    assert_same(assemble(tile_of(shuffled(arrays, 0))), assemble(tile_of(arrays)))


@given(arrays=st.one_of(shared_shape_graphs(min_configurable=2), fitting_graphs()), data=st.data())
@examples(30)
def test_order_of_configurable_nodes_does_not_matter(arrays, data):
    order = data.draw(st.permutations(range(len(arrays["node_config_ids"]))))
    other = {
        **arrays,
        "node_config_ids": arrays["node_config_ids"][order],
        "node_config_feat": arrays["node_config_feat"][:, order],
    }
    before, after = layout_of(arrays), layout_of(other)
    assert after.configurable.tolist() == before.configurable.tolist()
    assert after.table.codes.tobytes() == before.table.codes.tobytes()
    assert_same(assemble(after), assemble(before))


@given(arrays=st.one_of(shared_shape_graphs(min_configurable=1), fitting_graphs()), data=st.data())
@examples(30)
def test_order_of_edges_matters_among_the_operands_of_one_node_only(arrays, data):
    edges = arrays["edge_index"]
    assume(len(edges) > 1)
    consumers = data.draw(st.permutations(sorted(set(edges[:, 0].tolist()))))
    moved = np.concatenate([edges[edges[:, 0] == consumer] for consumer in consumers])
    assert_same(assemble(layout_of({**arrays, "edge_index": moved})), assemble(layout_of(arrays)))


# Other configurations ---------------------------------------------------------------------------------------


@given(arrays=st.one_of(shared_shape_graphs(min_configurable=1), fitting_graphs(), kernel_graphs()), data=st.data())
@examples(60)
def test_permuted_configurations_give_permuted_rows(arrays, data):
    order = np.array(data.draw(st.permutations(range(len(arrays["config_runtime"])))))
    moved = of_configs(arrays, order)
    first, _ = distinct(moved)
    _, place = distinct(arrays)
    before, after = assemble(graph_of(arrays)), assemble(graph_of(moved))
    assert after.config_values.tobytes() == before.config_values[place[order[first]]].tobytes()
    assert after.constants == before.constants


@given(arrays=st.one_of(shared_shape_graphs(min_configurable=1), fitting_graphs(), kernel_graphs()), data=st.data())
@examples(40)
def test_a_configuration_measured_again_changes_nothing(arrays, data):
    """Not even the columns about the candidates: those are the distinct configurations."""
    configs = len(arrays["config_runtime"])
    again = data.draw(st.lists(st.integers(0, configs - 1), min_size=1, max_size=8))
    repeated = of_configs(arrays, np.array([*range(configs), *again]))
    before, after = assemble(graph_of(arrays)), assemble(graph_of(repeated))
    assert after.config_values.tobytes() == before.config_values.tobytes()
    assert after.constants == before.constants


@given(arrays=shared_shape_graphs(min_configurable=1), data=st.data())
@examples(30)
def test_only_transductive_columns_of_a_layout_know_the_other_candidates(arrays, data):
    """As long as the other candidates tell nothing new about which operand a layout speaks of."""
    first, _ = distinct(arrays)
    kept = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(first))), min_size=1))))
    fewer = of_configs(arrays, first[kept])
    graphs = [layout_of(arrays), layout_of(fewer)]
    slots = [LayoutContext(graph).slot_tensor.tolist() for graph in graphs]
    assume(slots[0] == slots[1])
    inductive = FeatureSettings(candidates=False)
    before, after = (assemble(graph, inductive) for graph in graphs)
    assert after.config_values.tobytes() == before.config_values[kept].tobytes()


@pytest.mark.parametrize("first", first_is_quick(range(0, 60, 20)))
def test_a_configuration_by_itself_has_the_row_that_it_has_among_others(first):
    """Sums must not depend on how many configurations are summed up together."""
    inductive, compared = FeatureSettings(candidates=False), 0
    for seed in range(first, first + 20):
        arrays = fitting_graph(seed)
        among = assemble(layout_of(arrays), inductive).config_values
        for number, config in enumerate(distinct(arrays)[0][:3]):
            one = of_configs(arrays, np.array([config]))
            if same_slots(arrays, one):
                assert assemble(layout_of(one), inductive).config_values.tobytes() == among[number].tobytes()
                compared += 1
    assert compared > 30


@given(choice=st.lists(st.integers(0, 63), min_size=1, max_size=10, unique=True), place=st.sampled_from(TILE_FILES))
@examples(20)
def test_only_transductive_columns_of_a_tile_know_the_other_candidates(choice, place):
    """The largest bounds tell what they divide, so one candidate with those is kept."""
    arrays = load(SAMPLE / "tile" / "cpu" / f"{place}.npz")
    bounds = arrays["config_feat"][:, 8:14]
    largest = [int(at) for at in bounds.argmax(axis=0)]
    first, where = distinct(arrays)
    kept = np.array(sorted({*where[choice].tolist(), *where[largest].tolist()}))
    inductive = FeatureSettings(candidates=False)
    before, after = (assemble(tile_of(a), inductive) for a in (arrays, of_configs(arrays, first[kept])))
    assert after.constants == before.constants
    assert after.config_values.tobytes() == before.config_values[kept].tobytes()


# Other words for the same configurations --------------------------------------------------------------------


def completed(arrays: Arrays, *, unset_too: bool) -> Arrays:
    """The same configurations with full layouts written down; on request where none is set, too."""
    graph = layout_of(arrays)
    context = LayoutContext(graph)
    feat = arrays["node_config_feat"].copy()
    for place, tensors in enumerate(context.slot_tensor.tolist()):
        for slot, tensor in enumerate(tensors):
            default = (
                [] if tensor < 0 else [entry for entry in context.default_layout[tensor].tolist() if entry >= 0]
            )
            for row in feat[:, place, 6 * slot : 6 * slot + 6]:
                given = [int(entry) for entry in row if entry >= 0]
                if tensor >= 0 and (given or unset_too):
                    row[: len(default)] = [*given, *(entry for entry in default if entry not in given)]
    return {**arrays, "node_config_feat": feat}


def same_slots(one: Arrays, other: Arrays) -> bool:
    """Whether layouts that name more dimensions leave it as it is which operands they speak of."""
    return (
        LayoutContext(layout_of(one)).slot_tensor.tolist() == LayoutContext(layout_of(other)).slot_tensor.tolist()
    )


def rows_of_configs(arrays: Arrays, settings: FeatureSettings) -> dict[str, np.ndarray]:
    """Columns of every configuration, the repeated ones too."""
    _, place = distinct(arrays)
    return {name: values[place] for name, values in by_name(assemble(layout_of(arrays), settings)).items()}


#: What counts layouts that are set, be it to the default.
ABOUT_SET = (
    *("change__*_set__share", "change__*_set_like_*__share", "propagation__*"),
    *("disagreement__clash_*", "disagreement__half_*", "disagreement__agree_*"),
    *("siblings__clash_*", "siblings__half_*", "siblings__agree_*"),
    "outputs__*",  # of unset outputs they say nothing
)


@pytest.mark.slow
@pytest.mark.parametrize("unset_too", [False, True], ids=["partial", "unset"])
def test_what_a_layout_leaves_out_is_the_default(unset_too):
    """Written in full, a layout gives the same numbers; written where it was unset, it counts as set."""
    but, compared = ABOUT_SET if unset_too else (), 0
    for seed in range(50):
        arrays = fitting_graph(seed)
        full = completed(arrays, unset_too=unset_too)
        if not same_slots(arrays, full) or np.array_equal(arrays["node_config_feat"], full["node_config_feat"]):
            continue
        inductive = FeatureSettings(candidates=False)
        before, after = (rows_of_configs(words, inductive) for words in (arrays, full))
        assert undeclared({name for name in before if not np.array_equal(before[name], after[name])}, but) == []
        compared += 1
    assert compared > 20


def twice(arrays: Arrays) -> Arrays:
    """The graph and its copy side by side, configured alike."""
    nodes, end = len(arrays["node_feat"]), arrays["node_splits"]
    feat = arrays["node_config_feat"]
    return {
        **{name: np.concatenate([arrays[name]] * 2) for name in ("node_feat", "node_opcode")},
        **{
            name: np.concatenate([arrays[name], arrays[name] + nodes]) for name in ("edge_index", "node_config_ids")
        },
        "node_splits": np.concatenate([end, end + nodes], axis=1),
        "node_config_feat": np.concatenate([feat, feat], axis=1),
        "config_runtime": arrays["config_runtime"],
    }


#: What counts nodes, bytes or work without dividing by them, or the largest part of a whole.
OF_SIZE = (
    *(
        "*__log",
        "candidates__log_frequency__sum",
        "size__depth__ratio",
        "size__*__max",
        "work__largest_flops__share",
    ),
    *("computations__*", "degrees__*__q*"),
    *("outputs__excess__max", "outputs__padded__max"),  # one region over the bytes of all
)


@pytest.mark.parametrize("first", first_is_quick(range(0, 60, 20)))
def test_a_graph_beside_its_copy_has_the_same_shares(first):
    """Everything but plain sizes is per node, per pair or per byte."""
    for seed in range(first, first + 20):
        arrays = fitting_graph(seed)
        before, after = assemble(layout_of(arrays)), assemble(layout_of(twice(arrays)))
        assert_close(after, before, *OF_SIZE)
        for name, value in before.constants.items():
            if not any(fnmatch(name, pattern) for pattern in OF_SIZE):
                assert after.constants[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name


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
    shifted = dict(arrays)
    shifted["node_feat"] = np.concatenate([node_row(node)[None], arrays["node_feat"]])
    shifted["node_opcode"] = np.concatenate([[OPCODE[node.opcode]], arrays["node_opcode"]]).astype(
        arrays["node_opcode"].dtype
    )
    shifted["edge_index"] = arrays["edge_index"] + 1
    if "node_config_ids" in arrays:
        shifted["node_config_ids"] = arrays["node_config_ids"] + 1
        shifted["node_splits"] = arrays["node_splits"] + 1
    return shifted


def moved_columns(arrays: Arrays, node: Node) -> set[str]:
    """Names of the columns that are not what they were, to the bit."""
    before, after = assemble(graph_of(arrays)), assemble(graph_of(with_node(arrays, node)))
    rows, others = by_name(before), by_name(after)
    moved = {name for name in rows if rows[name].tobytes() != others[name].tobytes()}
    return moved | {name for name, value in before.constants.items() if after.constants[name] != value}


def undeclared(moved: set[str], declared: tuple[str, ...]) -> list[str]:
    return sorted(name for name in moved if not any(fnmatch(name, pattern) for pattern in declared))


@given(
    arrays=st.one_of(shared_shape_graphs(min_configurable=1), fitting_graphs()),
    dims=st.sampled_from(((), (7,), (8, 128), (3, 5, 2))),
)
@examples(30)
def test_a_parameter_that_nothing_uses_moves_few_columns_of_a_layout_graph(arrays, dims):
    moved = moved_columns(arrays, Node("parameter", dims))
    assert undeclared(moved, MOVED_IN_A_LAYOUT_GRAPH + ROUNDED) == []


@pytest.mark.parametrize("place", TILE_FILES)
def test_a_parameter_that_nothing_uses_moves_few_columns_of_a_tile_graph(place):
    arrays = load(SAMPLE / "tile" / "cpu" / f"{place}.npz")
    assert undeclared(moved_columns(arrays, Node("parameter", ())), MOVED_IN_A_TILE_GRAPH) == []


@pytest.mark.parametrize(
    ("arrays", "node", "declared"),
    [
        (
            {**layout_arrays(), "node_config_ids": np.array([1, 4])},  # the convolution is two edges from the add
            Node("parameter", (3, 5), element="bf16"),
            MOVED_IN_A_LAYOUT_GRAPH,
        ),
        (tile_arrays(), Node("parameter", (64, 64, 3), element="bf16"), MOVED_IN_A_TILE_GRAPH),
    ],
    ids=["layout", "tile"],
)
def test_every_column_declared_to_move_does(arrays, node, declared):
    moved = moved_columns(arrays, node)
    assert [pattern for pattern in declared if not any(fnmatch(name, pattern) for name in moved)] == []


# Numbers that can be learned from ---------------------------------------------------------------------------


def assert_numbers(features: GraphRows) -> None:
    matrix = features.matrix()
    assert (matrix.dtype, features.config_values.dtype) == (np.float32, np.float32)
    assert matrix.shape[1] == len(features.constants) + len(features.config_columns)
    names = features.columns
    assert [name for name, column in zip(names, matrix.T, strict=True) if not np.isfinite(column).all()] == []


@given(arrays=st.one_of(shared_shape_graphs(), layout_graphs(), kernel_graphs(), tile_graphs()))
@examples(60)
def test_all_numbers_are_finite(arrays):
    assert_numbers(assemble(graph_of(arrays)))


#: Not shares: differences to the default, and how many standard deviations a share lies off.
NO_SHARES = ("violation__*_change__share", "zscore__*")


@given(arrays=st.one_of(shared_shape_graphs(), fitting_graphs(), kernel_graphs()))
@examples(60)
def test_shares_lie_between_0_and_1(arrays):
    features = assemble(graph_of(arrays))
    for name, column in by_name(features).items():
        if name.endswith("__share") and not any(fnmatch(name, pattern) for pattern in NO_SHARES):
            assert column.min() >= 0 and column.max() <= 1 + 1e-6, name
    for name, value in features.constants.items():
        if name.endswith(("__share", "__flag")):
            assert 0 <= value <= 1 + 1e-6, name


def test_bytes_laid_out_anew_count_once_for_every_slot():
    """Two nodes and three changed slots of equal size: 3 / 2 of the bytes."""
    nodes = (Node("parameter", (8, 128)), Node("add", (8, 128), (0,)))
    row = [layout_row(output=(0, 1)), layout_row(output=(0, 1), input=(0, 1))]
    found = by_name(assemble(layout_of(layout_file(nodes, (0, 1), [row]))))
    assert found["change__all_bytes__ratio"].tolist() == [1.5]


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


def test_the_largest_tensors_that_can_be_written_down():
    """As many elements as the reader admits, spread over the dimensions or nearly all in one."""
    for dims in ((2**8,) * 6, (2**31, 2**13, 2**4, 1, 1, 1)):
        assert np.prod(dims, dtype=float) == MAX_ELEMENTS
        huge = (Node("parameter", dims), Node("dot", dims, (0,), columns={"is_root": 1}))
        rows = [[layout_row()], [layout_row(output=(0, 1, 2, 3, 4, 5), kernel=(3,))]]
        assert_numbers(assemble(layout_of(layout_file(huge, (1,), rows))))


def test_the_largest_bounds_that_can_be_written_down():
    assert_numbers(assemble(tile_of(tile_file(TILE_PROGRAM, (tile_row(kernel=(2**24,) * 6), tile_row())))))


def test_one_configuration_of_one_node():
    features = assemble(layout_of(layout_file((Node("parameter", (8, 128)),), (0,), [[layout_row()]])))
    assert_numbers(features)
    assert len(features) == 1
    assert by_name(features)["rank__change_nodes_set__share"].tolist() == [0.5]


def test_same_graph_same_bytes():
    first, second = (assemble(layout_of(layout_arrays())) for _ in range(2))
    assert first.matrix().tobytes() == second.matrix().tobytes()
