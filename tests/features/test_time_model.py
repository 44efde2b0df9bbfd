"""The time model of layouts: convolutions by hand, nodes that add up, and what may not matter."""

from collections.abc import Sequence
from math import hypot

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, by_name, constants, graph_of, layout_file
from tests.graphs import Arrays, Node, layout_row
from xlarank.data.graph import read_graph
from xlarank.data.schema import OPCODE
from xlarank.features.assemble import assemble
from xlarank.features.layout.estimated_time import FASTEST, OVER_FASTEST
from xlarank.features.layout.row_types import LayoutFacts
from xlarank.features.layout.time_model import BANDWIDTH, PEAK_FLOPS, TimeModel, config_times

STEM = "convolution_dim_numbers"
#: Output and input batch, feature; kernel input and output feature.
FORWARD = (0, 3, 0, 3, 2, 3)
GRADIENT = (2, 3, 3, 0, 0, 3)


def convolution(
    image: Sequence[int], kernel: Sequence[int], output: Sequence[int], window: tuple[int, int],
    roles: Sequence[int], rows: Sequence[np.ndarray],
) -> Arrays:  # fmt: skip
    names = ("output_batch", "output_feature", "input_batch", "input_feature", "kernel_input_feature")
    dims = zip((*names, "kernel_output_feature"), roles, strict=True)
    columns = {f"{STEM}_{name}_dim": float(dim) for name, dim in dims}
    nodes = (
        Node("parameter", tuple(image)),
        Node("parameter", tuple(kernel)),
        Node("convolution", tuple(output), (0, 1), window=window, columns={**columns, "is_root": 1}),
    )
    return layout_file(nodes, (2,), [[row] for row in rows])


def times(arrays: Arrays) -> list[float]:
    """Nanoseconds of each configuration."""
    graph = graph_of(arrays)
    return [sum(node.nanoseconds for node in config_times(graph, config)) for config in range(graph.configs)]


def time_of(flops: float, padded: float, moved: float) -> float:
    return 1e9 * hypot(flops * padded / PEAK_FLOPS, moved / BANDWIDTH)


def test_a_forward_convolution_by_hand() -> None:
    """[32,28,28,64] * [3,3,64,96] -> [32,28,28,96], 2 * 32 * 28 * 28 * 96 * 9 * 64 operations.

    Feature-minor {3,0}: 96 lanes take 128, the batch of 32 fills its sublanes: 4/3. The kernel supplies the lanes:
    with its 64 input features in lanes it takes 128 x 96, with the 96 output features 128 x 64, so these lie there
    and the 64 contracted ones stay as they are. Batch-minor {0,3}: 32 take 128 lanes. The input supplies them: its
    features in lanes take 128 x 32, its batch 128 x 64, so the features lie there and are rounded up to 128: 4 * 2.
    """
    image, kernel, output = (32, 28, 28, 64), (3, 3, 64, 96), (32, 28, 28, 96)
    feature, batch = times(
        convolution(image, kernel, output, (3, 3), FORWARD, [layout_row((3, 0)), layout_row((0, 3))])
    )
    flops, operands = 2.0 * 32 * 28 * 28 * 96 * 9 * 64, 4.0 * (32 * 28 * 28 * 64 + 9 * 64 * 96)
    moved = 4.0 * 32 * 28 * 28 * 96
    assert feature == pytest.approx(time_of(flops, 4 / 3, operands + moved * 4 / 3))
    assert batch == pytest.approx(time_of(flops, 8, operands + moved * 4))


def test_few_features_are_rounded_up_to_the_sublanes() -> None:
    """3 input features take 8; the 64 output features lie along half of the lanes of output and kernel."""
    image, kernel, output = (32, 32, 32, 3), (3, 3, 3, 64), (32, 32, 32, 64)
    (found,) = times(convolution(image, kernel, output, (3, 3), FORWARD, [layout_row((3, 0))]))
    flops = 2.0 * 32 * 32 * 32 * 64 * 9 * 3
    assert found == pytest.approx(time_of(flops, 2 * 8 / 3, 4.0 * (32**3 * 3 + 27 * 64 + 32**3 * 64 * 2)))


