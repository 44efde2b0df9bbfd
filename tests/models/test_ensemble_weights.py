"""How much each member counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.rows import easy_data
from xlarank.models.rankers.ensemble import STEPS, blend, ensemble_weights
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.metrics import kendall_tau


@pytest.fixture
def data() -> RankingData:
    return easy_data(graphs=6, configs=40)


def noisy(data: RankingData, share: float, seed: int) -> np.ndarray:
    """Scores that hold the order of costs and noise, each graph in a unit of its own."""
    rng = np.random.default_rng(seed)
    scores = []
    for start, stop in zip(data.indptr[:-1], data.indptr[1:], strict=True):
        cost = data.cost[start:stop]
        unit = 10.0 ** rng.integers(-3, 4)
        scores.append(unit * ((1 - share) * cost / cost.std() + share * rng.normal(size=len(cost))))
    return np.concatenate(scores)


def mean_tau(scores: list[np.ndarray], weights: np.ndarray, data: RankingData) -> float:
    taus = []
    for start, stop in zip(data.indptr[:-1], data.indptr[1:], strict=True):
        taus.append(kendall_tau(blend([one[start:stop] for one in scores], weights), data.cost[start:stop]))
    return float(np.mean(taus))


def test_a_blend_by_hand() -> None:
    """Ranks 0, 1/2, 1 and 1, 0, 1/2, the second three times as heavy."""
    first, second = np.array([0.1, 0.2, 0.3]), np.array([700.0, 5.0, 60.0])
    assert blend([first, second], [1, 3]).tolist() == [0.75, 0.125, 0.625]
    assert blend([first, second], [0, 1]).tolist() == [1, 0, 0.5]


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=20), st.integers(0, 5))
def test_a_blend_does_not_see_the_units_of_scores(values: list[int], seed: int) -> None:
    scores = np.array(values, np.float64)
    other = np.random.default_rng(seed).normal(size=len(scores))
    assert np.array_equal(blend([scores, other], [1, 2]), blend([scores**3, 5 * other - 9], [1, 2]))


def test_a_useless_ranker_gets_little_and_the_blend_beats_equal_weights(data: RankingData) -> None:
    scores = [noisy(data, 0.2, 0), noisy(data, 1.0, 1), noisy(data, 1.0, 2)]
    weights = ensemble_weights(scores, data)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert weights[0] >= 0.8
    assert mean_tau(scores, weights, data) > mean_tau(scores, np.ones(3), data)


def test_no_other_tenths_are_better(data: RankingData) -> None:
    scores = [noisy(data, 0.3, 0), noisy(data, 0.9, 1)]
    weights = ensemble_weights(scores, data)
    best = max(mean_tau(scores, np.array([k, STEPS - k]) / STEPS, data) for k in range(STEPS + 1))
    assert mean_tau(scores, weights, data) == pytest.approx(best)


def test_rankers_that_are_as_good_stay_equal(data: RankingData) -> None:
    """The best tenths on six graphs are luck."""
    scores = [noisy(data, 0.5, seed) for seed in range(3)]
    assert ensemble_weights(scores, data).tolist() == [1 / 3] * 3


def test_one_graph_proves_nothing() -> None:
    data = easy_data(graphs=1)
    assert ensemble_weights([noisy(data, 0.0, 0), noisy(data, 1.0, 1)], data).tolist() == [0.5, 0.5]


def test_one_ranker_has_all_the_weight(data: RankingData) -> None:
    assert ensemble_weights([noisy(data, 0.5, 0)], data).tolist() == [1.0]
