"""Time model of layouts: convolutions by hand, nodes that add up, and rows of some columns only."""

from math import hypot, prod

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, by_name, graph_of, layout_file
from tests.graphs import Node, layout_row
from xlarank.data.graph import read_graph
from xlarank.data.schema import OPCODE
from xlarank.features.layout.padding import FASTEST, OVER_FASTEST
from xlarank.features.layout.time_model import BANDWIDTH, PEAK_FLOPS, config_times
from xlarank.features.rows import assemble

ROLES = "output_batch output_feature input_batch input_feature kernel_input_feature kernel_output_feature".split()
FORWARD, GRADIENT = (0, 3, 0, 3, 2, 3), (2, 3, 3, 0, 0, 3)


@pytest.mark.parametrize(
    ("roles", "image", "kernel", "output", "rows"),
    [
        # Feature-minor {3,0}: 96 lanes take 128, the batch of 30 along the sublanes is not padded: 4/3. The kernel
        # supplies the lanes: with its 64 input features in lanes it takes 128 x 96, with the 96 output features
        # 128 x 64, so these lie there and the 64 contracted ones stay as they are. Batch-minor {0,3}: 30 take 128
        # lanes. The input supplies them: its features in lanes take 128 x 32, its batch 128 x 64, so the features
        # lie there and are rounded up to 128: twice.
        (
            *(FORWARD, (30, 28, 28, 64), (3, 3, 64, 96), (30, 28, 28, 96)),
            [(layout_row((3, 0)), 4 / 3, 4 / 3), (layout_row((0, 3)), 128 / 30 * 2, 128 / 30)],
        ),
        # 3 input features take 8; the 64 output features lie along half of the lanes of output and kernel.
        (FORWARD, (32, 32, 32, 3), (3, 3, 3, 64), (32, 32, 32, 64), [(layout_row((3, 0)), 2 * 8 / 3, 2)]),
        # The minor-most dimension of size 1 is skipped: the batch of 32 lies along the lanes as above, 4 * 2.
        (FORWARD, (32, 1, 30, 64), (1, 3, 64, 96), (32, 1, 28, 96), [(layout_row((1, 0, 3, 2)), 8, 4)]),
        # But a batch of 1 that is supplied by features in lanes is not: 128 lanes, and the features rounded up. The
        # output itself has 96 features in 128 lanes and 28 positions in 32 sublanes.
        (
            *(FORWARD, (1, 30, 30, 64), (3, 3, 64, 96), (1, 28, 28, 96)),
            [(layout_row((0, 3)), 128 * 2, 4 / 3 * 32 / 28)],
        ),
        # The gradient of a kernel: the batch of 36 is contracted, the window is 14 x 14. {3,2}: 64 take 128 lanes,
        # 3 take 8 sublanes. The lanes come from the second operand, which holds 64 features and the batch: batch in
        # lanes takes 128 x 64, features 128 x 40, so the batch is not rounded. {2,3}: 3 take 128 lanes, and the
        # input that supplies them lays 36 images along lanes (128 x 4 against 128 x 40): 36 become 128.
        (
            *(GRADIENT, (36, 16, 16, 3), (36, 14, 14, 64), (3, 3, 3, 64)),
            [(layout_row((3, 2)), 2 * 8 / 3, 2 * 8 / 3), (layout_row((2, 3)), 128 / 3 * 128 / 36, 128 / 3)],
        ),
        # Both orders of the input pad alike, so its own layout decides whether 64 contracted images take 128 lanes.
        (
            *(GRADIENT, (64, 16, 16, 64), (64, 14, 14, 64), (3, 3, 64, 64)),
            [(layout_row((2, 3), (0, 3)), 2 * 2, 2), (layout_row((2, 3), (3, 0)), 2, 2)],
        ),
    ],
    ids=["forward", "few features", "size 1", "batch of 1", "gradient", "layout of the operand"],
)
def test_a_convolution_by_hand(roles, image, kernel, output, rows) -> None:
    """Each row has a layout, the padding of the work, the padding of the output."""
    window = kernel[:2] if roles is FORWARD else kernel[1:3]
    columns = {f"convolution_dim_numbers_{name}_dim": dim for name, dim in zip(ROLES, roles, strict=True)}
    convolution = Node("convolution", output, (0, 1), window=window, columns={**columns, "is_root": 1})
    nodes = (Node("parameter", image), Node("parameter", kernel), convolution)
    graph = graph_of(layout_file(nodes, (2,), [[row] for row, _, _ in rows]))
    flops = 2 * prod(output) * prod(window) * image[roles[3]]
    for config, (_, work, padding) in enumerate(rows):
        moved = 4 * (prod(image) + prod(kernel) + prod(output) * padding)
        (node,) = config_times(graph, config)
        assert node.nanoseconds == pytest.approx(1e9 * hypot(flops * work / PEAK_FLOPS, moved / BANDWIDTH))


def test_times_of_nodes_add_up_to_the_estimated_time_and_none_is_below_the_fastest() -> None:
    graph = read_graph(SAMPLE / "layout/tpu-estimate/random/valid/unet__a.npz", "layout")
    rows, every = assemble(graph, only=[OVER_FASTEST, FASTEST]), assemble(graph)
    estimates = 2 ** (by_name(rows)[OVER_FASTEST].astype(float) + by_name(rows)[FASTEST])
    for config in range(graph.configs):
        nodes = config_times(graph, config)
        assert sum(node.nanoseconds for node in nodes) == pytest.approx(estimates[rows.group[config]], rel=1e-5)
        others = [node for node in nodes if graph.opcode[node.node] != OPCODE["convolution"]]
        assert others and all(node.fastest_ns <= node.nanoseconds * (1 + 1e-12) for node in others)
        assert all(node.lanes <= node.tile_lanes and node.tile_lanes % 128 == 0 for node in nodes)
    assert len(rows.columns) < 20
    assert np.array_equal(rows.matrix(), every.matrix()[:, [every.columns.index(name) for name in rows.columns]])
