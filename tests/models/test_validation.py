"""Training data and folds: nothing of a held-out family may be learned from."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from tests.models.contract import COLUMNS, easy_data, easy_graph, fitted, graph_rows, kernel
from xlarank.data.errors import ModelError
from xlarank.features.rows import GraphRows
from xlarank.models.base import Ranker
from xlarank.models.objectives import mean_rank
from xlarank.models.rankers.boosted import LambdaRank, LambdaRankParams, RankNet
from xlarank.models.trained import RANKERS, ranker_class
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation import folds
from xlarank.models.validation.folds import Curves, Fold, FoldPlan, family_folds, validate_fold
from xlarank.models.validation.metrics import graph_metrics, kendall_tau

#: Families 0, 0, 1, 1, 2, 2; the other collection has family 1 and one that is new.
DATA = easy_data(configs=9)
ALSO = TrainingData.from_graphs([easy_graph("family1__z", 9, 70), easy_graph("other__a", 9, 71)])


def test_graphs_are_stacked_in_order_with_the_smallest_cost_of_each_row():
    first = graph_rows("cnn__a", [30, 10], copies=[2, 0])
    first.runtime[:] = [30, 10, 25, 31]  # configurations 2 and 3 repeat 0
    second = graph_rows("mlp__b", [2**33 + 1, 2**33, 8])
    data = TrainingData.from_graphs([first, second])
    assert data.indptr.tolist() == [0, 2, 5]
    assert data.cost.tolist() == [25, 10, 2.0**33 + 1, 2.0**33, 8], "exact beyond float32"
    assert (data.names, data.families, data.columns) == (
        ["cnn__a", "mlp__b"],
        ["cnn", "mlp"],
        COLUMNS,
    )
    assert data.matrix()[:, 0].tolist() == [2, 2, 3, 3, 3], "the graph column, repeated"
    assert np.array_equal(data.matrix()[2:, 1:], second.config_values)
    assert data.per_group(mean_rank).tolist() == [1, 0, 1, 0.5, 0]
    first.normalizer[:] = [10, 60, 10, 10]
    assert TrainingData.from_graphs([first]).cost.tolist() == [2.5, 10 / 60], (
        "runtime over normalizer"
    )


def test_what_cannot_be_learned_from_is_left_out():
    good = graph_rows("good", [1, 2])
    for useless in (
        graph_rows("x", [0, 0]),
        graph_rows("x", [5, 5]),
        graph_rows("x", [5], copies=[3]),
    ):
        assert TrainingData.from_graphs([useless, good, useless]).names == ["good"]
        with pytest.raises(ModelError, match="none of 1 graph can be trained on"):
            TrainingData.from_graphs([useless])
    with pytest.raises(ModelError, match="two and good have different columns"):
        TrainingData.from_graphs(
            [good, graph_rows("two", [1, 2], columns=["size", "waste", "clash", "noise2"])]
        )


def test_groups_are_taken_and_joined_with_their_rows_and_weights():
    joined = DATA.take([5, 1]).join(ALSO.weighted(0.5))
    assert joined.names == ["family2__b", "family0__b", "family1__z", "other__a"]
    assert np.array_equal(
        joined.matrix(), np.concatenate([DATA.matrix()[45:], DATA.matrix()[9:18], ALSO.matrix()])
    )
    assert np.array_equal(joined.take([3]).cost, ALSO.cost[9:])
    assert joined.group_weight.tolist() == [1.0, 1.0, 0.5, 0.5]
    assert joined.take([3, 0]).group_weight.tolist() == [0.5, 1.0]
    with pytest.raises(ModelError, match="weight is 0"):
        DATA.weighted(0)
    with pytest.raises(ModelError, match="family1__z and family0__a have different columns"):
        DATA.join(replace(ALSO, columns=COLUMNS[::-1]))


def test_a_held_out_family_is_held_out_everywhere():
    training = replace(DATA, also=ALSO)
    assert training.without([2]).names == [DATA.names[g] for g in (0, 1, 3, 4, 5)] + ["other__a"]
    assert training.without([0, 1]).names == [*DATA.names[2:], "family1__z", "other__a"]
    assert training.with_also().names == [*DATA.names, *ALSO.names]
    assert DATA.without([2]).names == [DATA.names[g] for g in (0, 1, 3, 4, 5)]
    assert DATA.with_also() is DATA
    also = [
        kernel(f"g__{of[-1]}", [1, 2], [10, 20], kinds=of) for of in (("copy", "dot"), ("slice",))
    ]
    training = replace(tiles(("dot",), ("copy",)), also=TrainingData.from_graphs(also))
    assert training.without([0]).names == ["f1__1", "g__slice"], (
        "kernels, by all kinds that they may be of"
    )


@pytest.mark.parametrize("model", [name for name in RANKERS if name not in ("sibling", "ensemble")])
def test_the_heavier_of_two_contradicting_sources_is_believed(model):
    own = easy_data(graphs=4, configs=40)
    turned = [
        replace(g, name=f"x{g.name}", runtime=g.runtime.max() + 1 - g.runtime) for g in own.parts
    ]
    also = TrainingData.from_graphs(turned)
    graph = easy_graph("unseen__a", 40, seed=5)
    rankers = [fitted(model, own.join(also.weighted(weight))) for weight in (0.05, 20.0)]
    taus = [
        kendall_tau(ranker.predict(graph.matrix(), COLUMNS), graph.row_cost) for ranker in rankers
    ]
    assert taus[0] > 0.6 and taus[1] < -0.6


def tiles(*kinds):
    graphs = [kernel(f"f{i % 2}__{i}", [1, 2], [10, 20], kinds=of) for i, of in enumerate(kinds)]
    return TrainingData.from_graphs(graphs)


class Spy(Ranker[LambdaRankParams]):
    """Ranker that records its fits; its score is waste, minus clash for every stage after the
    first.
    """

    params_class = LambdaRankParams
    fits: ClassVar[list[tuple[TrainingData, FitSettings]]] = []
    predict = contributions = importance = _write = _read = None

    def fit(self, data, settings):
        self.fits.append((data, settings))
        self._stages = -(-settings.rounds // 25)
        return self

    def staged(self, rows, every, instances=None):
        for stage in range(self._stages):
            yield (rows[:, 1] - stage * rows[:, 2]).astype(np.float64)


SPY = Spy(kind="layout")
NAMES = ("cnn__a", "mlp__a", "cnn_train__b", "rnn__a", "mlp__b", "gan__a")
GRAPHS = [easy_graph(name, 8 + number, seed=number) for number, name in enumerate(NAMES)]
TRAINING = TrainingData.from_graphs(GRAPHS)


def test_tiles_go_by_kind_if_there_are_two_and_layouts_by_family(monkeypatch):
    several = tiles(("dot",), ("copy",), ("dot",), ("slice",))
    for training, by, held in (
        (several, folds.KIND, [[1], [0, 2], [3]]),
        (tiles(*[("dot",)] * 3), folds.FAMILY, [[0, 2], [1]]),
        (easy_data(configs=5), folds.FAMILY, [[0, 1], [2, 3], [4, 5]]),
    ):
        plan = FoldPlan.of(training)
        assert (plan.by, plan.folds) == (by, [Fold(groups, groups) for groups in held])
    assert len(FoldPlan.of(several, 2).folds) == len(FoldPlan.of(several, 1).folds) == 2, (
        "one would hold out all"
    )
    training = tiles(("dot",), ("dot", "dot left-transposed"), ("copy",), ("dot left-transposed",))
    plan = FoldPlan.of(training)
    held = {0: [0, 1], 1: [0, 1, 3], 2: [2], 3: [1, 3]}
    assert {group: fold.held for fold in plan.folds for group in fold.scored} == held

    def numbered(data, fold, *_):
        return Curves([25], {data.names[group]: [{"score": fold.held}] for group in fold.scored})

    monkeypatch.setattr(folds, "validate_fold", numbered)
    expected = {training.names[group]: [{"score": held[group]}] for group in range(4)}
    assert plan.curves(training, SPY, FitSettings(25), id).metrics == expected, (
        "of the fold that scores a graph"
    )


def test_no_held_out_family_is_learned_from(monkeypatch):
    monkeypatch.setattr(Spy, "fits", [])
    scored = []
    settings = FitSettings(7, 5, 2)
    for fold in family_folds(TRAINING.families, 3):
        scored += validate_fold(TRAINING, fold, SPY, settings).metrics
        data, used = Spy.fits[-1]
        assert used == settings
        assert {*data.families}.isdisjoint(TRAINING.families[g] for g in fold.held)
        assert {*data.names} == {*NAMES} - {NAMES[g] for g in fold.held}
        expected = np.concatenate([GRAPHS[NAMES.index(name)].matrix() for name in data.names])
        assert np.array_equal(data.matrix(), expected), "and no row of theirs either"
    assert len(Spy.fits) == 3 and sorted(scored) == sorted(NAMES), "every graph is scored once"


def test_stages_end_with_all_rounds_and_every_configuration_counts(monkeypatch):
    """Identical configurations share a row and a score, but each counts with its own runtime."""
    for rounds, stages in ((1, [1]), (25, [25]), (26, [25, 26]), (60, [25, 50, 60])):
        ended = validate_fold(TRAINING, Fold([3], [3]), SPY, FitSettings(rounds))
        assert (ended.rounds, ended.column("tau").shape) == (stages, (1, len(stages)))
    features = np.array([[3, 1, 0], [1, 2, 0], [2, 4, 0]])
    repeated = graph_rows("cnn__a", [30, 10, 20], copies=[2, 0, 3], features=features)
    training = TrainingData.from_graphs([easy_graph("mlp__a", 5, seed=0), repeated])
    metrics = validate_fold(training, Fold([1], [1]), SPY, FitSettings(50)).metrics["cnn__a"]
    for stage in range(2):
        row = repeated.matrix()[:, 1] - stage * repeated.matrix()[:, 2]
        expected = graph_metrics(
            "layout", row[repeated.group].astype(float), repeated.cost, repeated.group
        )
        assert len(repeated.cost) == 8 and metrics[stage] == pytest.approx(expected)
    monkeypatch.setattr(
        Spy, "staged", lambda self, rows, every, instances: iter([rows[:, 1].astype(float)])
    )
    ((first, second, third),) = validate_fold(
        TRAINING, Fold([0], [0]), SPY, FitSettings(60)
    ).metrics.values()
    assert first == second == third, "it ran out of splits"


def test_folds_come_in_order_and_stop_with_the_caller(monkeypatch):
    """Folds that still run are waited for: two boosting libraries must not run at once."""
    monkeypatch.setattr(Spy, "fits", [])
    plan = FoldPlan(folds.FAMILY, family_folds(TRAINING.families, 4))
    metrics = plan.curves(TRAINING, SPY, FitSettings(30, 5, 2), id).metrics
    assert [settings for _, settings in Spy.fits] == [FitSettings(30, 5, 1)] * 4
    assert [*metrics] == TRAINING.names
    for fold in plan.folds:
        alone = validate_fold(TRAINING, fold, SPY, FitSettings(30, 5)).metrics
        assert alone == {name: metrics[name] for name in alone}
    running = []
    seen = []

    def slow(tenths, settings):
        running.append(settings.seed)
        seen.append({*running})
        time.sleep(0.1 * tenths)
        running.remove(settings.seed)

    for seed in (1, 2):
        results = folds.in_turn(slow, [0, 1, 1, 1], FitSettings(1, seed, threads=2))
        next(results)
        time.sleep(0.03)
        results.close()
    assert len(seen) == 4 and {1, 2} not in seen


@pytest.mark.parametrize("model", ["lambdarank", "sum-pooled"])
def test_large_graphs_are_scored_in_pieces(model, monkeypatch):
    data = easy_data(graphs=3, configs=50)
    fold = Fold([0], [0])
    ranker = ranker_class(model)(kind="layout")
    settings = FitSettings(30, threads=1)
    at_once = validate_fold(data, fold, ranker, settings)
    sizes = []
    matrix = GraphRows.matrix

    def watched(self, *args):
        rows = matrix(self, *args)
        sizes.extend([len(rows)] * (self.name == data.names[0]))
        return rows

    monkeypatch.setattr(folds, "PIECE", 20)
    monkeypatch.setattr(GraphRows, "matrix", watched)
    assert validate_fold(data, fold, ranker, settings) == at_once
    assert max(sizes) == (20 if model == "lambdarank" else 50)


def test_out_of_fold_scores_of_a_family_are_those_of_the_others():
    data = easy_data(graphs=6, configs=20)
    settings = FitSettings(5, 2, 1)
    ranker = LambdaRank(kind="layout")
    scores = folds.out_of_fold_scores(ranker, data, family_folds(data.families, 3), settings)
    for first in (0, 2, 4):
        others = data.take([g for g in range(6) if g not in (first, first + 1)])
        held = slice(data.indptr[first], data.indptr[first + 2])
        expected = fitted("lambdarank", others, seed=2, rounds=5).predict(
            data.matrix()[held], COLUMNS
        )
        assert np.array_equal(scores[held], expected)
    assert not folds.out_of_fold_scores(ranker, data, [], settings).any()


def test_a_lonely_peak_is_not_chosen():
    """Means 0, 0.25, 0.75, 0, 0.5, 0.5, 0.5, 0.5; smoothed, the first full plateau begins at stage
    5.
    """
    values = {"a": [0, 0.5, 1, 0, 0.25, 0.75, 0.5, 0.5], "b": [0, 0, 0.5, 0, 0.75, 0.25, 0.5, 0.5]}
    parts = [
        Curves([*range(8)], {name: [{"score": v} for v in scores]})
        for name, scores in values.items()
    ]
    curves = folds.join_curves(parts)
    assert curves.best_stage() == 5 and curves.column("score").tolist() == [*values.values()]
    assert curves.at(5) == {"a": {"score": 0.75}, "b": {"score": 0.25}}


@pytest.mark.parametrize("ranker_type", [LambdaRank, RankNet])
def test_the_last_rung_is_a_full_validation_to_the_last_bit(ranker_type):
    """Most of its trees were grown on earlier rungs. A graph that another fold holds out is not
    scored twice.
    """
    names = "cnn__0 mlp__1 rnn__2 gan__3 cnn__4 mlp__5".split()
    data = TrainingData.from_graphs([easy_graph(name, 40, seed=n) for n, name in enumerate(names)])
    others = [easy_graph(name, 30, seed=50) for name in ("gan__other", "vae__other")]
    data = replace(data, also=TrainingData.from_graphs(others))
    plan = FoldPlan(folds.FAMILY, family_folds(data.families, 3))
    settings = FitSettings(60, 3, 1)
    ranker = ranker_type({"learning_rate": 0.1, "min_data_in_leaf": 5}, kind="layout")
    first, _, last = folds.climb(folds.rungs_of(60), data, plan.folds, ranker, settings)
    assert last == plan.curves(data, ranker, settings, id)
    assert (first.rounds, last.rounds) == ([10], [25, 50, 60])
    held_out = [Fold([0, 1], [0, 1, 2]), Fold([2, 3], [2, 3])]
    settings = FitSettings(10, 0, 1)
    (curves,) = folds.climb([10], data, held_out, ranker, settings)
    assert [*curves.metrics] == names[:4]
    assert (
        curves.metrics["rnn__2"]
        == validate_fold(data, held_out[1], ranker, settings).metrics["rnn__2"]
    )
