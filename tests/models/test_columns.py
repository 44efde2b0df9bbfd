"""Which columns a ranker looks at."""

from __future__ import annotations

import pytest

from xlarank.data.errors import ModelError
from xlarank.features.block import Scope
from xlarank.features.catalogue import blocks_of
from xlarank.features.recipe import FeatureSettings
from xlarank.features.targets import CPU, TPU
from xlarank.models.rankers.columns import CHOICES, chosen_columns


def names(choice: str, kind: str) -> list[str]:
    settings = FeatureSettings()
    columns = settings.graph_columns(kind) + settings.config_columns(kind)
    return [columns[i] for i in chosen_columns(columns, choice)]


def of_blocks(kind: str, *, graph: bool, candidates: bool) -> list[str]:
    return [
        name
        for block in blocks_of(kind)
        if (graph or block.scope is not Scope.GRAPH) and (candidates or not block.transductive)
        for name in block.columns
    ]


@pytest.mark.parametrize("kind", ["layout", "tile"])
@pytest.mark.parametrize(
    ("choice", "graph", "candidates"),
    [("all", True, True), ("no_graph", False, True), ("no_candidates", True, False), ("alone", False, False)],
)
def test_choices_leave_out_what_they_say(kind: str, choice: str, graph: bool, candidates: bool) -> None:
    got = names(choice, kind)
    assert got == of_blocks(kind, graph=graph, candidates=candidates)
    assert got, "something is left to learn from"


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_every_choice_is_a_different_set(kind: str) -> None:
    assert len({tuple(names(choice, kind)) for choice in CHOICES}) == len(CHOICES)


def test_indices_point_into_the_columns_given() -> None:
    """Also where the columns are those of another tier or not ours at all."""
    constant = blocks_of("layout")[0]
    assert constant.scope is Scope.GRAPH
    first = next(iter(constant.columns))
    assert chosen_columns(["mine", first, "yours"], "no_graph").tolist() == [0, 2]
    assert chosen_columns(["mine", first, "yours"], "all").tolist() == [0, 1, 2]
    assert chosen_columns([], "alone").tolist() == []


def test_an_unknown_choice_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"columns is 'some'; expected .*no_graph"):
        chosen_columns(["mine"], "some")


@pytest.mark.parametrize(("target", "dropped", "kept"), [(TPU, CPU, TPU), (CPU, TPU, CPU)])
@pytest.mark.parametrize("choice", CHOICES)
def test_a_target_leaves_out_what_speaks_of_others(target, dropped, kept, choice):
    columns = FeatureSettings().columns("tile")
    both = {columns[i] for i in chosen_columns(columns, choice)}
    found = {columns[i] for i in chosen_columns(columns, choice, target)}
    assert both - found == both & dropped.columns != set()
    assert both & kept.columns <= found


def test_layouts_look_the_same_for_every_target():
    columns = FeatureSettings().columns("layout")
    for target in (CPU, TPU):
        assert chosen_columns(columns, "all", target).tolist() == list(range(len(columns)))
