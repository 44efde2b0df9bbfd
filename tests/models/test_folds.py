"""What is held out together: program families, kinds of kernels, and graphs whose family stays."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.models.rows import easy_data
from tests.models.tile_rows import kernel
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.curves import Curves
from xlarank.models.validation.fold_plan import FAMILY, KIND, FoldPlan
from xlarank.models.validation.folds import family_folds, graph_folds

_FAMILIES = st.lists(st.sampled_from("abcdefgh"), max_size=40)
_MOST = st.integers(2, 10)


@given(_FAMILIES, _MOST)
def test_families_are_held_out_whole_and_once_in_folds_of_even_size(families: list[str], most: int) -> None:
    folds = family_folds(families, most)
    if len(set(families)) < 2:
        assert folds == []
        return
    assert sorted(group for fold in folds for group in fold) == list(range(len(families)))
    held = [{families[group] for group in fold} for fold in folds]
    assert sum(map(len, held)) == len(set(families)), "a family is never split"
    assert len(folds) == min(most, len(set(families))) and all(len(fold) < len(families) for fold in folds)
    sizes = [len(fold) for fold in folds]
    assert max(sizes) - min(sizes) <= max(Counter(families).values())
    backwards = family_folds(families[::-1], most)
    assert [{families[::-1][group] for group in fold} for fold in backwards] == held, "whatever the order"


def test_the_largest_family_goes_to_the_emptiest_fold() -> None:
    """Sizes a 3, b 2, c 2, d 1 on two folds: a | b, then c to b's fold (2 < 3), then d to a's (3 < 4)."""
    assert family_folds(["a", "a", "a", "b", "b", "c", "c", "d"], 2) == [[0, 1, 2, 7], [3, 4, 5, 6]]


@given(_FAMILIES, _MOST)
def test_a_held_out_graph_leaves_one_of_its_family(families: list[str], most: int) -> None:
    folds = graph_folds(families, most)
    for fold in folds:
        left = {families[group] for group in range(len(families)) if group not in fold}
        assert all(families[group] in left for group in fold)
    related = [group for group, family in enumerate(families) if families.count(family) > 1]
    assert sorted(group for fold in folds for group in fold) == related
    assert len(folds) == min(most, len(related))
    assert max(map(len, folds), default=0) - min(map(len, folds), default=0) <= 1


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
    first, second, _ = training.names
    curves = Curves([25], {first: [{"score": 1.0}], second: [{"score": 0.0}]})
    assert plan.scored(training, dot, curves).metrics == {first: [{"score": 1.0}]}
