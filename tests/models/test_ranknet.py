"""RankNet's loss and tied costs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.models import objectives
from xlarank.models.objectives import (
    HESSIAN_FLOOR,
    draw_partners,
    merge_ties,
    ranknet_gradients,
    row_weights,
)


@given(
    st.lists(st.floats(0.1, 1e12), min_size=1, max_size=30).map(np.array),
    st.sampled_from((1e-4, 0.01, 0.5)),
)
def test_merged_costs_lie_within_the_tolerance_and_keep_their_order(cost, tolerance):
    merged = merge_ties(cost, tolerance)
    assert (np.diff(merged[np.argsort(cost, kind="stable")]) >= 0).all()
    for level in np.unique(merged):
        members = cost[merged == level]
        assert members.max() <= members.min() * (1 + tolerance) * (1 + 1e-9), "no chain"
    assert (merged <= cost * (1 + 1e-9)).all(), "a cost is rounded down to its step"
    assert merge_ties(cost, 0.0) is cost


def gradients(graphs, relevance, *, pairs=1, how="rows"):
    indptr = np.cumsum([0, *map(len, graphs)])
    weight = row_weights(indptr, how)
    rng = np.random.default_rng(0)
    cost = np.concatenate(graphs)
    return ranknet_gradients(np.array(relevance), cost, indptr, weight, pairs, 0.0, rng)


def test_gradients_by_hand(monkeypatch):
    """Two rows draw each other, so their pair counts twice. p = 1 / (1 + e^(ln 3 - 0)) = 1/4."""
    gradient, hessian = gradients([[10.0, 20.0]], [math.log(3), 0.0])
    assert gradient == pytest.approx([-0.5, 0.5]) and hessian == pytest.approx([0.375, 0.375])
    # two graphs of equal total weight, 3 each: the pair of the first weighs 3/2, at relevance 0 p
    # is 1/2
    graphs = [[10.0, 20.0], [7.0, 7.0, 7.0, 7.0]]
    gradient, hessian = gradients(graphs, np.zeros(6), pairs=5, how="equal")
    assert gradient == pytest.approx([-1.5, 1.5, 0, 0, 0, 0])
    assert hessian == pytest.approx([0.75, 0.75, *[0.75 * HESSIAN_FLOOR] * 4])
    gradient, _ = gradients([[1.0, 2.0]], [-1e4, 1e4])
    assert gradient.tolist() == [-2.0, 2.0], "no overflow"
    # row 0, the fastest, draws 1; 1 and 2 draw 0: (0, 1) twice and (0, 2) once, so -3 p, 2 p, p,
    # and 3/4, 2/4, 1/4
    monkeypatch.setattr(objectives, "draw_partners", lambda *_: np.array([1, 0, 0]))
    gradient, hessian = gradients([[10.0, 20.0, 30.0]], np.zeros(3))
    assert gradient == pytest.approx([-1.5, 1.0, 0.5])
    assert hessian == pytest.approx([0.75, 0.5, 0.25])


def test_partners_are_others_of_the_same_graph_all_as_likely():
    rng = np.random.default_rng(0)
    graph = np.repeat([0, 1, 2], (1, 2, 5))
    drawn = np.array([draw_partners(np.array([0, 1, 3, 8]), rng) for _ in range(4000)])
    assert (graph[drawn] == graph).all()
    assert ((drawn == np.arange(8)) == (graph == 0)).all(), "itself only if it is alone"
    for row in range(3, 8):
        counts = np.bincount(drawn[:, row], minlength=8)[3:]
        assert np.delete(counts, row - 3) == pytest.approx([1000] * 4, rel=0.15)
