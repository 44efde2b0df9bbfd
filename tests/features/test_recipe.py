"""Recipes, the version of the columns, sampled rows; blocks, causes and targets."""

from dataclasses import replace
from importlib import import_module
from pkgutil import walk_packages
from string import ascii_lowercase, digits
from typing import get_args

import numpy as np
import pytest

import xlarank.features
from docs.columns import pages
from tests.features.helpers import graph_of
from tests.graphs import layout_arrays, tile_arrays
from tests.models.helpers import graph_rows
from xlarank.data.collection import Collection
from xlarank.data.graph import Kind
from xlarank.features import catalogue
from xlarank.features.assembly import assemble
from xlarank.features.block import Block, Cause, tile_block
from xlarank.features.catalogue import (
    all_columns,
    blocks_of,
    cause_of,
    columns_in,
    columns_version,
    meaning_of,
)
from xlarank.features.rows import Recipe, sample_rows
from xlarank.models.training_data import CPU, DATASET, GPU, TARGETS, TPU, UNKNOWN, target_of

KINDS: tuple[Kind, ...] = get_args(Kind)
GRAPHS = {"layout": graph_of(layout_arrays()), "tile": graph_of(tile_arrays())}
BLOCKS = {"layout": blocks_of("layout"), "tile": blocks_of("tile")}


def names(blocks):
    return [name for block in blocks for name in block.columns]


def test_the_version_of_columns_changes_with_names_and_by_hand(monkeypatch):
    versions = [columns_version(kind) for kind in KINDS]
    monkeypatch.setattr(catalogue, "COLUMNS_VERSION", 0)
    versions += [columns_version(kind) for kind in KINDS]
    monkeypatch.setattr(catalogue, "BLOCKS", catalogue.BLOCKS[1:])
    versions += [columns_version(kind) for kind in KINDS]
    assert len(set(versions)) == 6


def test_measured_rows_are_sampled_by_the_graphs_name():
    def sampled(rows, most):
        return sample_rows(rows, Recipe.of("layout", max_configs=most))

    graph = graph_rows("a", [50, 10, 40, 20, 30])
    assert sampled(graph, 5) is graph and sampled(graph, 0) is graph
    broken = replace(graph, runtime=np.where(graph.runtime > 30, 0, graph.runtime))
    assert sampled(broken, 5) is broken and sampled(broken, 0) is broken
    assert sampled(broken, 4).row_cost.tolist() == [10, 20, 30], "the two that failed go first"
    assert len(sampled(broken, 2)) == 2 and np.isfinite(sampled(broken, 2).row_cost).all()
    unlabelled = replace(graph_rows("a", range(1, 101)), runtime=np.zeros(100, np.int64))
    first, again, other = (
        sampled(replace(unlabelled, name=name), 10).ids.tolist() for name in "aab"
    )
    assert len(first) == 10 and sorted(first) == first == again != other
    assert first[0] == other[0] == 0, "the compiler's default"


def test_every_declared_block_is_listed():
    modules = walk_packages(xlarank.features.__path__, "xlarank.features.")
    values = [value for module in modules for value in vars(import_module(module.name)).values()]
    assert {value for value in values if isinstance(value, Block)} == {*catalogue.BLOCKS}
    with pytest.raises(TypeError, match="no docstring"):
        tile_block({"a__b__c": "meaning"})(lambda context: None)


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_the_order_of_blocks(kind):
    everything = names(blocks_of(kind))
    assert len(everything) == len(set(everything)) > 100
    assert all(len(list(filter(None, name.split("__")))) == 3 for name in everything)
    assert all(column.meaning for block in blocks_of(kind) for column in block.columns.values())
    # every library accepts such names
    assert set("".join(everything)) <= {*ascii_lowercase, *digits, "_"}
    blocks = blocks_of(kind)
    stage = [(block.scope == "configuration") + block.listwise for block in blocks]
    assert stage == sorted(stage) and {*stage} == {0, 1, 2}, "graph columns first"
    rows = assemble(GRAPHS[kind])
    assert columns_in(blocks, "graph") == rows.graph_columns
    assert columns_in(blocks, "configuration") == rows.config_columns
    assert rows.columns == all_columns(kind) == everything
    assert rows.matrix().shape[1] == len(everything)


def test_every_column_stands_in_the_document_with_its_meaning():
    for kind, blocks in BLOCKS.items():
        text = pages()[f"columns-{kind}"]
        for name in names(blocks):
            assert f"| `{name}` | {meaning_of(name)} |\n" in text
        lines = {f"| {block.name} | {len(block.columns)} |" for block in blocks}
        assert all(line in pages()["columns"] for line in lines)


@pytest.mark.parametrize("name", ["node_degrees", "slot_change"])
def test_a_block_of_another_shape_is_refused_not_broadcast(name, monkeypatch):
    """`node_degrees` gives one value for all, `slot_change` one column for all."""
    wrong = []
    for block in catalogue.BLOCKS:
        if block.name == name:
            one = np.zeros(1)
            function = (lambda batch: np.zeros((len(batch), 1))) if block.batched else one
            block = replace(block, function=lambda context, value=function: value)
        wrong.append(block)
    monkeypatch.setattr(catalogue, "BLOCKS", tuple(wrong))
    with pytest.raises(ValueError, match=rf"{name} returned shape \(.*1,?\), expected"):
        assemble(GRAPHS["layout"])


def test_every_column_has_a_cause():
    for block in (*BLOCKS["layout"], *BLOCKS["tile"]):
        of_graph = block.scope == "graph"
        wrong = [name for name in block.columns if (cause_of(name) is Cause.PROGRAM) != of_graph]
        assert not wrong, f"set `cause` of {block.name}, or Column(meaning, Cause...): {wrong}"
    for column, cause in {
        "disagreement__clash_1hop_bytes__share": Cause.COPIES,
        "change__output_set__share": Cause.FUSION,
        "zscore__padding_output_waste_bytes__ratio": Cause.PADDING,
        "rank__candidates_log_frequency__mean": Cause.LISTWISE,
        "mine__sum__log": Cause.PROGRAM,  # of a block outside the catalogue
    }.items():
        assert cause_of(column) is cause


def test_collections_have_a_target_and_targets_share_no_columns():
    for target, collections in (
        (CPU, "tile:cpu tile:cpu-zen4 layout:cpu:random"),
        (GPU, "layout:nvidia-h100:random layout:gpu-tesla-t4:evolve"),
        (DATASET, "tile:xla layout:nlp:random"),
        (TPU, "tile:tpu-estimate layout:tpu-estimate:default layout:tpu-v4-mine:x tile:tpu-v5e"),
        (UNKNOWN, "tile:cpus tile:mine layout:mycompiler:random"),
    ):
        hardware = {Collection.parse(text).hardware for text in collections.split()}
        assert {*map(target_of, hardware)} == {target}
    tiles = {*names(BLOCKS["tile"])} - {*names(BLOCKS["layout"])}
    assert TPU.columns | CPU.columns <= tiles and TPU.columns.isdisjoint(CPU.columns)
    for name, target in TARGETS.items():
        assert target.name == name and {*target.estimate.get("tile", ())} <= target.columns
        assert {*target.estimate["layout"]} <= {*names(BLOCKS["layout"])}
