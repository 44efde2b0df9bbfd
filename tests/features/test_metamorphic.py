"""What must stay when a graph is written down in another way, and what may move when it changes a little."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.features.helpers import (
    FITTING_GRAPHS,
    FITTING_KERNELS,
    SAMPLE,
    SCRAMBLED_GRAPHS,
    SCRAMBLED_KERNELS,
    by_name,
    graph_of,
    layout_file,
    load,
    tile_file,
)
from tests.graphs import (
    TILE_PROGRAM,
    Arrays,
    Node,
    examples,
    layout_arrays,
    layout_row,
    relabelled,
    save_npz,
    tile_arrays,
    tile_row,
)  # fmt: skip
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import MAX_ELEMENTS, MAX_FEATURE, read_graph
from xlarank.data.schema import NODE_COLUMNS
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.rows import GraphRows, assemble

PER_CONFIG = ("node_config_feat", "config_feat", "config_runtime", "config_runtime_normalizers")
TILE_FILES = ("train/matmul_bias_relu__b", "train/conv3x3_bias_relu__a", "train/maxpool__a", "valid/expsum__a")
Random = np.random.Generator


def named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


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


def renumbered(arrays: Arrays, random: Random) -> Arrays:
    """In another topological order."""
    return relabelled(arrays, numbering(arrays, random.permutation(len(arrays["node_feat"])).tolist()))


def renumbered_at_random(arrays: Arrays, random: Random) -> Arrays:
    """In no topological order."""
    return relabelled(arrays, random.permutation(len(arrays["node_feat"])))


def reordered(arrays: Arrays, random: Random) -> Arrays:
    """Configurable nodes, and consumers among the edges, in another order."""
    order, edges = random.permutation(len(arrays["node_config_ids"])), arrays["edge_index"]
    consumers = random.permutation(np.unique(edges[:, 0]))
    return {
        **arrays,
        "node_config_ids": arrays["node_config_ids"][order],
        "node_config_feat": arrays["node_config_feat"][:, order],
        "edge_index": np.concatenate([edges[:0], *(edges[edges[:, 0] == consumer] for consumer in consumers)]),
    }


def measured_anew(arrays: Arrays, random: Random) -> Arrays:
    return {**arrays, "config_runtime": random.integers(1, 10**9, len(arrays["config_runtime"]))}


def completed(arrays: Arrays, *, unset_too: bool) -> Arrays:
    """The same configurations with full layouts written down; on request where none is set, too."""
    context = LayoutContext(graph_of(arrays))
    feat = arrays["node_config_feat"].copy()
    order = np.argsort(arrays["node_config_ids"])  # a graph has its nodes sorted, a file need not
    for place, tensors in zip(order, context.slot_tensor.tolist(), strict=True):
        for slot, tensor in enumerate(tensors):
            default = [entry for entry in context.default_layout[tensor].tolist() if entry >= 0]
            for row in feat[:, place, 6 * slot : 6 * slot + 6]:
                first = [int(entry) for entry in row if entry >= 0]
                if tensor >= 0 and (first or unset_too):
                    row[: len(default)] = [*first, *(entry for entry in default if entry not in first)]
    return {**arrays, "node_config_feat": feat}


def twice(arrays: Arrays, _: Random) -> Arrays:
    """The graph and its copy side by side, configured alike."""
    nodes, end = len(arrays["node_feat"]), arrays["node_splits"]
    again = {name: arrays[name] + nodes for name in ("edge_index", "node_config_ids")}
    again |= {name: arrays[name] for name in ("node_feat", "node_opcode")}
    return {
        **{name: np.concatenate([arrays[name], copy]) for name, copy in again.items()},
        "node_splits": np.concatenate([end, end + nodes], axis=1),
        "node_config_feat": np.concatenate([arrays["node_config_feat"]] * 2, axis=1),
        "config_runtime": arrays["config_runtime"],
    }


#: Readers of a tensor stand side by side, and of several producers one hands its layout on, by their ids.
BY_ID = ("siblings__*", "propagation__*")
#: What counts layouts that are set, be it to the default.
ABOUT_SET = (
    *("change__*_set__share", "change__*_set_like_*__share", "propagation__*", "outputs__*", "groups__*"),
    *(f"{block}__{what}_*" for block in ("disagreement", "siblings") for what in ("clash", "half", "agree")),
)
#: What counts nodes, bytes or work without dividing by them, or the largest part of a whole.
OF_SIZE = (
    *("*__log", "candidates__log_frequency__sum", "size__depth__ratio", "size__*__max", "computations__*"),
    *("work__largest_flops__share", "degrees__*__q*", "outputs__excess__max", "outputs__padded__max"),
    "time__node_change__ratio",
)
#: What looks at the other candidates.
TRANSDUCTIVE = ("candidates__*", "rank__*", "zscore__*")


@dataclass(frozen=True)
class Rewrite:
    """Another way to write a graph, or a small change of it.

    Columns keep their values but for those that may move: to the bit, or up to the order in which things are added.
    ``configs`` chooses configurations, in any order and number; ``layouts`` says that other layouts are written.
    """

    change: Callable[[Arrays, Random], Arrays] = lambda arrays, _: arrays
    may_move: tuple[str, ...] = ()
    exact: bool = True
    configs: Callable[[int, Random], np.ndarray] = lambda count, _: np.arange(count)
    layouts: bool = False

    def wrong_columns(self, arrays: Arrays, seed: int = 0) -> list[str]:
        """Columns that moved and may not."""
        random = np.random.default_rng(seed)
        which = self.configs(len(arrays["config_runtime"]), random)
        chosen = {name: array[which] if name in PER_CONFIG else array for name, array in arrays.items()}
        other = self.change(chosen, random)
        if (self.layouts or len(which) < len(arrays["config_runtime"])) and not same_slots(arrays, other):
            return []  # it says something new about which operand a layout is about
        before, after = (assemble(graph_of(each)) for each in (arrays, other))
        one, two = before.matrix()[before.group][which], after.matrix()[after.group]
        same = np.isclose(one, two, rtol=1e-5, atol=1e-6).all(axis=0)
        if self.exact:
            of_graph = len(before.graph_columns)
            same[of_graph:] = (one == two).all(axis=0)[of_graph:]
        moved = [name for name, stays in zip(before.columns, same, strict=True) if not stays]
        return [name for name in moved if not named(name, self.may_move)]


def same_slots(*graphs: Arrays) -> bool:
    return "node_config_ids" not in graphs[0] or np.array_equal(
        *(LayoutContext(graph_of(arrays)).slot_tensor for arrays in graphs)
    )


def some(count: int, *always: int) -> Callable[[int, Random], np.ndarray]:
    return lambda n, random: np.append(random.integers(n, size=count), np.array(always, np.int64))


SHUFFLED = Rewrite(configs=lambda n, random: np.append(random.permutation(n), random.integers(n, size=5)))
REWRITES = {
    "nodes renumbered": Rewrite(renumbered, BY_ID, exact=False),
    "nodes in no topological order": Rewrite(renumbered_at_random, BY_ID, exact=False),
    "configurable nodes and edges reordered": Rewrite(reordered),
    "configurations permuted and repeated": SHUFFLED,
    "a few of the configurations": Rewrite(may_move=TRANSDUCTIVE, configs=some(2)),
    "a single configuration": Rewrite(may_move=TRANSDUCTIVE, configs=some(1)),
    "measured anew": Rewrite(measured_anew),
    "layouts written in full": Rewrite(
        lambda arrays, _: completed(arrays, unset_too=False), TRANSDUCTIVE, layouts=True
    ),
    "the default written where nothing is set": Rewrite(
        lambda arrays, _: completed(arrays, unset_too=True), (*ABOUT_SET, *TRANSDUCTIVE), layouts=True
    ),
    "with a copy beside it": Rewrite(twice, OF_SIZE, exact=False),
}
#: Of kernels; between equal nodes the numbers decide which one is main.
TILE_REWRITES = {
    "nodes renumbered": Rewrite(renumbered),
    "configurations permuted and repeated": SHUFFLED,
    "measured anew": Rewrite(measured_anew),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REWRITES)
@given(arrays=FITTING_GRAPHS, seed=st.integers(0, 99))
@examples(12)
def test_columns_of_a_layout_graph_in_other_words(name, arrays, seed):
    assert REWRITES[name].wrong_columns(arrays, seed) == []


def test_columns_of_the_sample_in_other_words():
    """Of kernels, those without two candidates for the main node."""
    arrays = load(SAMPLE / "layout" / "cpu" / "random" / "valid" / "mlp_train__a.npz")
    assert REWRITES["nodes renumbered"].wrong_columns(arrays) == []
    for place in TILE_FILES:
        arrays = load(SAMPLE / "tile" / "cpu" / f"{place}.npz")
        wrong = {name: rewrite.wrong_columns(arrays) for name, rewrite in TILE_REWRITES.items()}
        assert wrong == {name: [] for name in TILE_REWRITES}, place
        largest = arrays["config_feat"][:, 8:14].argmax(axis=0)  # they decide what the bounds divide
        assert Rewrite(may_move=TRANSDUCTIVE, configs=some(3, *largest)).wrong_columns(arrays) == [], place


@given(arrays=FITTING_KERNELS, seed=st.integers(0, 99))
@examples(20)
def test_permuted_configurations_of_any_kernel(arrays, seed):
    assert SHUFFLED.wrong_columns(arrays, seed) == []


#: Not shares: differences to the default, and how many standard deviations a share lies off.
NO_SHARES = ("violation__*_change__share", "zscore__*")


def assert_numbers(features: GraphRows) -> None:
    """Finite float32, and shares from 0 to 1."""
    matrix = features.matrix()
    assert (matrix.dtype, features.config_values.dtype) == (np.float32, np.float32)
    for name, values in zip(features.columns, matrix.T, strict=True):
        assert np.isfinite(values).all(), name
        if name.endswith(("__share", "__flag")) and not named(name, NO_SHARES):
            assert values.min() >= 0 and values.max() <= 1 + 1e-6, name


@given(arrays=st.one_of(FITTING_GRAPHS, SCRAMBLED_GRAPHS, FITTING_KERNELS, SCRAMBLED_KERNELS))
@examples(40)
def test_all_numbers_are_finite_and_shares_lie_between_0_and_1(arrays):
    assert_numbers(assemble(graph_of(arrays)))


def test_tensors_without_elements_scalars_and_the_largest_that_can_be_written_down():
    """A dimension of size 0 is legal in HLO; the reader admits so many elements, spread or nearly all in one."""
    root = {"is_root": 1}
    nodes = (
        *(Node("parameter", (0, 128)), Node("parameter", ()), Node("add", (0, 128), (0, 1))),
        Node("reshape", (4, 0), (2,), columns=root),
    )
    rows = [[layout_row()] * 3, [layout_row(output=(0, 1)), layout_row(output=(0, 1), input=(0,)), layout_row()]]
    features = assemble(graph_of(layout_file(nodes, (0, 2, 3), rows)))
    assert_numbers(features)
    assert by_name(features)["change__nodes_changed__share"].tolist() == pytest.approx([0, 2 / 3])
    assert_numbers(assemble(graph_of(tile_file(nodes, (tile_row(), tile_row(output=(4, 1)))))))
    for dims in ((2**8,) * 6, (2**31, 2**13, 2**4, 1, 1, 1)):
        assert np.prod(dims, dtype=float) == MAX_ELEMENTS
        huge = (Node("parameter", dims), Node("dot", dims, (0,), columns=root))
        rows = [[layout_row()], [layout_row(output=(0, 1, 2, 3, 4, 5), kernel=(3,))]]
        assert_numbers(assemble(graph_of(layout_file(huge, (1,), rows))))
    assert_numbers(assemble(graph_of(tile_file(TILE_PROGRAM, (tile_row(kernel=(2**24,) * 6), tile_row())))))


@pytest.mark.slow
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
