"""Trees on absolute times of tiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.models.rows import graph_rows
from xlarank.features.targets import TPU
from xlarank.models.rankers.wide_rows import TileCost
from xlarank.models.training_data import FitSettings, TrainingData

COLUMNS = ["size", TPU.estimate, "wrong"]


def kernel(name: str, seed: int, level: float):
    """Times of a kernel are 3/2 of the estimate, a third less where the last column says so."""
    rng = np.random.default_rng(seed)
    estimate, wrong = rng.uniform(level, level + 3, 40), rng.integers(0, 2, 40)
    cost = np.rint(1.5 * 2**estimate * np.where(wrong, 2 / 3, 1)).astype(np.int64)
    rows = graph_rows(name, cost.tolist(), features=np.stack([estimate, wrong], 1), columns=COLUMNS)
    return replace(rows, normalizer=np.full(40, 500 * seed + 7))


@pytest.fixture(scope="module")
def ranker() -> TileCost:
    data = TrainingData.from_graphs([kernel(f"f{n}__a", n, 12 + n) for n in range(5)], TPU)
    params = {"columns": "all", "min_data_in_leaf": 5}
    return TileCost(params, kind="tile").fit(data, FitSettings(150, threads=1))


def test_it_predicts_times_of_kernels_larger_than_any_learned_from(ranker):
    unseen = kernel("unseen__a", 9, 20.0)
    found = ranker.nanoseconds(ranker.predict(unseen.matrix(), COLUMNS))
    assert np.median(np.abs(found / unseen.runtime - 1)) < 0.05
    assert 2**21 < found.max() < 2**24, "the largest that it learned from takes a tenth of it"


def test_it_keeps_its_start(ranker, tmp_path: Path):
    ranker.save(tmp_path)
    rows = kernel("unseen__a", 9, 20.0).matrix()
    assert np.array_equal(TileCost.load(tmp_path).predict(rows, COLUMNS), ranker.predict(rows, COLUMNS))
