"""Rungs: what little work is, and that the last rung is all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.models.rows import easy_graph, graph_rows
from xlarank.features.rows import GraphRows
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.binned import BinnedRows
from xlarank.models.rankers.lambdarank import LambdaRank
from xlarank.models.rankers.ranknet import RankNet
from xlarank.models.ranking_data import RankingData
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation import rungs as module
from xlarank.models.validation.curves import join_curves, validate_folds
from xlarank.models.validation.fold_plan import FoldPlan
from xlarank.models.validation.folds import Fold, family_folds
from xlarank.models.validation.rungs import Rung, climb, rungs_of


@pytest.fixture(autouse=True)
def little_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few configurations a graph, so that the tests are quick."""
    monkeypatch.setattr(module, "_LEAST_CONFIGS", 8)


FAMILIES = ["cnn", "mlp", "rnn", "gan"]


def training(graphs: int = 6, configs: int = 80, also: list[GraphRows] | None = None) -> TrainingSet:
    made = [easy_graph(f"{FAMILIES[n % 4]}__{n}", configs, seed=n) for n in range(graphs)]
    return TrainingSet(
        "layout", RankingData.from_graphs(made), also=RankingData.from_graphs(also) if also else None
    )


def ladder(training: TrainingSet, rounds: int = 300) -> list[Rung]:
    return rungs_of(training, FoldPlan.of(training, 3), rounds)


def test_each_rung_has_its_share_of_configurations_and_rounds() -> None:
    """80 configurations a graph: an eighth is 10; of 300 rounds a sixth, a twelfth and a third."""
    rungs = ladder(training())
    assert [(len(rung.learned.data.parts[0]), rung.rounds) for rung in rungs] == [
        (10, 50),
        (80, 25),
        (80, 100),
        (80, 300),
    ]
    assert [rung.resource for rung in rungs] == [1, 4, 16, 64]
    assert [rung.cost for rung in rungs] == [6 * 10 * 50, 6 * 80 * 25, 6 * 80 * 100, 6 * 80 * 300]
    assert all(rung.learned is rungs[-1].learned for rung in rungs[1:]), "trees can grow on"


def test_the_configurations_kept_reach_from_the_fastest_to_the_slowest() -> None:
    rungs = ladder(training())
    for thin, whole in zip(rungs[0].learned.data.parts, rungs[-1].learned.data.parts, strict=True):
        assert thin.row_cost.min() == whole.row_cost.min()
        assert thin.row_cost.max() == whole.row_cost.max()
        assert set(thin.row_cost) <= set(whole.row_cost)
    assert rungs[0].judged is rungs[-1].judged, "they are judged on all of them"


def test_where_there_is_nothing_to_save_one_rung_is_left() -> None:
    """No fewer than 8 configurations and 25 rounds."""
    (only,) = ladder(training(configs=12), rounds=30)
    assert (only.rounds, only.resource) == (30, 1)
    assert [rung.rounds for rung in ladder(training(configs=8), rounds=300)] == [25, 100, 300], "rounds alone"


def test_of_very_many_graphs_some_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_GRAPHS", 12)
    whole = training(graphs=48, configs=16)
    low = ladder(whole)[0]
    names = set(whole.data.names)
    assert low.learned.data.names == low.judged.data.names
    assert len(low.judged.data.names) == 12, "48 / 4; of each half of 16 configurations"
    assert set(low.judged.data.names) < names
    assert [len(part) for part in low.judged.data.parts] == [16] * 12
    assert [len(part) for part in low.learned.data.parts] == [8] * 12
    families = low.judged.data.families
    assert sorted(g for fold in low.folds for g in fold.held) == [*range(12)]
    for _, held in low.folds:
        inside = {families[g] for g in held}
        assert inside.isdisjoint(families[g] for g in range(12) if g not in held)


