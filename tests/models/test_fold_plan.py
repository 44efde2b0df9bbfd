"""What is held out together when something is chosen."""

from __future__ import annotations

from tests.models.rows import easy_data
from tests.models.tile_rows import kernel
from xlarank.models.ranking_data import RankingData, TrainingSet
from xlarank.models.validation.curves import Curves
from xlarank.models.validation.fold_plan import FAMILY, KIND, FoldPlan


def tiles(*kinds: str) -> TrainingSet:
    graphs = [kernel(f"f{i % 2}__{i}", [1, 2], [10, 20], kinds=(kind,)) for i, kind in enumerate(kinds)]
    return TrainingSet("tile", RankingData.from_graphs(graphs))


def test_tiles_go_by_kind():
    plan = FoldPlan.of(tiles("dot", "copy", "dot", "slice"), 10)
    assert (plan.by, plan.held) == (KIND, [[1], [0, 2], [3]])
    assert plan.chosen_by == "3 folds by kind"
    assert len(FoldPlan.of(tiles("dot", "copy", "dot", "slice"), 2).folds) == 2


def test_kernels_of_one_kind_go_by_family():
    plan = FoldPlan.of(tiles("dot", "dot", "dot"), 10)
    assert (plan.by, plan.held) == (FAMILY, [[0, 2], [1]])


def test_layouts_go_by_family():
    plan = FoldPlan.of(TrainingSet("layout", easy_data(configs=5)), 10)
    assert (plan.by, plan.held) == (FAMILY, [[0, 1], [2, 3], [4, 5]])
    assert all(fold.judged == fold.held for fold in plan.folds)


def test_only_what_a_fold_judges_counts():
    graphs = [
        kernel("a__a", [1, 2], [10, 20], kinds=("dot",)),
        kernel("b__a", [1, 2], [10, 20], kinds=("dot", "dot left-transposed")),
        kernel("c__a", [1, 2], [10, 20], kinds=("copy",)),
    ]
    training = TrainingSet("tile", RankingData.from_graphs(graphs))
    plan = FoldPlan.of(training, 10)
    dot = next(i for i, fold in enumerate(plan.folds) if fold.judged == [0])
    assert plan.folds[dot].held == [0, 1]
    curves = Curves([25], {"a__a": [{"score": 1.0}], "b__a": [{"score": 0.0}]})
    assert plan.judged(training, dot, curves).metrics == {"a__a": [{"score": 1.0}]}
