"""The catalogue of blocks, and what the settings choose from it."""

from __future__ import annotations

import json
import subprocess
import sys
from abc import ABCMeta
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from pkgutil import walk_packages
from typing import get_args

import numpy as np
import pytest

import xlarank.features
from tests.features.helpers import by_name, layout_of, tile_of
from tests.graphs import layout_arrays, tile_arrays
from xlarank.data.graph import Graph, Kind
from xlarank.features import catalogue
from xlarank.features.assemble import assemble
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.catalogue import blocks_of
from xlarank.features.layout.block import LayoutBlock
from xlarank.features.recipe import FeatureSettings

KINDS: tuple[Kind, ...] = get_args(Kind)
SETTINGS = [FeatureSettings(tier, candidates) for tier in Tier for candidates in (True, False)]


@pytest.fixture
def listed(monkeypatch):
    """Add blocks to the catalogue, for one test."""

    def add(*blocks):
        monkeypatch.setattr(catalogue, "BLOCKS", catalogue.checked([*catalogue.BLOCKS, *blocks]))

    return add


def declare(columns, *, doc="A block of the tests.", kinds=("layout",), value=1.0, base=Block, **attributes):
    def compute(self, context):
        return np.full((context.table.configs, len(columns)), value)

    def prepare(self, context, aggregation):
        return lambda piece: np.full((len(piece), len(columns)), value)

    method = {"prepare": prepare} if base is LayoutBlock else {"compute": compute}
    namespace = {"__doc__": doc, "columns": columns, "kinds": kinds, **method, **attributes}
    return ABCMeta("Tested", (base,), namespace)()


def names(chosen):
    return [name for block in chosen for name in block.columns]


def graph_of_kind(kind):
    return layout_of(layout_arrays()) if kind == "layout" else tile_of(tile_arrays())


# Declaring ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [LayoutBlock, Block])
@pytest.mark.parametrize("transductive", [False, True])
def test_a_listed_block_is_computed(listed, base, transductive):
    columns = {"tested__one__sum": "one", "tested__two__sum": "two"}
    listed(declare(columns, value=7.0, base=base, transductive=transductive))
    assert (names(blocks_of("layout"))[-2:] == list(columns)) == transductive, "these build on the others"
    assert set(columns) <= set(names(blocks_of("layout")))
    assert "tested__one__sum" not in names(blocks_of("tile"))
    assert by_name(assemble(graph_of_kind("layout")))["tested__two__sum"].tolist() == [7.0] * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"doc": None}, "Tested has no docstring"),
        ({"doc": "  \n "}, "Tested has no docstring"),
        ({"columns": {"tested__one__sum": " "}}, "'tested__one__sum' of Tested has no meaning"),
        *(
            (
                {"columns": {"tested__fine__sum": "fine", name: "one"}},
                f"'{name}' of Tested is not named block__what__how",
            )
            for name in (
                "one",
                "one__two",
                "one__two__three__four",
                "__two__three",
                "one____three",
                "one__two__",
                "",
            )
        ),
    ],
)
def test_a_careless_block_is_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        declare(**{"columns": {"tested__one__sum": "one"}, **arguments})


@pytest.mark.parametrize(
    ("column", "kinds", "owner"),
    [("size__nodes__log", ("tile",), "GraphSize"), ("bounds__kernel_0__log", ("tile",), "Bounds")],
)
def test_a_name_used_twice_is_refused(listed, column, kinds, owner):
    before = catalogue.BLOCKS
    with pytest.raises(TypeError, match=f"'{column}' is declared by {owner} and Tested"):
        listed(declare({column: "again"}, kinds=kinds))
    assert catalogue.BLOCKS == before


def test_one_name_may_serve_both_kinds_of_graphs(listed):
    """The kinds never meet in one matrix."""
    listed(declare({"bounds__kernel_0__log": "for layouts"}))
    assert "bounds__kernel_0__log" in names(blocks_of("layout"))


def test_every_declared_block_is_listed():
    for module in walk_packages(xlarank.features.__path__, "xlarank.features."):
        import_module(module.name)
    declared, classes = set(), [Block]
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        if cls.__module__.startswith("xlarank.") and not isabstract(cls) and not cls.__name__.startswith("_"):
            declared.add(cls)
    assert declared == {type(block) for block in (*catalogue.BLOCKS, *catalogue.INSTANCE_BLOCKS)}


@pytest.mark.parametrize("shape", [(3, 1), (5, 2), (5,)])
def test_a_block_of_another_shape_is_caught(listed, shape, monkeypatch):
    wrong = (
        {"compute": lambda self, context: np.zeros(shape), "transductive": True},
        {"base": LayoutBlock, "prepare": lambda self, context, aggregation: lambda piece: np.zeros(shape)},
    )
    before = catalogue.BLOCKS
    for attributes in wrong:
        monkeypatch.setattr(catalogue, "BLOCKS", before)
        listed(declare({"tested__one__sum": "one"}, **attributes))
        with pytest.raises(AssertionError, match=r"^Tested gave"):
            assemble(graph_of_kind("layout"))