def test_a_graph_of_several_folds_is_one_graph_on_every_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graph 3 is held out by both folds; graph 7 by none, and so is always learned from."""
    monkeypatch.setattr(module, "_LEAST_GRAPHS", 1)
    first, second = Fold(judged=[0, 1, 2], held=[0, 1, 2, 3]), Fold(judged=[3, 4, 5, 6], held=[3, 4, 5, 6])
    plan = FoldPlan("kind", [first, second])
    data = training(graphs=8, configs=80)
    low = module._thinned(rungs_of(data, plan, 300)[-1], 1 / 8)
    names = low.learned.data.names
    assert len(set(names)) == len(names) < 8 and data.data.names[7] in names
    for fold, whole in zip(low.folds, plan.folds, strict=True):
        assert fold.judged and {names[g] for g in fold.judged} <= {data.data.names[g] for g in whole.judged}
        assert {names[g] for g in fold.held} == {data.data.names[g] for g in whole.held} & set(names)


def test_graphs_that_cannot_be_thinned_stay_whole() -> None:
    """Of these configurations all but one cost the same: a sample could lose the order."""
    flat = graph_rows("flat__a", [100] * 40 + [200])
    low = ladder(TrainingSet("layout", RankingData.from_graphs([flat, easy_graph("cnn__b", 80, 1)])))[0]
    assert all(part.rankable for part in low.learned.data.parts)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("ranker", [LambdaRank, RankNet])
def test_the_last_rung_is_a_whole_validation_to_the_last_bit(ranker: type[Ranker[Any]], shared: bool) -> None:
    """Some of its trees were grown on an earlier visit."""
    data = training(configs=40)
    folds = family_folds(data.data.families, 3)
    bins = BinnedRows(data.whole()) if shared else None
    made = ranker({"learning_rate": 0.1, "min_data_in_leaf": 5}, kind="layout")
    settings = FitSettings(100, 3, 1, bins)
    rungs = rungs_of(data, FoldPlan.of_families(folds), 100, bins)
    assert [rung.rounds for rung in rungs][-2:] == [25, 100]
    *_, last = climb(rungs, made, settings)
    whole = join_curves([*validate_folds(data, folds, made, settings)])
    assert last.rounds == whole.rounds
    assert last.metrics == whole.metrics


def test_no_rung_learns_from_a_held_out_family(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []

    class Watched(LambdaRank):
        def fit(self, data: RankingData, settings: FitSettings) -> LambdaRank:
            seen.append(set(data.families))
            return super().fit(data, settings)

    data = training(also=[easy_graph("gan__other", 60, 50), easy_graph("vae__other", 60, 51)])
    rungs = ladder(data, 75)
    assert len(rungs) > 1
    for curves in climb(rungs, Watched(kind="layout"), FitSettings(75, 0, 1)):
        assert [*curves.metrics] == [data.data.names[g] for fold in rungs[-1].folds for g in fold.held]
    held = [{data.data.families[g] for g in fold.held} for fold in rungs[-1].folds]
    assert len(seen) % 3 == 0
    for number, learned in enumerate(seen):
        assert learned.isdisjoint(held[number % 3])
        assert "vae" in learned


def test_a_caller_that_stops_saves_the_rungs_above() -> None:
    fits = []

    class Counted(LambdaRank):
        def fit(self, data: RankingData, settings: FitSettings) -> LambdaRank:
            fits.append(settings.rounds)
            return super().fit(data, settings)

    found = climb(ladder(training(), 75), Counted(kind="layout"), FitSettings(75, 0, 1))
    next(found)
    found.close()
    assert fits == [25, 25, 25], "three folds"


def test_little_work_tells_good_parameters_from_bad_ones() -> None:
    """On the first rung as on the last: a learning rate of next to nothing against the default."""
    data = training(configs=64)
    rungs = ladder(data, 75)
    scores = []
    for rate in (0.05, 1e-12):
        made = LambdaRank({"learning_rate": rate, "min_data_in_leaf": 400 if rate < 0.01 else 5}, kind="layout")
        scores.append([curves.smooth_score().max() for curves in climb(rungs, made, FitSettings(75, 0, 1))])
    assert (np.array(scores[0]) > np.array(scores[1]) + 0.1).all()
