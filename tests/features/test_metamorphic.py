"""Columns that stay if a graph is written in another way, or that may move if it changes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.features.helpers import (
    FITTING_GRAPHS,
    GRAPHS,
    KERNELS,
    SAMPLE,
    graph_of,
    layout_file,
    load,
    tile_file,
)
from tests.features.test_relayouts import MACHINES
from tests.graphs import (
    Arrays,
    Node,
    examples,
    layout_arrays,
    layout_row,
    parameter,
    relabelled,
    tile_arrays,
    tile_row,
)
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import MAX_ELEMENTS, MAX_FEATURE
from xlarank.data.schema import NODE_COLUMNS
from xlarank.features.assembly import assemble
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.relayout_quantities import TIME

PER_CONFIG = ("node_config_feat", "config_feat", "config_runtime", "config_runtime_normalizers")
TILE_FILES = (
    *("train/matmul_bias_relu__b", "train/conv3x3_bias_relu__a"),
    *("train/maxpool__a", "valid/expsum__a"),
)
Random = np.random.Generator


def named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def renumbered(arrays: Arrays, random: Random) -> Arrays:
    """Number the nodes at random, in no topological order."""
    return relabelled(arrays, random.permutation(len(arrays["node_feat"])))


def reordered(arrays: Arrays, random: Random) -> Arrays:
    """Write configurable nodes, and consumers among the edges, in another order."""
    order = random.permutation(len(arrays["node_config_ids"]))
    edges = arrays["edge_index"]
    consumers = random.permutation(np.unique(edges[:, 0]))
    by_consumer = [edges[edges[:, 0] == consumer] for consumer in consumers]
    return {
        **arrays,
        "node_config_ids": arrays["node_config_ids"][order],
        "node_config_feat": arrays["node_config_feat"][:, order],
        "edge_index": np.concatenate([edges[:0], *by_consumer]),
    }


def measured_anew(arrays: Arrays, random: Random) -> Arrays:
    return {**arrays, "config_runtime": random.integers(1, 10**9, len(arrays["config_runtime"]))}


def completed(arrays: Arrays, _: Random, *, unset_too: bool = False) -> Arrays:
    """Write full layouts for the same configurations, with ``unset_too`` for unset ones, too."""
    context = LayoutContext(graph_of(arrays))
    feat = arrays["node_config_feat"].copy()
    order = np.argsort(arrays["node_config_ids"])  # a graph has its nodes sorted, a file need not
    for place, tensors in zip(order, context.slot_tensor.tolist(), strict=True):
        for slot, tensor in enumerate(tensors):
            default = [entry for entry in context.default_layout[tensor].tolist() if entry >= 0]
            for row in feat[:, place, 6 * slot : 6 * slot + 6]:
                first = [int(entry) for entry in row if entry >= 0]
                rest = [entry for entry in default if entry not in first]
                if tensor >= 0 and (first or unset_too):
                    row[: len(default)] = [*first, *rest]
    return {**arrays, "node_config_feat": feat}


def twice(arrays: Arrays, _: Random) -> Arrays:
    """Add a copy of the graph beside it, configured alike."""
    nodes = len(arrays["node_feat"])
    axis = {"node_splits": 1, "node_config_feat": 1}
    both = {"config_runtime": arrays["config_runtime"]}
    for name in ("node_feat", "node_opcode", "node_config_feat"):
        both[name] = np.concatenate([arrays[name]] * 2, axis.get(name, 0))
    for name in ("edge_index", "node_config_ids", "node_splits"):
        both[name] = np.concatenate([arrays[name], arrays[name] + nodes], axis.get(name, 0))
    return both


#: Columns about set layouts, be they the default.
ABOUT_SET = (
    *("change__*_set__share", "outputs__*", "groups__*"),
    *(f"disagreement__{what}_*" for what in ("clash", "half", "agree")),
)
#: Numbers of nodes, bytes or operations, or the largest part of a whole.
OF_SIZE = (
    *("*__log", "candidates__log_frequency__sum", "size__depth__ratio", "size__*__max"),
    *("computations__*", "work__largest_flops__share", "degrees__*__q*", "outputs__excess__max"),
    *("outputs__padded__max", "time__node_change__ratio"),
)
#: Columns that depend on the other candidates.
TRANSDUCTIVE = ("candidates__*", "rank__*", "zscore__*")


@dataclass(frozen=True)
class Rewrite:
    """Another way to write a graph, or a small change of it.

    Columns keep their values but for those that may move: to the bit if ``exact``, else up to
    rounding. ``configs`` chooses configurations, in any order and number; ``layouts`` says that
    other layouts are written.
    """

    change: Callable[[Arrays, Random], Arrays] = lambda arrays, _: arrays
    may_move: tuple[str, ...] = ()
    exact: bool = True
    configs: Callable[[int, Random], np.ndarray] = lambda count, _: np.arange(count)
    layouts: bool = False

    def wrong_columns(
        self, arrays: Arrays, seed: int = 0, hardware: str | None = None
    ) -> list[str]:
        random = np.random.default_rng(seed)
        which = self.configs(len(arrays["config_runtime"]), random)
        per_config = {name: arrays[name][which] for name in PER_CONFIG if name in arrays}
        other = self.change({**arrays, **per_config}, random)
        graphs = [graph_of(file) for file in (arrays, other)]
        fewer = len(which) < len(arrays["config_runtime"])
        if "node_config_ids" in arrays and (self.layouts or fewer):
            if not np.array_equal(*(LayoutContext(graph).slot_tensor for graph in graphs)):
                return []  # the layouts now belong to other operands
        before, after = (assemble(graph, hardware) for graph in graphs)
        left = before.matrix()[before.group][which]
        right = after.matrix()[after.group]
        same = np.isclose(left, right, rtol=1e-5, atol=1e-6).all(axis=0)
        if self.exact:
            of_graph = len(before.graph_columns)
            same[of_graph:] = (left == right).all(axis=0)[of_graph:]
        moved = [name for name, stays in zip(before.columns, same, strict=True) if not stays]
        return [name for name in moved if not named(name, self.may_move)]


def some(count: int, *always: int) -> Callable[[int, Random], np.ndarray]:
    return lambda n, random: np.append(random.integers(n, size=count), np.array(always, np.int64))


SHUFFLED = Rewrite(configs=lambda n, random: np.append(random.permutation(n), some(5)(n, random)))
MEASURED_ANEW = Rewrite(measured_anew)
FILLED_IN = Rewrite(partial(completed, unset_too=True), (*ABOUT_SET, *TRANSDUCTIVE), layouts=True)
REWRITES = {
    "nodes renumbered": Rewrite(renumbered, exact=False),
    "configurable nodes and edges reordered": Rewrite(reordered),
    "configurations permuted and repeated": SHUFFLED,
    "a few of the configurations": Rewrite(may_move=TRANSDUCTIVE, configs=some(2)),
    "a single configuration": Rewrite(may_move=TRANSDUCTIVE, configs=some(1)),
    "measured anew": MEASURED_ANEW,
    "layouts written in full": Rewrite(completed, TRANSDUCTIVE, layouts=True),
    "the default written for unset ones": FILLED_IN,
    "with a copy beside it": Rewrite(twice, OF_SIZE, exact=False),
}
#: Rewrites of kernels; between equal nodes the numbers decide which one is main.
TILE_REWRITES = {
    "renumbered": Rewrite(renumbered),
    "permuted": SHUFFLED,
    "measured anew": MEASURED_ANEW,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REWRITES)
@given(arrays=FITTING_GRAPHS, seed=st.integers(0, 99))
@examples(12)
def test_columns_of_a_layout_graph_in_other_words(name, arrays, seed):
    assert REWRITES[name].wrong_columns(arrays, seed) == []


def test_columns_of_the_sample_in_other_words():
    """Rewrite a layout, and kernels without two candidates for the main node."""
    arrays = load(SAMPLE / "layout" / "cpu" / "random" / "valid" / "mlp_train__a.npz")
    assert REWRITES["nodes renumbered"].wrong_columns(arrays) == []
    for file in TILE_FILES:
        arrays = load(SAMPLE / "tile" / "cpu" / f"{file}.npz")
        # They decide what the bounds divide.
        largest = arrays["config_feat"][:, 8:14].argmax(axis=0)
        few = Rewrite(may_move=TRANSDUCTIVE, configs=some(3, *largest))
        for name, rewrite in {**TILE_REWRITES, "a few of the configurations": few}.items():
            assert rewrite.wrong_columns(arrays) == [], (file, name)


#: Differences to the default and deviations of shares, which are no shares.
NO_SHARES = ("violation__*_change__share", "zscore__*")


def assert_numbers(arrays: Arrays, hardware: str | None = None) -> dict[str, np.ndarray]:
    """Return the columns, which must be finite float32, and shares and flags from 0 to 1."""
    features = assemble(graph_of(arrays), hardware)
    matrix = features.matrix()
    assert (matrix.dtype, features.config_values.dtype) == (np.float32, np.float32)
    columns = dict(zip(features.columns, matrix.T, strict=True))
    for name, values in columns.items():
        assert np.isfinite(values).all(), name
        if name.endswith(("__share", "__flag")) and not named(name, NO_SHARES):
            assert values.min() >= 0 and values.max() <= 1 + 1e-6, name
    return columns


@given(arrays=KERNELS, seed=st.integers(0, 99))
@examples(40)
def test_shares_of_kernels_lie_between_0_and_1_and_configurations_may_be_permuted(arrays, seed):
    assert_numbers(arrays)
    assert SHUFFLED.wrong_columns(arrays, seed) == []


@given(arrays=GRAPHS, machine=st.sampled_from((None, *MACHINES)))
@examples(40)
def test_shares_of_layouts_lie_between_0_and_1_and_copies_take_time(arrays, machine):
    columns = assert_numbers(arrays, machine)
    assert (columns["relayout__time__ratio"] >= 0).all() and (columns[TIME] >= 0).all()


def test_tensors_without_elements_scalars_and_the_largest_that_can_be_written_down():
    """A size of 0 is legal in HLO; the reader admits so many elements, even in one dimension."""
    root = {"is_root": 1}
    empty = parameter(0, 128), parameter(), Node("add", (0, 128), (0, 1))
    nodes = (*empty, Node("reshape", (4, 0), (2,), columns=root))
    changed = layout_row(output=(0, 1)), layout_row(output=(0, 1), input=(0,)), layout_row()
    rows = [[layout_row()] * 3, changed]
    columns = assert_numbers(layout_file(nodes, (0, 2, 3), rows))
    assert columns["change__nodes_changed__share"].tolist() == pytest.approx([0, 2 / 3])
    assert_numbers(tile_file(nodes, (tile_row(), tile_row(output=(4, 1)))))
    for dims in ((2**8,) * 6, (2**31, 2**13, 2**4, 1, 1, 1)):
        assert np.prod(dims, dtype=float) == MAX_ELEMENTS
        huge = (parameter(*dims), Node("dot", dims, (0,), columns=root))
        rows = [[layout_row()], [layout_row(output=(0, 1, 2, 3, 4, 5), kernel=(3,))]]
        assert_numbers(layout_file(huge, (1,), rows))
    feat = np.stack([tile_row(kernel=(2**24,) * 6), *[tile_row()] * 4])
    assert_numbers({**tile_arrays(), "config_feat": feat})


@pytest.mark.slow
@pytest.mark.parametrize("step", [14, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_every_node_column_at_its_limit_gives_finite_columns_or_is_refused(step):
    """Warnings are errors here."""
    for make, sign in product((layout_arrays, tile_arrays), (1, -1)):
        read = 0
        for number in range(0, len(NODE_COLUMNS), step):
            arrays = make()
            arrays["node_feat"][:, number : number + step] = sign * MAX_FEATURE * 0.99
            try:
                graph = graph_of(arrays)
            except GraphFileError:
                continue
            read += 1
            assert np.isfinite(assemble(graph).matrix()).all(), number
        assert read > 1, (make, sign)
