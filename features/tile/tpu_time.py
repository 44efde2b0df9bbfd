"""A physical estimate of a kernel's time on a TPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from xlarank.features.block import Block
from xlarank.features.program.tensors import Floats, log2p
from xlarank.features.tile.tile_context import TileContext
from xlarank.features.tile.window_loop import WindowLoop, window_loop

#: Elements of a vector register.
_REGISTER: Final = 1024.0


@dataclass(frozen=True)
class Costs:
    """What things take, in cycles of TPU v3 (940 MHz); fitted by `benchmarks.tile_time`.

    Attributes:
        fixed: of the kernel.
        step: of each step of the loop.
        fused: of each step for each further product.
        array: of each array in each step.
        tile: of each output tile.
        run, kernel_run: of each stretch of memory.
        byte: of each byte moved.
        computed, summed, copied: of each register of these elements.
        row: of each row in the matrix unit.
        packed: of each register of the output of kernels on narrow elements, which nothing overlaps.
        drain: of each register of one output tile, which nothing overlaps.
    """

    fixed: float
    step: float
    fused: float
    array: float
    tile: float
    run: float
    kernel_run: float
    byte: float
    computed: float
    row: float
    summed: float
    copied: float
    packed: float
    drain: float

    def moving(self, loop: WindowLoop) -> Floats:
        """``(configs,)`` cycles of copies from and to memory."""
        return loop.moved * self.byte + loop.runs * self.run + loop.kernel_runs * self.kernel_run

    def computing(self, loop: WindowLoop) -> Floats:
        """``(configs,)`` cycles of the vector and the matrix unit."""
        registers = loop.computed * self.computed + loop.summed * self.summed + loop.copied * self.copied
        return registers / _REGISTER + loop.rows * self.row

    def cycles(self, loop: WindowLoop) -> Floats:
        """``(configs,)`` the longer of moving and computing, a step's part of the other, and what is fixed."""
        moving, computing = self.moving(loop), self.computing(loop)
        overlapped = np.maximum(moving, computing) + np.minimum(moving, computing) / loop.steps
        steps = (
            loop.steps * (self.step + self.array * loop.arrays) + loop.fused * self.fused + loop.tiles * self.tile
        )
        alone = (loop.tile * self.drain + loop.packed * self.packed) / _REGISTER
        return self.fixed + steps + overlapped + alone


COSTS: Final = {
    "product": Costs(
        fixed=789.0,
        step=499.0,
        fused=361.0,
        array=0.0,
        tile=32.8,
        run=5.66,
        kernel_run=5.29,
        byte=0.00229,
        computed=0.0759,
        row=0.351,
        summed=1.19,
        copied=0.0,
        packed=5.88,
        drain=2.35,
    ),
    "reduction": Costs(
        fixed=0.0,
        step=179.0,
        fused=0.0,
        array=0.0,
        tile=49.5,
        run=14.1,
        kernel_run=0.0,
        byte=0.00428,
        computed=0.306,
        row=0.0,
        summed=0.0,
        copied=0.0,
        packed=4.43,
        drain=2.87,
    ),
    "move": Costs(
        fixed=111.0,
        step=225.0,
        fused=0.0,
        array=0.0,
        tile=54.8,
        run=12.3,
        kernel_run=0.0,
        byte=0.000144,
        computed=14.8,
        row=0.0,
        summed=0.0,
        copied=2.56,
        packed=1.85,
        drain=2.61,
    ),
    "elementwise": Costs(
        fixed=118.0,
        step=184.0,
        fused=0.0,
        array=0.0,
        tile=47.6,
        run=5.82,
        kernel_run=0.0,
        byte=0.00227,
        computed=0.438,
        row=0.0,
        summed=0.0,
        copied=0.0,
        packed=9.37,
        drain=1.15,
    ),
}


class TpuTime(Block):
    """An estimate of the kernel's cycles on TPU v3, and what it is made of; logarithms are log2.

    A kernel is a loop over windows (`xlarank.features.tile.window_loop`) that moves the next ones while it computes
    on the last: of both the longer counts, and a step's part of the shorter. Every step, tile and stretch of memory
    has a fixed cost. Constants are fitted to estimates of the TPU's compiler, for each kind of kernel.
    All are 0 where a vector tile is given: such kernels run on CPUs.
    """

    kinds = ("tile",)
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
        return np.stack(
            [
                np.log2(cycles),
                log2p(moving),
                log2p(computing),
                balance,
                np.log2(loop.steps),
                loop.steps * costs.step / cycles,
                np.log2(loop.tiles),
                log2p(loop.moved / loop.steps),
                np.log2(loop.moved / loop.moved.min()),
                log2p(loop.runs + loop.kernel_runs),
                log2p(loop.passes / loop.steps),
                log2p(loop.rows / np.maximum(loop.passes, 1.0)),
                log2p(loop.computed / _REGISTER / loop.steps),
                log2p(loop.summed / _REGISTER),
                log2p(loop.tile / _REGISTER),
            ],
            axis=1,
        )
