"""Speedup over the compiler's own choice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.rows import graph_rows
from xlarank.models.validation.metrics import SPEEDUPS, compiler_cost, speedups, summarise_speedups

SET = "change__nodes_set__share"


def test_a_layouts_compiler_sets_nothing() -> None:
    rows = graph_rows("a__a", [30, 20, 40], features=np.array([[0.5], [0.0], [1.0]]), columns=["size", SET])
    assert compiler_cost("layout", rows) == 20
    assert compiler_cost("layout", rows.take(np.array([0, 2]))) is None, "it is no candidate"
    unknown = replace(rows, runtime=np.array([30, 0, 40]))
    assert compiler_cost("layout", unknown) is None, "nobody measured it"
    assert compiler_cost("layout", graph_rows("a__a", [1, 2])) is None, "no column tells"


def test_a_tiles_normalizer_is_the_compilers_own() -> None:
    rows = graph_rows("a__a", [30, 20])
    assert compiler_cost("tile", replace(rows, normalizer=np.array([25, 25]))) == 1
    assert compiler_cost("tile", rows) is None, "no normalizer"


def test_the_best_of_the_first_counts() -> None:
    score = np.arange(7.0)
    cost = np.array([np.inf, 50.0, 40.0, 80.0, 30.0, 25.0, 1.0])  # the first was never measured
    assert speedups(score, cost, 100.0) == {"speedup@1": 2.0, "speedup@5": 4.0}
    group = np.array([0, 1, 1, 2, 3, 4, 5])  # the second and third are one configuration: a sixth comes in
    assert speedups(score, cost, 100.0, group)["speedup@5"] == 100.0


def test_means_are_geometric() -> None:
    report = summarise_speedups({"a": dict.fromkeys(SPEEDUPS, 2.0), "b": dict.fromkeys(SPEEDUPS, 0.5)})
    assert list(report) == list(SPEEDUPS)
    assert report["speedup@1"]["mean"] == pytest.approx(1.0)
    assert report["speedup@1"]["std"] == pytest.approx(np.log(2))
    assert report["speedup@5"]["graphs"] == {"a": 2.0, "b": 0.5}
    assert summarise_speedups({}) == {}
