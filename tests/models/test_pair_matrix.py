"""The loss on all pairs and Newton's step, against values by hand, loops and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from xlarank.models.rankers.sum_pooled import PairTerms, newton_step


def loss(relevance: np.ndarray, cost: np.ndarray, tolerance: float) -> float:
    """Written from the docstring."""
    terms = []
    for i in range(len(cost)):
        for j in range(len(cost)):
            if cost[i] < cost[j] and cost[j] - cost[i] > tolerance * cost[i]:
                terms.append(math.log1p(math.exp(relevance[j] - relevance[i])))
    return sum(terms) / len(terms) if terms else 0.0


def test_two_configurations_by_hand() -> None:
    """Relevances ln 3 apart the wrong way: p = 3/4."""
    terms = PairTerms.of(np.array([0.0, math.log(3)]), np.array([1.0, 2.0]), 0.0)
    assert terms.gradient == pytest.approx([-0.75, 0.75])
    assert terms.weight == pytest.approx(np.array([[0, 3 / 16], [3 / 16, 0]]))
    assert terms.curvature == pytest.approx([3 / 16, 3 / 16])


def test_a_leaf_by_hand() -> None:
    """The slower one holds two instances of the only leaf, the faster one none.

    S = (0, 2), gradient = (-1/2, 1/2), the pair's weight 1/4: slope 1, curve 4 / 4 = 1, so v = -1 / (1 + ridge).
    """
    terms = PairTerms.of(np.zeros(2), np.array([1.0, 2.0]), 0.0)
    held = np.array([[0.0], [2.0]])
    assert newton_step([terms], [held], 0.0) == pytest.approx([-1.0])
    assert newton_step([terms], [held], 1.0) == pytest.approx([-0.5])
    assert newton_step([terms, terms], [held, held], 1.0) == pytest.approx([-0.5]), "a mean over graphs"


@pytest.mark.parametrize("tolerance", [0.0, 0.2])
def test_derivatives_are_those_of_the_loss(tolerance: float) -> None:
    rng = np.random.default_rng(0)
    cost = np.array([5.0, 3.0, 3.0, 9.0, 3.3, 7.0])
    at, step = rng.normal(size=6), 1e-4
    terms = PairTerms.of(at, cost, tolerance)
    second = np.diag(terms.curvature) - terms.weight
    unit = np.eye(6) * step
    for i in range(6):
        slope = (loss(at + unit[i], cost, tolerance) - loss(at - unit[i], cost, tolerance)) / (2 * step)
        assert terms.gradient[i] == pytest.approx(slope, abs=1e-7)
        up, down = (PairTerms.of(at + sign * unit[i], cost, tolerance).gradient for sign in (1, -1))
        assert second[i] == pytest.approx((up - down) / (2 * step), abs=1e-7)


def test_ties_are_no_pairs() -> None:
    terms = PairTerms.of(np.arange(3.0), np.array([100.0, 101.0, 100.5]), 0.01)
    assert not terms.gradient.any()
    assert not terms.weight.any()
    alone = PairTerms.of(np.zeros(1), np.ones(1), 0.0)
    assert alone.gradient.tolist() == [0.0]


def test_far_apart_relevances_stay_finite() -> None:
    terms = PairTerms.of(np.array([-1e6, 1e6]), np.array([1.0, 2.0]), 0.0)
    assert terms.gradient == pytest.approx([-1, 1])
    assert terms.curvature == pytest.approx([0, 0])


def test_the_step_minimises_the_second_order_loss() -> None:
    rng = np.random.default_rng(1)
    terms, held = [], []
    for configs in (4, 7):
        terms.append(PairTerms.of(rng.normal(size=configs), rng.random(configs), 0.0))
        held.append(rng.integers(0, 4, (configs, 3)).astype(float))
    ridge = 0.3
    step = newton_step(terms, held, ridge)

    def quadratic(values: np.ndarray) -> float:
        total = 0.0
        for term, counts in zip(terms, held, strict=True):
            change = counts @ values
            for i in range(len(change)):
                total += term.gradient[i] * change[i]
                for j in range(i):
                    total += term.weight[i, j] * (change[i] - change[j]) ** 2 / 2
        return total / len(terms) + ridge / 2 * float(values @ values)

    best = quadratic(step)
    for direction in np.eye(3) * 1e-3:
        assert quadratic(step + direction) > best
        assert quadratic(step - direction) > best


def test_a_weight_scales_both_derivatives() -> None:
    terms = PairTerms.of(np.zeros(3), np.array([1.0, 2.0, 3.0]), 0.0)
    assert terms.scaled(3.0).gradient == pytest.approx(3 * terms.gradient)
    assert terms.scaled(3.0).curvature == pytest.approx(3 * terms.curvature)
