"""The catalogue of blocks, and what the settings choose from it."""

from __future__ import annotations

from abc import ABCMeta
from importlib import import_module
from inspect import isabstract
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
from xlarank.features.layout.aggregation import LayoutBlock
from xlarank.features.recipe import FeatureSettings

KINDS: tuple[Kind, ...] = get_args(Kind)
SETTINGS = [FeatureSettings(tier, candidates) for tier in Tier for candidates in (True, False)]
GRAPHS = {"layout": layout_of(layout_arrays()), "tile": tile_of(tile_arrays())}


@pytest.fixture
def listed(monkeypatch):
    """Replace the blocks added to the catalogue, for one test."""
    before = catalogue.BLOCKS
    return lambda *blocks: monkeypatch.setattr(catalogue, "BLOCKS", catalogue.checked([*before, *blocks]))


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


# Declaring ------------------------------------------------------------------------------------------------


def test_a_listed_block_is_computed(listed):
    columns = {"tested__one__sum": "one", "tested__two__sum": "two"}
    for base in (LayoutBlock, Block):
        for transductive in (False, True):
            listed(declare(columns, value=7.0, base=base, transductive=transductive))
            chosen = names(blocks_of("layout"))
            assert (chosen[-2:] == list(columns)) == transductive, "these build on the others"
            assert set(columns) <= set(chosen) and "tested__one__sum" not in names(blocks_of("tile"))
            assert by_name(assemble(GRAPHS["layout"]))["tested__two__sum"].tolist() == [7.0] * 5


def test_a_careless_block_is_refused():
    for arguments, message in (
        ({"doc": None}, "Tested has no docstring"),
        ({"doc": "  \n "}, "Tested has no docstring"),
        ({"columns": {"tested__one__sum": " "}}, "'tested__one__sum' of Tested has no meaning"),
        *(
            ({"columns": {"tested__fine__sum": "fine", name: "one"}}, f"'{name}' of Tested is not named block")
            for name in "one one__two one__two__three__four __two__three one____three one__two__".split()
        ),
    ):
        with pytest.raises(TypeError, match=message):
            declare(**{"columns": {"tested__one__sum": "one"}, **arguments})
    with pytest.raises(TypeError, match="Tested computes nothing"):
        ABCMeta("Tested", (Block,), {"__doc__": "One.", "columns": {"tested__a__b": "c"}, "kinds": ("layout",)})


def test_a_name_used_twice_is_refused_unless_the_kinds_never_meet(listed):
    for column, owner in (("size__nodes__log", "GraphSize"), ("bounds__kernel_0__log", "Bounds")):
        with pytest.raises(TypeError, match=f"'{column}' is declared by {owner} and Tested"):
            listed(declare({column: "again"}, kinds=("tile",)))
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


def test_a_block_of_another_shape_is_caught(listed):
    graph, one = GRAPHS["layout"], {"tested__one__sum": "one"}
    for shape in ((3, 1), (5, 2), (5,)):
        for attributes in (
            {"compute": lambda self, context, shape=shape: np.zeros(shape), "transductive": True},
            {
                "base": LayoutBlock,
                "prepare": lambda self, context, aggregation, shape=shape: lambda piece: np.zeros(shape),
            },
        ):
            listed(declare(one, **attributes))
            with pytest.raises(AssertionError, match=r"^Tested gave"):
                assemble(graph)
    many = lambda self, context, aggregation: aggregation.sum([context.type_changed] * 2)  # noqa: E731
    listed(declare(one, base=LayoutBlock, prepare=many))
    with pytest.raises(AssertionError, match=r"^Tested gave"):
        assemble(graph)
    listed(declare(one, compute=lambda self, context: np.zeros(2), scope=Scope.GRAPH))
    with pytest.raises(ValueError, match="zip"):
        assemble(graph)


# What there is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_names_tiers_and_the_order_of_blocks(kind):
    chosen = blocks_of(kind)
    everything, fast = names(chosen), names(blocks_of(kind, Tier.FAST))
    assert len(everything) == len(set(everything)) > 100
    assert set("".join(everything)) <= set("abcdefghijklmnopqrstuvwxyz0123456789_"), "no library minds such a name"
    stage = [(block.scope is Scope.CONFIG) + block.transductive for block in chosen]
    assert stage == sorted(stage) and set(stage) == {0, 1, 2}, "graph columns first, transductive ones last"
    assert [name for name in everything if name in set(fast)] == fast
    assert set(everything) - set(fast) == set(names(block for block in chosen if block.tier is Tier.FULL))
    for tier in Tier:
        all_of_tier, inductive = blocks_of(kind, tier), blocks_of(kind, tier, candidates=False)
        assert inductive == [block for block in all_of_tier if not block.transductive] != all_of_tier
        gone = set(names(all_of_tier)) - set(names(inductive))
        assert all(name.startswith(("candidates__", "rank__", "zscore__")) for name in gone)


@pytest.mark.parametrize("kind", KINDS)
def test_settings_choose_columns_that_do_not_depend_on_each_other(kind):
    graph = GRAPHS[kind]
    everything = assemble(graph)
    rows = by_name(everything)
    for settings in SETTINGS:
        chosen, found = settings.blocks(kind), assemble(graph, settings)
        assert settings.graph_columns(kind) == names(block for block in chosen if block.scope is Scope.GRAPH)
        assert settings.config_columns(kind) == names(block for block in chosen if block.scope is Scope.CONFIG)
        assert found.columns == settings.columns(kind) and found.config_columns == settings.config_columns(kind)
        assert found.matrix().shape[1] == sum(len(block.columns) for block in chosen)
        assert found.constants.items() <= everything.constants.items()
        assert [n for n, values in by_name(found).items() if values.tobytes() != rows[n].tobytes()] == []


def test_a_graph_of_no_kind_is_refused():
    graph = GRAPHS["layout"]
    bare = Graph(graph.name, graph.node_feat, graph.opcode, graph.edges, graph.runtime)
    with pytest.raises(TypeError, match="no features for Graph"):
        assemble(bare)


def test_the_hash_changes_with_a_column(listed):
    before = FeatureSettings().code_hash("layout"), FeatureSettings().code_hash("tile")
    listed(declare({"tested__one__sum": "one"}))
    assert FeatureSettings().code_hash("layout") != before[0]
    assert FeatureSettings().code_hash("tile") == before[1]
