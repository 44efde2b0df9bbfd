"""Trees that begin at an estimate of the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.models.rows import graph_rows
from xlarank.features.targets import CPU, TPU
from xlarank.models.rankers.boosted import InitScore
from xlarank.models.registry import ranker_class
from xlarank.models.training_data import FitSettings, TrainingData
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
def data() -> TrainingData:
    return TrainingData.from_graphs([kernel(f"f{n}__a", n, shift=5.0 * n) for n in range(5)])


def fitted(model: str, data: TrainingData, weight: float, rounds: int):
    params = {"columns": "all", "init_score_weight": weight}
    return ranker_class(model)(params, kind="tile").fit(data, FitSettings(rounds, threads=1))


def test_relevance_falls_with_the_estimate_and_has_mean_0_in_each_graph() -> None:
    rows = np.array([[9, 3, 0], [9, 5, 0], [8, 1, 0]], np.float32)
    init_score = InitScore(1, 2.0)
    assert init_score.relevance(rows).tolist() == [-6, -10, -2]
    graphs = [
        graph_rows(name, [10, 20], features=np.array([[first, 0], [second, 0]]), columns=COLUMNS)
        for name, first, second in (("a__a", 3, 5), ("b__a", 8, 2))
    ]
    data = TrainingData.from_graphs(graphs)
    assert init_score.centred(data).tolist() == [2, -2, -6, 6]
    turned = replace(data, orders=[np.array([1, 0]), np.array([0, 1])])
    assert init_score.centred(turned).tolist() == [-2, 2, -6, 6]


def test_it_is_that_of_the_target_where_there_is_a_weight() -> None:
    assert InitScore.find(COLUMNS, 2.0, CPU) == InitScore.find(COLUMNS, 2.0) == InitScore(1, 2.0)
    for columns, weight, target in ((COLUMNS, 0.0, CPU), (["size", "wrong"], 2.0, CPU), (COLUMNS, 2.0, TPU)):
        assert InitScore.find(columns, weight, target) is None
    columns = [TPU.estimate, *COLUMNS]
    assert InitScore.find(columns, 2.0, TPU) == InitScore(0, 2.0)


@pytest.mark.parametrize("model", [*MODELS, "sum-pooled"])
def test_rankers_for_a_tpu_never_look_at_that_of_a_cpu(model: str, data: TrainingData) -> None:
    """Here it is all that tells configurations apart, beside a column that says nothing alone."""
    ranker, seeing = (
        ranker_class(model)({"columns": "all"}, kind="tile").fit(
            replace(data, target=target), FitSettings(10, threads=1)
        )
        for target in (TPU, CPU)
    )
    rows = data.parts[0].matrix()
    moved = rows.copy()
    moved[:, 1] += np.random.default_rng(0).normal(size=len(rows))
    # Votes are added up in an order that whole rows decide: to the last bits.
    assert np.allclose(ranker.predict(rows, COLUMNS), ranker.predict(moved, COLUMNS), rtol=0, atol=1e-12)
    assert ESTIMATE not in ranker.importance()
    assert not np.allclose(seeing.predict(rows, COLUMNS), seeing.predict(moved, COLUMNS), atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_trees_start_from_the_estimate_saved_and_in_every_stage(
    model: str, data: TrainingData, tmp_path: Path
) -> None:
    """After one round the order is still the estimate's, and after many it is better."""
    unseen = kernel("unseen__a", 99)
    estimate = kendall_tau(unseen.config_values[:, 0].astype(np.float64), unseen.row_cost)
    first, plain, many = (fitted(model, data, *how) for how in ((2.0, 1), (0.0, 1), (2.0, 100)))
    taus = [kendall_tau(one.predict(unseen.matrix(), COLUMNS), unseen.row_cost) for one in (first, plain, many)]
    assert taus[0] > estimate - 0.02 and taus[2] > estimate + 0.05
    if model != "pair-vote":  # one tree of it makes as many scores as there are votes, and here as good ones
        assert taus[0] > taus[1]
    rows = data.matrix()[:60]
    scores = many.predict(rows, COLUMNS)
    assert np.allclose(list(many.staged(rows, 40))[-1], scores, rtol=1e-6, atol=1e-9)
    many.save(tmp_path)
    assert np.array_equal(ranker_class(model).load(tmp_path).predict(rows, COLUMNS), scores)


@pytest.mark.parametrize("model", ["lambdarank", "ranknet", "xgb-pairwise"])
def test_pairs_that_the_estimate_settles_pull_no_more(model: str) -> None:
    """Where it orders every kernel right and by far, the pairwise losses have little left to teach."""
    estimate = np.linspace(0, 5, 40)
    cost = np.rint(1e5 * 2**estimate).astype(np.int64)
    graphs = [
        graph_rows(f"f{n}__a", cost.tolist(), features=np.stack([estimate, estimate], 1), columns=COLUMNS)
        for n in range(4)
    ]
    data = TrainingData.from_graphs(graphs)
    rows = data.matrix()[:40]
    free, settled = (
        np.ptp(fitted(model, data, weight, 20).predict(rows, COLUMNS) - weight * rows[:, 1])
        for weight in (0.0, 40.0)
    )
    assert settled < 0.7 * free
