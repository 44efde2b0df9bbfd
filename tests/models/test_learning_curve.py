"""The learning curve: what each fit learns from, and its standard error."""

from __future__ import annotations

import numpy as np
import pytest

from xlarank.data.errors import CollectionError
from xlarank.models.validation.learning_curve import _plan, clustered_error, fits_of

FAMILIES = [name for name in "abcdefgh" for _ in range(2)]


def test_a_judged_family_is_never_learned_from() -> None:
    plan = _plan(FAMILIES, seed=0)
    sizes = []
    for chosen in plan:
        for held, learned in chosen:
            assert not {FAMILIES[g] for g in held} & learned
        assert {g for held, _ in chosen for g in held} == set(range(len(FAMILIES))), "every graph is judged"
        sizes.append(np.mean([len(learned) for _, learned in chosen]))
    assert sizes == sorted(sizes) and len(set(sizes)) == 3
    for (held, few), (same, more) in zip(plan[0], plan[1], strict=True):
        assert held == same and few < more, "what was learned from stays when more comes"
    assert all(len(learned | {FAMILIES[g] for g in held}) == 8 for held, learned in plan[2])
    assert fits_of(FAMILIES) == 10 + 10 + 5


def test_two_families_make_no_curve() -> None:
    assert fits_of(["a", "b", "b"]) == 0
    with pytest.raises(CollectionError, match="2 program families are too few"):
        _plan(["a", "b", "b"], seed=0)


def test_graphs_of_one_family_are_no_new_observations() -> None:
    values = np.array([0.1, 0.5, 0.4, 0.9])
    alone = clustered_error(values, ["a", "b", "c", "d"])
    assert alone == pytest.approx(values.std(ddof=1) / 2)
    assert clustered_error(np.repeat(values, 3), list("aaabbbcccddd")) == pytest.approx(alone)
