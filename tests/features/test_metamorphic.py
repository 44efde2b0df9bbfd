"""What must stay when a graph is written down in another way, and what may move when it changes a little."""

from collections.abc import Sequence
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
from xlarank.features.assemble import assemble
from xlarank.features.rows import GraphRows

PER_CONFIG = ("node_config_feat", "config_feat", "config_runtime", "config_runtime_normalizers")
TILE_FILES = ("train/matmul_bias_relu__b", "train/conv3x3_bias_relu__a", "train/maxpool__a", "valid/expsum__a")
#: Neighbouring readers of a tensor, and the producer of several that hands its layout on, are chosen by their ids.
BY_ID = ("siblings__*", "propagation__*")


def matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def renumbered(arrays: Arrays, seed: int) -> Arrays:
    """In no topological order."""
    return relabelled(arrays, np.random.default_rng(seed).permutation(len(arrays["node_feat"])))


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
