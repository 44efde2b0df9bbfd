"""Rankers and settings against one another, graph by graph."""

from __future__ import annotations

import numpy as np
import pytest

from xlarank.data.errors import ModelError
from xlarank.models.validation.metrics import METRICS, summarise
from xlarank.models.validation.paired import (
    Difference,
    compare_rankers,
    difference,
    graph_scores,
    objective_value,
    paired_difference,
)


def test_robust_is_the_mean_less_a_quarter_of_the_spread() -> None:
    scores = np.random.default_rng(0).random((7, 3))
    assert objective_value(scores, "mean") == pytest.approx(scores.mean(axis=0))
    assert objective_value(scores, "robust") == pytest.approx(scores.mean(axis=0) - 0.25 * scores.std(axis=0))
    with pytest.raises(ModelError, match="select is 'best'; expected mean, robust"):
        objective_value(scores, "best")


def test_the_gain_in_the_mean_has_the_error_of_paired_differences() -> None:
    rng = np.random.default_rng(1)
    one, two = ({name: float(value) for name, value in zip("abcdef", rng.random(6), strict=True)} for _ in "12")
    values = np.array([two[name] - one[name] for name in one])
    assert paired_difference(two, one) == pytest.approx((values.mean(), values.std(ddof=1) / np.sqrt(6)))
    assert paired_difference({"a": 0.5}, {"a": 0.25}, "robust") == (0.25, float("inf"))


def test_the_error_of_a_robust_gain_is_that_of_repeated_draws() -> None:
    """Draw many sets of graphs: their robust gains spread as the error of one set says."""
    rng = np.random.default_rng(2)

    def draw() -> tuple[float, float]:
        scores = rng.normal([0.5, 0.55], [0.1, 0.2], (60, 2))
        columns = ({str(n): float(value) for n, value in enumerate(column)} for column in scores.T)
        return paired_difference(*columns, "robust")

    found = np.array([draw() for _ in range(60)])
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.25)


def scores(values: dict[str, float]) -> dict[str, dict[str, float]]:
    return {graph: dict.fromkeys(METRICS, value) for graph, value in values.items()}


def test_the_interval_is_that_of_the_differences_not_of_the_values() -> None:
    """Graphs differ far more than the rankers: each ranker's interval is wide, that between them is not."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0.5, 0.3, 40)
    one = scores({str(graph): value for graph, value in enumerate(hard)})
    two = scores({str(graph): value + 0.02 + rng.normal(0, 0.01) for graph, value in enumerate(hard)})
    found = difference(two, one, "tau")
    assert found is not None and found.graphs == 40
    values = np.array([two[graph]["tau"] - one[graph]["tau"] for graph in one])
    assert found.mean == pytest.approx(values.mean())
    rng = np.random.default_rng(9)
    means = [np.mean(values[rng.integers(40, size=40)]) for _ in range(4000)]  # draw graph by graph, another seed
    assert [found.low, found.high] == pytest.approx(np.percentile(means, [2.5, 97.5]), abs=5e-4)
    assert summarise(one)["tau"]["high"] - summarise(one)["tau"]["low"] > 0.1  # type: ignore[operator]


def test_everyone_is_compared_with_the_first_on_the_graphs_of_both() -> None:
    found = difference(scores({"a": 0.5, "c": 0.0}), scores({"b": 0.9, "a": 0.25}), "slowdown@1")
    assert found == Difference(0.25, 0.25, 0.25, 1)
    of = {"first": scores({"a": 0.5, "b": 0.5}), "second": scores({"a": 0.6, "b": 0.8}), "alone": scores({"c": 1})}
    report = compare_rankers(of)
    assert list(report) == list(of) and "difference" not in report["first"]["tau"]
    second = report["second"]["slowdown@5"]
    assert second["mean"] == pytest.approx(0.7)
    assert second["difference"] == pytest.approx({"mean": 0.2, "low": 0.1, "high": 0.3, "graphs": 2})
    assert report["alone"]["tau"]["difference"] is None
    assert graph_scores(report["second"]) == of["second"]
