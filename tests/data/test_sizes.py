"""Sizes from headers alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.graphs import layout_arrays, tile_arrays
from xlarank.data.collection import graph_files, survey
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import GraphCounts, graph_size
from xlarank.data.root import SAMPLE


def test_the_size_of_a_graph_stands_in_its_headers(graph_file: Callable[..., Path]) -> None:
    layout, tile = graph_file(layout_arrays(), "a"), graph_file(tile_arrays(), "b")
    assert (graph_size(layout, "layout"), graph_size(tile, "tile")) == (GraphCounts(6, 5, 2), GraphCounts(5, 4))
    with pytest.raises(GraphFileError, match="node_config_ids is missing"):
        graph_size(tile, "layout")
    flat = {**layout_arrays(), "node_config_feat": layout_arrays()["node_config_feat"].reshape(-1, 18)}
    with pytest.raises(GraphFileError, match=r"node_config_feat has shape \(12, 18\)"):
        graph_size(graph_file(flat), "layout")


def test_a_survey_counts_every_split_and_goes_on_after_a_broken_file(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE / "npz" / "tile" / "cpu", tmp_path / "tile" / "cpu")
    (tmp_path / "tile" / "cpu" / "test" / "bad.npz").write_bytes(b"no zip")
    (tile,) = survey(graph_files(tmp_path, [], where="here"))
    assert (str(tile.collection), tile.families) == ("tile:cpu", 8)
    assert [len(tile.graphs[split]) for split in ("train", "valid", "test")] == [30, 12, 15]
    assert (tile.rows("train"), tile.rows("train", 10), tile.rows("absent")) == (1920, 300, 0)
