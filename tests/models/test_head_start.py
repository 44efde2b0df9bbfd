"""Trees that begin at an estimate of the time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import optuna
import pytest

from tests.models.rows import graph_rows
from xlarank.data.errors import ModelError
from xlarank.models.rankers.init_score import ESTIMATE, HeadStart, suggest_head_start
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import ranker_class
from xlarank.models.validation.metrics import kendall_tau

COLUMNS = ["size", ESTIMATE, "wrong"]
MODELS = ("lambdarank", "ranknet", "rankreg", "xgb-pairwise")


def kernel(name: str, seed: int, shift: float = 0.0):
    """The estimate is right up to a factor of four, which the last column says, and shifted as a whole."""
    rng = np.random.default_rng(seed)
    estimate, wrong = rng.uniform(0, 4, 60), rng.uniform(0, 2, 60)
    cost = np.rint(1e5 * 2 ** (estimate + wrong)).astype(np.int64)
    return graph_rows(name, cost.tolist(), features=np.stack([estimate + shift, wrong], 1), columns=COLUMNS)


@pytest.fixture(scope="module")
def data() -> RankingData:
    return RankingData.from_graphs([kernel(f"f{n}__a", n, shift=5.0 * n) for n in range(5)])


def fitted(model: str, data: RankingData, weight: float, rounds: int):
    params = {**ranker_class(model).default_params("tile"), "columns": "all", "head_start": weight}
    return ranker_class(model)().fit(data, params, rounds=rounds, seed=0, threads=1)


def test_relevance_falls_with_the_estimate():
    rows = np.array([[9, 3, 0], [9, 5, 0], [8, 1, 0]], np.float32)
    head_start = HeadStart.find(COLUMNS, 2.0)
    assert head_start == HeadStart(1, 2.0)
    assert head_start.relevance(rows).tolist() == [-6, -10, -2]


def test_what_is_learned_from_has_mean_0_in_each_graph():
    graphs = [
        graph_rows(name, [10, 20], features=np.array([[first, 0], [second, 0]]), columns=COLUMNS)
        for name, first, second in (("a__a", 3, 5), ("b__a", 8, 2))
    ]
    data, head_start = RankingData.from_graphs(graphs), HeadStart(1, 2.0)
    assert head_start.of(data).tolist() == [2, -2, -6, 6]
    assert head_start.of(data, [np.array([1, 0]), np.array([0, 1])]).tolist() == [-2, 2, -6, 6]


def test_there_is_none_without_a_weight_or_an_estimate():
    assert HeadStart.find(COLUMNS, 0.0) is None
    assert HeadStart.find(["size", "wrong"], 2.0) is None


@pytest.mark.parametrize("weight", [-1.0, np.inf, np.nan])
def test_a_weight_is_a_number_from_0(weight):
    with pytest.raises(ModelError, match="head_start is"):
        HeadStart.find(COLUMNS, weight)


@pytest.mark.parametrize("model", MODELS)
def test_the_first_trees_start_from_the_estimate(model, data):
    """After one round the order is still the estimate's, and after many it is better."""
    unseen = kernel("unseen__a", 99)
    estimate = kendall_tau(unseen.config_values[:, 0].astype(np.float64), unseen.row_cost)
    taus = [
        kendall_tau(fitted(model, data, weight, rounds).predict(unseen.matrix(), COLUMNS), unseen.row_cost)
        for weight, rounds in ((2.0, 1), (0.0, 1), (2.0, 100))
    ]
    assert taus[0] > estimate - 0.02
    assert taus[0] > taus[1]
    assert taus[2] > estimate + 0.05


@pytest.mark.parametrize("model", ["lambdarank", "ranknet", "xgb-pairwise"])
def test_pairs_that_the_estimate_settles_pull_no_more(model):
    """Where it orders every kernel right and by far, the pairwise losses have little left to teach."""
    estimate = np.linspace(0, 5, 40)
    cost = np.rint(1e5 * 2**estimate).astype(np.int64)
    graphs = [
        graph_rows(f"f{n}__a", cost.tolist(), features=np.stack([estimate, estimate], 1), columns=COLUMNS)
        for n in range(4)
    ]
    rows = RankingData.from_graphs(graphs)
    grown = [
        np.ptp(fitted(model, rows, weight, 20).predict(rows.rows[:40], COLUMNS) - weight * rows.rows[:40, 1])
        for weight in (0.0, 40.0)
    ]
    assert grown[1] < 0.7 * grown[0]


@pytest.mark.parametrize("model", MODELS)
def test_it_is_saved_and_is_in_every_stage(model, data, tmp_path: Path):
    ranker = fitted(model, data, 2.0, 20)
    rows = data.rows[:60]
    scores = ranker.predict(rows, COLUMNS)
    assert np.allclose(list(ranker.staged(rows, 8))[-1], scores, rtol=1e-6, atol=1e-9)
    ranker.save(tmp_path)
    assert json.loads((tmp_path / "ranker.json").read_text())["head_start"] == 2.0
    assert np.array_equal(ranker_class(model).load(tmp_path).predict(rows, COLUMNS), scores)


@pytest.mark.parametrize("model", MODELS)
def test_layouts_have_none_and_tiles_have_one(model):
    kind = ranker_class(model)
    assert kind.default_params("layout")["head_start"] == 0
    assert kind.default_params("tile")["head_start"] > 0
    trial = optuna.trial.FixedTrial({**kind.default_params("tile")})
    assert kind.suggest(trial, "tile")["head_start"] == kind.default_params("tile")["head_start"]


def test_the_search_space_holds_none_and_the_default():
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    found = {suggest_head_start(study.ask(), 2.0)["head_start"] for _ in range(40)}
    assert found == {0.0, 1.0, 2.0, 4.0}
    assert suggest_head_start(optuna.trial.FixedTrial({}), 0.0) == {"head_start": 0.0}
