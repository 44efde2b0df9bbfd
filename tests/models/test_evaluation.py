"""Metrics of one ranked graph and of orders that need no model, small enough to count."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xlarank.data.collection import Collection
from xlarank.features.rows import GraphRows
from xlarank.models.validation.evaluation import (
    ESTIMATED_TIME,
    FEWEST_SET,
    FILE_ORDER,
    LARGEST_OUTPUT,
    LARGEST_TILE,
    NEAREST_FIRST,
    RANDOM,
    baselines,
    each_once,
    evaluate_graph,
)
from xlarank.models.validation.metrics import LAYOUTS_SET, METRICS, graph_metrics

LAYOUTS, TILES = Collection.parse("layout:cpu:random"), Collection.parse("tile:cpu")


def rows_of(column: str = "size", values: tuple[float, ...] = (0, 2, 1, 0)) -> GraphRows:
    """Four configurations of 10, 40 and 20 ns, the last not measured."""
    return GraphRows(
        name="graph", columns=[column], graph_values=np.empty(0, np.float32),
        config_values=np.array(values, np.float32)[:, None], group=np.arange(4), ids=np.arange(4),
        runtime=np.array([10, 40, 20, 0]), normalizer=np.ones(4, np.int64),
    )  # fmt: skip


def test_the_order_of_the_file() -> None:
    """Pairs (10, 40) and (10, 20) are in order, (40, 20) is not: tau = (2 - 1) / 3; the first is the best."""
    found = baselines(LAYOUTS, rows_of())
    assert found[FILE_ORDER]["tau"] == pytest.approx(1 / 3)
    assert found[FILE_ORDER]["slowdown@1"] == 0
    assert set(found) == {FILE_ORDER, RANDOM} and set(found[RANDOM]) == set(METRICS)
    picked = baselines(LAYOUTS, rows_of(), np.array([2, 1]))
    assert picked[FILE_ORDER]["tau"] == -1, "its places in the file, not in what was picked"


def test_columns_that_are_orders() -> None:
    assert baselines(LAYOUTS, rows_of(LAYOUTS_SET))[FEWEST_SET]["tau"] == pytest.approx(1.0)
    estimated = rows_of("estimate__sum__log")
    assert baselines(TILES, estimated)[ESTIMATED_TIME]["tau"] == pytest.approx(1.0)
    assert ESTIMATED_TIME not in baselines(Collection.parse("tile:xla"), estimated), "that of another machine"


def test_rules_for_tiles() -> None:
    """Volumes 1, 3, 2, 0 of the output and 4, 0, 1, 0 of the kernel; costs 10, 40, 20."""
    volumes = np.array([[1, 4], [3, 0], [2, 1], [0, 0]], np.float32)
    names = ["bounds__output_volume__log", "bounds__kernel_volume__log"]
    found = baselines(TILES, replace(rows_of(), columns=names, config_values=volumes))
    assert found[LARGEST_OUTPUT]["tau"] == pytest.approx(-1.0)
    assert found[LARGEST_TILE]["slowdown@1"] == 0, "5 elements on the logarithmic scale against 3 and 3"
    assert found[NEAREST_FIRST]["tau"] == pytest.approx(1.0), "0, 6 and 4 apart"


def test_a_random_order_of_three_is_as_slow_as_their_mean() -> None:
    """The mean slowdown of the first of a random order is (0 + 3 + 1) / 3; five tries find the best of three."""
    found = baselines(TILES, rows_of())[RANDOM]
    assert found["tau"] == 0 and found["ordered_pair_accuracy"] == 0.5
    assert found["slowdown@1"] == pytest.approx(4 / 3)
    assert found["slowdown@5"] == 0 and found["score"] == 1


def test_a_ranking_is_judged_beside_them() -> None:
    rows, scores = rows_of(), np.array([3.0, 1.0, 2.0, 0.0])
    found = evaluate_graph(LAYOUTS, rows, scores)
    assert found.metrics == found.once == graph_metrics("layout", scores, rows.cost, rows.group)
    assert found.baselines == baselines(LAYOUTS, rows) and found.speedups == {}


def test_a_repeated_configuration_counts_once() -> None:
    score, cost, group = each_once(np.array([1.0, 2.0, 1.0]), np.array([12.0, 20.0, 10.0]), np.array([7, 8, 7]))
    assert (score.tolist(), cost.tolist(), group.tolist()) == ([1.0, 2.0], [10.0, 20.0], [7, 8])
