"""What is particular to rankreg; the contract is tested in test_registry."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, graph_rows
from xlarank.data.errors import ModelError
from xlarank.models.objectives.labels import normal_score
from xlarank.models.ranking_data import RankingData

#: Trees that reproduce what they learn, at once.
_EXACT = {
    "learning_rate": 1.0, "num_leaves": 60, "min_data_in_leaf": 1, "feature_fraction": 1.0, "bagging_fraction": 1.0,
    "lambda_l2": 0.0,
}  # fmt: skip


def learned(costs: list[int], **params: object) -> np.ndarray:
    # LightGBM puts at least three rows into a bin: every configuration stands three times
    rows = np.repeat(np.arange(float(len(costs))), 3)
    data = RankingData.from_graphs(
        [graph_rows("a__a", np.repeat(costs, 3).tolist(), features=np.stack([rows] * 3, axis=1))]
    )
    return fitted("rankreg", data, rounds=1, **{**_EXACT, **params}).predict(data.rows, COLUMNS)[::3]


def test_scores_are_the_rank_about_its_mean() -> None:
    assert learned([40, 10, 30, 20]) * 11 / 9 == pytest.approx([0.5, -0.5, 0.5 / 3, -0.5 / 3], abs=1e-6)


def test_scores_can_be_normal_scores() -> None:
    scores = learned([40, 10, 30, 20], target="normal")
    assert scores == pytest.approx(normal_score(np.repeat([40.0, 10, 30, 20], 3))[::3], abs=1e-6)


def test_near_costs_share_a_rank() -> None:
    assert np.unique(learned([1000, 1004, 1300], tie_tolerance=0.0).round(6)).size == 3
    first, second, third = learned([1000, 1004, 1300], tie_tolerance=0.01)
    assert first == pytest.approx(second, abs=1e-6)
    assert third > first


def test_every_graph_counts_the_same_whatever_its_size() -> None:
    """Two graphs of opposite order in the same column, one with three times the rows: at equal weight a draw."""
    up, down = np.repeat([0.0, 1.0], 30), np.repeat([1.0, 0.0], 90)
    graphs = [
        graph_rows("a__a", np.repeat([10, 20], 30).tolist(), features=np.stack([up] * 3, axis=1)),
        graph_rows("b__a", np.repeat([10, 20], 90).tolist(), features=np.stack([down] * 3, axis=1)),
    ]
    data = RankingData.from_graphs(graphs)
    for part in data.parts:
        part.graph_values[0] = 0  # the graph's size would tell them apart
    gaps = {}
    for how in ("equal", "sqrt", "rows"):
        scores = fitted("rankreg", data, rounds=1, graph_weight=how, **_EXACT).predict(data.rows, COLUMNS)
        gaps[how] = scores[0] - scores[59]
    assert gaps["equal"] == pytest.approx(0, abs=0.01), "ranks of ties differ a little by size"
    assert gaps["rows"] > gaps["sqrt"] > 0.1, "the larger graph has its way"


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(ModelError, match=r"target is 'cost'; expected rank, normal"):
        learned([1, 2, 3], target="cost")
