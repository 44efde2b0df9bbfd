"""Bounds of tiles, their division of tensors, and the memory traffic of tiles."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODE, TILE_SLOTS
from xlarank.features.block import Block, Cause, Scope
from xlarank.features.program.program_context import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats, log2p
from xlarank.features.tile.tile_context import TileContext, whole_numbers

#: On-chip vector memory of one TPU core, bytes.
VMEM_BYTES: Final = 16 * 2**20


class Bounds(Block):
    """log2(1 + bound) as given in the file, and their product; 0 stands for a whole dimension."""

    kinds = ("tile",)
    cause = Cause.TILES
    columns = {
        f"bounds__{slot}_{what}__log": meaning
        for slot in TILE_SLOTS
        for what, meaning in (
            *((str(i), f"{slot} bound of dimension {i}") for i in range(MAX_RANK)),
            ("volume", f"product of the {slot} bounds, a bound of 0 counting as the whole dimension"),
        )
    }

    def compute(self, context: TileContext) -> Floats:
        volumes = {slot: tile.prod(axis=1) for slot, tile in context.tiles.items()}
        return np.column_stack([log2p(part[slot]) for slot in TILE_SLOTS for part in (context.bounds, volumes)])


class TileCounts(Block):
    """Number of tiles ceil(extent / bound) per dimension and in total, log2, and whether they divide evenly.

    Edge waste is the volume covered by the tiles over the true volume, minus 1.
    """

    kinds = ("tile",)
    cause = Cause.TILES
    columns = {
        f"tiles__{slot}_{what}__{how}": f"{meaning} of the {slot} tile"
        for slot in ("output", "kernel")
        for what, how, meaning in (
            *((str(i), "log", f"number of tiles along dimension {i}") for i in range(MAX_RANK)),
            ("all", "log", "number of tiles in all"),
            ("edge_waste", "ratio", "volume computed beyond the edges over the true volume"),
            ("divides", "share", "share of dimensions whose bound divides the extent"),
            ("whole", "share", "share of dimensions that are not cut"),
            *(
                (f"rest_{i}", "share", f"part of the last tile along dimension {i} that lies inside")
                for i in (0, 1, 2)
            ),
        )
    }

    def compute(self, context: TileContext) -> Floats:
        parts: list[Floats] = []
        for slot in ("output", "kernel"):
            tile, extents, inside = context.tiles[slot], context.extents[slot], context.extents[slot] > 0
            counts = np.where(inside, np.ceil(extents / tile), 1.0)
            covered = np.where(inside, counts * tile / np.where(inside, extents, 1.0), 1.0)
            parts += [np.log2(counts), np.log2(counts.prod(axis=1)), covered.prod(axis=1) - 1.0]
            parts += [(inside & (ratio == 1.0)).sum(axis=1) / max(1, inside.sum()) for ratio in (covered, counts)]
            parts.append(np.where(inside, (extents - (counts - 1.0) * tile) / tile, 1.0)[:, :3])
        return np.column_stack(parts)


class TileShape(Block):
    """Proportions of a tile: relative to its extents from the minor side, and to the inner tile.

    Dimensions are counted from the last one, because innermost dimensions mean the same at every rank.
    """

    kinds = ("tile",)
    cause = Cause.TILES
    columns = {
        **{
            f"shape__{name.format(i)}": meaning.format(i)
            for name, meaning in (
                ("output_last{}__log", "output bound of the dimension {} before the last, log2(1 + x)"),
                ("output_last{}__ratio", "output bound over extent of the dimension {} before the last"),
                ("input_last{}__log", "input (vector) bound of the dimension {} before the last, log2(1 + x)"),
                ("output_over_input_last{}__log", "output over input bound, dimension {} before the last, log2"),
                ("input_last{}__ratio", "input (vector) bound over extent of the dimension {} before the last"),
                ("kernel_{}__ratio", "kernel bound over extent of the kernel's dimension {}"),
            )
            for i in range(3)
        },
        "shape__kernel_volume__ratio": "kernel tile over the kernel's extents, volumes, at most 2^24",
        "shape__output_over_input__log": "output tile over input (vector) tile, log2 of volumes",
        "shape__skew__log": "last output bound over the one before, log2",
        "shape__input_last0_mod16__share": "input bound of the last dimension modulo 16, over 16",
        "shape__output_last0_mod16__share": "output bound of the last dimension modulo 16, over 16",
        "shape__input_last0_alignment__log": "largest power of two (up to 64) in the last input bound, log2",
        "shape__input_last1_alignment__log": "largest power of two (up to 64) in the input bound before the "
        "last, log2",
        "shape__output_last0_alignment__log": "largest power of two (up to 64) in the last output bound, log2",
        "shape__kernel_alignment__log": "largest power of two (up to 64) in the kernel tile's volume, log2",
        "shape__input_registers__log": "registers of 8 elements that the input (vector) tile fills, log2",
    }

    def compute(self, context: TileContext) -> Floats:
        rank, ones = context.output_rank, np.ones((context.configs, 3))
        # the last three dimensions, the last one first; padded with 1
        bounds = context.tiles["output"], context.tiles["input"]
        output, input_ = (np.column_stack([ones, bound[:, :rank]])[:, :-4:-1] for bound in bounds)
        extents = np.maximum(np.append(np.ones(3), context.extents["output"][:rank])[:-4:-1], 1.0)
        of_last = [log2p(output), output / extents, log2p(input_), np.log2(output / input_), input_ / extents]
        last, inner_last = (bound[:, max(0, rank - 1)] for bound in bounds)
        kernel = context.tiles["kernel"]
        cut = kernel / np.maximum(context.extents["kernel"], 1.0)
        volume, vector = (bound.prod(axis=1) for bound in bounds)
        registers = vector / inner_last * np.ceil(inner_last / 8)  # 8 elements of 32 bits each
        single = [np.minimum(cut.prod(axis=1), 2.0**24), np.log2(volume / vector), np.log2(last / output[:, 1])]
        single += [inner_last % 16 / 16, last % 16 / 16]
        aligned = (inner_last, input_[:, 1], last, kernel.prod(axis=1))
        single += [np.log2(np.gcd(whole_numbers(bound), 64)) for bound in aligned]
        return np.column_stack([*of_last, cut[:, :3], *single, np.log2(registers)])


class Traffic(Block):
    """Bytes a tile holds, bytes moved by all tiles, and work per byte.

    With output tile m x n (n along the last dimension) and K contracted elements, a tile reads m*K + K*n elements
    and writes m*n; without contraction it reads and writes its own size. Sizes are in elements, those of inner
    columns in units of the bounds. Double buffering keeps two tiles in vector memory, padded to the hardware's
    tile.
    """

    kinds = ("tile",)
    cause = Cause.TRAFFIC
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
        full = np.where(extents > 0, extents * unit, 1.0)
        full_left, full_right = full[: rank - 1].prod() * depth, full[rank - 1] * depth
        minimum = full.prod() + (full_left + full_right if depth else full.prod())
        work = volume * max(depth, 1.0)
        size, tiling = float(max(1.0, context.element_bytes[context.walked])), context.tiling
        padded = np.ceil(columns / tiling.lanes) * tiling.lanes * rows
        if rank > 1:
            second = tile[:, rank - 2]
            padded *= np.ceil(second / tiling.sublanes) * tiling.sublanes / second
        memory = [log2p(volume * size), log2p(moved * size), np.minimum(2 * moved * size / VMEM_BYTES, 4.0)]
        memory += [log2p(padded * size), padded / volume - 1.0, np.minimum(2 * padded * size / VMEM_BYTES, 4.0)]
        total = [log2p(count * moved * size), np.log2(count * moved / max(minimum, 1.0))]
        of_tile = (work / (moved * size), work, left * size, right * size)
        inner = (inner_rows * step, inner_columns * step, inner_rows * inner_columns * step)
        balance = inner_rows * inner_columns / (inner_rows + inner_columns)
        return np.stack([*memory, *total, *map(log2p, (*of_tile, *inner, balance))], axis=1)


class Kernel(Block):
    """Class, sizes and work of the kernel's main node; sizes as log2(1 + x)."""

    kinds = ("tile",)
    scope = Scope.GRAPH
    columns = {
        **{f"kernel__is_{name}__flag": f"1 where the main node is {name}" for name in OPCODE_CLASSES},
        **{f"kernel__extent_{i}__log": f"extent of dimension {i} that the output bounds divide" for i in range(6)},
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
        reads, work = context.bytes[parameters].sum(), float(context.volume[main] * (context.depth or 1.0))
        sizes = [*extents, *(extents[rank - 1 - i] if rank > i else 0.0 for i in range(3)), context.depth, work]
        sizes += [reads, work / max(1.0, reads + context.bytes[main]), parameters.sum(), len(operands)]
        sizes += [operands.max(), operands.min()] if len(operands) else [0.0, 0.0]
        classes, reduces_minor = [context.main_class == name for name in OPCODE_CLASSES], False
        if context.graph.opcode[main] == OPCODE["reduce"] and len(operands):
            # the output's shape is a prefix of the operand's
            operand, output_rank = context.main_operands[0], int(context.rank[main])
            reduces_minor = (context.dims[operand, :output_rank] == context.dims[main, :output_rank]).all()
            reduces_minor &= context.default_layout[operand, 0] >= output_rank
        return np.array([*classes, *log2p(np.array(sizes)), reduces_minor, context.physical], np.float64)