def test_the_gradient_of_a_kernel_by_hand() -> None:
    """[32,16,16,3] against [32,14,14,64] -> [3,3,3,64]: the batch of 32 is contracted, the window is 14 x 14.

    {3,2}: 64 take 128 lanes, 3 take 8 sublanes. The lanes come from the second operand, which holds 64 features and
    the batch: batch in lanes takes 128 x 64, features 128 x 32, so the batch is not rounded. {2,3}: 3 take 128
    lanes, and the input that supplies them lays 32 images along lanes (128 x 4 against 128 x 32): 32 become 128.
    """
    image, gradient, output = (32, 16, 16, 3), (32, 14, 14, 64), (3, 3, 3, 64)
    narrow, wide = times(
        convolution(image, gradient, output, (14, 14), GRADIENT, [layout_row((3, 2)), layout_row((2, 3))])
    )
    flops, operands = 2.0 * 27 * 64 * 14 * 14 * 32, 4.0 * (32 * 256 * 3 + 32 * 196 * 64)
    moved = 4.0 * 27 * 64
    assert narrow == pytest.approx(time_of(flops, 2 * 8 / 3, operands + moved * 2 * 8 / 3))
    assert wide == pytest.approx(time_of(flops, 128 / 3 * 4, operands + moved * 128 / 3))


def test_an_operands_own_layout_decides_where_both_orders_pad_alike() -> None:
    """128 images and 128 features fill the lanes either way; contracted features of 128 need no rounding."""
    image, gradient, output = (64, 16, 16, 64), (64, 14, 14, 64), (3, 3, 64, 64)
    rows = [layout_row((2, 3), input) for input in ((0, 3), (3, 0))]
    held, across = times(convolution(image, gradient, output, (14, 14), GRADIENT, rows))
    flops, moved = 2.0 * 9 * 64 * 64 * 196 * 64, 4.0 * (64 * 256 * 64 + 64 * 196 * 64 + 9 * 64 * 64 * 2)
    assert held == pytest.approx(time_of(flops, 2 * 2, moved)), "64 contracted images lie along 128 lanes"
    assert across == pytest.approx(time_of(flops, 2, moved))


def test_twice_the_batch_is_twice_the_work() -> None:
    def made(batch: int) -> TimeModel:
        shapes = (batch, 28, 28, 64), (3, 3, 64, 96), (batch, 28, 28, 96)
        return TimeModel(LayoutFacts(graph_of(convolution(*shapes, (3, 3), FORWARD, [layout_row((3, 0))]))))

    assert made(64).work == pytest.approx(2 * made(32).work)


def test_times_of_nodes_add_up_to_the_estimated_time_and_none_is_below_the_fastest() -> None:
    graph = read_graph(SAMPLE / "layout/tpu-estimate/random/valid/unet__a.npz", "layout")
    rows = assemble(graph, only=[OVER_FASTEST, FASTEST])
    found = 2 ** (by_name(rows)[OVER_FASTEST].astype(float) + constants(rows)[FASTEST])
    for config in range(graph.configs):
        nodes = config_times(graph, config)  # type: ignore[arg-type]
        assert sum(node.nanoseconds for node in nodes) == pytest.approx(found[rows.group[config]], rel=1e-5)
        others = [node for node in nodes if graph.opcode[node.node] != OPCODE["convolution"]]
        assert others and all(node.fastest_ns <= node.nanoseconds * (1 + 1e-12) for node in others)
        assert all(node.lanes <= node.tile_lanes and node.tile_lanes % 128 == 0 for node in nodes)


def test_rows_of_some_columns_are_those_of_all() -> None:
    graph = read_graph(SAMPLE / "layout/tpu-estimate/random/valid/unet__a.npz", "layout")
    some, every = assemble(graph, only=[OVER_FASTEST, FASTEST]), assemble(graph)
    assert len(some.columns) < 20
    for name in some.columns:
        assert np.array_equal(
            some.matrix()[:, some.columns.index(name)], every.matrix()[:, every.columns.index(name)]
        ), name
