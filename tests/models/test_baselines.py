"""Orders that need no model, on a graph small enough to count."""

from __future__ import annotations

import numpy as np
import pytest

from xlarank.models.validation.baselines import FEWEST_SET, FILE_ORDER, RANDOM, baselines, each_once
from xlarank.models.validation.metrics import METRICS

COST = np.array([10.0, 40.0, 20.0, np.inf])
GROUP = np.array([0, 1, 2, 3])


def test_the_order_of_the_file() -> None:
    """Pairs (10, 40) and (10, 20) are in order, (40, 20) is not: tau = (2 - 1) / 3; the first is the best."""
    found = baselines("layout", COST, GROUP)
    assert found[FILE_ORDER]["tau"] == pytest.approx(1 / 3)
    assert found[FILE_ORDER]["slowdown@1"] == 0
    assert set(found) == {FILE_ORDER, RANDOM} and set(found[RANDOM]) == set(METRICS)


def test_fewest_layouts_set() -> None:
    found = baselines("layout", COST, GROUP, np.array([0.0, 2.0, 1.0, 0.0]))
    assert found[FEWEST_SET]["tau"] == pytest.approx(1.0)


def test_a_random_order_of_three_is_as_slow_as_their_mean() -> None:
    """The mean slowdown of the first of a random order is (0 + 3 + 1) / 3; five tries find the best of three."""
    found = baselines("tile", COST, GROUP)[RANDOM]
    assert found["tau"] == 0 and found["ordered_pair_accuracy"] == 0.5
    assert 0.3 < found["slowdown@1"] < 2.4
    assert found["slowdown@5"] == 0 and found["score"] == 1


def test_a_repeated_configuration_counts_once() -> None:
    score, cost, group = each_once(np.array([1.0, 2.0, 1.0]), np.array([12.0, 20.0, 10.0]), np.array([7, 8, 7]))
    assert (score.tolist(), cost.tolist(), group.tolist()) == ([1.0, 2.0], [10.0, 20.0], [7, 8])
