"""Weights of graphs of different size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.errors import ModelError
from xlarank.models.objectives import GRAPH_WEIGHTS, row_weights

_SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("how", "first"),
    [
        pytest.param("equal", 10 / 2, id="half of all each"),
        pytest.param("sqrt", 10 * 1 / (1 + 3), id="1 to 3"),
        pytest.param("rows", 1, id="1 to 9"),
    ],
)
def test_total_weights_of_one_and_nine_rows(how: str, first: float) -> None:
    weights = row_weights(np.array([0, 1, 10]), how)
    assert weights[0] == pytest.approx(first)
    assert weights[1:].sum() == pytest.approx(10 - first)


@given(_SIZES, st.sampled_from(sorted(GRAPH_WEIGHTS)))
def test_totals_follow_the_power_of_the_size(sizes: list[int], how: str) -> None:
    weights = row_weights(np.cumsum([0, *sizes]), how)
    assert weights.mean() == pytest.approx(1)
    parts = np.split(weights, np.cumsum(sizes)[:-1])
    for part, size in zip(parts, sizes, strict=True):
        assert np.ptp(part) == 0
        assert part.sum() / parts[0].sum() == pytest.approx((size / sizes[0]) ** GRAPH_WEIGHTS[how])


def test_an_unknown_weighting_is_refused() -> None:
    with pytest.raises(ModelError, match=r"graph_weight is 'even'; expected equal, sqrt, rows"):
        row_weights(np.array([0, 2]), "even")
