"""Labels, ties, weights of graphs and RankNet's gradient: by hand, and against slow loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.models.objectives import HESSIAN_FLOOR, RankNetLoss, faster_by_sign, merge_ties, row_weights

_COSTS = st.lists(st.floats(0.1, 1e12), min_size=1, max_size=30).map(np.array)


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
    """Steps of a tenth above 100: 100 to 110, 110 to 121, 121 to 133.1. A share of the smaller cost ties."""
    merged = merge_ties(np.array([105.0, 100, 120, 109, 112, 130]), 0.1)
    assert merged == pytest.approx([100, 100, 110, 100, 110, 121])
    assert np.unique(merged).size == 3, "equal to the last bit"
    costs, others = np.array([100.0, 101.005, 100.0, 90.0]), np.array([101.005, 100.0, 100.9, 90.0])
    assert faster_by_sign(costs, others, 0.01).tolist() == [1.0, -1.0, 0.0, 0.0]
    assert faster_by_sign(costs, others, 0.0).tolist() == [1.0, -1.0, 1.0, 0.0]
    chain = 1e6 * 1.00501 ** np.arange(200)  # steps of 1% make pairs, single linkage would make one of all
    assert 95 <= np.unique(merge_ties(chain, 0.01)).size <= 105


def loss_of(graphs: list[list[float]], *, pairs: int = 1, how: str = "rows") -> RankNetLoss:
    indptr = np.cumsum([0, *map(len, graphs)])
    return RankNetLoss(np.concatenate(graphs), indptr, row_weights(indptr, how), pairs, 0.0)


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


def test_gradients_of_a_partner_of_two_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 0, the fastest, draws 1; 1 and 2 draw 0. At relevance 0 p is 1/2, p (1 - p) 1/4.

    Pairs: (0, 1) twice and (0, 2) once, so -3 p, 2 p, p, and 3/4, 2/4, 1/4.
    """
    monkeypatch.setattr(RankNetLoss, "partners", lambda *_: np.array([1, 0, 0]))
    gradient, hessian = loss_of([[10.0, 20.0, 30.0]]).gradients(np.zeros(3), np.random.default_rng(0))
    assert gradient == pytest.approx([-1.5, 1.0, 0.5]) and hessian == pytest.approx([0.75, 0.5, 0.25])


def test_partners_are_others_of_the_same_graph_all_as_likely() -> None:
    loss, rng = loss_of([[1.0] * size for size in (1, 2, 5)]), np.random.default_rng(0)
    graph, drawn = np.repeat([0, 1, 2], (1, 2, 5)), np.array([loss.partners(rng) for _ in range(4000)])
    assert (graph[drawn] == graph).all()
    assert ((drawn == np.arange(8)) == (graph == 0)).all(), "itself only where it is alone"
    for row in range(3, 8):
        counts = np.bincount(drawn[:, row], minlength=8)[3:]
        assert np.delete(counts, row - 3) == pytest.approx([1000] * 4, rel=0.15)
