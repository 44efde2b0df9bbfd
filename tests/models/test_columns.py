"""Which columns a ranker looks at."""

from __future__ import annotations

import pytest

from xlarank.data.errors import ModelError
from xlarank.features.block import Scope
from xlarank.features.catalogue import blocks_of
from xlarank.features.recipe import FeatureSettings
from xlarank.features.targets import CPU, TPU
from xlarank.models.rankers.columns import chosen_columns


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_choices_leave_out_what_they_say(kind: str) -> None:
    columns = FeatureSettings().columns(kind)
    for choice, graph, candidates in (
        ("all", True, True), ("no_graph", False, True), ("no_candidates", True, False), ("alone", False, False),
    ):  # fmt: skip
        expected = [
            name
            for block in blocks_of(kind)
            if (graph or block.scope is not Scope.GRAPH) and (candidates or not block.transductive)
            for name in block.columns
        ]
        assert [columns[i] for i in chosen_columns(columns, choice)] == expected
        assert expected and (choice == "all") == (expected == columns)


def test_indices_point_into_the_columns_given() -> None:
    """Also where the columns are those of another tier or not ours at all."""
    constant = blocks_of("layout")[0]
    assert constant.scope is Scope.GRAPH
    first = next(iter(constant.columns))
    assert chosen_columns(["mine", first, "yours"], "no_graph").tolist() == [0, 2]
    assert chosen_columns(["mine", first, "yours"], "all").tolist() == [0, 1, 2]
    assert chosen_columns([], "alone").tolist() == []
    with pytest.raises(ModelError, match=r"columns is 'some'; expected .*no_graph"):
        chosen_columns(["mine"], "some")


def test_a_target_leaves_out_the_columns_of_others() -> None:
    columns, layouts = FeatureSettings().columns("tile"), FeatureSettings().columns("layout")
    for target, dropped in ((TPU, CPU), (CPU, TPU)):
        for choice in ("all", "alone"):
            both = {columns[i] for i in chosen_columns(columns, choice)}
            found = {columns[i] for i in chosen_columns(columns, choice, target)}
            assert both - found == both & dropped.columns != set()
            assert both & target.columns <= found
        assert chosen_columns(layouts, "all", target).tolist() == list(range(len(layouts)))
