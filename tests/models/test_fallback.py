"""What the ranking of a kind never seen falls back on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models.rows import graph_rows
from tests.models.tile_rows import kernel
from xlarank.models.fallback import Fallback, learned_kinds, unseen_kinds

ROWS = kernel("a__a", [4.0, 1.0, 5.0, 6.0], [10, 20, 30, 40])
#: The model's ranks are 1, 1/3, 0, 2/3.
SCORES = np.array([9.0, -1.0, -7.0, 2.0])


def test_the_compilers_own_choice_is_blended_with_the_models_order() -> None:
    assert Fallback().places(ROWS) == pytest.approx([0, 1, 1, 1])
    # 0.75 * rank + 0.25 * place
    assert Fallback(0.25).blend(ROWS, SCORES) == pytest.approx([0.75, 0.25 + 0.25, 0 + 0.25, 0.5 + 0.25])
    blended = Fallback(0.5).blend(ROWS, SCORES)
    assert np.argsort(blended, kind="stable").tolist() == [0, 2, 1, 3], "first, the rest as the model has them"
    moved = replace(ROWS, group=np.array([2, 0, 1, 3]))  # the first configuration repeats that of the third row
    assert Fallback().places(moved).tolist() == [1, 1, 0, 1]  # type: ignore[union-attr]
    assert Fallback(0.0).blend(ROWS, SCORES) is SCORES
    sampled = ROWS.take(np.array([1, 2, 3]))
    assert Fallback().blend(sampled, SCORES[1:]).tolist() == SCORES[1:].tolist(), "it is not among them"
    for weight in (-0.1, 1.1, float("nan")):
        with pytest.raises(ValueError, match=r"the weight of the fallback"):
            Fallback(weight)


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
