"""Trees that begin at an estimate of the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.models import contract
from tests.models.contract import graph_rows
from xlarank.features.rows import GraphRows
from xlarank.features.targets import CPU, TPU
from xlarank.models.base import Ranker
from xlarank.models.rankers.boosted import InitScore
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.metrics import kendall_tau

ESTIMATE = CPU.estimate
COLUMNS = ["size", ESTIMATE, "wrong"]
MODELS = ("lambdarank", "ranknet", "xgb-pairwise", "pair-vote")


def kernel(name: str, seed: int, shift: float = 0.0) -> GraphRows:
    """The estimate is right up to a factor of four, which the last column says, and shifted as a whole."""
    rng = np.random.default_rng(seed)
    estimate, wrong = rng.uniform(0, 4, 60), rng.uniform(0, 2, 60)
    cost = np.rint(1e5 * 2 ** (estimate + wrong)).astype(np.int64)
    return graph_rows(name, cost.tolist(), features=np.stack([estimate + shift, wrong], 1), columns=COLUMNS)


DATA = TrainingData.from_graphs([kernel(f"f{n}__a", n, shift=5.0 * n) for n in range(5)])


def fitted(model: str, data: TrainingData, rounds: int, **params: float) -> Ranker:
    return contract.fitted(model, data, rounds=rounds, kind="tile", columns="all", **params)


def test_relevance_falls_with_the_estimate_and_has_mean_0_in_each_graph() -> None:
    rows = np.array([[9, 3, 0], [9, 5, 0], [8, 1, 0]], np.float32)
    init_score = InitScore(1, 2.0)
    assert init_score.relevance(rows).tolist() == [-6, -10, -2]
    each = ([[3, 0], [5, 0]], [[8, 0], [2, 0]])
    data = TrainingData.from_graphs([graph_rows("a", [1, 2], features=of, columns=COLUMNS) for of in each])  # type: ignore[arg-type]
    assert init_score.centred(data).tolist() == [2, -2, -6, 6]
    turned = replace(data, orders=[np.array([1, 0]), np.array([0, 1])])
    assert init_score.centred(turned).tolist() == [-2, 2, -6, 6]
    for columns, weight, target, found in (
        (COLUMNS, 2.0, CPU, InitScore(1, 2.0)), (COLUMNS, 2.0, None, InitScore(1, 2.0)), (COLUMNS, 0.0, CPU, None),
        (["size", "wrong"], 2.0, CPU, None), (COLUMNS, 2.0, TPU, None),
        ([TPU.estimate, *COLUMNS], 2.0, TPU, InitScore(0, 2.0)),
    ):  # fmt: skip
        assert InitScore.find(columns, weight, target) == found


@pytest.mark.parametrize("model", [*MODELS, "sum-pooled"])
def test_rankers_for_a_tpu_never_look_at_that_of_a_cpu(model: str) -> None:
    """Here it is all that tells configurations apart, beside a column that says nothing alone."""
    ranker, seeing = (fitted(model, replace(DATA, target=target), 10) for target in (TPU, CPU))
    rows = DATA.parts[0].matrix()
    moved = rows.copy()
    moved[:, 1] += np.random.default_rng(0).normal(size=len(rows))
    # Votes are added up in an order that whole rows decide: to the last bits.
    assert np.allclose(ranker.predict(rows, COLUMNS), ranker.predict(moved, COLUMNS), rtol=0, atol=1e-12)
    assert ESTIMATE not in ranker.importance()
    assert not np.allclose(seeing.predict(rows, COLUMNS), seeing.predict(moved, COLUMNS), atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_trees_start_from_the_estimate_saved_and_in_every_stage(model: str, tmp_path: Path) -> None:
    """After one round the order is still the estimate's, and after many it is better."""
    unseen, rows = kernel("unseen__a", 99), DATA.matrix()[:60]
    estimate = kendall_tau(unseen.config_values[:, 0].astype(np.float64), unseen.row_cost)
    first, many = (fitted(model, DATA, rounds, init_score_weight=2.0) for rounds in (1, 100))
    taus = [kendall_tau(one.predict(unseen.matrix(), COLUMNS), unseen.row_cost) for one in (first, many)]
    assert taus[0] > estimate - 0.02 and taus[1] > estimate + 0.05
    scores = many.predict(rows, COLUMNS)
    assert np.allclose(list(many.staged(rows, 40))[-1], scores, rtol=1e-6, atol=1e-9)
    many.save(tmp_path)
    assert np.array_equal(type(many).load(tmp_path).predict(rows, COLUMNS), scores)


@pytest.mark.parametrize("model", ["lambdarank", "ranknet", "xgb-pairwise"])
def test_pairs_that_the_estimate_settles_pull_no_more(model: str) -> None:
    """Where it orders every kernel right and by far, the pairwise losses have little left to teach."""
    estimate = np.linspace(0, 5, 40)
    cost, features = np.rint(1e5 * 2**estimate).astype(np.int64).tolist(), np.stack([estimate, estimate], 1)
    graphs = [graph_rows(f"f{n}__a", cost, features=features, columns=COLUMNS) for n in range(4)]
    data, rows = TrainingData.from_graphs(graphs), graphs[0].matrix()
    free, settled = (
        np.ptp(fitted(model, data, 20, init_score_weight=weight).predict(rows, COLUMNS) - weight * rows[:, 1])
        for weight in (0.0, 40.0)
    )
    assert settled < 0.7 * free


def test_tile_cost_predicts_times_of_kernels_larger_than_any_learned_from(tmp_path: Path) -> None:
    """Times of a kernel are 3/2 of the estimate, a third less where the last column says so."""
    columns = ["size", TPU.estimate, "wrong"]

    def timed(name: str, seed: int, level: float) -> GraphRows:
        rng = np.random.default_rng(seed)
        estimate, wrong = rng.uniform(level, level + 3, 40), rng.integers(0, 2, 40)
        cost = np.rint(1.5 * 2**estimate * np.where(wrong, 2 / 3, 1)).astype(np.int64)
        rows = graph_rows(name, cost.tolist(), features=np.stack([estimate, wrong], 1), columns=columns)
        return replace(rows, normalizer=np.full(40, 500 * seed + 7))

    data = TrainingData.from_graphs([timed(f"f{n}__a", n, 12 + n) for n in range(5)], TPU)
    ranker, unseen = fitted("tile-cost", data, 150, min_data_in_leaf=5), timed("unseen__a", 9, 20.0)
    ranker.save(tmp_path)
    found, loaded = (
        one.nanoseconds(one.predict(unseen.matrix(), columns)) for one in (ranker, type(ranker).load(tmp_path))
    )
    assert found is not None and np.array_equal(found, loaded)
    assert np.median(np.abs(found / unseen.runtime - 1)) < 0.05
    assert 2**21 < found.max() < 2**24, "the largest that it learned from takes a tenth of it"
