"""Rankers against one another, graph by graph."""

from __future__ import annotations

import numpy as np
import pytest

from xlarank.models.validation.metrics import METRICS, summarise
from xlarank.models.validation.paired import Difference, compare_rankers, difference, graph_scores


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
    assert found.low > 0, "seen to be better"
    assert summarise(one)["tau"]["high"] - summarise(one)["tau"]["low"] > 0.1  # type: ignore[operator]


def test_only_graphs_of_both_count() -> None:
    found = difference(scores({"a": 0.5, "c": 0.0}), scores({"b": 0.9, "a": 0.25}), "slowdown@1")
    assert found == Difference(0.25, 0.25, 0.25, 1)
    assert difference(scores({"a": 0.5}), scores({"b": 0.5}), "tau") is None


def test_everyone_is_compared_with_the_first() -> None:
    of = {
        "first": scores({"a": 0.5, "b": 0.5}),
        "second": scores({"a": 0.6, "b": 0.8}),
        "alone": scores({"c": 1.0}),
    }
    report = compare_rankers(of)
    assert list(report) == list(of)
    assert "difference" not in report["first"]["tau"]
    assert report["second"]["slowdown@5"]["mean"] == pytest.approx(0.7)
    assert report["second"]["slowdown@5"]["difference"] == pytest.approx(
        {"mean": 0.2, "low": 0.1, "high": 0.3, "graphs": 2}
    )
    assert report["alone"]["tau"]["difference"] is None
    assert graph_scores(report["second"]) == of["second"]
