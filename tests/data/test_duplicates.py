"""Grouping identical configurations, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xlarank.data.config_table import Duplicates, group_codes, group_minimum

_CODES = hnp.arrays(np.int32, st.tuples(st.integers(1, 12), st.integers(0, 5)), elements=st.integers(0, 2))


def assert_groups(found: Duplicates, rows: np.ndarray) -> None:
    """Groups in the order of their first appearance, by a dictionary of whole rows."""
    number: dict[tuple[float, ...], int] = {}
    group = [number.setdefault(row, len(number)) for row in map(tuple, rows.tolist())]
    assert found.group.tolist() == group
    assert found.first.tolist() == [group.index(i) for i in range(len(number))]
    assert found.distinct == len(number)
    assert found.first.dtype == found.group.dtype == np.int64


class Ones:
    """All weights 1: every permutation of a row has the same hash, so the exact comparison must step in."""

    def integers(self, *_, size, dtype):
        return np.ones(size, dtype)


@given(codes=_CODES, data=st.data())
def test_equal_rows_are_grouped_and_the_fastest_repeat_counts(codes, data):
    groups = group_codes(codes)
    assert_groups(groups, codes)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(np.random, "default_rng", lambda seed: Ones())
        assert_groups(group_codes(codes), codes)
        assert group_codes(np.array([[0, 1], [1, 0]], np.int32)).distinct == 2
    times = st.lists(st.integers(1, 2**60), min_size=len(codes), max_size=len(codes))
    values = np.array(data.draw(times), np.int64)
    before = values.copy()
    expected = [min(values[groups.group == group]) for group in range(groups.distinct)]
    assert group_minimum(values, groups.group, groups.distinct).tolist() == expected
    assert np.array_equal(values, before), "the input stays as it was"


def test_large_codes_many_configurations_and_no_nodes():
    codes = np.array([[2**31 - 1] * 40, [0] * 40, [2**31 - 1] * 40, [2**31 - 2] * 40], np.int32)
    assert group_codes(codes).group.tolist() == [0, 1, 0, 2], "products overflow 64 bits on purpose"
    codes = np.zeros((10, 1 << 17), np.int32)  # 4 configurations a step: repeats across the border
    codes[:, -1] = [0, 1, 2, 3, 4, 5, 0, 1, 9, 9]
    assert group_codes(codes).group.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 6, 6]
    assert_groups(group_codes(np.zeros((4, 0), np.int32)), np.zeros((4, 1)))


def test_minimum_keeps_the_type():
    group = np.zeros(2, np.int64)
    assert group_minimum(np.array([2.5, 1.5]), group, 1).tolist() == [1.5]
    # 2**53 + 1 would not survive a detour through floats.
    assert group_minimum(np.array([2**53 + 1, 2**53 + 2]), group, 1).tolist() == [2**53 + 1]
