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
    "lambdarank": {}, "ranknet": {}, "sum-pooled": {},
    "ensemble": {"weight_lambdarank": 1.0, "weight_ranknet": 3.0, "weight_sum_pooled": 0.0},
}  # fmt: skip
UNSEEN = easy_graph("unseen__a", 60, seed=5).matrix()


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


def scores(ranker: Ranker[Any], rows: np.ndarray | None = None) -> np.ndarray:
    return ranker.predict(JUDGED.matrix() if rows is None else rows, COLUMNS)


@pytest.fixture(params=GOING_ON)
def base(request: pytest.FixtureRequest) -> Ranker[Any]:
    return fitted(request.param, easy_data(), rounds=40, **GOING_ON[request.param])


@pytest.mark.parametrize("model", ["lambdarank", "ranknet", "sum-pooled"])
def test_new_trees_learn_what_the_first_left(model: str) -> None:
    """On what they have learned already there is little: a first tree of their own would move scores by more."""
    data, plain = easy_data(graphs=4), {"bagging_fraction": 1.0, "feature_fraction": 1.0}
    fresh, many = (fitted(model, data, rounds=rounds, **plain) for rounds in (1, 150))
    longer = many.continuing().fit(data, FitSettings(1, 0, 1))
    one, before, after = (scores(each, data.parts[0].matrix()) for each in (fresh, many, longer))
    assert 0 < np.std(after - before) < 0.8 * np.std(one)


def test_stages_are_the_rounds_that_were_added_and_few_slow_ones_change_little(base: Ranker[Any]) -> None:
    slow, fast, tuned, short = (
        base.continuing(rate).fit(MORE, FitSettings(rounds, 0, 1))
        for rate, rounds in ((0.1, 4), (1.0, 4), (1.0, 20), (1.0, 8))
    )
    first, second, third = (scores(ranker, UNSEEN) for ranker in (base, slow, fast))
    assert kendall_tau(first, second) > 0.9 and not np.array_equal(first, second)
    assert np.abs(second - first).sum() < 0.5 * np.abs(third - first).sum()
    stages = list(tuned.staged(JUDGED.matrix(), 8))
    assert len(stages) == 3
    for stage, ranker in ((stages[0], short), (stages[-1], tuned)):
        assert np.allclose(stage, scores(ranker), rtol=1e-6, atol=1e-9)


def test_saved_and_read_back_it_can_be_fitted_again_from_the_same_start(base: Ranker[Any], tmp_path: Path) -> None:
    settings = FitSettings(15, 3, 1)
    tuned = base.continuing(0.5).fit(MORE, settings)
    tuned.save(tmp_path)
    loaded = type(tuned).load(tmp_path)
    assert np.array_equal(scores(loaded), scores(tuned))
    for again in (tuned, loaded):  # as calibrate and cross-validate do
        assert np.allclose(scores(again.clone().fit(MORE, settings)), scores(tuned), atol=1e-9)
    longer = loaded.continuing().fit(MORE, FitSettings(5, 0, 1))  # once more, from all of its trees
    (tmp_path / "longer").mkdir()
    longer.save(tmp_path / "longer")
    assert np.array_equal(scores(type(longer).load(tmp_path / "longer")), scores(longer))


def test_columns_are_found_by_name_and_others_left_alone(base: Ranker[Any]) -> None:
    wider = [with_column(graph, "answer", graph.row_cost) for graph in (*MORE.parts, JUDGED)]
    tuned = base.continuing().fit(TrainingData.from_graphs(wider[:-1]), FitSettings(10, 0, 1))
    assert tuned.columns == [*COLUMNS, "answer"] and "answer" not in tuned.importance()
    same = base.continuing().fit(MORE, FitSettings(10, 0, 1))
    assert np.allclose(tuned.predict(wider[-1].matrix(), tuned.columns), scores(same), atol=1e-9)


def test_what_does_not_fit_and_a_damaged_start_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="xgb-pairwise cannot be fine-tuned; expected trees of Light"):
        fitted("xgb-pairwise", easy_data(graphs=2, configs=20), rounds=2).continuing()
    base = fitted("ranknet", easy_data(), rounds=40)
    for columns, said in (
        (["size", "waste", "noise"], r"lack 1 columns of the model to fine-tune \(clash"),
        (["size", "clash", "noise", "waste"], "in another order"),
    ):
        graphs = [replace(graph.only(np.arange(len(columns))), columns=columns) for graph in MORE.parts]
        with pytest.raises(ModelError, match=said):
            base.continuing().fit(TrainingData.from_graphs(graphs), FitSettings(3, 0, 1))
    tuned = base.continuing().fit(MORE, FitSettings(15, 0, 1))
    tuned.save(tmp_path)
    path = tmp_path / "ranker.json"
    state = json.loads(path.read_text("utf-8"))
    for name, value, said in (
        ("trees", 999, "trees is 999"),
        ("trees", -1, "trees is -1"),
        ("rate", 0, "rate is 0"),
    ):
        path.write_text(json.dumps(state | {f"start_{name}": value}), "utf-8")
        with pytest.raises(ModelError, match=said):
            type(tuned).load(tmp_path)
