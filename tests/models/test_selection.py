"""Mean or robust: what a choice goes by."""

from __future__ import annotations

import numpy as np
import pytest

from xlarank.data.errors import ModelError
from xlarank.models.validation.paired import SPREAD, objective_value, paired_difference


def test_robust_is_the_mean_less_a_quarter_of_the_spread() -> None:
    scores = np.random.default_rng(0).random((7, 3))
    assert objective_value(scores, "mean") == pytest.approx(scores.mean(axis=0))
    assert objective_value(scores, "robust") == pytest.approx(scores.mean(axis=0) - 0.25 * scores.std(axis=0))
    assert SPREAD == 0.25


def test_an_even_setting_wins_over_a_slightly_better_one() -> None:
    uneven, even = np.array([0.1, 0.9, 0.9, 0.5]), np.array([0.55, 0.6, 0.65, 0.55])
    assert objective_value(uneven, "mean") > objective_value(even, "mean")
    assert objective_value(uneven, "robust") < objective_value(even, "robust")


def test_the_gain_in_the_mean_has_the_error_of_paired_differences() -> None:
    rng = np.random.default_rng(1)
    one, two = ({name: float(value) for name, value in zip("abcdef", rng.random(6), strict=True)} for _ in "12")
    difference = np.array([two[name] - one[name] for name in one])
    mean, error = paired_difference(two, one)
    assert mean == pytest.approx(difference.mean())
    assert error == pytest.approx(difference.std(ddof=1) / np.sqrt(6))


def test_the_error_of_a_robust_gain_is_that_of_repeated_draws() -> None:
    """Draw many sets of graphs: their robust gains spread as the error of one set says."""
    rng = np.random.default_rng(2)

    def draw() -> tuple[float, float]:
        scores = rng.normal([0.5, 0.55], [0.1, 0.2], (60, 2))
        return paired_difference(
            *({str(n): float(value) for n, value in enumerate(column)} for column in scores.T), "robust"
        )

    found = np.array([draw() for _ in range(60)])
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.25)


def test_one_graph_proves_nothing() -> None:
    assert paired_difference({"a": 0.5}, {"a": 0.25}, "robust") == (0.25, float("inf"))


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ModelError, match="select is 'best'; expected mean, robust"):
        objective_value(np.ones((2, 2)), "best")
