"""Rungs: what little work is, and that the last rung is all of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.models.rows import easy_graph
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.rankers.ranknet import RankNet
from xlarank.models.ranking_data import RankingData, TrainingSet
from xlarank.models.validation.curves import climb, join_curves, rungs_of, validate_folds
from xlarank.models.validation.folds import Fold, family_folds

FAMILIES = ["cnn", "mlp", "rnn", "gan"]
ALSO = ["gan__other", "vae__other"]


@pytest.fixture
def training() -> TrainingSet:
    made = [easy_graph(f"{FAMILIES[n % 4]}__{n}", 40, seed=n) for n in range(6)]
    also = [easy_graph(name, 30, seed=50 + n) for n, name in enumerate(ALSO)]
    return TrainingSet("layout", RankingData.from_graphs(made), also=RankingData.from_graphs(also))


@pytest.fixture
def folds(training: TrainingSet) -> list[list[int]]:
    return family_folds(training.data.families, 3)


def both(folds: list[list[int]]) -> list[Fold]:
    """What is held out is judged."""
    return [Fold(held, held) for held in folds]


@pytest.mark.parametrize(
    ("rounds", "rungs"),
    [(300, [10, 50, 150, 300]), (1000, [33, 167, 500, 1000]), (60, [10, 30, 60]), (20, [10, 20]), (19, [19])],
)
def test_each_rung_is_at_least_twice_the_one_below(rounds: int, rungs: list[int]) -> None:
    assert rungs_of(rounds) == rungs


@pytest.mark.parametrize("ranker", [LambdaRank, RankNet])
def test_the_last_rung_is_a_whole_validation_to_the_last_bit(
    training: TrainingSet, folds: list[list[int]], ranker: type[Ranker[Any]]
) -> None:
    """Most of its trees were grown on earlier visits."""
    made = ranker({"learning_rate": 0.1, "min_data_in_leaf": 5}, kind="layout")
    settings = FitSettings(60, 3, 1)
    first, _, last = climb(rungs_of(60), training, both(folds), made, settings)
    whole = join_curves([*validate_folds(training, folds, made, settings)])
    assert last.rounds == whole.rounds == [25, 50, 60]
    assert last.metrics == whole.metrics
    assert first.rounds == [10]


def test_no_rung_learns_from_a_held_out_family(training: TrainingSet, folds: list[list[int]]) -> None:
    seen: list[set[str]] = []

    class Watched(LambdaRank):
        def _fit(self, data: RankingData, settings: FitSettings) -> None:
            seen.append(set(data.families))
            super()._fit(data, settings)

        def _grow_on(self, data: RankingData, settings: FitSettings) -> None:
            seen.append(set(data.families))
            super()._grow_on(data, settings)

    found = climb(rungs_of(60), training, both(folds), Watched(kind="layout"), FitSettings(60, 0, 1))
    for curves in found:
        assert [*curves.metrics] == [training.data.names[g] for held in folds for g in held]
    assert len(seen) == 3 * len(folds)
    for number, learned in enumerate(seen):
        assert learned.isdisjoint(training.data.families[g] for g in folds[number % 3])
        assert "vae" in learned, "of the other collections"


def test_a_caller_that_stops_saves_the_rungs_above(training: TrainingSet, folds: list[list[int]]) -> None:
    fits = []

    class Counted(LambdaRank):
        def _fit(self, data: RankingData, settings: FitSettings) -> None:
            fits.append(settings.rounds)
            super()._fit(data, settings)

    found = climb(rungs_of(60), training, both(folds), Counted(kind="layout"), FitSettings(60, 0, 1))
    next(found)
    found.close()
    assert fits == [10, 10, 10], "three folds"


def test_what_is_held_out_beside_a_kernel_of_unknown_kind_is_not_judged_twice(training: TrainingSet) -> None:
    """Two folds hold out the third graph; the second one judges it."""
    folds = [Fold([0, 1], [0, 1, 2]), Fold([2, 3], [2, 3])]
    (found,) = climb(rungs_of(10), training, folds, LambdaRank(kind="layout"), FitSettings(10, 0, 1))
    assert [*found.metrics] == training.data.names[:4]
    alone = validate_folds(training, [[2, 3]], LambdaRank(kind="layout"), FitSettings(10, 0, 1))
    name = training.data.names[2]
    assert found.metrics[name] == next(alone).metrics[name]
