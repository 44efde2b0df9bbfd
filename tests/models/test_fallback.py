"""What the ranking of a kind never seen falls back on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.rows import graph_rows
from tests.models.tile_rows import kernel
from xlarank.models.fallback import FALLBACKS, FILE, NEAR, OWN, Fallback, learned_kinds, unseen_kinds

#: Distances to the first, the compiler's own choice: 0, 3, 1, 2.
ROWS = kernel("a__a", [4.0, 1.0, 5.0, 6.0], [10, 20, 30, 40])
#: The model's ranks are 1, 1/3, 0, 2/3.
SCORES = np.array([9.0, -1.0, -7.0, 2.0])


@pytest.mark.parametrize(
    ("order", "places"),
    [(OWN, [0, 1, 1, 1]), (NEAR, [0, 1, 1 / 3, 2 / 3]), (FILE, [0, 1 / 3, 2 / 3, 1])],
)
def test_places_of_an_order(order, places):
    assert Fallback(order).places(ROWS) == pytest.approx(places)


@pytest.mark.parametrize(
    ("order", "blended"),
    [
        # 0.75 * rank + 0.25 * place
        (OWN, [0.75, 0.25 + 0.25, 0 + 0.25, 0.5 + 0.25]),
        (NEAR, [0.75, 0.25 + 0.25, 0 + 1 / 12, 0.5 + 1 / 6]),
        (FILE, [0.75, 0.25 + 1 / 12, 0 + 1 / 6, 0.5 + 0.25]),
    ],
)
def test_a_blend_is_a_weighted_sum_of_rank_and_place(order, blended):
    assert Fallback(order, 0.25).blend(ROWS, SCORES) == pytest.approx(blended)


def test_at_one_half_the_compilers_own_choice_is_first_and_the_rest_as_the_model_says():
    blended = Fallback(OWN, 0.5).blend(ROWS, SCORES)
    assert np.argsort(blended, kind="stable").tolist() == [0, 2, 1, 3]


def test_all_the_weight_leaves_the_order_alone():
    assert np.argsort(Fallback(NEAR, 1.0).blend(ROWS, SCORES)).tolist() == [0, 2, 3, 1]
    assert np.argsort(Fallback(FILE, 1.0).blend(ROWS, SCORES)).tolist() == [0, 1, 2, 3]


def test_without_weight_or_the_compilers_own_choice_scores_stay():
    assert Fallback(NEAR).blend(ROWS, SCORES) is SCORES
    sampled = ROWS.take(np.array([1, 2, 3]))
    assert Fallback(OWN, 0.5).blend(sampled, SCORES[1:]).tolist() == SCORES[1:].tolist()
    without_bounds = graph_rows("b__a", [10, 20])
    assert Fallback(NEAR).places(without_bounds) is None
    assert Fallback(OWN).places(without_bounds) is not None


def test_the_first_configuration_counts_wherever_its_row_stands():
    """Rows are distinct configurations; the first one may be a repeat of any of them."""
    moved = replace(ROWS, group=np.array([2, 0, 1, 3]))
    assert Fallback(OWN).places(moved).tolist() == [1, 1, 0, 1]
    assert Fallback(FILE).places(moved) == pytest.approx([1 / 3, 2 / 3, 0, 1])
    repeated = kernel("a__a", [4.0, 1.0], [10, 20], copies=[0, 2])
    assert Fallback(FILE).places(repeated).tolist() == [0, 1]


@pytest.mark.parametrize(("order", "weight"), [("luck", 0.5), (OWN, -0.1), (OWN, 1.1), (OWN, float("nan"))])
def test_what_makes_no_sense_is_refused(order, weight):
    with pytest.raises(ValueError, match=r"the fallback is on|the weight of the fallback"):
        Fallback(order, weight)


def test_a_choice_is_made_among_different_ones_that_weigh_something():
    assert len(set(FALLBACKS)) == len(FALLBACKS) and all(fallback.weight > 0 for fallback in FALLBACKS)
    assert str(Fallback(OWN, 0.5)) == "weight 0.5 on the compiler's own choice"


def test_a_kind_is_learned_where_a_kernel_can_be_of_no_other():
    graphs = [
        kernel("a__a", [1], [1], kinds=("dot", "dot left-transposed")),
        kernel("b__a", [1], [1], kinds=("dot",)),
        kernel("c__a", [1], [1], kinds=("copy",)),
        graph_rows("d__a", [1]),
    ]
    learned = learned_kinds(graphs)
    assert learned == ["copy", "dot"]
    assert unseen_kinds(graphs[0], learned) == ("dot left-transposed",)
    assert unseen_kinds(graphs[1], learned) == ()
    assert unseen_kinds(graphs[3], learned) == (), "layouts are of no kind"
