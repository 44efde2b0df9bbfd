"""Every column on random graphs: against a slow reference, of graphs written in another way, and at the limits."""

from collections.abc import Sequence
from fnmatch import fnmatch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import graphs
from tests.features.helpers import (
    FITTING_GRAPHS,
    FITTING_KERNELS,
    SAMPLE,
    SCRAMBLED_GRAPHS,
    SCRAMBLED_KERNELS,
    by_name,
    fitting_graph,
    graph_of,
    layout_file,
    load,
    tile_file,
    wrong_columns,
)
from tests.features.oracle_layout import LayoutOracle
from tests.features.oracle_tile import TileOracle
from tests.graphs import Arrays, Node, examples, layout_row, tile_row
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import MAX_ELEMENTS, MAX_FEATURE, read_graph
from xlarank.data.schema import NODE_COLUMNS
from xlarank.features.assemble import assemble
from xlarank.features.layout.estimated_time import FASTEST, EstimatedTime
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.rows import GraphRows
from xlarank.features.tile.inner_loop import TileInner
from xlarank.features.tile.tile_context import TileContext
from xlarank.features.tile.tpu_time import TpuTime

EXHAUSTIVE = pytest.mark.exhaustive
#: Small files with many kinds of configurable nodes; in the second, a reduction has its array last.
LAYOUTS = ["default/train/dlrm__a", pytest.param("default/train/densenet__b", marks=EXHAUSTIVE)]
TILES = (
    *("train/matmul__a", "train/bmm__c", "train/conv3x3__a", "train/maxpool__a", "train/dwconv3x3__b"),
    *("train/reduce_mid__b", "test/transpose__b", "valid/bmm_tb__a", "valid/expsum__a", "valid/matmul_ta__b"),
)
#: Columns of estimated times, which are worked out by hand in their own tests.
ESTIMATES = {*TpuTime.columns, *TileInner.columns, *EstimatedTime.columns, FASTEST}
#: Graphs of `fitting_graph` that are compared; with siblings out of order, and a transpose that turns three ways.
SEEDS, TELLING = 160, (34, 68)


def compare(oracle: LayoutOracle | TileOracle, features: GraphRows) -> None:
    """All columns of a graph but the estimates."""
    expected = {**oracle.config_columns(), **oracle.graph_columns()}
    unchecked = set(features.columns) - set(expected) - ESTIMATES
    assert not unchecked, "a column without an independent reference is one nobody checked"
    assert wrong_columns(features, expected, relative=1e-5, absolute=1e-5) == []


def compare_layout(arrays: Arrays) -> GraphRows:
    graph = graph_of(arrays)
    features = assemble(graph)
    compare(LayoutOracle(arrays, LayoutContext(graph)), features)
    return features


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(*range(8), *TELLING), pytest.param(range(SEEDS), marks=EXHAUSTIVE)])
def test_programs_that_make_sense(seeds):
    """Together all seeds move nearly every column: else the references would agree on zeros."""
    found = [compare_layout(fitting_graph(seed)) for seed in seeds]
    if len(found) == SEEDS:
        moves = np.any([(features.config_values != 0).any(axis=0) for features in found], axis=0)
        assert moves.mean() > 7 / 8


@pytest.mark.slow
@given(arrays=SCRAMBLED_GRAPHS)
@examples(15)
def test_graphs_of_unrelated_shapes(arrays):
    compare_layout(arrays)


@pytest.mark.slow
@pytest.mark.parametrize("place", LAYOUTS)
def test_layouts_of_the_sample(place):
    compare_layout(load(SAMPLE / "layout" / "cpu" / f"{place}.npz"))


@pytest.mark.slow
@given(arrays=st.one_of(FITTING_KERNELS, SCRAMBLED_KERNELS))
@examples(40)
def test_kernels(arrays):
    graph = graph_of(arrays)
    oracle = TileOracle(arrays, TileContext(graph))
    assume(0 not in oracle.tensors[oracle.walked].dims)  # of no bytes nothing is a share; columns are finite
    compare(oracle, assemble(graph))


