"""What is held out together, and out-of-fold scores: nothing of a held-out family may be learned from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.models.contract import fitted
from tests.models.rows import COLUMNS, easy_data, easy_graph, graph_rows, kernel
from xlarank.features.instances.graph_instances import LazyInstances
from xlarank.features.rows import GraphRows
from xlarank.models.base import Learned, Ranker
from xlarank.models.explanation.parts import Parts, Rows
from xlarank.models.params import RankerParams, Whole, param
from xlarank.models.rankers.wide_rows import LambdaRank, RankNet
from xlarank.models.registry import ranker_class
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.curves import (
    FAMILY,
    KIND,
    Curves,
    FoldPlan,
    climb,
    join_curves,
    out_of_fold_scores,
    rungs_of,
    validate_fold,
    validate_folds,
)
from xlarank.models.validation.folds import Fold, family_folds, whole_folds
from xlarank.models.validation.metrics import graph_metrics


def tiles(*kinds: tuple[str, ...]) -> TrainingData:
    graphs = [kernel(f"f{i % 2}__{i}", [1, 2], [10, 20], kinds=of) for i, of in enumerate(kinds)]
    return TrainingData.from_graphs(graphs)


def test_tiles_go_by_kind_where_there_are_two_and_layouts_by_family() -> None:
    several = tiles(("dot",), ("copy",), ("dot",), ("slice",))
    layouts = easy_data(configs=5)
    for training, most, by, held in (
        (several, 10, KIND, [[1], [0, 2], [3]]),
        (tiles(("dot",), ("dot",), ("dot",)), 10, FAMILY, [[0, 2], [1]]),
        (layouts, 10, FAMILY, [[0, 1], [2, 3], [4, 5]]),
    ):
        plan = FoldPlan.of(training, most)
        assert (plan.by, plan.held) == (by, held)
        assert all(fold.scored == fold.held for fold in plan.folds)
    assert len(FoldPlan.of(several, 2).folds) == 2


def test_kernels_that_may_be_of_a_kind_are_held_out_with_it_and_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    training = tiles(("dot",), ("dot", "dot left-transposed"), ("copy",), ("dot left-transposed",))
    plan = FoldPlan.of(training, 10)
    assert {tuple(fold.scored): fold.held for fold in plan.folds} == {
        (0,): [0, 1],
        (1,): [0, 1, 3],
        (2,): [2],
        (3,): [1, 3],
    }

    def numbered(data: TrainingData, held: list[list[int]], *_: object) -> Iterator[Curves]:
        for number, groups in enumerate(held):
            yield Curves([25], {data.names[group]: [{"score": number}] for group in groups})

    monkeypatch.setattr("xlarank.models.validation.curves.validate_folds", numbered)
    found = plan.curves(training, SPY, FitSettings(25)).metrics
    own = {fold.scored[0]: number for number, fold in enumerate(plan.folds)}
    assert found == {training.names[group]: [{"score": own[group]}] for group in range(4)}


@dataclass(frozen=True, kw_only=True)
class SpyParams(RankerParams):
    """One that nothing looks at."""

    ranker: ClassVar[str] = "spy"

    depth: int = param(1, Whole(1))


class Spy(Ranker[SpyParams]):
    """Remembers what it was fitted on; its score is waste, minus clash for every stage after the first."""

    params_class = SpyParams
    fits: ClassVar[list[tuple[TrainingData, SpyParams, FitSettings]]] = []

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        self.fits.append((data, self.params, settings))
        self._stages = -(-settings.rounds // 25)

    def _staged(
        self, rows: NDArray[np.float32], every: int, instances: LazyInstances | None
    ) -> Iterator[NDArray[np.float64]]:
        for stage in range(self._stages):
            yield (rows[:, 1] - stage * rows[:, 2]).astype(np.float64)

    def _scores(self, rows: NDArray[np.float32], instances: LazyInstances | None) -> NDArray[np.float64]:
        return rows[:, 1].astype(np.float64)

    def _parts(self, rows: Rows, now: int, then: int, difference: float) -> Parts:
        raise NotImplementedError

    def _gains(self) -> dict[str, float]:
        raise NotImplementedError

    def _learned(self) -> Learned:
        raise NotImplementedError

    def _restore(self, learned: Learned) -> None:
        raise NotImplementedError


SPY = Spy(kind="layout")
NAMES = ("cnn__a", "mlp__a", "cnn_train__b", "rnn__a", "mlp__b", "gan__a")
GRAPHS = [easy_graph(name, 8 + number, seed=number) for number, name in enumerate(NAMES)]
TRAINING = TrainingData.from_graphs(GRAPHS)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> type[Spy]:
    monkeypatch.setattr(Spy, "fits", [])
    return Spy


def test_no_held_out_family_is_learned_from(spy: type[Spy]) -> None:
    data = TRAINING
    folds = family_folds(data.families, 3)
    judged: list[str] = []
    for held in folds:
        settings = FitSettings(7, 5, 2)
        curves = validate_fold(TRAINING, held, Spy({"depth": 3}, kind="layout"), settings)
        learned, *others = spy.fits[-1]
        assert others == [SpyParams(depth=3), settings]
        assert set(learned.families).isdisjoint(data.families[g] for g in held)
        assert set(learned.names) == set(data.names) - {data.names[g] for g in held}
        by_name = {graph.name: graph for graph in GRAPHS}
        expected = np.concatenate([by_name[name].matrix() for name in learned.names])
        assert np.array_equal(learned.matrix(), expected), "and no row of theirs either"
        judged += curves.metrics
    assert len(folds) == len(spy.fits) == 3
    assert sorted(judged) == sorted(data.names), "every graph is judged once"


def test_stages_end_with_all_rounds(spy: type[Spy], monkeypatch: pytest.MonkeyPatch) -> None:
    for rounds, stages in ((1, [1]), (25, [25]), (26, [25, 26]), (60, [25, 50, 60])):
        curves = validate_fold(TRAINING, [3], SPY, FitSettings(rounds))
        assert (curves.rounds, curves.column("tau").shape) == (stages, (1, len(stages)))
    monkeypatch.setattr(spy, "_staged", lambda self, rows, every, instances: iter([rows[:, 1].astype(float)]))
    (stages,) = validate_fold(TRAINING, [0], SPY, FitSettings(60)).metrics.values()
    assert len(stages) == 3 and stages[0] == stages[1] == stages[2], "it ran out of splits"


def test_every_configuration_counts_at_every_stage(spy: type[Spy]) -> None:
    """Identical configurations share a row and a score, and are judged each with its own runtime."""
    repeated = graph_rows(
        "cnn__a", [30, 10, 20], copies=[2, 0, 3], features=np.array([[3, 1, 0], [1, 2, 0], [2, 4, 0]])
    )
    training = TrainingData.from_graphs([easy_graph("mlp__a", 5, seed=0), repeated])
    found = validate_fold(training, [1], SPY, FitSettings(50)).metrics["cnn__a"]
    for stage in range(2):
        row = repeated.matrix()[:, 1] - stage * repeated.matrix()[:, 2]
        assert len(repeated.cost) == 8
        expected = graph_metrics("layout", row[repeated.group].astype(float), repeated.cost, repeated.group)
        assert found[stage] == pytest.approx(expected)


def test_folds_come_in_order_and_as_if_each_was_alone(spy: type[Spy]) -> None:
    folds = family_folds(TRAINING.families, 4)
    found = list(validate_folds(TRAINING, folds, SPY, FitSettings(30, 5, 2)))
    assert [settings for _, _, settings in spy.fits] == [FitSettings(30, 5, 1)] * 4
    assert found == [validate_fold(TRAINING, held, SPY, FitSettings(30, 5)) for held in folds]


def test_a_caller_that_stops_early_saves_the_folds_not_yet_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []

    def quick(data: TrainingData, held: list[int], *rest: Any) -> Curves:
        begun.append(held)
        return Curves([1], {})

    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", quick)
    found = validate_folds(TRAINING, [[0], [1], [3], [5]], SPY, FitSettings(1, threads=2))
    next(found)
    time.sleep(0.05)
    found.close()
    assert len(begun) == 2


def test_a_fold_left_running_is_over_before_the_next_ones_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two boosting libraries at work at once is what this project does without."""
    at_work: list[str] = []
    seen: list[list[str]] = []

    def slow(data: TrainingData, held: list[int], ranker: Any, settings: FitSettings, *rest: Any) -> Curves:
        who = f"seed {settings.seed}"
        seen.append(sorted({*at_work, who}))
        at_work.append(who)
        time.sleep(0.2 * held[0])
        at_work.remove(who)
        return Curves([1], {})

    monkeypatch.setattr("xlarank.models.validation.curves.validate_fold", slow)
    first = validate_folds(TRAINING, [[0], [1]], SPY, FitSettings(1, 1, threads=2))
    next(first)
    first.close()
    list(validate_folds(TRAINING, [[0], [1]], SPY, FitSettings(1, 2, threads=2)))
    assert ["seed 1", "seed 2"] not in seen


