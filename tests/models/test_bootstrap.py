"""The interval around a mean over graphs."""

from __future__ import annotations

import numpy as np
import pytest

from xlarank.models.validation.metrics import bootstrap_interval


def test_the_interval_is_that_of_resampled_means() -> None:
    """Against a loop that draws graph by graph, with a seed of its own."""
    values = np.random.default_rng(3).normal(0.5, 0.2, 12)
    rng = np.random.default_rng(99)
    means = [np.mean([values[rng.integers(12)] for _ in range(12)]) for _ in range(4000)]
    low, high = bootstrap_interval(values)
    assert low == pytest.approx(np.percentile(means, 2.5), abs=0.01)
    assert high == pytest.approx(np.percentile(means, 97.5), abs=0.01)


def test_it_nears_the_normal_interval_where_there_are_many() -> None:
    values = np.random.default_rng(0).normal(0.5, 0.2, 400)
    low, high = bootstrap_interval(values)
    reach = 1.96 * values.std() / np.sqrt(len(values))
    assert (low, high) == pytest.approx((values.mean() - reach, values.mean() + reach), abs=0.002)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    intervals = [bootstrap_interval(rng.normal(0.0, 1.0, 20)) for _ in range(200)]
    assert 0.88 < np.mean([low < 0 < high for low, high in intervals]) < 0.98


def test_the_same_every_time_and_alike_for_every_metric() -> None:
    values = np.random.default_rng(5).random(9)
    assert bootstrap_interval(values) == bootstrap_interval(values.copy())
    assert bootstrap_interval(2 * values + 1) == pytest.approx([2 * end + 1 for end in bootstrap_interval(values)])


def test_graphs_that_agree_leave_no_width() -> None:
    assert bootstrap_interval(np.full(7, 0.25)) == (0.25, 0.25)
