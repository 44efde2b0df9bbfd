"""Every column of a tile graph against the slow reference, on random graphs and on files of the sample."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.examples import examples
from tests.features.helpers import SAMPLE, by_name, kernel_graphs, load, tile_file, tile_of
from tests.features.oracle_tile import TileOracle
from tests.graphs import Arrays, Node, tile_arrays, tile_graphs, tile_row
from xlarank.features.assemble import assemble
from xlarank.features.tile.context import TileContext
from xlarank.features.tile.tpu_time import TpuTime

FILES = (
    *("train/matmul__a", "train/matmul_bias_relu__b", "train/bmm__c", "train/conv3x3__a", "train/maxpool__a"),
    *("train/conv3x3_bias_relu__a", "train/dwconv3x3__b", "train/reduce_mid__b", "test/transpose__b"),
    *("valid/bmm_tb__a", "valid/expsum__a", "valid/matmul_ta__b", "test/swish__a"),
)


def compare(arrays: Arrays) -> TileOracle:
    oracle, features = TileOracle(arrays), assemble(tile_of(arrays))
    expected = {**oracle.config_columns(), **oracle.graph_columns()}
    found = {**by_name(features), **features.constants}
    assert len(features) == len(oracle.bounds)
    for name in sorted(expected):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-5, err_msg=name)
    return oracle


@given(arrays=kernel_graphs())
@examples(80)
def test_bounds_within_the_extents_of_a_tensor(arrays):
    compare(arrays)


@given(arrays=tile_graphs())
@examples(40)
def test_bounds_of_nothing_in_the_graph(arrays):
    compare(arrays)


@pytest.mark.parametrize("place", FILES)
def test_files_of_the_sample(place):
    oracle = compare(load(SAMPLE / "tile" / "cpu" / f"{place}.npz"))
    assert not oracle.physical, "the sample counts elements"


def test_every_column_has_an_oracle():
    """A column without an independent reference is a column nobody checked."""
    features, oracle = assemble(tile_of(tile_arrays())), TileOracle(tile_arrays())
    by_hand = {*TpuTime.columns}  # tests/features/test_window_loop.py
    assert set(oracle.config_columns()) == set(features.config_columns) - by_hand
    assert set(oracle.graph_columns()) == set(features.constants)


# What the bounds divide, case by case ---------------------------------------------------------------------


def context_of(nodes, *outputs) -> TileContext:
    return TileContext(tile_of(tile_file(nodes, [tile_row(output=output) for output in outputs])))


REDUCTION = (Node("parameter", (32, 1000)), Node("reduce", (32,), (0,), columns={"is_root": 1}))


def test_a_reduction_on_a_tpu_is_walked_over_its_operand():
    """f32[32,1000] is 4 x 8 hardware tiles."""
    context = context_of(REDUCTION, (4, 8), (2, 8))
    assert (context.walked, context.physical) == (0, True)
    assert context.extents["output"].tolist() == [4, 8, 0, 0, 0, 0]


def test_a_reduction_elsewhere_is_walked_over_its_result():
    context = context_of(REDUCTION, (32,), (8,))
    assert (context.walked, context.physical) == (1, False)
    assert context.extents["output"].tolist() == [32, 0, 0, 0, 0, 0]
    assert context.contracted.tolist() == [1000, 0, 0, 0, 0, 0]


def test_bounds_beyond_every_tensor_count_elements_of_the_main_node():
    context = context_of(REDUCTION, (64, 2000))
    assert (context.walked, context.physical) == (1, False)


def test_the_root_stands_for_its_equals():
    """All three have one shape; the bounds divide what the kernel writes."""
    nodes = (
        Node("parameter", (64, 256)),
        Node("add", (64, 256), (0,)),
        Node("tanh", (64, 256), (1,), columns={"is_root": 1}),
    )
    assert context_of(nodes, (8, 2), (4, 1)).walked == 2


def test_between_equals_the_bounds_divide_what_has_their_rank():
    """Two bounds, of which one is met by the product [16,64] as by its reshape to [16,64,1]."""
    nodes = (
        Node("parameter", (16, 8)),
        Node("parameter", (8, 64)),
        Node("dot", (16, 64), (0, 1)),
        Node("reshape", (16, 64, 1), (2,), columns={"is_root": 1}),
    )
    assert context_of(nodes, (16, 32), (4, 8)).walked == 2


@pytest.mark.parametrize("operands", [(0, 1), (1, 0)])
def test_the_kernel_of_a_product_is_its_right_operand(operands):
    """[2048,1024] x [1024,1024]: both have the output's last size, only one the rows; in either order."""
    nodes = (Node("parameter", (2048, 1024)), Node("parameter", (1024, 1024)), Node("dot", (2048, 1024), operands))
    context = context_of(nodes, (256, 8), (4, 4))
    assert (context.physical, context.kernel_tensor) == (True, 1)
    assert context.extents["kernel"].tolist() == [128, 8, 0, 0, 0, 0]


