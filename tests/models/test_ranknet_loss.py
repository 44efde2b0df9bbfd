"""RankNet's gradient: by hand, against a slow loop, and as the slope of the loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.models.objectives import HESSIAN_FLOOR, RankNetLoss, row_weights


def loss_of(
    graphs: list[list[float]], *, pairs: int = 1, tie_tolerance: float = 0.0, how: str = "rows"
) -> RankNetLoss:
    indptr = np.cumsum([0, *map(len, graphs)])
    cost = np.array([cost for graph in graphs for cost in graph])
    return RankNetLoss(cost, indptr, row_weights(indptr, how), pairs, tie_tolerance)


def loop(loss: RankNetLoss, relevance: np.ndarray, seed: int) -> tuple[list[float], list[float], float]:
    """Gradient, hessian and loss, one pair after the other, of the pairs that the seed draws."""
    rng = np.random.default_rng(seed)
    rows = len(relevance)
    gradient, hessian, total = [0.0] * rows, [0.0] * rows, 0.0
    for _ in range(loss.pairs):
        for one, other in enumerate(loss.partners(rng).tolist()):
            low, high = sorted((loss.cost[one], loss.cost[other]))
            if high - low <= loss.tie_tolerance * low:
                continue
            faster, slower = (one, other) if loss.cost[one] == low else (other, one)
            wrong = 1 / (1 + math.exp(relevance[faster] - relevance[slower]))
            share = loss.weight[one] / loss.pairs
            gradient[faster] -= share * wrong
            gradient[slower] += share * wrong
            hessian[faster] += share * wrong * (1 - wrong)
            hessian[slower] += share * wrong * (1 - wrong)
            total += share * math.log(1 + math.exp(relevance[slower] - relevance[faster]))
    return gradient, [max(h, HESSIAN_FLOOR * w) for h, w in zip(hessian, loss.weight, strict=True)], total


def test_two_rows_by_hand() -> None:
    """Both draw each other, so their pair counts twice. p = 1 / (1 + e^(ln 3 - 0)) = 1/4."""
    loss = loss_of([[10.0, 20.0]])
    gradient, hessian = loss.gradients(np.array([math.log(3), 0.0]), np.random.default_rng(0))
    assert gradient == pytest.approx([-0.5, 0.5])
    assert hessian == pytest.approx([0.375, 0.375])


def test_weights_and_the_number_of_pairs_by_hand() -> None:
    """Two graphs of equal total weight, 3 each: the pair of the first weighs 3/2, at relevance 0 p is 1/2."""
    loss = loss_of([[10.0, 20.0], [7.0, 7.0, 7.0, 7.0]], pairs=5, how="equal")
    gradient, hessian = loss.gradients(np.zeros(6), np.random.default_rng(0))
    assert gradient == pytest.approx([-1.5, 1.5, 0, 0, 0, 0])
    assert hessian == pytest.approx([0.75, 0.75, *[0.75 * HESSIAN_FLOOR] * 4])


_GRAPHS = st.lists(
    st.lists(st.sampled_from([100.0, 100.5, 101.0, 102.0, 150.0, 2e9]), min_size=1, max_size=6),
    min_size=1,
    max_size=5,
)


@given(_GRAPHS, st.integers(1, 4), st.sampled_from((0.0, 0.007, 0.02)), st.sampled_from(("equal", "sqrt", "rows")))
def test_like_a_loop_over_pairs(graphs: list[list[float]], pairs: int, tolerance: float, how: str) -> None:
    loss = loss_of(graphs, pairs=pairs, tie_tolerance=tolerance, how=how)
    relevance = np.random.default_rng(1).normal(0, 2, len(loss.cost))
    gradient, hessian = loss.gradients(relevance, np.random.default_rng(5))
    expected = loop(loss, relevance, 5)
    assert gradient == pytest.approx(expected[0])
    assert hessian == pytest.approx(expected[1])


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    loss = loss_of([[10.0, 20.0, 15.0], [3.0, 1.0, 2.0, 2.0]], pairs=3, how="sqrt")
    relevance = np.random.default_rng(2).normal(size=7)
    gradient, _ = loss.gradients(relevance, np.random.default_rng(0))
    for row in range(7):
        step = np.zeros(7)
        step[row] = 1e-5
        slope = (loop(loss, relevance + step, 0)[2] - loop(loss, relevance - step, 0)[2]) / 2e-5
        assert gradient[row] == pytest.approx(slope, abs=1e-8)


@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.integers(0, 100))
def test_partners_are_others_of_the_same_graph(sizes: list[int], seed: int) -> None:
    loss = loss_of([[1.0] * size for size in sizes])
    graph = np.repeat(np.arange(len(sizes)), sizes)
    drawn = loss.partners(np.random.default_rng(seed))
    assert np.array_equal(graph[drawn], graph)
    assert np.array_equal(drawn == np.arange(len(drawn)), np.array(sizes)[graph] == 1)


def test_every_other_row_is_as_likely() -> None:
    loss, rng = loss_of([[1.0, 1.0], [1.0] * 5]), np.random.default_rng(0)
    drawn = np.array([loss.partners(rng) for _ in range(4000)])
    for row in range(2, 7):
        counts = np.bincount(drawn[:, row], minlength=7)[2:]
        assert counts[row - 2] == 0
        assert np.delete(counts, row - 2) == pytest.approx([1000] * 4, rel=0.15)


def test_pairs_are_drawn_anew_each_time_from_the_seed() -> None:
    loss, relevance = loss_of([list(range(1, 50))]), np.zeros(49)
    rng, again = np.random.default_rng(3), np.random.default_rng(3)
    first, second = loss.gradients(relevance, rng)[0], loss.gradients(relevance, rng)[0]
    assert not np.array_equal(first, second)
    assert np.array_equal(first, loss.gradients(relevance, again)[0])


@pytest.mark.parametrize(("tolerance", "tie"), [(0.0, False), (0.049, False), (0.0501, True)])
def test_a_difference_within_the_tolerance_is_a_tie(tolerance: float, tie: bool) -> None:
    """21 is 5% above 20."""
    gradient, _ = loss_of([[20.0, 21.0]], tie_tolerance=tolerance).gradients(np.zeros(2), np.random.default_rng(0))
    assert (gradient == 0).all() == tie


def test_far_apart_relevances_overflow_nothing() -> None:
    gradient, hessian = loss_of([[1.0, 2.0]]).gradients(np.array([-1e4, 1e4]), np.random.default_rng(0))
    assert gradient.tolist() == [-2.0, 2.0]
    assert hessian.tolist() == [HESSIAN_FLOOR] * 2
