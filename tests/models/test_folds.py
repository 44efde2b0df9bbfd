"""What is held out together: program families, kinds of kernels, and graphs whose family stays."""

from __future__ import annotations

from tests.models.rows import easy_data
from tests.models.tile_rows import kernel
from xlarank.models.fallback import Fallback
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import ranker_class
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.curves import validate_folds
from xlarank.models.validation.fold_plan import FAMILY, KIND, FoldPlan


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


def test_kernels_that_may_be_of_a_kind_are_held_out_with_it_and_not_scored() -> None:
    training = tiles(("dot",), ("dot", "dot left-transposed"), ("copy",))
    plan = FoldPlan.of(training, 10)
    dot = next(i for i, fold in enumerate(plan.folds) if fold.scored == [0])
    assert plan.folds[dot].held == [0, 1]
    ranker = ranker_class("lambdarank")(kind="tile")
    found = plan.curves(training, ranker, FitSettings(1, threads=1)).metrics
    (alone,) = validate_folds(training, [[0, 1]], ranker, FitSettings(1, threads=1), Fallback())
    assert found[training.names[0]] == alone.metrics[training.names[0]]
