"""Training data and folds: nothing of a held-out family may be learned from."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tests.models.helpers import COLUMNS, easy_data, easy_graph, fitted, graph_rows, kernel
from xlarank.features.rows import GraphRows
from xlarank.models.losses import LOSSES
from xlarank.models.member import Loss
from xlarank.models.model import Model
from xlarank.models.objectives import mean_rank
from xlarank.models.training_data import Dataset, FitSettings, TrainingData
from xlarank.models.validation import folds
from xlarank.models.validation.folds import Curves, Fold, FoldPlan, family_folds
from xlarank.models.validation.metrics import graph_metrics

#: Families 0, 0, 1, 1, 2, 2; the other collection has family 1 and one that is new.
DATA = easy_data(configs=9)
ALSO = [easy_graph("family1__z", 9, 70), easy_graph("other__a", 9, 71)]


def test_graphs_are_stacked_in_order_with_the_smallest_cost_of_each_row():
    first = graph_rows("cnn__a", [30, 10], copies=[2, 0])
    first.runtime[:] = [30, 10, 25, 31]  # configurations 2 and 3 repeat 0
    second = graph_rows("mlp__b", [2**33 + 1, 2**33, 8])
    data = TrainingData.from_graphs([first, second])
    assert data.indptr.tolist() == [0, 2, 5]
    assert data.cost.tolist() == [25, 10, 2.0**33 + 1, 2.0**33, 8], "exact beyond float32"
    assert (data.names, data.families) == (["cnn__a", "mlp__b"], ["cnn", "mlp"])
    assert data.columns == COLUMNS
    assert data.matrix()[:, 0].tolist() == [2, 2, 3, 3, 3], "the graph column, repeated"
    assert np.array_equal(data.matrix()[2:, 1:], second.config_values)
    assert data.per_group(mean_rank).tolist() == [1, 0, 1, 0.5, 0]
    first.normalizer[:] = [10, 60, 10, 10]
    assert TrainingData.from_graphs([first]).cost.tolist() == [2.5, 10 / 60], "over normalizer"


def test_a_held_out_family_is_held_out_everywhere():
    training = replace(DATA, also=ALSO)
    others = [DATA.names[g] for g in (0, 1, 3, 4, 5)]
    assert DATA.training_groups([2]).names == others
    assert training.training_groups([2]).names == [*others, "other__a"]
    assert training.training_groups([0, 1]).names == [*DATA.names[2:], "family1__z", "other__a"]
    assert training.training_groups().names == [*DATA.names, "family1__z", "other__a"]
    assert np.array_equal(training.training_groups().matrix()[-9:], ALSO[1].matrix())

    several = kernel("g__dot", [1, 2], [10, 20], families=("copy", "dot"))
    other = kernel("g__slice", [1, 2], [10, 20], families=("slice",))
    training = replace(tiles(("dot",), ("copy",)), also=[several, other])
    assert training.training_groups([0]).names == ["f1__1", "g__slice"], "by all possible kinds"


def tiles(*kinds):
    graphs = [kernel(f"f{i % 2}__{i}", [1, 2], [10, 20], families=of) for i, of in enumerate(kinds)]
    return TrainingData.from_graphs(graphs)


@dataclass
class SpyBooster:
    """Booster whose score is waste, minus clash for every stage after the first."""

    rounds: int

    @staticmethod
    def tree_params(params, settings):
        return {"learning_rate": 1.0}

    @classmethod
    def fit(cls, dataset, used, settings):
        return cls(settings.rounds)

    def stages(self, values, scores, every, from_zero):
        for stage in range(-(-self.rounds // every)):
            yield (values[:, 1] - stage * values[:, 2]).astype(np.float64)


SPY = Model("spy", "layout")
NAMES = ("cnn__a", "mlp__a", "cnn_train__b", "rnn__a", "mlp__b", "gan__a")
GRAPHS = [easy_graph(name, 8 + number, seed=number) for number, name in enumerate(NAMES)]
TRAINING = TrainingData.from_graphs(GRAPHS)


@pytest.fixture(autouse=True)
def fits(monkeypatch):
    """Training data and settings of each fit of `SPY`."""
    fits = []

    def dataset(member, data, settings):
        fits.append((data, settings))
        return Dataset(data, np.zeros(len(data.cost)), {})

    monkeypatch.setitem(LOSSES, "spy", Loss("spy", dataset, {}, SpyBooster))
    return fits


def validated(data, fold, model, settings):
    """Return the curves of one fold."""
    return FoldPlan(folds.FAMILY, [fold]).curves(data, model, settings, id)


def test_tiles_go_by_kind_if_there_are_two_and_layouts_by_family():
    several = tiles(("dot",), ("copy",), ("dot",), ("slice",))
    for training, by, held in (
        (several, folds.KERNEL_FAMILY, [[1], [0, 2], [3]]),
        (tiles(*[("dot",)] * 3), folds.FAMILY, [[0, 2], [1]]),
        (easy_data(configs=5), folds.FAMILY, [[0, 1], [2, 3], [4, 5]]),
    ):
        plan = FoldPlan.of(training)
        assert (plan.by, plan.folds) == (by, [Fold(groups, groups) for groups in held])
    for limit in (1, 2):
        assert len(FoldPlan.of(several, limit).folds) == 2, "one would hold out all"
    training = tiles(("dot",), ("dot", "dot left-transposed"), ("copy",), ("dot left-transposed",))
    plan = FoldPlan.of(training)
    held = {0: [0, 1], 1: [0, 1, 3], 2: [2], 3: [1, 3]}
    assert {group: fold.held for fold in plan.folds for group in fold.scored} == held


def test_no_held_out_family_is_learned_from(fits):
    scored = []
    for fold in family_folds(TRAINING.families, 3):
        scored += validated(TRAINING, fold, SPY, FitSettings(7, 5, 2)).metrics
        data, used = fits[-1]
        assert used == FitSettings(7, 5, 1)
        assert {*data.families}.isdisjoint(TRAINING.families[g] for g in fold.held)
        assert {*data.names} == {*NAMES} - {NAMES[g] for g in fold.held}
    assert len(fits) == 3 and sorted(scored) == sorted(NAMES), "every graph is scored once"


def test_stages_end_with_all_rounds_and_every_configuration_counts(monkeypatch):
    """Identical configurations share a row and a score, but each counts with its own runtime."""
    for rounds, stages in ((1, [1]), (25, [25]), (26, [25, 26]), (60, [25, 50, 60])):
        ended = validated(TRAINING, Fold([3], [3]), SPY, FitSettings(rounds))
        assert (ended.rounds, ended.column("tau").shape) == (stages, (1, len(stages)))
    features = np.array([[3, 1, 0], [1, 2, 0], [2, 4, 0]])
    repeated = graph_rows("cnn__a", [30, 10, 20], copies=[2, 0, 3], features=features)
    training = TrainingData.from_graphs([easy_graph("mlp__a", 5, seed=0), repeated])
    curves = validated(training, Fold([1], [1]), SPY, FitSettings(50))
    metrics = curves.metrics["cnn__a"]
    for stage in range(2):
        row = repeated.matrix()[:, 1] - stage * repeated.matrix()[:, 2]
        scores = row[repeated.group].astype(float)
        expected = graph_metrics("layout", scores, repeated.cost, repeated.group)
        assert len(repeated.cost) == 8 and metrics[stage] == pytest.approx(expected)
    monkeypatch.setattr(
        SpyBooster, "stages", lambda self, values, *_, **more: iter([values[:, 1].astype(float)])
    )
    curves = validated(TRAINING, Fold([0], [0]), SPY, FitSettings(60))
    ((first, second, third),) = curves.metrics.values()
    assert first == second == third, "it ran out of splits"


def test_folds_come_in_order_and_stop_with_the_caller():
    """Folds that still run are waited for: two boosting libraries must not run at once."""
    plan = FoldPlan(folds.FAMILY, family_folds(TRAINING.families, 4))
    metrics = plan.curves(TRAINING, SPY, FitSettings(30, 5, 2), id).metrics
    assert [*metrics] == TRAINING.names
    running = []
    seen = []

    def slow(tenths, settings):
        running.append(settings.seed)
        seen.append({*running})
        time.sleep(0.1 * tenths)
        running.remove(settings.seed)

    for seed in (1, 2):
        results = folds.map_folds(slow, [0, 1, 1, 1, 1], FitSettings(1, seed, threads=2))
        next(results)
        time.sleep(0.03)
        results.close()
    assert len(seen) == 6 and {1, 2} not in seen


def test_large_graphs_are_scored_in_pieces(monkeypatch):
    graph = DATA.parts[0]
    model = fitted("lambdarank", DATA)
    scores = model.score(graph)
    stages = [*model.staged(graph, 5)]
    sizes = []
    matrix = GraphRows.matrix

    def watched(self, rows):
        sizes.append(rows.stop - rows.start)
        return matrix(self, rows)

    monkeypatch.setattr("xlarank.models.member.PIECE", 4)
    monkeypatch.setattr(GraphRows, "matrix", watched)
    assert np.array_equal(model.score(graph), scores)
    assert np.array_equal([*model.staged(graph, 5)], stages)
    assert sizes == [4] * 6, "9 rows in three pieces, twice"


def test_a_lonely_peak_is_not_chosen():
    """Means 0, 1/4, 3/4, 0, 1/2, 1/2, 1/2, 1/2: the first full plateau begins at stage 5."""
    values = {"a": [0, 0.5, 1, 0, 0.25, 0.75, 0.5, 0.5], "b": [0, 0, 0.5, 0, 0.75, 0.25, 0.5, 0.5]}
    metrics = {}
    for name, scores in values.items():
        metrics[name] = [{"score": score} for score in scores]
    curves = Curves([*range(8)], metrics)
    assert curves.best_stage() == 5 and curves.column("score").tolist() == [*values.values()]
    assert curves.at(5) == {"a": {"score": 0.75}, "b": {"score": 0.25}}


def test_a_graph_held_out_by_another_fold_is_scored_once(fits):
    plan = FoldPlan(folds.FAMILY, [Fold([0, 1], [0, 1, 2]), Fold([2, 3], [2, 3])])
    settings = FitSettings(10, 0, 1)
    curves = plan.curves(TRAINING, SPY, settings)
    assert [*curves.metrics] == TRAINING.names[:4]
    trained_on = [data.names for data, _ in fits]
    assert trained_on == [[*NAMES[3:]], [*NAMES[:2], *NAMES[4:]]]
    expected = validated(TRAINING, plan.folds[1], SPY, settings)
    assert curves.metrics[NAMES[2]] == expected.metrics[NAMES[2]]
