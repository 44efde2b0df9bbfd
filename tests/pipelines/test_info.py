"""What a data root holds, and what a column means."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from tests.graphs import LAYOUT_PROGRAM, save_npz
from tests.pipelines.trees import LAYOUT, TILE, TREE, data_root, graph_path, layout_graph, tile_graph
from xlarank.data.errors import XlarankError
from xlarank.features.catalogue import every_block
from xlarank.pipelines.describe_columns import describe_columns
from xlarank.pipelines.info import SplitInfo, info


def found(root: Path, **options: object) -> dict[tuple[str, str], SplitInfo]:
    parts = info(data_root(root), **options)  # type: ignore[arg-type]
    return {(part.collection, part.split): part for part in parts}


def test_every_split_is_counted(shared_tree: Path) -> None:
    parts = found(shared_tree)
    assert list(parts) == [(of, split) for of in (LAYOUT, TILE) for split in ("train", "valid", "test")]
    for (collection, split), part in parts.items():
        names = TREE[collection][split]
        assert (part.graphs, part.labelled) == (len(names), 0 if split == "test" else len(names))
        assert part.families == {name.split("__")[0] for name in names}
        assert part.bytes == sum(graph_path(shared_tree, collection, split, name).stat().st_size for name in names)
        assert (part.unrankable, part.broken) == ([], {})
    layout, tile = parts[LAYOUT, "train"], parts[TILE, "train"]
    assert (layout.configs, layout.distinct) == (5 * 24, 5 * 22)
    assert (layout.nodes, layout.configurable) == ([len(LAYOUT_PROGRAM)] * 5, [2] * 5)
    assert (tile.configs, tile.distinct, tile.configurable) == (4 * 24, 4 * 23, [])


def test_broken_and_unrankable_files_are_named(tree: Path) -> None:
    """A named pipe is not waited for: opening one takes until somebody writes to it, for ever."""
    graph_path(tree, LAYOUT, "train", "alpha__a").write_bytes(b"no zip")
    (graph_path(tree, LAYOUT, "train", "folder")).mkdir()
    even, alike, tile = layout_graph(0), layout_graph(1), tile_graph(9)
    even["config_runtime"][:] = 5
    alike["node_config_feat"][:] = alike["node_config_feat"][0]
    tile["config_runtime_normalizers"] = tile["config_runtime"] * 2
    for collection, split, name, arrays in (
        (LAYOUT, "train", "even", even), (LAYOUT, "train", "alike", alike),
        (TILE, "valid", "even", tile), (TILE, "valid", "without", tile_graph(3, labelled=False)),
    ):  # fmt: skip
        save_npz(graph_path(tree, collection, split, name), arrays)
    if piped := hasattr(os, "mkfifo"):
        os.mkfifo(graph_path(tree, TILE, "valid", "pipe__a"))
    part = found(tree)[LAYOUT, "train"]
    assert set(part.broken) == {"alpha__a", "folder"}
    assert "alpha__a.npz cannot be opened" in part.broken["alpha__a"]
    assert (part.graphs, part.labelled, part.unrankable) == (5 + 3, 6, ["alike", "even"])
    parts: dict[tuple[str, str], SplitInfo] = {}
    reader = Thread(target=lambda: parts.update(found(tree, collections=[TILE])), daemon=True)
    reader.start()
    reader.join(10)
    assert {collection for collection, _ in parts} == {TILE}
    part = parts[TILE, "valid"]
    assert (part.graphs - len(part.broken), part.labelled, part.unrankable) == (3, 2, ["even"])
    assert list(part.broken) == ["pipe__a"] * piped


def test_siblings_are_graphs_of_the_structure_of_a_train_graph(tmp_path: Path) -> None:
    """One program twice in train and once in valid, another (an edge less) once in train and in test."""
    arrays = layout_graph(0)
    cut = {**arrays, "edge_index": arrays["edge_index"][1:]}
    places = {"train a__a": arrays, "train a__b": arrays, "train b__a": cut, "valid a__c": arrays, "test b__b": cut}
    for place, one in places.items():
        save_npz(graph_path(tmp_path, LAYOUT, *place.split()), one)
    siblings = {split: part.siblings for (_, split), part in found(tmp_path).items()}
    assert siblings == {"train": 2, "valid": 1, "test": 1}


def test_columns_are_found_by_name_or_pattern() -> None:
    (column,) = describe_columns("padding__output_waste__max")
    assert column.meaning == "largest waste, output tensors of configurable nodes"
    expected = ("layout",), "Padding", "configuration", "fast"
    assert (column.kinds, column.block, column.scope, column.tier) == expected
    assert "128 x 8" in column.about and not column.transductive
    (column,) = describe_columns("size__nodes__log")
    assert (column.kinds, column.scope) == (("layout", "tile"), "graph"), "a column of both kinds is named once"
    assert describe_columns("candidates__minority__share")[0].transductive
    (column,) = describe_columns("pair__unlike__flag")
    assert (column.block, column.scope, column.kinds) == ("InstancePair", "instance", ("layout",))
    declared = {
        name: type(one).__name__ for kind in ("layout", "tile") for one in every_block(kind) for name in one.columns
    }
    assert {column.name for column in describe_columns("*")} == declared.keys()
    names = [column.name for column in describe_columns("propagation__*")]
    assert names == [name for name, block in declared.items() if block == "Propagation"], "in column order"
    with pytest.raises(XlarankError, match=r"outptu_waste__max' is not a column.*padding__output_waste__max"):
        describe_columns("padding__outptu_waste__max")
    with pytest.raises(XlarankError, match=r"expected one of [0-9]+ columns;"):
        describe_columns("qqqqqq")
