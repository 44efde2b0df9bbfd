"""Out-of-fold scores: nothing of a held-out family may be learned from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.models.rows import easy_data, easy_graph, graph_rows
from xlarank.data.graph import Kind
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.base import Learned, Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.params import RankerParams, Whole, param
from xlarank.models.ranking_data import RankingData, TrainingSet
from xlarank.models.registry import ranker_class
from xlarank.models.validation.curves import Curves, join_curves, validate_fold, validate_folds
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import judge


@dataclass(frozen=True, kw_only=True)
class SpyParams(RankerParams):
    """One that nothing looks at."""

    ranker: ClassVar[str] = "spy"

    depth: int = param(1, Whole(1))


class Spy(Ranker[SpyParams]):
    """Remembers what it was fitted on; its score is waste, minus clash for every stage after the first."""

    name = "spy"
    params_class = SpyParams
    fits: ClassVar[list[tuple[RankingData, SpyParams, FitSettings]]] = []

    def _fit(self, data: RankingData, settings: FitSettings) -> None:
        self.fits.append((data, self.params, settings))
        self._stages = -(-settings.rounds // 25)

    def _staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None
    ) -> Iterator[NDArray[np.float64]]:
        for stage in range(self._stages):
            yield (rows[:, 1] - stage * rows[:, 2]).astype(np.float64)

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> NDArray[np.float64]:
        raise NotImplementedError

    def _gains(self) -> dict[str, float]:
        raise NotImplementedError

    def _learned(self) -> Learned:
        raise NotImplementedError

    def _restore(self, learned: Learned) -> None:
        raise NotImplementedError


SPY = Spy(kind="layout")


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> type[Spy]:
    monkeypatch.setattr(Spy, "fits", [])
    return Spy


def training(graphs: list[GraphRows], kind: Kind = "layout") -> TrainingSet:
    return TrainingSet(kind, RankingData.from_graphs(graphs))


@pytest.fixture
def graphs() -> list[GraphRows]:
    names = ["cnn__a", "mlp__a", "cnn_train__b", "rnn__a", "mlp__b", "gan__a"]
    return [easy_graph(name, 8 + number, seed=number) for number, name in enumerate(names)]


def test_no_held_out_family_is_learned_from(spy: type[Spy], graphs: list[GraphRows]) -> None:
    data = RankingData.from_graphs(graphs)
    folds = family_folds(data.families, 3)
    judged: list[str] = []
    for held in folds:
        curves = validate_fold(TrainingSet("layout", data), held, SPY, FitSettings(1))
        learned, _, _ = spy.fits[-1]
        assert set(learned.families).isdisjoint(data.families[g] for g in held)
        assert set(learned.names) == set(data.names) - {data.names[g] for g in held}
        by_name = {graph.name: graph for graph in graphs}
        expected = np.concatenate([by_name[name].matrix() for name in learned.names])
        assert np.array_equal(learned.rows, expected), "and no row of theirs either"
        judged += curves.metrics
    assert len(folds) == len(spy.fits) == 3
    assert sorted(judged) == sorted(data.names), "every graph is judged once"


def test_parameters_reach_the_ranker(spy: type[Spy], graphs: list[GraphRows]) -> None:
    settings = FitSettings(7, 5, 2)
    validate_fold(training(graphs), [0, 2], Spy({"depth": 3}, kind="layout"), settings)
    assert spy.fits[0][1:] == (SpyParams(depth=3), settings)


@pytest.mark.parametrize(
    ("rounds", "stages"), [(1, [1]), (25, [25]), (26, [25, 26]), (50, [25, 50]), (60, [25, 50, 60])]
)
def test_stages_end_with_all_rounds(
    spy: type[Spy], graphs: list[GraphRows], rounds: int, stages: list[int]
) -> None:
    curves = validate_fold(training(graphs), [3], SPY, FitSettings(rounds))
    assert curves.rounds == stages
    assert curves.column("tau").shape == (1, len(stages))


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_every_configuration_counts_at_every_stage(spy: type[Spy], kind: Kind) -> None:
    """Identical configurations share a row and a score, and are judged each with its own runtime."""
    features = np.array([[0.3, 0.1, 0], [0.1, 0.2, 0], [0.2, 0.4, 0]])
    repeated = graph_rows("cnn__a", [30, 10, 20], copies=[2, 0, 3], features=features)
    graphs = [easy_graph("mlp__a", 5, seed=0), repeated, easy_graph("rnn__a", 6, seed=1)]
    curves = validate_fold(training(graphs, kind), [2, 1], SPY, FitSettings(50))
    assert list(curves.metrics) == ["rnn__a", "cnn__a"]
    for graph in (graphs[2], graphs[1]):
        for stage in range(2):
            row = graph.matrix()[:, 1] - stage * graph.matrix()[:, 2]
            expected = judge(kind, row[graph.group].astype(float), graph.cost, graph.group)
            assert curves.metrics[graph.name][stage] == pytest.approx(expected)
    assert len(repeated.cost) == 8


def test_a_ranker_that_runs_out_of_splits_stays_where_it_is(
    spy: type[Spy], graphs: list[GraphRows], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spy, "_staged", lambda self, rows, every, instances: iter([rows[:, 1].astype(float)]))
    curves = validate_fold(training(graphs), [0], SPY, FitSettings(60))
    assert curves.rounds == [25, 50, 60]
    (stages,) = curves.metrics.values()
    assert len(stages) == 3
    assert stages[0] == stages[1] == stages[2]


def test_folds_come_in_order_and_as_if_each_was_alone(spy: type[Spy], graphs: list[GraphRows]) -> None:
    data = RankingData.from_graphs(graphs)
    folds = family_folds(data.families, 4)
    learned = TrainingSet("layout", data)
    found = list(validate_folds(learned, folds, SPY, FitSettings(30, 5, 2)))
    fits = sorted(tuple(data.names) for data, _, _ in spy.fits)
    assert [settings for _, _, settings in spy.fits] == [FitSettings(30, 5, 1)] * 4
    alone = [validate_fold(learned, held, SPY, FitSettings(30, 5)) for held in folds]
    assert found == alone
    assert fits == sorted(tuple(data.names) for data, _, _ in spy.fits[4:])


@pytest.mark.parametrize(("threads", "most"), [(1, 1), (2, 2)])
def test_a_caller_that_stops_early_saves_the_folds_not_yet_begun(
    graphs: list[GraphRows], monkeypatch: pytest.MonkeyPatch, threads: int, most: int
) -> None:
    """And none begins while it makes up its mind."""
    begun: list[Any] = []

    def quick(training: TrainingSet, held: list[int], *rest: Any) -> Curves:
        begun.append(held)
        return Curves([1], {})

    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", quick)
    found = validate_folds(training(graphs), [[0], [1], [3], [5]], SPY, FitSettings(1, threads=threads))
    next(found)
    time.sleep(0.05)
    found.close()
    assert len(begun) == most


def test_a_fold_left_running_is_over_before_the_next_ones_begin(
    graphs: list[GraphRows], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two boosting libraries at work at once is what this project does without."""
    at_work: list[str] = []
    seen: list[list[str]] = []

    def slow(training: TrainingSet, held: list[int], ranker: Any, settings: FitSettings) -> Curves:
        who = f"seed {settings.seed}"
        seen.append(sorted({*at_work, who}))
        at_work.append(who)
        time.sleep(0.2 * held[0])
        at_work.remove(who)
        return Curves([1], {})

    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", slow)
    first = validate_folds(training(graphs), [[0], [1]], SPY, FitSettings(1, 1, threads=2))
    next(first)
    first.close()
    list(validate_folds(training(graphs), [[0], [1]], SPY, FitSettings(1, 2, threads=2)))
    assert ["seed 1", "seed 2"] not in seen


