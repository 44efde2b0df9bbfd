"""A physical estimate of a kernel's time on a TPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from xlarank.features.block import Block
from xlarank.features.program.tensors import Floats, log2p
from xlarank.features.tile.context import TileContext
from xlarank.features.tile.window_loop import WindowLoop, window_loop

#: Elements of a vector register.
_REGISTER: Final = 1024.0


@dataclass(frozen=True)
class Costs:
    """What things take, in cycles of TPU v3 (940 MHz); fitted by `benchmarks.tile_time`.

    Attributes:
        fixed: of the kernel.
        step: of each step of the loop.
        array: of each array in each step.
        tile: of each output tile.
        run, kernel_run: of each stretch of memory.
        byte: of each byte moved.
        light, heavy: of each register of an elementwise operation.
        pass_, row: of the matrix unit, for each block of weights and each row.
        summed: of each register added to.
        turned, copied, across: of each register that is transposed, copied, summed across lanes.
        drain: of each register of one output tile, which nothing overlaps.
    """

    fixed: float
    step: float
    array: float
    tile: float
    run: float
    kernel_run: float
    byte: float
    light: float
    heavy: float
    pass_: float
    row: float
    summed: float
    turned: float
    copied: float
    across: float
    drain: float

    def moving(self, loop: WindowLoop) -> Floats:
        """``(configs,)`` cycles of copies from and to memory."""
        return loop.moved * self.byte + loop.runs * self.run + loop.kernel_runs * self.kernel_run

    def computing(self, loop: WindowLoop) -> Floats:
        """``(configs,)`` cycles of the vector and the matrix unit."""
        registers = (
            loop.light * self.light
            + loop.heavy * self.heavy
            + loop.summed * self.summed
            + loop.turned * self.turned
            + loop.copied * self.copied
            + loop.across * self.across
        )
        return registers / _REGISTER + loop.passes * self.pass_ + loop.rows * self.row

    def cycles(self, loop: WindowLoop) -> Floats:
        """``(configs,)`` the longer of moving and computing, a step's part of the other, and what is fixed."""
        moving, computing = self.moving(loop), self.computing(loop)
        overlapped = np.maximum(moving, computing) + np.minimum(moving, computing) / loop.steps
        steps = loop.steps * (self.step + self.array * loop.arrays) + loop.tiles * self.tile
        return self.fixed + steps + overlapped + loop.tile / _REGISTER * self.drain


COSTS: Final = {
    "product": Costs(
        fixed=679.0,
        step=485.0,
        array=0.196,
        tile=116.0,
        run=4.81,
        kernel_run=5.74,
        byte=0.00224,
        light=0.519,
        heavy=1.02,
        pass_=0.0,
        row=0.305,
        summed=1.92,
        turned=0.01,
        copied=0.5,
        across=1.0,
        drain=9.06,
    ),
    "reduction": Costs(
        fixed=0.0,
        step=193.0,
        array=0.0,
        tile=53.7,
        run=6.77,
        kernel_run=0.0,
        byte=0.00403,
        light=2.5,
        heavy=0.0,
        pass_=0.0,
        row=0.0,
        summed=0.0,
        turned=2.0,
        copied=0.0,
        across=0.0,
        drain=5.84,
    ),
    "move": Costs(
        fixed=135.0,
        step=225.0,
        array=0.0,
        tile=56.4,
        run=13.1,
        kernel_run=0.0138,
        byte=0.0,
        light=14.4,
        heavy=12.6,
        pass_=0.0,
        row=0.0,
        summed=0.0,
        turned=15.0,
        copied=3.43,
        across=10.0,
        drain=4.17,
    ),
    "elementwise": Costs(
        fixed=193.0,
        step=203.0,
        array=0.0,
        tile=51.0,
        run=4.4,
        kernel_run=0.0,
        byte=0.00228,
        light=0.32,
        heavy=13.1,
        pass_=0.0,
        row=0.0,
        summed=0.0,
        turned=2.0,
        copied=0.0,
        across=5.17,
        drain=7.84,
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
                log2p((loop.light + loop.heavy) / _REGISTER / loop.steps),
                log2p(loop.summed / _REGISTER),
                log2p(loop.tile / _REGISTER),
            ],
            axis=1,
        )
