"""Grouping identical configurations, against `numpy.unique` and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xlarank.data.duplicates import Duplicates, group_codes, group_minimum, group_rows

_CODES = hnp.arrays(np.int32, st.tuples(st.integers(1, 12), st.integers(0, 5)), elements=st.integers(0, 2))


def by_hand(rows: np.ndarray) -> tuple[list[int], list[int]]:
    """Groups in the order of their first appearance, by a dictionary of whole rows."""
    number: dict[tuple[float, ...], int] = {}
    first, group = [], []
    for i, row in enumerate(map(tuple, rows.tolist())):
        if row not in number:
            number[row] = len(number)
            first.append(i)
        group.append(number[row])
    return first, group


def assert_groups(found: Duplicates, rows: np.ndarray) -> None:
    first, group = by_hand(rows)
    assert found.first.tolist() == first
    assert found.group.tolist() == group
    assert found.distinct == len(first)
    assert found.first.dtype == found.group.dtype == np.int64


@given(codes=_CODES)
def test_codes_are_grouped_like_whole_rows(codes):
    assert_groups(group_codes(codes), codes)


@given(rows=hnp.arrays(np.float32, (9, 3), elements=st.sampled_from([0.0, 1.0, 0.5, 3e9])))
def test_rows_of_floats_are_grouped(rows):
    assert_groups(group_rows(rows), rows)


@given(codes=_CODES)
def test_a_hash_that_collides_changes_nothing(codes):
    """All weights 1: every permutation of a row has the same hash, so the exact comparison must step in."""

    class Ones:
        def integers(self, *_, size, dtype):
            return np.ones(size, dtype)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(np.random, "default_rng", lambda seed: Ones())
        assert_groups(group_codes(codes), codes)
        assert group_codes(np.array([[0, 1], [1, 0]], np.int32)).distinct == 2


def test_large_codes_many_configurations_and_no_nodes():
    codes = np.array([[2**31 - 1] * 40, [0] * 40, [2**31 - 1] * 40, [2**31 - 2] * 40], np.int32)
    assert group_codes(codes).group.tolist() == [0, 1, 0, 2], "products overflow 64 bits on purpose"
    codes = np.zeros((10, 1 << 17), np.int32)  # 4 configurations a step: repeats across the border
    codes[:, -1] = [0, 1, 2, 3, 4, 5, 0, 1, 9, 9]
    assert group_codes(codes).group.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 6, 6]
    assert_groups(group_codes(np.zeros((4, 0), np.int32)), np.zeros((4, 1)))


@given(codes=_CODES, data=st.data())
def test_minimum_takes_the_fastest_repeat(codes, data):
    values = np.array(
        data.draw(st.lists(st.integers(1, 2**60), min_size=len(codes), max_size=len(codes))), np.int64
    )
    found = group_codes(codes)
    expected = [min(values[found.group == group]) for group in range(found.distinct)]
    before = values.copy()
    assert group_minimum(values, found.group, found.distinct).tolist() == expected
    assert np.array_equal(values, before), "the input stays as it was"


def test_minimum_keeps_the_type():
    found = group_rows(np.array([[1], [1]]))
    assert group_minimum(np.array([2.5, 1.5]), found.group, found.distinct).tolist() == [1.5]
    # 2**53 + 1 would not survive a detour through floats.
    assert group_minimum(np.array([2**53 + 1, 2**53 + 2]), found.group, found.distinct).tolist() == [2**53 + 1]