def test_an_error_in_a_fold_reaches_the_caller(graphs: list[GraphRows], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*rest: Any) -> Curves:
        raise MemoryError("no room")

    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", failing)
    with pytest.raises(MemoryError, match="no room"):
        list(validate_folds(training(graphs), [[0], [1]], SPY, FitSettings(1)))


def curves(rounds: list[int], **scores: list[float]) -> Curves:
    return Curves(rounds, {name: [{"score": value} for value in values] for name, values in scores.items()})


@given(st.lists(st.lists(st.floats(-1, 1), min_size=7, max_size=7), min_size=1, max_size=4))
def test_the_smooth_score_is_the_mean_of_each_stage_and_its_neighbours(scores: list[list[float]]) -> None:
    """At either end the stage itself stands in for the neighbour that is not there."""
    found = curves(list(range(7)), **{f"graph{number}": values for number, values in enumerate(scores)})
    mean = [sum(values[stage] for values in scores) / len(scores) for stage in range(7)]
    expected = [(mean[max(0, s - 1)] + mean[s] + mean[min(6, s + 1)]) / 3 for s in range(7)]
    assert found.smooth_score().tolist() == pytest.approx(expected, abs=1e-12)
    assert expected[found.best_stage()] == pytest.approx(max(expected), abs=1e-12)


