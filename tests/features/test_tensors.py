"""Arithmetic on shapes and layouts against the obvious way to do it, one tensor at a time."""

from __future__ import annotations

import itertools
from math import ceil, log, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.schema import MAX_RANK
from xlarank.features.program.tensors import (
    TPU,
    Tiling,
    complete_layout,
    contiguity,
    largest_not_minor,
    layout_key,
    minor_sizes,
    packed_waste,
    padding_waste,
    permutation_distance,
    volume,
)

_SIZES = st.sampled_from((1, 2, 3, 7, 8, 9, 16, 100, 127, 128, 129, 256, 1000))
_TILINGS = st.builds(Tiling, sublanes=st.sampled_from((1, 2, 8, 16)), lanes=st.sampled_from((1, 4, 128)))
Tensor = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@st.composite
def tensors(draw: st.DrawFn) -> list[Tensor]:
    """Tensors of mixed rank as (dimensions, one full layout, another one)."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        dims = draw(st.lists(_SIZES, max_size=MAX_RANK))
        order = st.permutations(range(len(dims))).map(tuple)
        found.append((tuple(dims), draw(order), draw(order)))
    return found


def padded(rows: list[tuple[int, ...]], fill: int) -> np.ndarray:
    return np.array([[*row, *[fill] * (MAX_RANK - len(row))] for row in rows], np.int64).reshape(-1, MAX_RANK)


@given(found=tensors())
def test_one_tensor_at_a_time(found):
    dims, layout, default = (
        padded([tensor[part] for tensor in found], fill) for part, fill in enumerate((0, -1, -1))
    )
    minor, second = minor_sizes(dims, layout)
    volumes = volume(dims, np.array([len(tensor[0]) for tensor in found]))
    violated, distance = largest_not_minor(dims, layout), permutation_distance(layout, default)
    together = contiguity(dims, layout, default)
    for row, (sizes, order, other) in enumerate(found):
        in_order = [sizes[dimension] for dimension in order]
        assert volumes[row] == prod(sizes)
        assert [minor[row], second[row]] == [*in_order, 1, 1][:2]
        assert violated[row] == any(size > in_order[0] for size in sizes)
        pairs = list(itertools.combinations(range(len(order)), 2))
        crossed = [(order.index(a) < order.index(b)) != (other.index(a) < other.index(b)) for a, b in pairs]
        assert distance[row] == pytest.approx(np.mean(crossed) if pairs else 0.0)
        run = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(order, other, strict=True))
        moved = log(prod(sizes[dimension] for dimension, _ in run))
        whole = order == other or prod(sizes) == 1
        assert together[row] == pytest.approx(1 if whole else moved / log(prod(sizes)), abs=1e-12)
    both = np.concatenate([layout, default])
    key = layout_key(both)
    assert ((key[:, None] == key[None]) == (both[:, None] == both[None]).all(axis=2)).all()
    assert ((key == 0) == (both < 0).all(axis=1)).all(), "0 is no layout"


@given(found=tensors(), data=st.data())
def test_a_partial_layout_keeps_its_dimensions_in_front(found, data):
    named = [order[: data.draw(st.integers(0, len(order)))] for _, order, _ in found]
    expected = [
        (*some, *(dimension for dimension in other if dimension not in some))
        for some, (_, _, other) in zip(named, found, strict=True)
    ]
    completed = complete_layout(padded(named, -1), padded([other for *_, other in found], -1))
    assert np.array_equal(completed, padded(expected, -1))


@given(found=tensors(), tiling=_TILINGS)
def test_waste_is_memory_taken_over_memory_needed(found, tiling):
    waste = padding_waste(padded([t[0] for t in found], 0), padded([t[1] for t in found], -1), tiling)
    for row, (sizes, order, _) in enumerate(found):
        stored = list(sizes)
        for dimension, multiple in zip(order, (tiling.lanes, tiling.sublanes), strict=False):
            stored[dimension] = ceil(sizes[dimension] / multiple) * multiple
        assert waste[row] == pytest.approx(prod(stored) / prod(sizes) - 1, rel=1e-12, abs=1e-12)


@given(
    found=tensors(),
    element=st.sampled_from((0.0, 1.0, 2.0, 4.0, 8.0, 16.0)),
    tiling=st.builds(Tiling, sublanes=st.sampled_from((2, 8, 16)), lanes=st.sampled_from((4, 128))),
)
def test_packed_waste_is_that_of_the_smallest_tile_that_holds_all_rows(found, element, tiling):
    """Tiles of 2, 4, ... sublanes up to the full tile, each sublane as many rows as elements fit a word."""
    dims, layout = padded([t[0] for t in found], 0), padded([t[1] for t in found], -1)
    waste = packed_waste(dims, layout, np.full(len(found), element), tiling)
    words = {0.0: 4, 1.0: 4, 2.0: 2}.get(element, 1)
    heights = [words * 2**power for power in range(1, 10) if 2**power <= tiling.sublanes]
    for row, (sizes, order, _) in enumerate(found):
        expected = 1.0
        if len(order) == 1:
            rows = ceil(sizes[0] / tiling.lanes)
            height = min([tall for tall in [1, *heights] if tall >= rows], default=heights[-1])
            expected = ceil(rows / height) * height * tiling.lanes / sizes[0]
        elif order:
            lanes, rows = (sizes[dimension] for dimension in order[:2])
            height = min([tall for tall in heights if tall >= rows], default=heights[-1])
            expected = ceil(lanes / tiling.lanes) * tiling.lanes * ceil(rows / height) * height / (lanes * rows)
        assert waste[row] == pytest.approx(expected - 1, rel=1e-9, abs=1e-9)


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
