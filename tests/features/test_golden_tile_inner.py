"""The innermost loop and the estimate of the time, worked out by hand.

The product of `test_golden_tile`, [96,64] x [64,256] in f32, K = 64, with its four vector tiles m x n. A register
holds 8 elements; rows of the right operand lie 256 * 4 / 64 = 16 lines apart. 64 of them do not fit the first
cache (64 / gcd(64, 16) = 4 sets of 8), but the second (1024 / 16 = 64 sets of 8): 2 cycles a line.

    configuration   m x n     registers a row, in all   loads      lines   spilled
    A               4 x 20    3, 12                     4 + 3      2       12 + 3 + 1 < 16
    B               96 x 256  32, 3072                  96 + 32    16      3072 + 32 + 1 - 16 = 3089
    C               8 x 16    2, 16                     8 + 2      1       16 + 2 + 1 - 16 = 3
    D               1 x 8     1, 1                      1 + 1      1       none

Cycles for one step of the reduction, and for 8 multiply-adds of it:

    A   max(12 / 2, 4, 7 / 2, 2 * 2) = 6                            6 * 8 / 80 = 0.6
    B   max(1536, 4, 64, 32) + 1.5 * 3089 = 6169.5                  6169.5 * 8 / 24576
    C   max(8, 4, 5, 2) + 1.5 * 3 = 12.5                            12.5 * 8 / 128
    D   max(0.5, 4 for a single chain, 1, 2) = 4                    4 * 8 / 8 = 4
"""

from __future__ import annotations

from math import log2

from tests.features.helpers import tile_file, tile_of, wrong_columns
from tests.features.test_golden_tile import COPY, COPY_CONFIGS, MATMUL, MATMUL_CONFIGS
from tests.graphs import Node, tile_row
from xlarank.features.assemble import assemble
from xlarank.features.tile.inner_loop import inner_loop
from xlarank.features.tile.tile_context import TileContext

CYCLES = (0.6, 6169.5 * 8 / 24576, 12.5 * 8 / 128, 4.0)
#: 64 multiply-adds an output element, 8 of them in the cycles above.
COMPUTING = tuple(8 * cycles for cycles in CYCLES)
#: 98304 bytes written and 90112 read for 24576 elements at 32 bytes a cycle; a run costs another 64 elements.
RUNS = (100, 256 * 96, 256 * 96, 256 * 48)
MEMORY = tuple(188416 / 24576 / 32 * (1 + 64 / run) for run in RUNS)
EXPECTED = {
    "inner__lanes__share": (20 / 24, 1, 1, 1),
    "inner__odd__log": (log2(5), 0, 0, 0),  # 20 = 4 * 5
    "inner__chains__log": (0, 0, 0, 3),
    "inner__loads__log": (log2(7 / 80), log2(128 / 24576), log2(10 / 128), log2(2 / 8)),
    "inner__lines__log": (log2(2 / 80), log2(16 / 24576), log2(1 / 128), log2(1 / 8)),
    "inner__spill__log": (0, log2(3090), 2, 0),
    "inner__cycles__log": tuple(log2(cycles) for cycles in CYCLES),
    "estimate__run__log": tuple(log2(run) for run in RUNS),
    "estimate__memory__log": tuple(log2(cycles) for cycles in MEMORY),
    "estimate__longer__log": tuple(log2(max(pair)) for pair in zip(COMPUTING, MEMORY, strict=True)),
    "estimate__sum__log": tuple(log2(sum(pair)) for pair in zip(COMPUTING, MEMORY, strict=True)),
}


def loop_of(nodes, *configs):
    return inner_loop(TileContext(tile_of(tile_file(nodes, configs))))


def test_columns_of_a_product():
    assert wrong_columns(assemble(tile_of(tile_file(MATMUL, MATMUL_CONFIGS))), EXPECTED, absolute=1e-6) == []


def test_without_a_vector_tile_the_columns_are_0():
    """TPU files leave the input bounds 0."""
    assert wrong_columns(assemble(tile_of(tile_file(COPY, COPY_CONFIGS))), dict.fromkeys(EXPECTED, 0)) == []


