"""The innermost loop of a vector tile on a CPU core with AVX2."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Final

import numpy as np

from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats
from xlarank.features.tile.facts import TileFacts

# A core of the AVX2 generation (Fog, *Instruction tables* and *The microarchitecture of Intel, AMD and VIA CPUs*).
#: Bytes of a vector register, and how many there are.
_REGISTER: Final = 32
_REGISTERS: Final = 16
#: Cycles until a multiply-add's result can be used; multiply-adds and loads begun in a cycle.
LATENCY: Final = 4.0
ISSUED: Final = 2.0
#: Cycles to put a register aside and fetch it back.
_SPILL: Final = 1.5
#: Bytes of a cache line; sets and ways of the first and the second cache.
_LINE: Final = 64
_CACHES: Final = ((64, 8), (1024, 8))
#: Cycles to fetch a line from the first cache, the second, and beyond.
_LINE_CYCLES: Final = (0.5, 2.0, 12.0)


@dataclass(frozen=True, eq=False)
class InnerLoop:
    """The innermost loop of every configuration; arrays are ``(configs,)``.

    A vector tile of m x n elements (n along the last dimension, m the product of the others) takes
    r = ceil(n / lanes) registers a row, and m * r of them hold partial sums.

    Attributes:
        lanes: elements of a register.
        elements: m * n.
        n: elements of a row.
        registers: m * r.
        divides: the vector tile divides the output tile in every dimension; otherwise IREE computes element
            by element.
        chains: multiply-adds that do not wait for each other. Where operands are shared (products, convolutions
            over input features), the reduction is one chain an element; elsewhere each reduction step starts anew.
        loads: registers loaded for one step of the reduction: m + r where m rows and r columns are multiplied
            with each other, else each element has its own (and a depthwise convolution r weights).
        lines: cache lines that one row of the vector tile touches.
        line_cycles: cycles to fetch one of them, 0 where operands are not shared.
        spilled: registers needed beyond those there are: m * r + r + 1 - 16, at least 0.
        depth: elements summed over for one output element, 1 where nothing is.
    """

    lanes: float
    elements: Floats
    n: Floats
    registers: Floats
    divides: Floats
    chains: Floats
    loads: Floats
    lines: Floats
    line_cycles: float
    spilled: Floats
    depth: float

    @property
    def cycles(self) -> Floats:
        """Cycles for as many multiply-adds as a register has elements: the slowest of issue, latency, loads and
        cache lines, and what spilling adds. Element by element, each waits for the one before.

        Low et al. 2016, *Analytical Modeling Is Enough for High-Performance BLIS*, derive the best register
        tile from the same quantities.
        """
        step = np.maximum.reduce(
            [
                self.registers / ISSUED,
                LATENCY * self.registers / self.chains,
                self.loads / ISSUED,
                self.lines * self.line_cycles,
            ]
        )
        cycles = (step + _SPILL * self.spilled) * self.lanes / self.elements
        return np.where(self.divides > 0, cycles, LATENCY * self.lanes)


def inner_loop(facts: TileFacts) -> InnerLoop:
    """The innermost loop that the vector tile stands for."""
    rank = max(1, int((facts.extents["output"] > 0).sum()))
    output = facts.tiles["output"]
    vector = np.minimum(facts.tiles["input"], output)
    size = float(max(1.0, facts.element_bytes[facts.walked]))
    lanes = max(1.0, _REGISTER / size)
    n, m = vector[:, rank - 1], vector[:, : rank - 1].prod(axis=1)
    row = np.ceil(n / lanes)
    of_main = OPCODE_CLASSES[facts.opcode_class[facts.main]]
    contracted = facts.contracted[facts.contracted > 0]
    depth = float(np.prod(contracted)) if len(contracted) else 1.0
    window = facts.column("window_size_0", 6)[facts.main]
    shared = of_main == "dot" or (of_main == "convolution" and depth > np.prod(window[window > 0]))
    step = facts.tiles["kernel"].prod(axis=1) if len(contracted) else np.ones(facts.configs)
    if shared:
        loads = m + row
    else:
        loads = m * row + (row if of_main == "convolution" else 0.0)
    stride = facts.extents["output"][rank - 1] * size / _LINE
    return InnerLoop(
        lanes=lanes,
        elements=m * n,
        n=n,
        registers=m * row,
        divides=(np.fmod(output, vector) == 0).all(axis=1).astype(np.float64),
        chains=m * row * (1.0 if shared else step),
        loads=loads,
        lines=np.ceil(n * size / _LINE),
        line_cycles=_line_cycles(depth, stride) if shared else 0.0,
        spilled=np.maximum(0.0, m * row + row + 1 - _REGISTERS),
        depth=depth,
    )


def _line_cycles(depth: float, stride: float) -> float:
    """Cycles to fetch a line of a panel of ``depth`` rows, ``stride`` lines apart, that is read again and again.

    Rows a multiple of a power of two apart fall into few sets of a cache: sets / gcd(sets, stride) of them.
    """
    apart = max(1, round(stride))
    for (sets, ways), cycles in zip(_CACHES, _LINE_CYCLES, strict=False):
        if depth <= ways * sets / gcd(sets, apart):
            return cycles
    return _LINE_CYCLES[-1]
