"""Trees that begin at an estimate of the time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import optuna
import pytest

from tests.models.rows import graph_rows
from xlarank.data.errors import ModelError
from xlarank.features.targets import CPU, TPU
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.init_score import InitScore, init_score_state
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import ranker_class
from xlarank.models.validation.metrics import kendall_tau

ESTIMATE = CPU.estimate
COLUMNS = ["size", ESTIMATE, "wrong"]
MODELS = ("lambdarank", "ranknet", "xgb-pairwise", "pair-vote")


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
    params = {"columns": "all", "init_score_weight": weight}
    return ranker_class(model)(params, kind="tile").fit(data, FitSettings(rounds, threads=1))


def test_relevance_falls_with_the_estimate():
    rows = np.array([[9, 3, 0], [9, 5, 0], [8, 1, 0]], np.float32)
    init_score = InitScore.find(COLUMNS, 2.0)
    assert init_score == InitScore(1, 2.0)
    assert init_score.relevance(rows).tolist() == [-6, -10, -2]


def test_what_is_learned_from_has_mean_0_in_each_graph():
    graphs = [
        graph_rows(name, [10, 20], features=np.array([[first, 0], [second, 0]]), columns=COLUMNS)
        for name, first, second in (("a__a", 3, 5), ("b__a", 8, 2))
    ]
    data, init_score = RankingData.from_graphs(graphs), InitScore(1, 2.0)
    assert init_score.of(data).tolist() == [2, -2, -6, 6]
    assert init_score.of(data, [np.array([1, 0]), np.array([0, 1])]).tolist() == [-2, 2, -6, 6]


def test_there_is_none_without_a_weight_or_an_estimate():
    assert InitScore.find(COLUMNS, 0.0) is None
    assert InitScore.find(["size", "wrong"], 2.0) is None


def test_every_target_has_its_own():
    assert InitScore.find(COLUMNS, 2.0, CPU) == InitScore.find(COLUMNS, 2.0) == InitScore(1, 2.0)
    assert InitScore.find(COLUMNS, 2.0, TPU) is None
    both = InitScore.find([TPU.estimate, *COLUMNS], 2.0, TPU)
    assert both == InitScore(0, 2.0)
    assert InitScore.restored([TPU.estimate, *COLUMNS], init_score_state(both, [TPU.estimate, *COLUMNS])) == both


@pytest.mark.parametrize("model", [*MODELS, "sum-pooled", "pair-vote"])
def test_rankers_for_a_tpu_never_look_at_it(model, data):
    """Here it is all that tells configurations apart, beside a column that says nothing alone."""
    params = {"columns": "all"}
    ranker = ranker_class(model)(params, kind="tile").fit(replace(data, target=TPU), FitSettings(10, threads=1))
    rows = data.parts[0].matrix()
    moved = rows.copy()
    moved[:, 1] += np.random.default_rng(0).normal(size=len(rows))
    # Votes are added up in an order that whole rows decide: to the last bits.
    assert np.allclose(ranker.predict(rows, COLUMNS), ranker.predict(moved, COLUMNS), rtol=0, atol=1e-12)
    assert ESTIMATE not in ranker.importance()
    seeing = ranker_class(model)(params, kind="tile").fit(replace(data, target=CPU), FitSettings(10, threads=1))
    assert not np.allclose(seeing.predict(rows, COLUMNS), seeing.predict(moved, COLUMNS), atol=1e-6)


@pytest.mark.parametrize("weight", [-1.0, np.inf, np.nan])
def test_a_weight_is_a_number_from_0(weight):
    with pytest.raises(ModelError, match="init_score_weight is"):
        InitScore.find(COLUMNS, weight)


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
    if model != "pair-vote":  # one tree of it makes as many scores as there are votes, and here as good ones
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
    assert json.loads((tmp_path / "ranker.json").read_text())["init_score_weight"] == 2.0
    assert np.array_equal(ranker_class(model).load(tmp_path).predict(rows, COLUMNS), scores)


@pytest.mark.parametrize("model", MODELS)
def test_layouts_have_none_and_tiles_have_one(model):
    params = ranker_class(model).params_class
    assert params.of("layout").init_score_weight == 0
    assert params.of("tile").init_score_weight > 0


@pytest.mark.parametrize("model", MODELS)
def test_the_search_space_holds_none_and_the_default(model):
    params = ranker_class(model).params_class
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    default = params.of("tile").init_score_weight
    found = {params.suggest(study.ask(), "tile").init_score_weight for _ in range(40)}
    assert found == {0.0, 0.5 * default, default, 2 * default}
    trial = study.ask()
    assert params.suggest(trial, "layout").init_score_weight == 0
    assert "init_score_weight" not in trial.params, "only rows of tiles have an estimate"
