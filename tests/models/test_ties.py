"""Costs that measurement noise cannot tell apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.errors import ModelError
from xlarank.models.objectives import faster_by_sign, merge_ties

_COSTS = st.lists(
    st.one_of(st.floats(0.1, 1e12), st.sampled_from((1.0, 2.0, 2.0**31, 2.0**31 + 1))), min_size=1, max_size=30
).map(np.array)


@given(_COSTS, st.sampled_from((0.0, 0.01, 0.5)))
def test_signs_of_all_pairs_against_plain_loops(cost: np.ndarray, tolerance: float) -> None:
    found = faster_by_sign(cost[:, None], cost[None, :], tolerance)
    for row, one in enumerate(cost):
        for column, other in enumerate(cost):
            if abs(other - one) <= tolerance * min(one, other):
                assert found[row, column] == 0
            else:
                assert found[row, column] == (1 if one < other else -1)
    assert np.array_equal(found, -found.T)


@given(_COSTS, st.sampled_from((1e-4, 0.01, 0.5)))
def test_merged_costs_lie_within_the_tolerance_and_keep_their_order(cost: np.ndarray, tolerance: float) -> None:
    merged = merge_ties(cost, tolerance)
    order = np.argsort(cost, kind="stable")
    assert (np.diff(merged[order]) >= 0).all()
    for level in np.unique(merged):
        members = cost[merged == level]
        assert members.max() <= members.min() * (1 + tolerance) * (1 + 1e-9), "no chain of near neighbours"
    assert (merged <= cost * (1 + 1e-9)).all(), "a cost is rounded down to its step"


def test_ties_by_hand() -> None:
    """Steps of a tenth above 100: 100 to 110, 110 to 121, 121 to 133.1."""
    merged = merge_ties(np.array([105.0, 100, 120, 109, 112, 130]), 0.1)
    assert merged == pytest.approx([100, 100, 110, 100, 110, 121])
    assert np.unique(merged).size == 3, "equal to the last bit"


def test_a_chain_of_near_neighbours_is_cut_into_steps() -> None:
    """Each is 0.5% above the one before: single linkage at 1% would make one of all, steps of 1% make pairs."""
    cost = 1e6 * 1.00501 ** np.arange(200)
    assert 95 <= np.unique(merge_ties(cost, 0.01)).size <= 105


@given(_COSTS)
def test_no_tolerance_changes_nothing(cost: np.ndarray) -> None:
    assert merge_ties(cost, 0.0) is cost


def test_ties_do_not_depend_on_the_unit() -> None:
    cost = np.random.default_rng(0).uniform(1, 2, 300)
    one, other = merge_ties(cost, 0.03), merge_ties(1024 * cost, 0.03)
    assert np.array_equal(np.unique(one, return_inverse=True)[1], np.unique(other, return_inverse=True)[1])


@pytest.mark.parametrize("tolerance", [-0.1, float("nan"), float("inf")])
def test_a_senseless_tolerance_is_refused(tolerance: float) -> None:
    with pytest.raises(ModelError, match=r"tie_tolerance is .*expected a share"):
        merge_ties(np.ones(2), tolerance)
