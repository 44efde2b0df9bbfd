"""Labels, ties, weights of graphs and RankNet's gradient: by hand, and against slow loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.errors import ModelError
from xlarank.models.objectives import (
    GRAPH_WEIGHTS,
    HESSIAN_FLOOR,
    RankNetLoss,
    faster_by_sign,
    mean_rank,
    merge_ties,
    relevance,
    row_weights,
)

_COSTS = st.lists(
    st.one_of(st.floats(0.1, 1e12), st.sampled_from((1.0, 2.0, 2.0**31, 2.0**31 + 1))), min_size=1, max_size=30
).map(np.array)


@given(_COSTS)
def test_labels_are_dense_ranks_or_steps_of_the_logarithm(cost: np.ndarray) -> None:
    assert relevance(cost, "rank").tolist() == [len({other for other in cost if other > one}) for one in cost]
    steps = relevance(cost, "log")
    exact = [300 * max(0.0, 1 - np.log(one / cost.min()) / 2) for one in cost]
    assert np.abs(steps - exact).max() <= 0.5 + 1e-9 and steps.max() == 300
    assert np.array_equal(steps, np.rint(steps)), "LightGBM takes whole numbers only"


@given(_COSTS)
def test_the_mean_rank_is_the_share_of_slower_costs_ties_by_half(cost: np.ndarray) -> None:
    below = np.array([(cost < one).sum() + ((cost == one).sum() - 1) / 2 for one in cost])
    assert mean_rank(cost) == pytest.approx(below / max(1, len(cost) - 1))


@given(_COSTS, st.sampled_from((0.0, 0.01, 0.5)))
def test_signs_of_all_pairs_against_plain_loops(cost: np.ndarray, tolerance: float) -> None:
    found = faster_by_sign(cost[:, None], cost[None, :], tolerance)
    for row, one in enumerate(cost):
        for column, other in enumerate(cost):
            tie = abs(other - one) <= tolerance * min(one, other)
            assert found[row, column] == (0 if tie else 1 if one < other else -1)


@given(_COSTS, st.sampled_from((1e-4, 0.01, 0.5)))
def test_merged_costs_lie_within_the_tolerance_and_keep_their_order(cost: np.ndarray, tolerance: float) -> None:
    merged = merge_ties(cost, tolerance)
    assert (np.diff(merged[np.argsort(cost, kind="stable")]) >= 0).all()
    for level in np.unique(merged):
        members = cost[merged == level]
        assert members.max() <= members.min() * (1 + tolerance) * (1 + 1e-9), "no chain of near neighbours"
    assert (merged <= cost * (1 + 1e-9)).all(), "a cost is rounded down to its step"
    assert merge_ties(cost, 0.0) is cost


def test_ties_by_hand() -> None:
    """Steps of a tenth above 100: 100 to 110, 110 to 121, 121 to 133.1."""
    merged = merge_ties(np.array([105.0, 100, 120, 109, 112, 130]), 0.1)
    assert merged == pytest.approx([100, 100, 110, 100, 110, 121])
    assert np.unique(merged).size == 3, "equal to the last bit"
    chain = 1e6 * 1.00501 ** np.arange(200)  # steps of 1% make pairs, single linkage would make one of all
    assert 95 <= np.unique(merge_ties(chain, 0.01)).size <= 105


def test_unknown_choices_are_refused_by_name() -> None:
    for call, said in (
        (lambda: relevance(np.ones(2), "nope"), "labels is 'nope'; expected rank, log"),
        (lambda: row_weights(np.array([0, 2]), "even"), "graph_weight is 'even'; expected equal, sqrt, rows"),
        *((lambda t=t: merge_ties(np.ones(2), t), "tie_tolerance is .*expected a share") for t in (-0.1, np.nan)),
    ):
        with pytest.raises(ModelError, match=said):
            call()


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.sampled_from(sorted(GRAPH_WEIGHTS)))
def test_total_weights_follow_the_power_of_the_size(sizes: list[int], how: str) -> None:
    weights = row_weights(np.cumsum([0, *sizes]), how)
    assert weights.mean() == pytest.approx(1)
    for part, size in zip(np.split(weights, np.cumsum(sizes)[:-1]), sizes, strict=True):
        assert np.ptp(part) == 0
        assert part.sum() / weights[: sizes[0]].sum() == pytest.approx((size / sizes[0]) ** GRAPH_WEIGHTS[how])


# RankNet -------------------------------------------------------------------------------------------------


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


def test_gradients_by_hand() -> None:
    """Two rows draw each other, so their pair counts twice. p = 1 / (1 + e^(ln 3 - 0)) = 1/4."""
    gradient, hessian = loss_of([[10.0, 20.0]]).gradients(np.array([math.log(3), 0.0]), np.random.default_rng(0))
    assert gradient == pytest.approx([-0.5, 0.5]) and hessian == pytest.approx([0.375, 0.375])
    # two graphs of equal total weight, 3 each: the pair of the first weighs 3/2, at relevance 0 p is 1/2
    loss = loss_of([[10.0, 20.0], [7.0, 7.0, 7.0, 7.0]], pairs=5, how="equal")
    gradient, hessian = loss.gradients(np.zeros(6), np.random.default_rng(0))
    assert gradient == pytest.approx([-1.5, 1.5, 0, 0, 0, 0])
    assert hessian == pytest.approx([0.75, 0.75, *[0.75 * HESSIAN_FLOOR] * 4])
    gradient, _ = loss_of([[1.0, 2.0]]).gradients(np.array([-1e4, 1e4]), np.random.default_rng(0))
    assert gradient.tolist() == [-2.0, 2.0], "no overflow"


_GRAPHS = st.lists(
    st.lists(st.sampled_from([100.0, 100.5, 101.0, 102.0, 150.0, 2e9]), min_size=1, max_size=6),
    min_size=1, max_size=5,
)  # fmt: skip


@given(_GRAPHS, st.integers(1, 4), st.sampled_from((0.0, 0.007, 0.02)), st.sampled_from(("equal", "sqrt", "rows")))
def test_gradients_are_those_of_a_loop_over_pairs(
    graphs: list[list[float]], pairs: int, tolerance: float, how: str
) -> None:
    loss = loss_of(graphs, pairs=pairs, tie_tolerance=tolerance, how=how)
    relevance = np.random.default_rng(1).normal(0, 2, len(loss.cost))
    expected = loop(loss, relevance, 5)
    for found, wanted in zip(loss.gradients(relevance, np.random.default_rng(5)), expected[:2], strict=True):
        assert found == pytest.approx(wanted)


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    loss = loss_of([[10.0, 20.0, 15.0], [3.0, 1.0, 2.0, 2.0]], pairs=3, how="sqrt")
    relevance = np.random.default_rng(2).normal(size=7)
    gradient, _ = loss.gradients(relevance, np.random.default_rng(0))
    for row, step in enumerate(1e-5 * np.eye(7)):
        slope = (loop(loss, relevance + step, 0)[2] - loop(loss, relevance - step, 0)[2]) / 2e-5
        assert gradient[row] == pytest.approx(slope, abs=1e-8)


def test_partners_are_others_of_the_same_graph_all_as_likely() -> None:
    sizes = [1, 2, 5]
    loss, rng, graph = (
        loss_of([[1.0] * size for size in sizes]),
        np.random.default_rng(0),
        np.repeat([0, 1, 2], sizes),
    )
    drawn = np.array([loss.partners(rng) for _ in range(4000)])
    assert (graph[drawn] == graph).all()
    assert ((drawn == np.arange(8)) == (graph == 0)).all(), "itself only where it is alone"
    for row in range(3, 8):
        counts = np.bincount(drawn[:, row], minlength=8)[3:]
        assert np.delete(counts, row - 3) == pytest.approx([1000] * 4, rel=0.15)
