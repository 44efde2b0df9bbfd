"""Warm-started rankers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data, easy_graph, graph_rows
from xlarank.data.errors import ModelError
from xlarank.features.rows import GraphRows
from xlarank.models.base import Ranker
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.metrics import kendall_tau

#: Those that can; an ensemble of LightGBM's.
GOING_ON: dict[str, dict[str, Any]] = {
    "lambdarank": {},
    "ranknet": {},
    "sum-pooled": {},
    "ensemble": {"weight_lambdarank": 1.0, "weight_ranknet": 3.0, "weight_sum_pooled": 0.0},
}
UNSEEN = easy_graph("unseen__a", 60, seed=5)


def clashing(name: str, configs: int, seed: int) -> GraphRows:
    """Waste counts as everywhere, clash the other way round."""
    features = np.random.default_rng(seed).random((configs, 3))
    costs = np.rint(1e6 * (3 + 3 * features[:, 0] - 2 * features[:, 1])).astype(np.int64)
    return graph_rows(name, costs.tolist(), features=features)


MORE = TrainingData.from_graphs([clashing(f"more{i}__a", 40, 50 + i) for i in range(3)])
JUDGED = clashing("judged__a", 60, 77)


def with_column(graph: GraphRows, name: str, values: np.ndarray) -> GraphRows:
    wider = np.concatenate([graph.config_values, values[:, None].astype(np.float32)], axis=1)
    return replace(graph, columns=[*graph.columns, name], config_values=wider)


def tau(ranker: Ranker[Any], graph: GraphRows) -> float:
    return kendall_tau(ranker.predict(graph.matrix(), graph.columns), graph.row_cost)


@pytest.fixture(params=GOING_ON)
def base(request: pytest.FixtureRequest) -> Ranker[Any]:
    return fitted(request.param, easy_data(), rounds=40, **GOING_ON[request.param])


@pytest.mark.parametrize("model", ["lambdarank", "ranknet", "sum-pooled"])
def test_new_trees_learn_what_the_first_left(model: str) -> None:
    """On what they have learned already there is little: a first tree of their own would move scores by more."""
    data, plain = easy_data(graphs=4), {"bagging_fraction": 1.0, "feature_fraction": 1.0}
    fresh, many = (fitted(model, data, rounds=rounds, **plain) for rounds in (1, 150))
    longer = many.continuing().fit(data, FitSettings(1, 0, 1))
    one, before, after = (each.predict(data.parts[0].matrix(), COLUMNS) for each in (fresh, many, longer))
    assert 0 < np.std(after - before) < 0.8 * np.std(one)


def test_stages_are_the_rounds_that_were_added_and_few_slow_ones_change_little(base: Ranker[Any]) -> None:
    slow = base.continuing(0.1).fit(MORE, FitSettings(4, 0, 1))
    both = [ranker.predict(UNSEEN.matrix(), COLUMNS) for ranker in (base, slow)]
    assert kendall_tau(both[0], both[1]) > 0.9 and not np.array_equal(both[0], both[1])
    fast = base.continuing().fit(MORE, FitSettings(4, 0, 1)).predict(UNSEEN.matrix(), COLUMNS)
    assert np.abs(both[1] - both[0]).sum() < 0.5 * np.abs(fast - both[0]).sum()
    tuned = base.continuing().fit(MORE, FitSettings(20, 0, 1))
    short = base.continuing().fit(MORE, FitSettings(8, 0, 1))
    stages = list(tuned.staged(JUDGED.matrix(), 8))
    assert len(stages) == 3
    for stage, ranker in ((stages[0], short), (stages[-1], tuned)):
        assert np.allclose(stage, ranker.predict(JUDGED.matrix(), COLUMNS), rtol=1e-6, atol=1e-9)


def test_saved_and_read_back_it_can_be_fitted_again_from_the_same_start(base: Ranker[Any], tmp_path: Path) -> None:
    settings = FitSettings(15, 3, 1)
    tuned = base.continuing(0.5).fit(MORE, settings)
    tuned.save(tmp_path)
    loaded = type(tuned).load(tmp_path)
    scores = tuned.predict(JUDGED.matrix(), COLUMNS)
    assert np.array_equal(loaded.predict(JUDGED.matrix(), COLUMNS), scores)
    for again in (tuned, loaded):  # as calibrate and cross-validate do
        assert np.allclose(again.clone().fit(MORE, settings).predict(JUDGED.matrix(), COLUMNS), scores, atol=1e-9)
    longer = loaded.continuing().fit(MORE, FitSettings(5, 0, 1))  # once more, from all of its trees
    (tmp_path / "longer").mkdir()
    longer.save(tmp_path / "longer")
    kept = type(longer).load(tmp_path / "longer").predict(JUDGED.matrix(), COLUMNS)
    assert np.array_equal(kept, longer.predict(JUDGED.matrix(), COLUMNS))


def test_columns_are_found_by_name_and_others_left_alone(base: Ranker[Any]) -> None:
    def wider(graph: GraphRows) -> GraphRows:
        return with_column(graph, "answer", graph.row_cost)

    data = TrainingData.from_graphs([wider(graph) for graph in MORE.parts])
    tuned = base.continuing().fit(data, FitSettings(10, 0, 1))
    same = base.continuing().fit(MORE, FitSettings(10, 0, 1))
    assert tuned.columns == [*COLUMNS, "answer"]
    assert "answer" not in tuned.importance()
    assert np.allclose(
        tuned.predict(wider(JUDGED).matrix(), tuned.columns), same.predict(JUDGED.matrix(), COLUMNS), atol=1e-9
    )


def test_rows_without_a_column_are_refused() -> None:
    base = fitted("ranknet", easy_data())
    fewer = [graph.only(np.array([0, 1, 3])) for graph in MORE.parts]
    with pytest.raises(ModelError, match=r"lack 1 columns of the model to fine-tune \(clash"):
        base.continuing().fit(TrainingData.from_graphs(fewer), FitSettings(3, 0, 1))
    turned = [with_column(graph.only(np.array([0, 1, 2])), "clash", np.zeros(len(graph))) for graph in MORE.parts]
    columns = ["size", "clash", "noise", "waste"]
    other = TrainingData.from_graphs([GraphRows(**{**vars(graph), "columns": columns}) for graph in turned])
    with pytest.raises(ModelError, match="in another order"):
        base.continuing().fit(other, FitSettings(3, 0, 1))


def test_others_cannot_go_on_and_a_damaged_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="xgb-pairwise cannot be fine-tuned; expected trees of Light"):
        fitted("xgb-pairwise", easy_data(graphs=2, configs=20), rounds=2).continuing()
    tuned = fitted("ranknet", easy_data(), rounds=40).continuing().fit(MORE, FitSettings(15, 0, 1))
    tuned.save(tmp_path)
    path = tmp_path / "ranker.json"
    state = json.loads(path.read_text("utf-8"))
    for change, said in (
        ({"start_trees": 999}, "start_trees is 999"),
        ({"start_trees": -1}, "start_trees is -1"),
        ({"start_rate": 0}, "rate is 0"),
    ):
        path.write_text(json.dumps(state | change), "utf-8")
        with pytest.raises(ModelError, match=said):
            type(tuned).load(tmp_path)
