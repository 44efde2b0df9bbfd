"""Parts of a difference between two scores: they add up to it, for every ranker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import easy_data, easy_graph
from tests.models.test_sum_pooled import pooled_data, pooled_graph
from tests.pipelines.trees import layout_graph
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.features.assemble import assemble
from xlarank.features.attribution import walk_between
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.models.explanation.parts import Parts, Place, Rows
from xlarank.models.registry import RANKERS
from xlarank.models.training_data import TrainingData

#: XGBoost's contributions are float32; all other sums differ by the last bits of a float64.
ROUNDING = {"xgb-pairwise": 1e-5, "ensemble": 1e-4, "sibling": 1e-4}
SETTINGS = FeatureSettings(Tier.FAST)


def check_sums(parts: Parts, model: str) -> None:
    columns, places = sum(parts.columns.values()), sum(place.value for place in parts.places)
    near = ROUNDING.get(model, 1e-9)
    assert columns + places == pytest.approx(parts.difference, rel=near, abs=near)
    assert sum(parts.instance_columns.values()) == pytest.approx(places, rel=near, abs=near)


@pytest.mark.parametrize("model", RANKERS)
def test_parts_add_up_to_the_difference_of_the_scores(model: str) -> None:
    ranker, graph = fitted(model, easy_data()), easy_graph("unseen__a", 40, seed=5)
    scores = ranker.predict(graph.matrix(), graph.columns)
    for now, then in ((0, 1), (3, 39), (7, 7)):
        parts = ranker.contributions(Rows.of(graph), now, then)
        assert parts.difference == pytest.approx(scores[now] - scores[then], abs=1e-9)
        check_sums(parts, model)
        assert sum(parts.members.values()) == pytest.approx(parts.difference, abs=1e-9)
    # the runtime is 1 + 3 waste + clash: between the cheapest and the dearest waste counts most
    parts = ranker.contributions(Rows.of(graph), int(graph.row_cost.argmin()), int(graph.row_cost.argmax()))
    assert parts.difference < 0 and min(parts.columns, key=lambda name: parts.columns[name]) == "waste"


@pytest.mark.parametrize("model", ["sum-pooled", "ensemble", "sibling"])
def test_sums_over_instances_name_the_nodes_that_differ(model: str) -> None:
    ranker, graph = fitted(model, pooled_data()), pooled_graph("unseen__a", 30, seed=77)
    assert graph.instances is not None
    codes = graph.instances.value.codes
    parts = ranker.contributions(Rows.of(graph), 4, 9)
    check_sums(parts, model)
    assert {place.nodes for place in parts.places} == {(int(k),) for k in np.flatnonzero(codes[4] != codes[9])}


# the last holds an ensemble of all others
@pytest.mark.parametrize("model", ["lambdarank", "xgb-pairwise", "sibling"])
def test_nodes_add_up_to_the_columns(model: str, graph_file: Callable[..., Path]) -> None:
    graph = read_graph(graph_file(layout_graph(3)))
    assert isinstance(graph, LayoutGraph)
    rows = assemble(graph, SETTINGS)
    ranker = fitted(model, TrainingData.from_graphs([rows]), rounds=10)
    for now, then in ((0, 1), (5, 2), (9, 9)):
        walk = walk_between(graph, rows, SETTINGS, now, then)
        parts = ranker.contributions(Rows.of(rows, walk), int(rows.group[now]), int(rows.group[then]))
        check_sums(parts, model)
        assert set(parts.nodes) <= set(walk.nodes.tolist())
        assert sum(parts.nodes.values()) == pytest.approx(sum(parts.columns.values()), abs=1e-4)


def test_parts_of_two_are_joined_place_by_place() -> None:
    one = Parts(-2.0, {"a": -1.0}, (Place((3,), "now", "then", -1.0),), {"c": -1.0}, {"x": -2.0}, {5: -1.0})
    expected = Parts(-3.0, {"a": -1.5}, (Place((3,), "now", "then", -1.5),), {"c": -1.5}, {"x": -3.0}, {5: -1.5})
    assert Parts.total([one, one.scaled(0.5)]) == Parts.total([one, one], 0.75) == expected