def test_a_lonely_peak_is_not_chosen() -> None:
    """Means 0, 0.25, 0.75, 0, 0.5, 0.5, 0.5, 0.5; smoothed, the first full plateau begins at stage 5."""
    found = curves(list(range(8)), a=[0, 0.5, 1, 0, 0.25, 0.75, 0.5, 0.5], b=[0, 0, 0.5, 0, 0.75, 0.25, 0.5, 0.5])
    assert found.best_stage() == 5
    assert found.at(5) == {"a": {"score": 0.75}, "b": {"score": 0.25}}
    assert found.column("score")[1].tolist() == [0, 0, 0.5, 0, 0.75, 0.25, 0.5, 0.5]


def test_one_stage_is_the_best_one() -> None:
    assert curves([10], a=[-0.5]).best_stage() == 0
    assert curves([10], a=[-0.5]).smooth_score().tolist() == [-0.5]


def test_joined_curves_hold_every_graph() -> None:
    joined = join_curves([curves([25, 50], a=[0.1, 0.2], b=[0.3, 0.5]), curves([25, 50], c=[0.9, 0.1])])
    assert joined.rounds == [25, 50]
    assert joined.metrics == {
        "a": [{"score": 0.1}, {"score": 0.2}],
        "b": [{"score": 0.3}, {"score": 0.5}],
        "c": [{"score": 0.9}, {"score": 0.1}],
    }
    assert joined.best_stage() == 0


@pytest.mark.parametrize("model", ["lambdarank", "xgb-pairwise", "ensemble", "sum-pooled"])
def test_large_graphs_are_judged_in_pieces_where_rows_are_scored_alone(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = easy_data(graphs=3, configs=50)
    ranker, settings = ranker_class(model)(kind="layout"), FitSettings(30, threads=1)
    whole = validate_fold(TrainingSet("layout", data), [0], ranker, settings)
    monkeypatch.setattr("xlarank.models.validation.curves.PIECE", 20)
    largest = [0]
    matrix = GraphRows.matrix

    def watched(self: GraphRows, *args: object) -> np.ndarray:
        found = matrix(self, *args)
        if self.name == data.names[0]:
            largest[0] = max(largest[0], len(found))
        return found

    monkeypatch.setattr(GraphRows, "matrix", watched)
    assert validate_fold(TrainingSet("layout", data), [0], ranker, settings) == whole
    assert largest[0] == (20 if model in ("lambdarank", "xgb-pairwise") else 50)
