"""Arithmetic on shapes and layouts, vectorised over tensors.

Shapes are ``(tensors, 6)``, 0 past the rank; layouts are ``(tensors, 6)`` minor-to-major, -1 past
the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

#: The tile that arrays are stored in on TPU v2/v3 and later (XLA's tiled layout T(8,128)): rows
#: (sublanes) by columns (lanes) of words; narrower elements are packed into more rows.
SUBLANES: Final = 8
LANES: Final = 128
WORD_BYTES: Final = 4


def complete_layout(layout: NDArray[np.integer], default: NDArray[np.integer]) -> Ints:
    """Complete partial layouts: the named dimensions, minor-most, then others as by default.

    Real files name only the two minor-most dimensions of a convolution. An empty layout gives the
    default.

    >>> layouts = np.array([[0, 3, -1, -1, -1, -1]]), np.array([[3, 2, 1, 0, -1, -1]])
    >>> complete_layout(*layouts).tolist()
    [[0, 3, 2, 1, -1, -1]]
    """
    # Entries of -1 write to the last column.
    position = np.full((len(layout), MAX_RANK + 1), 3 * MAX_RANK)
    np.put_along_axis(position, default, np.arange(MAX_RANK) + MAX_RANK, axis=1)
    np.put_along_axis(position, layout, np.arange(MAX_RANK), axis=1)
    position = position[:, :MAX_RANK]
    order: Ints = np.argsort(position, axis=1, kind="stable")
    order[np.take_along_axis(position, order, axis=1) >= 3 * MAX_RANK] = -1
    return order


def minor_sizes(dims: Ints, layout: Ints) -> tuple[Ints, Ints]:
    """Return the sizes of the two minor-most dimensions; 1 if there is none."""
    padded = np.concatenate([dims, np.ones((len(dims), 1), dims.dtype)], axis=1)
    rows = np.arange(len(dims))
    return padded[rows, layout[:, 0]], padded[rows, layout[:, 1]]


def padding_waste(dims: Ints, layout: Ints) -> Floats:
    """Return padded size / true size - 1, ``(tensors,)``.

    The minor-most dimension is rounded up to the lanes, the second one to the sublanes; scalars and
    dimensions of size 0 are not padded.

    >>> dims = np.array([[100, 8, 0, 0, 0, 0], [8, 100, 0, 0, 0, 0]])
    >>> layout = np.array([[1, 0, -1, -1, -1, -1]] * 2)
    >>> padding_waste(dims, layout).round(2).tolist()  # 104*128/800 - 1 and 8*128/800 - 1
    [15.64, 0.28]
    """
    minor, second = minor_sizes(dims, layout)
    height = np.where(layout[:, 1] < 0, 1.0, _rounding(second, SUBLANES))
    return np.where(layout[:, 0] < 0, 1.0, _rounding(minor, LANES) * height) - 1.0


def packed_waste(dims: Ints, layout: Ints, element_bytes: Floats) -> Floats:
    """Return `padding_waste` with packed narrow elements and smaller tiles for few rows.

    XLA packs two 16-bit or four 8-bit elements into a word, so tiles have 16 or 32 rows of them. A
    second minor-most size of at most 2 or 4 takes a tile of 2 or 4 rows, both times the packing. A
    vector is folded into rows of lanes.

    >>> dims = np.array([[2, 128, 0, 0, 0, 0], [2, 128, 0, 0, 0, 0], [1000, 0, 0, 0, 0, 0]])
    >>> layout = np.array([[1, 0, -1, -1, -1, -1]] * 2 + [[0, -1, -1, -1, -1, -1]])
    >>> packed_waste(dims, layout, np.array([4.0, 2.0, 4.0])).round(3).tolist()  # 2, 4 and 8 rows
    [0.0, 1.0, 0.024]
    """
    minor, second = minor_sizes(dims, layout)
    vector = layout[:, 1] < 0
    rows = np.where(vector, np.ceil(minor / LANES), second)
    packing = np.maximum(1.0, WORD_BYTES / np.maximum(element_bytes, 1.0))
    tile = np.where(vector & (rows <= 1), 1.0 / packing, tile_sublanes(rows / packing))
    height = _rounding(rows, tile * packing)
    folded = np.where(minor > 0, rows * height * LANES / np.maximum(minor, 1), 1.0)
    waste = np.where(vector, folded, _rounding(minor, LANES) * height)
    return np.where(layout[:, 0] < 0, 0.0, np.maximum(waste - 1.0, 0.0))


def tile_sublanes(rows: NDArray[Any]) -> Floats:
    """Return the sublanes of each tensor's tiles, given its number of rows in words.

    Tiles of tensors with few rows are halved once or twice.
    """
    few = [rows <= SUBLANES // 4, rows <= SUBLANES // 2]
    return np.select(few, [SUBLANES / 4, SUBLANES / 2], float(SUBLANES))


def _rounding(size: NDArray[np.integer] | Floats, multiple: int | Floats) -> Floats:
    """Return sizes rounded up to a multiple, over the sizes themselves."""
    return np.maximum(np.ceil(size / multiple) * multiple / np.maximum(size, 1), 1.0)


def contiguity(dims: Ints, layout: Ints, default: Ints) -> Floats:
    """Return log(run) / log(elements) of copies between two full layouts, ``(tensors,)``.

    The minor-most dimensions that both layouts share form contiguous runs. Equal layouts give 1.

    >>> dims = np.array([[4, 4, 16, 0, 0, 0]] * 2)
    >>> default = np.array([[2, 1, 0, -1, -1, -1]] * 2)
    >>> contiguity(dims, np.array([[2, 0, 1, -1, -1, -1], [0, 1, 2, -1, -1, -1]]), default).tolist()
    [0.5, 0.0]
    """
    common = np.logical_and.accumulate(layout == default, axis=1) & (layout >= 0)
    sizes = np.take_along_axis(dims, np.maximum(layout, 0), axis=1)
    logs = np.log(np.maximum(np.where(layout >= 0, sizes, 1), 1).astype(np.float64))
    total = logs.sum(axis=1)
    return np.where(total > 0, (logs * common).sum(axis=1) / np.where(total > 0, total, 1.0), 1.0)


def layout_key(layout: Ints) -> Ints:
    """Return a number for each layout: entries plus 1 as digits in base 7, minor-most lowest."""
    return np.asarray((layout + 1) @ (MAX_RANK + 1) ** np.arange(MAX_RANK))


def permutation_distance(left: Ints, right: Ints) -> Floats:
    """Return the share of pairs of dimensions that two full layouts order differently.

    >>> layouts = np.array([[0, 1, 2, -1, -1, -1]]), np.array([[2, 1, 0, -1, -1, -1]])
    >>> permutation_distance(*layouts).tolist()
    [1.0]
    """
    rank = (left >= 0).sum(axis=1)
    (i, j) = np.triu_indices(MAX_RANK, 1)
    # Entries of -1 write to the last column.
    position = np.zeros((2, len(left), MAX_RANK + 1), np.int64)
    np.put_along_axis(position, np.stack([left, right]), np.arange(MAX_RANK), axis=2)
    left_ascends, right_ascends = position[:, :, i] < position[:, :, j]
    differing = ((left_ascends != right_ascends) & (j < rank[:, None])).sum(axis=1)
    return np.asarray(differing / np.maximum(rank * (rank - 1) / 2, 1))


def log2p(values: NDArray[Any]) -> Floats:
    """Return log2(1 + x)."""
    return np.asarray(np.log2(1.0 + values.astype(np.float64)))


def layout_text(row: NDArray[np.integer]) -> str:
    """Return the layouts that a row of ``node_config_feat`` ``(18,)`` sets, minor-to-major.

    >>> layout_text(np.array([1, 0, -1, -1, -1, -1, *[-1] * 12]))
    'output {1,0}'
    """
    orders = map(order_text, row.reshape(len(LAYOUT_SLOTS), MAX_RANK))
    slots = zip(LAYOUT_SLOTS, orders, strict=True)
    return ", ".join(f"{slot} {order}" for slot, order in slots if order) or "default"


def order_text(layout: Iterable[int]) -> str:
    """Return a layout as text such as ``{1,0}``, empty if no dimension is set."""
    dimensions = ",".join(str(int(dimension)) for dimension in layout if dimension >= 0)
    return f"{{{dimensions}}}" if dimensions else ""
