"""Inner loop of a vector tile on a CPU core, and an estimate of a kernel's time from it."""

from __future__ import annotations

from math import gcd
from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK
from xlarank.features.block import Block, Cause, Column
from xlarank.features.program.tensors import Floats
from xlarank.features.tile.tile_context import TileContext, contiguous, whole_numbers

# A core of the AVX2 generation (Fog, *Instruction tables* and *The microarchitecture of Intel, AMD and VIA CPUs*).
#: Bytes and number of vector registers.
_REGISTER, _REGISTERS = 32, 16
#: Latency of a multiply-add in cycles; multiply-adds and loads issued per cycle.
_LATENCY, _ISSUED = 4.0, 2.0
#: Cycles to spill and reload a register.
_SPILL: Final = 1.5
#: Bytes of a cache line; sets and ways of the first and the second cache.
_LINE: Final = 64
_CACHES: Final = ((64, 8), (1024, 8))
#: Cycles to fetch a line from the first cache, the second, and beyond.
_LINE_CYCLES: Final = (0.5, 2.0, 12.0)
#: Upper bound of a kernel's bytes -> bytes per cycle.
_BANDWIDTH: Final = ((2.0**20, 32.0), (2.0**24, 12.0), (np.inf, 4.0))
#: Cost of starting a contiguous run, in bytes read.
_RUN_START: Final = 256.0


class InnerLoop:
    """The innermost loop of every configuration; arrays are ``(configs,)``.

    A vector tile of m x n elements (n along the last dimension, m the product of the others) takes
    r = ceil(n / lanes) registers a row, and m * r of them hold partial sums.

    Attributes:
        lanes: elements of a register.
        n, elements, registers: n, m * n and m * r.
        divides: 1 if vector tiles divide the output tile; otherwise IREE computes element by element.
        depth: elements summed over for one output element.
        chains: independent multiply-adds. If operands are shared (products, convolutions over input features),
            there is one chain per element, otherwise each step of the reduction starts a new one.
        loads: registers loaded for one step of the reduction: m rows and r columns if operands are shared, else one
            per element (and r weights of a depthwise convolution).
        lines: cache lines that one row of the vector tile touches.
        line_cycles: cycles to fetch one of them.
        spilled: registers beyond those of the core.
    """

    def __init__(self, facts: TileContext) -> None:
        rank = max(1, facts.output_rank)
        output = facts.tiles["output"]
        vector = np.minimum(facts.tiles["input"], output)
        size = float(max(1.0, facts.element_bytes[facts.walked]))
        self.lanes = max(1.0, _REGISTER / size)
        n, m = vector[:, rank - 1], vector[:, : rank - 1].prod(axis=1)
        row = np.ceil(n / self.lanes)
        self.n, self.elements, self.registers = n, m * n, m * row
        self.divides = (np.fmod(output, vector) == 0).all(axis=1).astype(np.float64)
        self.depth = facts.depth or 1.0
        convolution, window = facts.main_class == "convolution", facts.column("window_size_0", MAX_RANK)[facts.main]
        shared = facts.main_class == "dot" or (convolution and self.depth > np.prod(window[window > 0]))
        step = facts.tiles["kernel"].prod(axis=1) if facts.depth else np.ones(facts.configs)
        self.chains = m * row * (1.0 if shared else step)
        self.loads = m + row if shared else m * row + (row if convolution else 0.0)
        self.lines = np.ceil(n * size / _LINE)
        # the rows of a panel fall into sets / gcd(sets, stride) sets of a cache
        stride = max(1, round(facts.extents["output"][rank - 1] * size / _LINE))
        fits = [self.depth <= ways * sets / gcd(sets, stride) for sets, ways in _CACHES]
        self.line_cycles = _LINE_CYCLES[[*fits, True].index(True)] if shared else 0.0
        self.spilled = np.maximum(0.0, m * row + row + 1 - _REGISTERS)

    @property
    def cycles(self) -> Floats:
        """Cycles per register of multiply-adds: the slowest of issue, latency, loads and lines, plus spilling.

        The quantities are those of Low et al. 2016, *Analytical Modeling Is Enough for High-Performance BLIS*.
        """
        limits = [self.registers / _ISSUED, _LATENCY * self.registers / self.chains]
        limits += [self.loads / _ISSUED, self.lines * self.line_cycles]
        cycles = (np.maximum.reduce(limits) + _SPILL * self.spilled) * self.lanes / self.elements
        return np.where(self.divides > 0, cycles, _LATENCY * self.lanes)


