"""Arithmetic on shapes and layouts against the obvious way to do it, one tensor at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.features.oracle_tensor import Tensor
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


@st.composite
def tensors(draw: st.DrawFn) -> list[tuple[Tensor, tuple[int, ...]]]:
    """Tensors of mixed rank, each with a layout that may be partial."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        dims = tuple(draw(st.lists(_SIZES, max_size=MAX_RANK)))
        default, order = (draw(st.permutations(range(len(dims))).map(tuple)) for _ in range(2))
        element = draw(st.sampled_from(("tuple", "s8", "bf16", "f32", "f64", "c128")))
        found.append((Tensor(dims, default, element), order[: draw(st.integers(0, len(dims)))]))
    return found


def padded(rows: Iterable[Sequence[int]], fill: int) -> np.ndarray:
    return np.array([[*row, *[fill] * (MAX_RANK - len(row))] for row in rows], np.int64).reshape(-1, MAX_RANK)


@given(found=tensors())
def test_one_tensor_at_a_time(found):
    """Against the slow reference; with a tile of one row by four lanes, too."""
    dims, default = padded((one.dims for one, _ in found), 0), padded((one.default for one, _ in found), -1)
    layout = complete_layout(padded((named for _, named in found), -1), default)
    full = [(one, one.complete(named)) for one, named in found]
    assert np.array_equal(layout, padded((order for _, order in full), -1))
    minor = [(*(one.dims[dimension] for dimension in order), 1, 1)[:2] for one, order in full]
    ranks, element = np.array([(len(one.dims), one.element_bytes) for one, _ in found]).T
    expected = [
        (
            *(*sizes, one.elements, one.violates(order), one.distance(order), one.contiguity(order)),
            *(one.waste(order), one.packed(order), ceil(sizes[0] / 4) * 4 / sizes[0] - 1 if order else 0),
        )
        for (one, order), sizes in zip(full, minor, strict=True)
    ]
    values = [*minor_sizes(dims, layout), volume(dims, ranks), largest_not_minor(dims, layout)]
    values += [permutation_distance(layout, default), contiguity(dims, layout, default)]
    values += [padding_waste(dims, layout), packed_waste(dims, layout, element)]
    values.append(padding_waste(dims, layout, Tiling(sublanes=1, lanes=4)))
    np.testing.assert_allclose(np.stack(values, axis=1), np.array(expected, float), rtol=1e-9, atol=1e-9)
    both = np.concatenate([layout, default])
    key = layout_key(both)
    assert ((key[:, None] == key[None]) == (both[:, None] == both[None]).all(axis=2)).all()
    assert ((key == 0) == (both < 0).all(axis=1)).all(), "0 is no layout"


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
