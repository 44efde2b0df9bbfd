"""The bounds themselves, and how they divide what they cut."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, TILE_SLOTS
from xlarank.features.block import Block
from xlarank.features.program.tensors import Floats, log2p
from xlarank.features.tile.tile_context import TileContext, whole_numbers


class Bounds(Block):
    """log2(1 + bound) as given in the file, and their product; 0 stands for a whole dimension."""

    kinds = ("tile",)
    columns = {
        f"bounds__{slot}_{what}__log": meaning
        for slot in TILE_SLOTS
        for what, meaning in (
            *((str(i), f"{slot} bound of dimension {i}") for i in range(MAX_RANK)),
            ("volume", f"product of the {slot} bounds, a bound of 0 counting as the whole dimension"),
        )
    }

    def compute(self, context: TileContext) -> Floats:
        parts = []
        for slot in TILE_SLOTS:
            parts += [log2p(context.bounds[slot]), log2p(context.tiles[slot].prod(axis=1))[:, None]]
        return np.concatenate(parts, axis=1)


class TileCounts(Block):
    """Number of tiles ceil(extent / bound) per dimension and in all, log2; and whether they divide evenly.

    Edge waste is the volume covered by the tiles over the volume that is there, minus 1.
    """

    kinds = ("tile",)
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
                for i in range(3)
            ),
        )
    }

    def compute(self, context: TileContext) -> Floats:
        parts = []
        for slot in ("output", "kernel"):
            tile, extents = context.tiles[slot], context.extents[slot]
            inside = extents > 0
            counts = np.where(inside, np.ceil(extents / tile), 1.0)
            covered = np.where(inside, counts * tile / np.where(inside, extents, 1.0), 1.0)
            dimensions = max(1, int(inside.sum()))
            parts += [
                np.log2(counts),
                np.log2(counts.prod(axis=1))[:, None],
                covered.prod(axis=1)[:, None] - 1.0,
                ((inside & (covered == 1.0)).sum(axis=1) / dimensions)[:, None],
                ((inside & (counts == 1.0)).sum(axis=1) / dimensions)[:, None],
                np.where(inside, (extents - (counts - 1.0) * tile) / tile, 1.0)[:, :3],
            ]
        return np.concatenate(parts, axis=1)


#: Elements of 32 bits in a vector register of 256 bits.
_VECTOR: Final = 8


def _alignment(bound: Floats) -> Floats:
    """log2 of the largest power of two, up to 64, that divides a bound."""
    power: Floats = np.log2(np.gcd(whole_numbers(bound), 64))
    return power


class TileShape(Block):
    """How a tile is proportioned: against its extents from the minor side, and against the inner tile.

    Dimensions are counted from the last (minor-most in the row-major files), because programs of
    different rank share their innermost dimensions' meaning.
    """

    kinds = ("tile",)
    columns = {
        **{
            f"shape__{name.format(i)}": meaning.format(i)
            for name, meaning in (
                ("output_last{}__log", "output bound of the dimension {} before the last, log2(1 + x)"),
                ("output_last{}__ratio", "output bound over extent of the dimension {} before the last"),
                ("input_last{}__log", "input (vector) bound of the dimension {} before the last, log2(1 + x)"),
                (
                    "output_over_input_last{}__log",
                    "output over input bound, dimension {} before the last, log2",
                ),
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
        output, input_, rank = context.tiles["output"], context.tiles["input"], context.output_rank
        ones = np.ones(context.configs)
        parts: list[tuple[Floats, ...]] = []
        for at in range(rank - 1, rank - 4, -1):
            out, vector = (output[:, at], input_[:, at]) if at >= 0 else (ones, ones)
            extent = max(1.0, context.extents["output"][at]) if at >= 0 else 1.0
            parts.append((log2p(out), out / extent, log2p(vector), np.log2(out / vector), vector / extent))
        last, inner_last = output[:, max(0, rank - 1)], input_[:, max(0, rank - 1)]
        before, inner_before = (output[:, rank - 2], input_[:, rank - 2]) if rank > 1 else (ones, ones)
        inner = np.maximum(context.extents["kernel"], 1.0)
        cut = context.tiles["kernel"] / inner
        volumes = np.log2(output.prod(axis=1) / input_.prod(axis=1))
        return np.stack(
            [
                *(column for group in zip(*parts, strict=True) for column in group),
                *cut[:, :3].T,
                np.minimum(cut.prod(axis=1), 2.0**24),
                volumes,
                np.log2(last / before),
                (inner_last % 16) / 16,
                (last % 16) / 16,
                _alignment(inner_last),
                _alignment(inner_before),
                _alignment(last),
                _alignment(context.tiles["kernel"].prod(axis=1)),
                np.log2(input_.prod(axis=1) / inner_last * np.ceil(inner_last / _VECTOR)),
            ],
            axis=1,
        )
