"""Folds of whole program families, and of graphs whose family stays."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.models.validation.folds import family_folds, graph_folds

_FAMILIES = st.lists(st.sampled_from("abcdefgh"), max_size=40)
_MOST = st.integers(2, 10)


@given(_FAMILIES, _MOST)
def test_a_family_is_never_split(families: list[str], most: int) -> None:
    held_by = {}
    for number, fold in enumerate(family_folds(families, most)):
        for group in fold:
            assert held_by.setdefault(families[group], number) == number


@given(_FAMILIES, _MOST)
def test_every_group_is_held_out_once_and_every_fold_leaves_something_to_learn(
    families: list[str], most: int
) -> None:
    folds = family_folds(families, most)
    if len(set(families)) < 2:
        assert folds == []
        return
    assert sorted(group for fold in folds for group in fold) == list(range(len(families)))
    assert all(0 < len(fold) < len(families) for fold in folds)
    assert len(folds) == min(most, len(set(families)))


@given(_FAMILIES, _MOST)
def test_folds_do_not_depend_on_the_order_of_groups(families: list[str], most: int) -> None:
    def held(families: list[str]) -> list[list[str]]:
        return [sorted({families[group] for group in fold}) for fold in family_folds(families, most)]

    assert held(families) == held(families[::-1]) == held(sorted(families))


@given(_FAMILIES, _MOST)
def test_fold_sizes_differ_by_no_more_than_the_largest_family(families: list[str], most: int) -> None:
    folds = family_folds(families, most)
    if folds:
        sizes = [len(fold) for fold in folds]
        assert max(sizes) - min(sizes) <= max(Counter(families).values())


def test_the_largest_family_goes_to_the_emptiest_fold() -> None:
    """Sizes a 3, b 2, c 2, d 1 on two folds: a | b, then c to b's fold (2 < 3), then d to a's (3 < 4)."""
    families = ["a", "a", "a", "b", "b", "c", "c", "d"]
    assert family_folds(families, 2) == [[0, 1, 2, 7], [3, 4, 5, 6]]


@pytest.mark.parametrize("families", [[], ["a"], ["a", "a", "a"]])
def test_without_a_second_family_there_are_no_folds(families: list[str]) -> None:
    assert family_folds(families, 5) == []


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