def test_a_layout_block_that_requests_too_much_is_caught(listed):
    def prepare(self, context, aggregation):
        return aggregation.sum([context.type_changed] * 2)

    listed(declare({"tested__one__sum": "one"}, base=LayoutBlock, prepare=prepare))
    with pytest.raises(AssertionError, match=r"^Tested requested 2 columns$"):
        assemble(graph_of_kind("layout"))


def test_a_graph_block_with_a_value_too_many_is_caught(listed):
    listed(declare({"tested__one__sum": "one"}, compute=lambda self, context: np.zeros(2), scope=Scope.GRAPH))
    with pytest.raises(ValueError, match="zip"):
        assemble(graph_of_kind("layout"))


def test_a_block_that_computes_nothing_is_refused():
    with pytest.raises(TypeError, match="Tested computes nothing"):
        ABCMeta("Tested", (Block,), {"__doc__": "One.", "columns": {"tested__a__b": "c"}, "kinds": ("layout",)})


# What there is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_unique_and_carry_a_meaning(kind):
    chosen = blocks_of(kind)
    everything = names(chosen)
    assert len(everything) == len(set(everything)) > 100
    for block in chosen:
        for name, meaning in block.columns.items():
            assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_"), "no library minds such a name"
            assert meaning.strip() == meaning, name
            assert type(block).__doc__.strip().endswith((".", "%")), type(block).__name__


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_settings_choose_columns_that_do_not_depend_on_each_other(kind, settings):
    chosen, graph = settings.blocks(kind), graph_of_kind(kind)
    assert settings.graph_columns(kind) == names(block for block in chosen if block.scope is Scope.GRAPH)
    assert settings.config_columns(kind) == names(block for block in chosen if block.scope is Scope.CONFIG)
    found, everything = assemble(graph, settings), assemble(graph)
    assert list(found.constants) == settings.graph_columns(kind)
    assert found.config_columns == settings.config_columns(kind)
    assert found.matrix().shape[1] == sum(len(block.columns) for block in chosen)
    assert found.constants.items() <= everything.constants.items()
    rows = by_name(everything)
    for name, values in by_name(found).items():
        assert values.tobytes() == rows[name].tobytes(), name


@pytest.mark.parametrize("kind", KINDS)
def test_graph_columns_come_first_and_transductive_ones_last(kind):
    chosen = blocks_of(kind)
    stage = [(block.scope is Scope.CONFIG) + block.transductive for block in chosen]
    assert stage == sorted(stage) and set(stage) == {0, 1, 2}
    assert [type(block) for block in blocks_of(kind)] == [type(block) for block in chosen]


def columns_in_a_fresh_process(imports: str) -> list[str]:
    code = (
        f"{imports}\nimport json\nfrom xlarank.features.recipe import FeatureSettings as S\n"
        "print(json.dumps([S().graph_columns(k) + S().config_columns(k) for k in ('layout', 'tile')]))"
    )
    root = Path(catalogue.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_order_is_the_same_in_every_process():
    """A notebook that imports one block first must build rows that stored models take."""
    first = "import xlarank.features.layout.padding, xlarank.features.tile.traffic, xlarank.features.program.size"
    here = [FeatureSettings().graph_columns(kind) + FeatureSettings().config_columns(kind) for kind in KINDS]
    assert columns_in_a_fresh_process(first) == here


@pytest.mark.parametrize("kind", KINDS)
def test_the_fast_tier_is_a_part_of_the_full_one_in_the_same_order(kind):
    fast, full = (names(blocks_of(kind, tier)) for tier in (Tier.FAST, Tier.FULL))
    assert [name for name in full if name in set(fast)] == fast
    dear = [block for block in blocks_of(kind) if block.tier is Tier.FULL]
    assert set(full) - set(fast) == set(names(dear))
    assert kind == "tile" or len(dear) > 0


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("kind", KINDS)
def test_without_candidates_exactly_the_transductive_blocks_are_gone(kind, tier):
    everything, inductive = blocks_of(kind, tier), blocks_of(kind, tier, candidates=False)
    assert inductive == [block for block in everything if not block.transductive]
    assert len(inductive) < len(everything)
    assert all(
        name.startswith(("candidates__", "rank__", "zscore__"))
        for name in set(names(everything)) - set(names(inductive))
    )


def test_a_graph_of_no_kind_is_refused():
    graph = layout_of(layout_arrays())
    bare = Graph(graph.name, graph.node_feat, graph.opcode, graph.edges, graph.runtime, graph.duplicates)
    with pytest.raises(TypeError, match="no features for Graph"):
        assemble(bare)


def test_the_hash_changes_with_a_column(listed):
    before = FeatureSettings().code_hash("layout"), FeatureSettings().code_hash("tile")
    listed(declare({"tested__one__sum": "one"}))
    assert FeatureSettings().code_hash("layout") != before[0]
    assert FeatureSettings().code_hash("tile") == before[1]