@pytest.mark.parametrize("model", ["lambdarank", "sum-pooled", "pair-vote"])
def test_large_graphs_are_judged_in_pieces_where_rows_are_scored_alone(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = easy_data(graphs=3, configs=50)
    ranker, settings = ranker_class(model)(kind="layout"), FitSettings(30, threads=1)
    at_once = validate_fold(data, [0], ranker, settings)
    largest, matrix = [0], GraphRows.matrix

    def watched(self: GraphRows, *args: object) -> np.ndarray:
        found = matrix(self, *args)
        if self.name == data.names[0]:
            largest[0] = max(largest[0], len(found))
        return found

    monkeypatch.setattr("xlarank.models.validation.curves.PIECE", 20)
    monkeypatch.setattr(GraphRows, "matrix", watched)
    assert validate_fold(data, [0], ranker, settings) == at_once
    assert largest[0] == (20 if model == "lambdarank" else 50)


def test_out_of_fold_scores_of_a_family_are_those_of_the_others() -> None:
    data, settings = easy_data(graphs=6, configs=20), FitSettings(5, 2, 1)
    scores = out_of_fold_scores(
        LambdaRank(kind="layout"), data, whole_folds(family_folds(data.families, 3)), settings
    )
    for first in (0, 2, 4):
        others = [g for g in range(6) if g not in (first, first + 1)]
        held = slice(data.indptr[first], data.indptr[first + 2])
        expected = fitted("lambdarank", data.take(others), seed=2, rounds=5).predict(data.matrix()[held], COLUMNS)
        assert np.array_equal(scores[held], expected)
    assert not out_of_fold_scores(LambdaRank(kind="layout"), data, [], settings).any()


# Curves --------------------------------------------------------------------------------------------------


def curves(rounds: list[int], **scores: list[float]) -> Curves:
    return Curves(rounds, {name: [{"score": value} for value in values] for name, values in scores.items()})


def test_a_lonely_peak_is_not_chosen() -> None:
    """Means 0, 0.25, 0.75, 0, 0.5, 0.5, 0.5, 0.5; smoothed, the first full plateau begins at stage 5."""
    one, other = [0, 0.5, 1, 0, 0.25, 0.75, 0.5, 0.5], [0, 0, 0.5, 0, 0.75, 0.25, 0.5, 0.5]
    found = join_curves([curves(list(range(8)), a=one), curves(list(range(8)), b=other)])
    assert found.best_stage() == 5
    assert found.at(5) == {"a": {"score": 0.75}, "b": {"score": 0.25}}
    assert found.column("score")[1].tolist() == other


# Rungs ---------------------------------------------------------------------------------------------------

#: Of six graphs of four families; the other collections have one of them and one that is new.
RUNG_DATA = TrainingData.from_graphs(
    [easy_graph(f"{('cnn', 'mlp', 'rnn', 'gan')[n % 4]}__{n}", 40, seed=n) for n in range(6)]
)
ALSO = TrainingData.from_graphs([easy_graph(name, 30, seed=50) for name in ("gan__other", "vae__other")])
CLIMBED = replace(RUNG_DATA, also=ALSO)
FOLDS = family_folds(RUNG_DATA.families, 3)


@pytest.mark.parametrize("ranker", [LambdaRank, RankNet])
def test_the_last_rung_is_a_full_validation_to_the_last_bit(ranker: type[Ranker[Any]]) -> None:
    """Most of its trees were grown on earlier visits."""
    made, settings = ranker({"learning_rate": 0.1, "min_data_in_leaf": 5}, kind="layout"), FitSettings(60, 3, 1)
    first, _, last = climb(rungs_of(60), CLIMBED, whole_folds(FOLDS), made, settings)
    assert last == join_curves([*validate_folds(CLIMBED, FOLDS, made, settings)])
    assert (first.rounds, last.rounds) == ([10], [25, 50, 60])


def test_what_is_held_out_beside_a_kernel_of_unknown_kind_is_not_judged_twice() -> None:
    """Two folds hold out the third graph; the second one judges it."""
    folds, ranker = [Fold([0, 1], [0, 1, 2]), Fold([2, 3], [2, 3])], LambdaRank(kind="layout")
    (found,) = climb(rungs_of(10), CLIMBED, folds, ranker, FitSettings(10, 0, 1))
    assert [*found.metrics] == RUNG_DATA.names[:4]
    (alone,) = validate_folds(CLIMBED, [[2, 3]], ranker, FitSettings(10, 0, 1))
    assert found.metrics[RUNG_DATA.names[2]] == alone.metrics[RUNG_DATA.names[2]]