class TileInner(Block):
    """The innermost loop of a vector tile on a CPU core with AVX2, and the kernel's time estimated from it.

    0 if no vector tile is given; `InnerLoop` has the quantities and their sources. Computing an output element
    takes `InnerLoop.cycles` for each register of multiply-adds. Memory takes the bytes of the main node and its
    operands over a bandwidth of 32, 12 or 4 bytes a cycle (up to 1 MiB, up to 16 MiB, more), and each contiguous
    run of the output tile adds the time of 256 bytes. The longer of the two is the roofline
    (Williams et al. 2009, *Roofline: An Insightful Visual Performance Model*); the sum overlaps nothing.
    """

    kinds = ("tile",)
    cause = Cause.INNER
    columns = {
        "inner__divides__flag": "1 where the vector tile divides the output tile in every dimension",
        "inner__lanes__share": "share of the registers' lanes that one row of the vector tile fills",
        "inner__odd__log": "largest odd factor of the vector tile's last dimension, log2",
        "inner__chains__log": "8 over the multiply-adds that do not wait for each other, at least 1, log2",
        "inner__loads__log": "registers loaded for one step of the reduction over elements, log2",
        "inner__lines__log": "cache lines that one row touches over the elements that use them, log2",
        "inner__spill__log": "registers needed beyond the 16 there are, log2(1 + x)",
        "inner__cycles__log": "cycles for 32 bytes of multiply-adds, estimated, log2",
        **{
            f"estimate__{name}__log": Column(f"{meaning}, log2", Cause.ESTIMATE)
            for name, meaning in (
                ("run", "elements of the output tile that lie side by side"),
                ("memory", "cycles to move an output element's share of the bytes"),
                ("longer", "the longer of computing and moving an output element, cycles"),
                ("sum", "computing and moving an output element one after the other, cycles"),
            )
        },
    }

    def compute(self, context: TileContext) -> Floats:
        if not context.vectorised:
            return np.zeros((context.configs, len(self.columns)))
        loop = InnerLoop(context)
        loop_length = whole_numbers(loop.n)
        users = loop.elements if loop.line_cycles else loop.n
        filled = loop.n / (loop.lanes * np.ceil(loop.n / loop.lanes))
        odd, waiting = loop_length / (loop_length & -loop_length), _LATENCY * _ISSUED / loop.chains
        logs = [odd, np.maximum(1.0, waiting), loop.loads / loop.elements, loop.lines / users]
        main, rank = context.main, context.output_rank
        run = contiguous(context.tiles["output"][:, :rank], context.extents["output"][:rank])
        size = float(max(1.0, context.element_bytes[context.walked]))
        moved = float(context.bytes[main] + context.bytes[context.main_operands].sum())
        bandwidth = next(speed for limit, speed in _BANDWIDTH if moved < limit)
        memory = moved / max(1.0, float(context.volume[main])) / bandwidth * (1 + _RUN_START / (run * size))
        computing = loop.cycles / loop.lanes * loop.depth
        # a node without elements moves nothing: at least a millionth of a cycle keeps logarithms finite
        times = (np.maximum(time, 1e-6) for time in (memory, np.maximum(computing, memory), computing + memory))
        logs += [1.0 + loop.spilled, loop.cycles, run, *times]
        return np.stack([loop.divides, filled, *map(np.log2, logs)], axis=1)
