"""Layouts of single tensors, and what operations make of them. Layouts are minor-to-major tuples.

Dimensions of size 1 have no place in memory: layouts that differ in these alone are one order of
elements. Slow results are cached, as a graph has few distinct tensors and layouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from typing import Final

from xlarank.features.program.tensors import LANES, SUBLANES, WORD_BYTES

Layout = tuple[int, ...]
Sizes = tuple[int, ...]

#: Number of results that each cache keeps.
_CACHED: Final = 1 << 16


def row_major(rank: int) -> Layout:
    """Return the layout whose last dimension is minor-most.

    >>> row_major(3)
    (2, 1, 0)
    """
    return tuple(reversed(range(rank)))


@lru_cache(_CACHED)
def element_order(layout: Layout, dims: Sizes) -> Layout:
    """Return the layout without dimensions of size 1, equal for one order of elements.

    >>> element_order((0, 1, 2), (4, 1, 8)) == element_order((1, 0, 2), (4, 1, 8))
    True
    """
    return tuple(dimension for dimension in layout if dims[dimension] != 1)


def minor_dimension(layout: Layout, dims: Sizes) -> int:
    """Return the minor-most dimension of a size other than 1; -1 if there is none."""
    return next(iter(element_order(layout, dims)), -1)


def read_stride(before: Layout, after: Layout, dims: Sizes) -> int:
    """Return the elements between two reads of a copy, which writes one after the other.

    >>> read_stride((1, 0), (0, 1), (4, 8))
    8
    """
    minor = minor_dimension(after, dims)
    return math.prod(dims[d] for d in before[: before.index(minor)]) if minor >= 0 else 1


def permuted(layout: Layout, permutation: Layout) -> Layout:
    """Return the layout with each dimension replaced by its entry in ``permutation``.

    A transpose with ``dimensions=permutation`` moves nothing if its operand has this layout.

    >>> permuted((1, 0), (1, 0))
    (0, 1)
    """
    return tuple(permutation[dimension] for dimension in layout)


def renumbered(layout: Layout, dimensions: Sequence[int]) -> Layout:
    """Return the layout of some dimensions, each replaced by its place among them.

    >>> renumbered((0, 2, 1), (0, 2))
    (0, 1)
    """
    return tuple(dimensions.index(dimension) for dimension in layout if dimension in dimensions)


@lru_cache(_CACHED)
def reshaped(layout: Layout, dims: Sizes, new_dims: Sizes) -> Layout | None:
    """Return the layout of a reshape's result that moves no element; None if there is none.

    Dimensions form blocks of equal products (as in XLA's ``ShapeUtil::AlignLayouts``). Several
    dimensions of a block must follow one another in memory. Sizes of 1 become major-most, or next
    to the dimension behind them if the reshape only adds or drops such sizes.

    >>> reshaped((0, 1), (4, 6), (4, 2, 3)), reshaped((0, 1), (4, 6), (24,))
    ((0, 2, 1), None)
    >>> reshaped((0, 1), (4, 6), (1, 4, 6))
    (1, 0, 2)
    """
    blocks = _blocks(dims, new_dims)
    if blocks is None:
        return None
    place = {dimension: at for at, dimension in enumerate(element_order(layout, dims))}
    by_place: dict[int, Layout] = {}
    for old, new in blocks:
        minor = place[old[-1]]
        places = [place[dimension] for dimension in reversed(old)]
        if places != list(range(minor, minor + len(old))):
            return None
        by_place[minor] = new
    moved = [dimension for minor in sorted(by_place) for dimension in reversed(by_place[minor])]
    only_ones = all(len(old) == len(new) == 1 for old, new in blocks)
    for dimension in row_major(len(new_dims)):
        if new_dims[dimension] == 1:
            at = len(moved)
            if only_ones:
                at = moved.index(dimension + 1) + 1 if dimension + 1 in moved else 0
            moved.insert(at, dimension)
    return tuple(moved)


def _blocks(dims: Sizes, new_dims: Sizes) -> list[tuple[Layout, Layout]] | None:
    """Return the smallest blocks of old and new dimensions; None for unlike or empty shapes."""
    old = [dimension for dimension, size in enumerate(dims) if size != 1]
    new = [dimension for dimension, size in enumerate(new_dims) if size != 1]
    if [dims[dimension] for dimension in old] != [new_dims[dimension] for dimension in new]:
        if math.prod(dims) != math.prod(new_dims) or 0 in dims:
            return None
    blocks = []
    while old:
        left = [old.pop(0)]
        right = [new.pop(0)]
        left_size = dims[left[0]]
        right_size = new_dims[right[0]]
        while left_size != right_size:
            if left_size < right_size:
                left.append(old.pop(0))
                left_size *= dims[left[-1]]
            else:
                right.append(new.pop(0))
                right_size *= new_dims[right[-1]]
        blocks.append((tuple(left), tuple(right)))
    return blocks


@lru_cache(_CACHED)
def padded_bytes(layout: Layout, dims: Sizes, element_bytes: int) -> int:
    """Return the bytes of a tensor in tiles, into which narrow elements are packed.

    The minor-most dimension of a size other than 1 lies along the lanes, the next one along the
    sublanes.

    >>> padded_bytes((1, 0), (3, 100), 4)  # 8 x 128 words
    4096
    """
    sizes = [dims[dimension] for dimension in layout]
    while len(sizes) > 1 and sizes[0] == 1:
        sizes.pop(0)
    packing = max(1, WORD_BYTES // max(1, element_bytes))
    for at, multiple in enumerate((LANES, SUBLANES * packing)[: len(sizes)]):
        sizes[at] = -(-sizes[at] // multiple) * multiple
    return math.prod(sizes) * element_bytes


@lru_cache(_CACHED)
def compact(dims: Sizes, element_bytes: int) -> Layout:
    """Return the layout that takes the fewest bytes in tiles, row-major or close to it in ties.

    >>> compact((128, 8, 64), 4)  # 128 along the lanes
    (0, 2, 1)
    """
    default = row_major(len(dims))
    layouts = [default]
    for count in range(1, min(2, len(dims)) + 1):
        for first in permutations(default, count):
            rest = (dimension for dimension in default if dimension not in first)
            layouts.append((*first, *rest))
    return min(layouts, key=lambda layout: padded_bytes(layout, dims, element_bytes))