NUMBERS = {
    "convolution_dim_numbers_kernel_output_feature_dim": 0,
    "convolution_dim_numbers_kernel_spatial_dims_0": 1,
    "convolution_dim_numbers_kernel_spatial_dims_1": 2,
    "convolution_dim_numbers_output_feature_dim": 3,
}


@pytest.mark.parametrize(
    "image",
    [(8, 28, 28, 16), (8, 3, 3, 16)],
)
def test_the_kernel_of_a_convolution_has_its_window_and_features(image):
    """Kernels [features out, height, width, features in]; an image as small as the window has its size too."""
    out = (*image[:3], 64)
    convolution = Node("convolution", out, (0, 1), window=(3, 3), columns=NUMBERS)
    nodes = (Node("parameter", image), Node("parameter", (64, 3, 3, 16)), convolution)
    assert context_of(nodes, out).kernel_tensor == 1


def test_a_convolution_is_the_main_node_however_small():
    nodes = (
        Node("parameter", (1000, 1000)),
        Node("convolution", (2, 2), (0,)),
        Node("dot", (1000, 1000), (0,)),
    )
    assert context_of(nodes, (2, 2)).main == 1


def test_without_work_the_largest_tensor_is_the_main_node_and_the_last_of_several():
    nodes = (
        Node("parameter", (4,)),
        Node("parameter", (64,)),
        Node("add", (64,), (1,)),
        Node("tanh", (8,), (2,)),
    )
    assert context_of(nodes, (8,)).main == 2


def test_the_last_of_equal_nodes_of_a_class_is_the_main_node():
    """`TileContext.main` promises: by class, then by bytes, then the last one."""
    nodes = (Node("parameter", (32, 32)), Node("dot", (32, 32), (0,)), Node("dot", (32, 32), (0, 1)))
    assert context_of(nodes, (8, 8)).main == 2


def test_a_batch_does_not_count_as_contracted():
    """[4,16,32] x [4,32,64] -> [4,16,64]: K = 32."""
    nodes = (Node("parameter", (4, 16, 32)), Node("parameter", (4, 32, 64)), Node("dot", (4, 16, 64), (0, 1)))
    assert context_of(nodes, (4, 16, 64)).contracted.tolist() == [32, 0, 0, 0, 0, 0]


def test_dimensions_of_one_operand_are_no_batch():
    """[4,16,32] x [32,2,64] -> [4,16,2,64]: K = 32, and no dimension that both operands have."""
    nodes = (Node("parameter", (4, 16, 32)), Node("parameter", (32, 2, 64)), Node("dot", (4, 16, 2, 64), (0, 1)))
    assert context_of(nodes, (4, 16, 2, 64)).contracted.tolist() == [32, 0, 0, 0, 0, 0]


def test_a_window_is_what_a_reduce_window_sums_over():
    nodes = (
        Node("parameter", (8, 32, 32, 16)),
        Node("reduce-window", (8, 16, 16, 16), (0,), window=(1, 2, 3, 1)),
    )
    assert context_of(nodes, (8, 16, 16, 16)).contracted.tolist() == [2, 3, 0, 0, 0, 0]
