"""The loop over windows of kernels small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.data.hlo.programs import instruction
from tests.features.helpers import tile_of
from xlarank.data.hlo.encoding import encode_kernel
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.data.hlo.tuning import tile_row
from xlarank.features.assemble import assemble
from xlarank.features.tile.tile_context import TileContext
from xlarank.features.tile.tpu_time import COSTS
from xlarank.features.tile.window_loop import window_loop

MIB = 2.0**20


def kernel(module, tiles):
    rows = np.array([tile_row(**tile) for tile in tiles], np.float32)
    return tile_of(
        encode_kernel(module)
        | {
            "config_feat": rows,
            "config_runtime": np.arange(1, len(rows) + 1),
            "config_runtime_normalizers": np.ones(len(rows), np.int64),
        }
    )


def product():
    """512 x 1024 times 1024 x 768, as the compiler writes a dot: 64 x 8, 128 x 6 and 64 x 6 hardware tiles."""
    module = HloModuleProto(name="product", entry_computation_id=1, entry_computation_name="main")
    main = module.computations.add(name="main", id=1)
    instruction(main, "parameter", (512, 1024), id=1)
    instruction(main, "parameter", (1024, 768), id=2, parameter_number=1)
    convolution = instruction(main, "convolution", (512, 768), (1, 2), id=3)
    numbers = convolution.convolution_dimension_numbers
    numbers.input_feature_dimension = numbers.kernel_output_feature_dimension = numbers.output_feature_dimension = 1
    return kernel(
        module,
        [
            {"kernel": (32, 6), "output": (64, 6)},
            {"kernel": (32, 3), "output": (32, 3)},
            {"kernel": (128, 6), "output": (16, 6)},
        ],
    )


def test_a_product_runs_over_kernel_tiles_for_each_output_tile():
    loop = window_loop(TileContext(product()))
    assert loop.kind == "product"
    assert loop.tiles.tolist() == [1, 4, 4]
    assert loop.steps.tolist() == [4, 16, 4]
    # 2 MiB of input and 3 MiB of kernel; in the second both halves of the output's other dimension fetch them
    # again, in the third the kernel stays where it is; 1.5 MiB of output
    assert (loop.moved / MIB).tolist() == [6.5, 11.5, 6.5]
    # blocks of 128 x 128 weights: 256 x 768, 256 x 384 and 1024 x 768 in a step
    assert loop.passes.tolist() == [4 * 12, 16 * 6, 4 * 48]
    assert loop.rows.tolist() == [48 * 512, 96 * 256, 192 * 128]
    # sums stay in vector memory from step to step, but for the third
    assert loop.summed.tolist() == [4 * 512 * 768, 16 * 256 * 384, 0]
    # a kernel tile of full width lies in one piece, half of it in a piece for each of 32 rows of hardware tiles
    assert loop.kernel_runs.tolist() == [4, 16 * 32, 4]


def elementwise():
    """tanh of 512 x 256: 64 x 2 hardware tiles."""
    module = HloModuleProto(name="elementwise", entry_computation_id=1, entry_computation_name="main")
    main = module.computations.add(name="main", id=1)
    instruction(main, "parameter", (512, 256), id=1)
    instruction(main, "tanh", (512, 256), (1,), id=2)
    return kernel(module, [{"output": (16, 2)}, {"output": (16, 1)}, {"output": (24, 1)}])


def test_other_kernels_stream_their_operands_through():
    loop = window_loop(TileContext(elementwise()))
    assert loop.kind == "elementwise"
    assert loop.steps.tolist() == loop.tiles.tolist() == [4, 8, 3 * 2]  # 64 / 24 = 2.67 -> 3
    assert (loop.moved / MIB).tolist() == [1, 1, 1]
    assert loop.runs.tolist() == [4 * 2, 8 * 2 * 16, 6 * 2 * 24]
    assert loop.computed.tolist() == [512 * 256] * 3 and not loop.copied.any()
    assert loop.tile.tolist() == [128 * 256, 128 * 128, 192 * 128]


@pytest.mark.parametrize("graph", [product(), elementwise()])
def test_the_time_is_the_longer_of_moving_and_computing_and_a_step_of_the_other(graph):
    loop = window_loop(TileContext(graph))
    costs = COSTS[loop.kind]
    moving, computing = costs.moving(loop), costs.computing(loop)
    bare = replace(costs, fixed=0, step=0, fused=0, array=0, tile=0, packed=0, drain=0)
    for cycles, one, other, steps in zip(bare.cycles(loop), moving, computing, loop.steps, strict=True):
        assert cycles == pytest.approx(max(one, other) + min(one, other) / steps)
    rows = assemble(graph)
    logs = rows.matrix(used=np.array([rows.columns.index("tpu__cycles__log")]))[:, 0]
    assert logs == pytest.approx(np.log2(costs.cycles(loop)), rel=1e-6)
    assert (np.diff(logs[:2]) > 0).all()
