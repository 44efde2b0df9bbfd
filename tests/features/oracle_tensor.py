"""One tensor the slow and obvious way: what a layout costs it, in plain arithmetic on tuples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, log, prod

import numpy as np

from xlarank.data.schema import NODE_COLUMN

LANES, SUBLANES = 128, 8
#: Rows of smaller tiles, for tensors of few rows.
SMALL_TILES = (2, 4)
#: Elements in a word of four bytes; what has no size counts as one byte, and wide elements as a word.
PACKING = {0: 4, 1: 4, 2: 2, 4: 1, 8: 1, 16: 1}

BYTES = {
    **dict.fromkeys(("pred", "s8", "u8"), 1),
    **dict.fromkeys(("s16", "u16", "f16", "bf16"), 2),
    **dict.fromkeys(("s32", "u32", "f32"), 4),
    **dict.fromkeys(("s64", "u64", "f64", "c64"), 8),
    "c128": 16,
    **dict.fromkeys(("invalid_type", "tuple", "opaque_type", "token"), 0),
}
ELEMENT_TYPES = (
    *("invalid_type", "pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "bf16"),
    *("c64", "c128", "tuple", "opaque_type", "token"),
)


@dataclass(frozen=True)
class Tensor:
    """The output of one node: sizes, default minor-to-major order, type of an element."""

    dims: tuple[int, ...]
    default: tuple[int, ...]
    element: str

    @property
    def element_bytes(self) -> int:
        return BYTES[self.element]

    @property
    def elements(self) -> int:
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        return self.elements * self.element_bytes

    @property
    def rank(self) -> int:
        return len(self.dims)

    def complete(self, given: Sequence[int]) -> tuple[int, ...]:
        """The dimensions named, then the others as in the default."""
        return (*given, *(dimension for dimension in self.default if dimension not in given))

    def waste(self, layout: Sequence[int]) -> float:
        """Padded over true size, minus 1; a size of 0 is not padded."""
        over = 1.0
        for dimension, multiple in zip(layout, (LANES, SUBLANES), strict=False):
            over *= _padded(self.dims[dimension], multiple)
        return over - 1

    def packed(self, layout: Sequence[int]) -> float:
        """The same with narrow elements packed into words and smaller tiles for few rows."""
        if not layout:
            return 0.0
        packing, minor = PACKING[self.element_bytes], self.dims[layout[0]]
        rows = self.dims[layout[1]] if self.rank > 1 else ceil(minor / LANES)
        tile = next((packing * small for small in SMALL_TILES if rows <= packing * small), packing * SUBLANES)
        if self.rank > 1:
            return _padded(minor, LANES) * _padded(rows, tile) - 1
        if rows <= 1:
            tile = 1
        return ceil(rows / tile) * tile * LANES / minor - 1 if minor else 0.0

    def violates(self, layout: Sequence[int]) -> bool:
        return self.rank > 0 and max(self.dims) > self.dims[layout[0]]

    def misses_lanes(self, layout: Sequence[int]) -> bool:
        return self.rank > 0 and self.dims[layout[0]] % LANES != 0

    def misses_sublanes(self, layout: Sequence[int]) -> bool:
        return self.rank > 1 and self.dims[layout[1]] % SUBLANES != 0

    def distance(self, layout: Sequence[int]) -> float:
        """Share of pairs of dimensions ordered unlike the default."""
        pairs = list(combinations(range(self.rank), 2))
        place, usual = list(layout).index, list(self.default).index
        unlike = sum((place(a) < place(b)) != (usual(a) < usual(b)) for a, b in pairs)
        return unlike / len(pairs) if pairs else 0.0

    def contiguity(self, layout: Sequence[int]) -> float:
        """log(elements of a run) / log(elements) of the runs that a copy from the default moves whole."""
        elements = prod(max(1, size) for size in self.dims)
        if tuple(layout) == self.default or elements == 1:
            return 1.0
        run = 1
        for mine, usual in zip(layout, self.default, strict=True):
            if mine != usual:
                break
            run *= max(1, self.dims[mine])
        return log(run) / log(elements)


def _padded(size: int, multiple: int) -> float:
    """The size rounded up to a multiple, over the size."""
    return ceil(size / multiple) * multiple / size if size else 1.0


def tensor_of(row: np.ndarray) -> Tensor:
    """What a row of ``node_feat`` says."""
    dims = [int(row[NODE_COLUMN[f"shape_dimensions_{i}"]]) for i in range(6)]
    default = [int(row[NODE_COLUMN[f"layout_minor_to_major_{i}"]]) for i in range(6)]
    rank = max((i + 1 for i in range(6) if dims[i] > 0), default=0)
    if any(default):
        rank = max(rank, max(default) + 1)
    layout = tuple(default[:rank])
    if sorted(layout) != list(range(rank)):
        layout = tuple(reversed(range(rank)))
    types = [row[NODE_COLUMN[f"shape_element_type_is_{name}"]] for name in ELEMENT_TYPES]
    return Tensor(tuple(dims[:rank]), layout, ELEMENT_TYPES[types.index(1)] if 1 in types else "invalid_type")


@dataclass(frozen=True)
class Choice:
    """What one slot of one node is laid out as in one configuration."""

    tensor: Tensor
    given: tuple[int, ...]

    @property
    def layout(self) -> tuple[int, ...]:
        return self.tensor.complete(self.given)

    @property
    def changed(self) -> bool:
        return self.layout != self.tensor.default
