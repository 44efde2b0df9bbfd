"""Arithmetic on shapes and layouts, one tensor at a time; more of it is in the doctests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from xlarank.data.schema import MAX_RANK
from xlarank.features.program.tensors import TPU, Tiling, layout_key, packed_waste, padding_waste


def padded(rows: Iterable[Sequence[int]], fill: int) -> np.ndarray:
    return np.array([[*row, *[fill] * (MAX_RANK - len(row))] for row in rows], np.int64).reshape(-1, MAX_RANK)


def test_waste_under_the_tiles_of_a_tpu():
    assert (TPU.sublanes, TPU.lanes) == (8, 128)
    for dims, layout, waste in (
        ((8, 128), (1, 0), 0),
        ((8, 128), (0, 1), 15),  # 8 -> 128
        ((1000,), (0,), 1024 / 1000 - 1),  # rank 1: lanes only
        ((), (), 0),
        ((2, 3, 1), (2, 1, 0), 128 * 8 / 3 - 1),  # 1 -> 128, 3 -> 8
    ):
        assert padding_waste(padded([dims], 0), padded([layout], -1)).tolist() == pytest.approx([waste]), dims
    for dims, layout, element, waste in (
        ((1, 128), (1, 0), 4, 2 / 1 - 1),  # one row in a tile of 2
        ((9, 128), (1, 0), 4, 16 / 9 - 1),  # two full tiles
        ((5, 128), (1, 0), 2, 8 / 5 - 1),  # 4 sublanes of 2
        ((33, 128), (1, 0), 1, 64 / 33 - 1),
        ((3, 128), (1, 0), 8, 4 / 3 - 1),  # wide elements as words
        ((2, 100, 64), (1, 2, 0), 4, 128 / 100 - 1),  # 64 rows
        ((100,), (0,), 1, 128 / 100 - 1),  # one row
        ((1025,), (0,), 4, 2048 / 1025 - 1),  # nine rows: two tiles
        ((1025,), (0,), 1, 2048 / 1025 - 1),  # a tile of 16
        ((), (), 4, 0),
        ((0, 128), (1, 0), 4, 0),
    ):
        found = packed_waste(padded([dims], 0), padded([layout], -1), np.array([float(element)]))
        assert found.tolist() == pytest.approx([waste]), (dims, element)


def test_waste_under_other_tiles():
    """Of one row by four lanes: 6 -> 8."""
    found = padding_waste(padded([(5, 6)], 0), padded([(1, 0)], -1), Tiling(sublanes=1, lanes=4))
    assert found.tolist() == pytest.approx([8 / 6 - 1])


def test_keys_tell_layouts_apart():
    layouts = [(), (0,), (1, 0), (0, 1), (2, 1, 0), (2, 0, 1), (5, 4, 3, 2, 1, 0)]
    keys = layout_key(padded(layouts, -1)).tolist()
    assert len(set(keys)) == len(layouts) and keys[0] == 0 < min(keys[1:]), "0 is no layout"
