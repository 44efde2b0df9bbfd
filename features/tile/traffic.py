"""What a kernel computes, and the memory that its tiles need and move."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODE
from xlarank.features.block import Block, Scope
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, log2p
from xlarank.features.tile.tile_context import TileContext

#: On-chip vector memory of one TPU core, bytes.
VMEM_BYTES: Final = 16 * 2**20


class Traffic(Block):
    """Bytes a tile holds, bytes moved by all tiles, and work per byte.

    With output tile m x n (its two last dimensions; the others count to m) and K contracted elements, a tile
    reads m*K + K*n elements and writes m*n; without contraction it reads and writes its own size. Bounds that
    count hardware tiles are turned into elements first (the inner columns stay in the unit of the bounds).
    Double buffering keeps two tiles in vector memory, where they are padded to the hardware's tile.
    """

    kinds = ("tile",)
    columns = {
        "traffic__tile_bytes__log": "bytes of one output tile, log2(1 + x)",
        "traffic__working_set__log": "bytes of one output tile and what it reads, log2(1 + x)",
        "traffic__vmem__ratio": "two working sets over 16 MiB, at most 4",
        "traffic__padded_tile__log": "bytes of one output tile padded to 8 x 128 elements in its last two "
        "dimensions, log2(1 + x)",
        "traffic__padded_tile__ratio": "padded over true bytes of one output tile, minus 1",
        "traffic__padded_vmem__ratio": "two padded output tiles over 16 MiB, at most 4",
        "traffic__total__log": "bytes read and written by all tiles, log2(1 + x)",
        "traffic__total__ratio": "bytes read and written by all tiles over the least possible, log2",
        "traffic__intensity__log": "multiply-adds of one tile over its bytes read and written, log2(1 + x)",
        "traffic__flops_per_tile__log": "multiply-adds of one tile, log2(1 + x)",
        "traffic__left_panel__log": "bytes of the m x K panel, log2(1 + x)",
        "traffic__right_panel__log": "bytes of the K x n panel, log2(1 + x)",
        "traffic__inner_left__log": "input (vector) tile rows times the reduction tile, log2(1 + x)",
        "traffic__inner_right__log": "input (vector) tile columns times the reduction tile, log2(1 + x)",
        "traffic__inner_step__log": "input (vector) tile times the reduction tile, log2(1 + x)",
        "traffic__inner_balance__log": "multiply-adds of an inner step over the elements it reads, log2(1 + x)",
    }

    def compute(self, context: TileContext) -> Floats:
        extents, unit = context.extents["output"], context.unit
        rank, depth = max(1, context.output_rank), context.depth
        tile, vector = context.tiles["output"] * unit, context.tiles["input"]
        columns, rows = tile[:, rank - 1], tile[:, : rank - 1].prod(axis=1)
        inner_columns, inner_rows = vector[:, rank - 1], vector[:, : rank - 1].prod(axis=1)
        step = context.tiles["kernel"].prod(axis=1) if depth else np.ones(context.configs)
        count = np.where(extents > 0, np.ceil(extents * unit / tile), 1.0).prod(axis=1)
        volume = rows * columns
        left, right = (rows * depth, columns * depth) if depth else (volume, np.zeros(context.configs))
        moved = volume + left + right
        whole = np.where(extents > 0, extents * unit, 1.0)
        whole_left, whole_right = whole[: rank - 1].prod() * depth, whole[rank - 1] * depth
        least = whole.prod() + (whole_left + whole_right if depth else whole.prod())
        work = volume * max(depth, 1.0)
        size = float(max(1.0, context.element_bytes[context.walked]))
        tiling = context.tiling
        padded = np.ceil(columns / tiling.lanes) * tiling.lanes * rows
        if rank > 1:
            second = tile[:, rank - 2]
            padded *= np.ceil(second / tiling.sublanes) * tiling.sublanes / second
        held = [log2p(volume * size), log2p(moved * size), np.minimum(2 * moved * size / VMEM_BYTES, 4.0)]
        held += [log2p(padded * size), padded / volume - 1.0, np.minimum(2 * padded * size / VMEM_BYTES, 4.0)]
        total = [log2p(count * moved * size), np.log2(count * moved / max(least, 1.0))]
        of_tile = (work / (moved * size), work, left * size, right * size)
        inner = (inner_rows * step, inner_columns * step, inner_rows * inner_columns * step)
        balance = inner_rows * inner_columns / (inner_rows + inner_columns)
        return np.stack([*held, *total, *map(log2p, (*of_tile, *inner, balance))], axis=1)


class Kernel(Block):
    """Class, sizes and work of the kernel's main node; sizes as log2(1 + x)."""

    kinds = ("tile",)
    scope = Scope.GRAPH
    columns = {
        **{f"kernel__is_{name}__flag": f"1 where the main node is {name}" for name in OPCODE_CLASSES},
        **{
            f"kernel__extent_{i}__log": f"extent of dimension {i} that the output bounds divide"
            for i in range(MAX_RANK)
        },
        **{f"kernel__extent_last{i}__log": f"extent of the dimension {i} before the last" for i in range(3)},
        "kernel__contracted__log": "elements summed over for one output element",
        "kernel__work__log": "multiply-adds",
        "kernel__read_bytes__log": "bytes of the parameters",
        "kernel__intensity__log": "multiply-adds over bytes of parameters and the output",
        "kernel__parameters__log": "number of parameters",
        "kernel__fan_in__log": "number of operands of the main node",
        "kernel__largest_operand__log": "bytes of the main node's largest operand",
        "kernel__smallest_operand__log": "bytes of the main node's smallest operand",
        "kernel__reduces_minor__flag": "1 where a reduction sums along the minor-most dimension of its operand",
        "kernel__physical__flag": "1 where bounds count hardware tiles in physical order",
    }

    def compute(self, context: TileContext) -> Floats:
        main, extents, rank = context.main, context.extents["output"], context.output_rank
        operands = context.bytes[context.main_operands]
        parameters = context.graph.opcode == OPCODE["parameter"]
        reads = context.bytes[parameters].sum()
        moved = reads + context.bytes[main]
        sizes = [
            *extents,
            *(extents[rank - 1 - i] if rank > i else 0.0 for i in range(3)),
            context.depth,
            context.main_work,
            reads,
            context.main_work / max(1.0, moved),
            float(parameters.sum()),
            float(len(operands)),
            operands.max(initial=0.0),
            operands.min(initial=np.inf) if len(operands) else 0.0,
        ]
        flags = [float(context.main_class == name) for name in OPCODE_CLASSES]
        return np.array([*flags, *log2p(np.array(sizes)), float(context.reduces_minor), float(context.physical)])