@pytest.mark.slow
def test_tiles_of_the_sample():
    for place in TILES:
        arrays, graph = load(path := SAMPLE / "tile" / "cpu" / f"{place}.npz"), read_graph(path)
        oracle = TileOracle(arrays, TileContext(graph))
        compare(oracle, assemble(graph))
        assert not oracle.physical, "the sample counts elements"


PER_CONFIG = ("node_config_feat", "config_feat", "config_runtime", "config_runtime_normalizers")
TILE_FILES = ("train/matmul_bias_relu__b", "train/conv3x3_bias_relu__a", "train/maxpool__a", "valid/expsum__a")
#: Neighbouring readers of a tensor, and the producer of several that hands its layout on, are chosen by their ids.
BY_ID = ("siblings__*", "propagation__*")


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def renumbered(arrays: Arrays, seed: int) -> Arrays:
    """In no topological order."""
    return graphs.relabelled(arrays, np.random.default_rng(seed).permutation(len(arrays["node_feat"])))


def moved_columns(arrays: Arrays, other: Arrays, which: np.ndarray | None = None) -> list[str]:
    """Columns that differ, up to the order of addition; or to the bit from those of configurations ``which``."""
    before, after = (assemble(graph_of(each)) for each in (arrays, other))
    one, two = before.matrix()[before.group], after.matrix()[after.group]
    same = (np.isclose(one, two, rtol=1e-5, atol=1e-6) if which is None else one[which] == two).all(axis=0)
    return [name for name, stays in zip(before.columns, same, strict=True) if not stays]


@pytest.mark.slow
@given(arrays=FITTING_GRAPHS, seed=st.integers(0, 99))
@examples(20)
def test_renumbered_nodes_of_a_layout_graph(arrays, seed):
    assert [name for name in moved_columns(arrays, renumbered(arrays, seed)) if not matches(name, BY_ID)] == []


@given(arrays=st.one_of(FITTING_GRAPHS, FITTING_KERNELS), seed=st.integers(0, 99))
@examples(20)
def test_configurations_permuted_repeated_and_measured_anew(arrays, seed):
    random = np.random.default_rng(seed)
    count = len(arrays["config_runtime"])
    which = np.append(random.permutation(count), random.integers(count, size=5))
    other = {name: array[which] if name in PER_CONFIG else array for name, array in arrays.items()}
    assert moved_columns(arrays, {**other, "config_runtime": random.integers(1, 10**9, len(which))}, which) == []


def test_renumbered_kernels_without_two_candidates_for_the_main_node():
    for place in TILE_FILES:
        arrays = load(SAMPLE / "tile" / "cpu" / f"{place}.npz")
        assert moved_columns(arrays, renumbered(arrays, 0)) == [], place


#: Not shares: differences to the default, and how many standard deviations a share lies off.
NO_SHARES = ("violation__*_change__share", "zscore__*")


def assert_numbers(features: GraphRows) -> None:
    """Finite float32, and shares from 0 to 1."""
    matrix = features.matrix()
    assert (matrix.dtype, features.config_values.dtype) == (np.float32, np.float32)
    for name, values in zip(features.columns, matrix.T, strict=True):
        assert np.isfinite(values).all(), name
        if name.endswith(("__share", "__flag")) and not matches(name, NO_SHARES):
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
    assert_numbers(assemble(graph_of(tile_file(graphs.TILE_PROGRAM, (tile_row(kernel=(2**24,) * 6), tile_row())))))


@pytest.mark.slow
@pytest.mark.parametrize("step", [14, pytest.param(3, marks=pytest.mark.exhaustive)])
def test_every_node_column_at_its_limit_gives_finite_columns_or_is_refused(step, tmp_path):
    """Warnings are errors here."""
    for make in (graphs.layout_arrays, graphs.tile_arrays):
        for value in (MAX_FEATURE * 0.99, -MAX_FEATURE * 0.99):
            read = 0
            for number in range(0, len(NODE_COLUMNS), step):
                arrays = make()
                arrays["node_feat"] = arrays["node_feat"].astype(np.float32)
                arrays["node_feat"][:, number : number + step] = value
                try:
                    graph = read_graph(graphs.save_npz(tmp_path / "a.npz", arrays))
                except GraphFileError:
                    continue
                read += 1
                assert np.isfinite(assemble(graph).matrix()).all(), number
            assert read > 1, (make, value)
