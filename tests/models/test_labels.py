"""Relevance labels, ranks and the dealing of oversized groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.errors import ModelError
from xlarank.models.objectives import MAX_GROUP, mean_rank, relevance

_COSTS = st.lists(
    st.one_of(st.floats(0.1, 1e12), st.sampled_from((1.0, 2.0, 2.0**31, 2.0**31 + 1))), min_size=1, max_size=30
).map(np.array)


@given(_COSTS, st.sampled_from(("rank", "log")))
def test_a_faster_configuration_never_has_the_lower_label(cost: np.ndarray, how: str) -> None:
    labels = relevance(cost, how)
    by_speed = labels[np.argsort(cost)]
    assert (np.diff(by_speed) <= 0).all()
    assert labels.dtype == np.float64
    assert np.array_equal(labels, np.rint(labels)), "LightGBM takes whole numbers only"
    assert labels.min() >= 0


@given(_COSTS)
def test_rank_labels_are_dense(cost: np.ndarray) -> None:
    labels = relevance(cost, "rank")
    expected = [len({other for other in cost if other > one}) for one in cost]
    assert labels.tolist() == expected


@given(_COSTS)
def test_log_labels_are_steps_of_the_logarithm(cost: np.ndarray) -> None:
    labels = relevance(cost, "log")
    for label, one in zip(labels, cost, strict=True):
        exact = 300 * max(0.0, 1 - np.log(one / cost.min()) / 2)
        assert abs(label - exact) <= 0.5 + 1e-9
    assert labels.max() == 300


def test_labels_of_another_kind_are_refused() -> None:
    with pytest.raises(ModelError, match="labels is 'nope'; expected rank, log"):
        relevance(np.ones(2), "nope")


def test_log_labels_by_hand() -> None:
    """e, the square root of the range e^2, lies half way; e^2 and beyond is the bottom."""
    cost = 1000.0 * np.array([1.0, np.e, np.e**2, 1e6, 1.001])
    assert relevance(cost, "log").tolist() == [300, 150, 0, 0, 300]


def test_ranks_tell_runtimes_one_nanosecond_apart() -> None:
    cost = np.array([2**31 + 1, 2**31], np.int64).astype(np.float64)
    assert relevance(cost, "rank").tolist() == [0, 1]
    assert relevance(cost, "log").tolist() == [300, 300]


def test_the_limit_is_that_of_lightgbm() -> None:
    assert MAX_GROUP == 10_000


def test_one_configuration_has_the_best_label() -> None:
    assert relevance(np.array([5.0]), "rank").tolist() == [0]
    assert relevance(np.array([5.0]), "log").tolist() == [300]


def test_log_labels_differ_between_factors_not_differences() -> None:
    assert relevance(np.array([1.0, 2.0]), "log")[1] == pytest.approx(relevance(np.array([50.0, 100.0]), "log")[1])


# Ranks ---------------------------------------------------------------------------------------------------


@given(_COSTS)
def test_the_mean_rank_is_the_share_of_slower_costs_ties_by_half(cost: np.ndarray) -> None:
    below = np.array([(cost < one).sum() + ((cost == one).sum() - 1) / 2 for one in cost])
    assert mean_rank(cost) == pytest.approx(below / max(1, len(cost) - 1))


def test_mean_ranks_by_hand() -> None:
    assert mean_rank(np.array([30.0, 10, 20, 10, 40])).tolist() == [0.75, 0.125, 0.5, 0.125, 1.0]
    assert mean_rank(np.array([7.0])).tolist() == [0.0]
