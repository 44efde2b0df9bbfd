"""A physical estimate of a kernel's time on a TPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from xlarank.features.block import Block, Cause
from xlarank.features.program.tensors import Floats, log2p
from xlarank.features.tile.tile_context import TileContext
from xlarank.features.tile.window_loop import WindowLoop, window_loop

#: Elements of a vector register.
_REGISTER: Final = 1024.0


@dataclass(frozen=True)
class Costs:
    """Costs in cycles of TPU v3 (940 MHz); fitted by `benchmarks.tile_time`."""

    fixed: float  # per kernel
    step: float  # per step of the loop
    fused: float  # per step and further product
    array: float  # per array and step
    tile: float  # per output tile
    run: float  # per contiguous run of memory
    kernel_run: float  # per contiguous run of the kernel tensor
    byte: float  # per byte moved
    computed: float  # per register of computed elements
    row: float  # per row in the matrix unit
    summed: float  # per register of summed elements
    copied: float  # per register of copied elements
    packed: float  # per register of output of kernels on narrow elements; not overlapped
    drain: float  # per register of one output tile; not overlapped

    def moving(self, loop: WindowLoop) -> Floats:
        """Return the cycles of copies from and to memory, ``(configs,)``."""
        return loop.moved * self.byte + loop.runs * self.run + loop.kernel_runs * self.kernel_run

    def computing(self, loop: WindowLoop) -> Floats:
        """Return the cycles of the vector and matrix units, ``(configs,)``."""
        registers = loop.computed * self.computed + loop.summed * self.summed + loop.copied * self.copied
        return registers / _REGISTER + loop.rows * self.row

    def cycles(self, loop: WindowLoop) -> Floats:
        """Return the longer of moving and computing, one step of the shorter and fixed costs, ``(configs,)``."""
        moving, computing = self.moving(loop), self.computing(loop)
        overlapped = np.maximum(moving, computing) + np.minimum(moving, computing) / loop.steps
        steps = loop.steps * (self.step + self.array * loop.arrays)
        steps = steps + loop.fused * self.fused + loop.tiles * self.tile
        alone = (loop.tile * self.drain + loop.packed * self.packed) / _REGISTER
        return self.fixed + steps + overlapped + alone


# fixed, step, fused, array, tile, run, kernel_run, byte, computed, row, summed, copied, packed, drain
COSTS: Final = {
    "product": Costs(750.0, 500.0, 352.0, 0.0, 34.8, 5.43, 4.5, 0.00236, 0.128, 0.383, 0.998, 0.0, 6.06, 1.81),
    "reduction": Costs(0.0, 180.0, 0.0, 0.0, 49.7, 14.5, 0.0, 0.00425, 0.306, 0.0, 0.0, 0.0, 4.4, 3.03),
    "move": Costs(90.9, 223.0, 0.0, 0.0, 54.5, 12.4, 0.0, 0.000174, 15.3, 0.0, 0.0, 2.21, 1.87, 2.15),
    "elementwise": Costs(122.0, 184.0, 0.0, 0.0, 47.6, 6.2, 0.0, 0.00227, 0.452, 0.0, 0.0, 0.0, 9.19, 0.907),
}


class TpuTime(Block):
    """Estimate of the kernel's cycles on TPU v3 and its parts; logarithms are log2.

    A kernel is a loop over windows (`xlarank.features.tile.window_loop`) that overlaps moving with computing: it
    takes the longer of the two plus one step of the shorter. Every step, tile and contiguous run has a fixed cost.
    Constants are fitted to the TPU compiler's estimates per kind of kernel. 0 for vector tiles, as on CPUs.
    """

    kinds = ("tile",)
    cause = Cause.ESTIMATE
    columns = {
        "tpu__cycles__log": "estimated cycles, log2",
        "tpu__moving__log": "cycles of copies between memory and vector memory, log2(1 + x)",
        "tpu__computing__log": "cycles of the vector and the matrix unit, log2(1 + x)",
        "tpu__balance__log": "cycles of moving over those of computing, log2, at most 10 either way",
        "tpu__steps__log": "steps of the loop over windows, log2",
        "tpu__steps__share": "fixed cost of all steps over the estimated cycles",
        "tpu__output_tiles__log": "output tiles, log2",
        "tpu__step_moved__log": "bytes moved in a step, log2(1 + x)",
        "tpu__moved__ratio": "bytes moved over those moved at the graph's best, log2",
        "tpu__runs__log": "stretches of memory that are copied, log2(1 + x)",
        "tpu__step_passes__log": "blocks of weights that a step puts into the matrix unit, log2(1 + x)",
        "tpu__rows__log": "rows that go through the matrix unit for each block of weights, log2(1 + x)",
        "tpu__vector__log": "registers of elementwise work in a step, log2(1 + x)",
        "tpu__summed__log": "registers that are added to in vector memory, log2(1 + x)",
        "tpu__tile__log": "registers of an output tile, log2(1 + x)",
    }

    def compute(self, context: TileContext) -> Floats:
        if context.vectorised:
            return np.zeros((context.configs, len(self.columns)))
        loop = window_loop(context)
        costs = COSTS[loop.kind]
        moving, computing, cycles = costs.moving(loop), costs.computing(loop), costs.cycles(loop)
        balance = np.clip(np.log2((moving + 1) / (computing + 1)), -10, 10)
        times = [np.log2(cycles), log2p(moving), log2p(computing), balance]
        steps = [np.log2(loop.steps), loop.steps * costs.step / cycles, np.log2(loop.tiles)]
        moved = [log2p(loop.moved / loop.steps), np.log2(loop.moved / loop.moved.min())]
        moved.append(log2p(loop.runs + loop.kernel_runs))
        products = [log2p(loop.passes / loop.steps), log2p(loop.rows / np.maximum(loop.passes, 1.0))]
        registers = (loop.computed / _REGISTER / loop.steps, loop.summed / _REGISTER, loop.tile / _REGISTER)
        return np.stack([*times, *steps, *moved, *products, *map(log2p, registers)], axis=1)
