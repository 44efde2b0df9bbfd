"""What a CPU core does with a vector tile, and an estimate of a kernel's time from that.

Only for files that give a vector tile (input bounds); where none is given, as in TPU files, every column is 0.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.features.block import Block
from xlarank.features.program.tensors import Floats
from xlarank.features.tile.context import TileContext
from xlarank.features.tile.inner_loop import ISSUED, LATENCY

#: Bytes a cycle for kernels of up to so many bytes in all.
_BANDWIDTH: Final = ((2.0**20, 32.0), (2.0**24, 12.0), (np.inf, 4.0))
#: Bytes that could have been read in the time that a new contiguous run takes to begin.
_RUN_START: Final = 256.0


def contiguous_run(context: TileContext) -> Floats:
    """``(configs,)`` elements of an output tile that lie side by side: the last dimension's, times the one
    before where the last is whole, and so on."""
    extents, tile = context.extents["output"], context.tiles["output"]
    run, going = np.ones(context.configs), np.ones(context.configs, bool)
    for dimension in range(int((extents > 0).sum()) - 1, -1, -1):
        run = np.where(going, run * tile[:, dimension], run)
        going &= tile[:, dimension] >= extents[dimension]
    return run


def _odd_part(bound: Floats) -> Floats:
    whole = np.clip(np.rint(bound), 1, 2.0**53).astype(np.int64)
    return whole / (whole & -whole)


class TileInner(Block):
    """The innermost loop of a vector tile on a CPU core with AVX2; 0 where no vector tile is given.

    Quantities and their sources: `InnerLoop`. Elements are those of the vector tile.
    """

    kinds = ("tile",)
    columns = {
        "inner__divides__flag": "1 where the vector tile divides the output tile in every dimension",
        "inner__lanes__share": "share of the registers' lanes that one row of the vector tile fills",
        "inner__odd__log": "largest odd factor of the vector tile's last dimension, log2",
        "inner__chains__log": "8 over the multiply-adds that do not wait for each other, at least 1, log2",
        "inner__loads__log": "registers loaded for one step of the reduction over elements, log2",
        "inner__lines__log": "cache lines that one row touches over the elements that use them, log2",
        "inner__spill__log": "registers needed beyond the 16 there are, log2(1 + x)",
        "inner__cycles__log": "cycles for 32 bytes of multiply-adds, estimated, log2",
    }

    def compute(self, context: TileContext) -> Floats:
        if not context.vectorised:
            return np.zeros((context.configs, len(self.columns)))
        loop = context.inner_loop
        users = loop.elements if loop.line_cycles else loop.n
        return np.stack(
            [
                loop.divides,
                loop.n / (loop.lanes * np.ceil(loop.n / loop.lanes)),
                np.log2(_odd_part(loop.n)),
                np.log2(np.maximum(1.0, LATENCY * ISSUED / loop.chains)),
                np.log2(loop.loads / loop.elements),
                np.log2(loop.lines / users),
                np.log2(1.0 + loop.spilled),
                np.log2(loop.cycles),
            ],
            axis=1,
        )


class TileEstimate(Block):
    """An estimate of the kernel's time in cycles per output element; 0 where no vector tile is given.

    Computing takes `InnerLoop.cycles` for each register of multiply-adds. Memory takes the bytes of the main node
    and its operands over a bandwidth of 32, 12 or 4 bytes a cycle (up to 1 MiB, up to 16 MiB, more), and each
    contiguous run of the output tile begins with the time of another 256 bytes. The longer of the two is the
    roofline (Williams et al. 2009, *Roofline: An Insightful Visual Performance Model*); the sum overlaps nothing.
    """

    kinds = ("tile",)
    columns = {
        "estimate__run__log": "elements of the output tile that lie side by side, log2",
        "estimate__memory__log": "cycles to move an output element's share of the bytes, log2",
        "estimate__longer__log": "the longer of computing and moving an output element, cycles, log2",
        "estimate__sum__log": "computing and moving an output element one after the other, cycles, log2",
    }

    def compute(self, context: TileContext) -> Floats:
        if not context.vectorised:
            return np.zeros((context.configs, len(self.columns)))
        loop, run, main = context.inner_loop, contiguous_run(context), context.main
        size = float(max(1.0, context.element_bytes[context.walked]))
        moved = float(context.bytes[main] + context.bytes[context.main_operands].sum())
        bandwidth = next(speed for most, speed in _BANDWIDTH if moved < most)
        memory = moved / max(1.0, float(context.volume[main])) / bandwidth * (1 + _RUN_START / (run * size))
        computing = loop.cycles / loop.lanes * loop.depth
        # a node without elements moves nothing: at least a millionth of a cycle keeps logarithms finite
        longer = np.maximum(np.maximum(computing, memory), 1e-6)
        return np.stack(
            [
                np.log2(run),
                np.log2(np.maximum(memory, 1e-6)),
                np.log2(longer),
                np.log2(np.maximum(computing + memory, 1e-6)),
            ],
            axis=1,
        )