def test_a_vector_tile_that_does_not_divide_the_tile_computes_element_by_element():
    """8 columns do not divide 100, 8 rows do not divide 36: 8 multiply-adds after each other, 4 cycles each."""
    loop = loop_of(
        MATMUL,
        tile_row(output=(32, 100), input=(8, 8)),
        tile_row(output=(36, 64), input=(8, 8)),
        tile_row(output=(32, 64), input=(8, 8)),
    )
    assert loop.divides.tolist() == [0, 0, 1]
    assert loop.cycles.tolist() == [32, 32, 4.5 * 8 / 64]  # (8 + 1) / 2 cycles to load a step


def test_a_reduction_starts_a_chain_with_every_step():
    """f32[24,512,160] -> f32[24,160]: four steps of one register each are four chains; each loads its own."""
    nodes = (Node("parameter", (24, 512, 160)), Node("reduce", (24, 160), (0,), columns={"is_root": 1}))
    loop = loop_of(nodes, tile_row((1,), (8, 32), (1, 8)), tile_row((4,), (8, 32), (1, 8)))
    assert loop.depth == 512
    assert loop.chains.tolist() == [1, 4]
    assert loop.loads.tolist() == [1, 1]
    assert loop.cycles.tolist() == [4, 1]
    assert loop.line_cycles == 0


NUMBERS = {
    "convolution_dim_numbers_kernel_output_feature_dim": 3,
    "convolution_dim_numbers_kernel_spatial_dims_0": 0,
    "convolution_dim_numbers_kernel_spatial_dims_1": 1,
    "convolution_dim_numbers_output_feature_dim": 3,
}


def test_a_depthwise_convolution_shares_no_operand():
    """2 positions x 16 features, 3 steps of the window: with one input feature each sum has its own image element
    and weight; with all of them 2 elements meet 2 registers of weights."""
    for features, loads, chains in ((1, 2 * 2 + 2, 2 * 2 * 3), (16, 2 + 2, 2 * 2)):
        image = Node("parameter", (2, 30, 30, 64 if features == 1 else features))
        weights = Node("parameter", (3, 3, features, 64))
        convolution = Node("convolution", (2, 28, 28, 64), (0, 1), window=(3, 3), columns={**NUMBERS, "is_root": 1})
        loop = loop_of((image, weights, convolution), tile_row((1, 3, 0), (1, 4, 4, 32), (1, 1, 2, 16)))
        assert (loop.depth, loop.chains.tolist(), loop.loads.tolist()) == (9 * features, [chains], [loads])


def test_rows_a_power_of_two_apart_do_not_fit_a_cache():
    for k, n, cycles in (
        (16, 1024, 2.0),  # 64 lines apart all fall into one set of 8
        (8, 1024, 0.5),  # 8 rows fit it
        (512, 1024, 12.0),  # and into 16 sets of the second cache, 128 lines
        (512, 1040, 0.5),  # 65 lines apart they spread over all 64 sets
        (513, 1040, 2.0),  # 512 lines are all there are
    ):
        product = Node("dot", (64, n), (0, 1), columns={"is_root": 1})
        loop = loop_of(
            (Node("parameter", (64, k)), Node("parameter", (k, n)), product), tile_row((8,), (64, 16), (8, 8))
        )
        assert loop.line_cycles == cycles, (k, n)


def test_a_vector_tile_cuts_the_result():
    """Bounds up to [64,512] meet the left operand of [64,512] x [512,1024]; the result is what they divide."""
    nodes = (
        Node("parameter", (64, 512)),
        Node("parameter", (512, 1024)),
        Node("dot", (64, 1024), (0, 1), columns={"is_root": 1}),
    )
    context = TileContext(tile_of(tile_file(nodes, [tile_row((8,), (64, 512), (8, 8))])))
    assert (context.walked, context.physical) == (2, False)
    assert context.extents["output"].tolist() == [64, 1024, 0, 0, 0, 0]
