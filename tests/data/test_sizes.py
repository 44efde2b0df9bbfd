"""Sizes from headers alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipelines.trees import layout_graph, tile_graph
from xlarank.data.collection import graph_files
from xlarank.data.errors import GraphFileError
from xlarank.data.root import SAMPLE
from xlarank.data.sizes import GraphCounts, graph_size, survey

Write = Callable[..., Path]


def test_the_size_of_a_graph_stands_in_its_headers(graph_file: Write) -> None:
    assert graph_size(graph_file(layout_graph(0, configs=9), "a"), "layout") == GraphCounts(9, 5, 2)
    assert graph_size(graph_file(tile_graph(0, configs=7), "b"), "tile").configs == 7


def test_a_file_of_the_other_kind_is_refused(graph_file: Write) -> None:
    with pytest.raises(GraphFileError, match="node_config_feat is missing"):
        graph_size(graph_file(tile_graph(0)), "layout")
    arrays = layout_graph(0)
    arrays["node_config_feat"] = arrays["node_config_feat"].reshape(-1, 18)
    with pytest.raises(GraphFileError, match="expected 3 and 2 dimensions"):
        graph_size(graph_file(arrays), "layout")


def test_a_survey_of_the_sample_counts_every_split() -> None:
    found = {str(size.collection): size for size in survey(graph_files(SAMPLE / "npz", [], where="the sample"))}
    tile = found["tile:cpu"]
    assert [len(tile.graphs[split]) for split in ("train", "valid", "test")] == [30, 12, 15]
    assert (tile.rows("train"), tile.rows("train", 10), tile.families) == (1920, 300, 8)
    assert found["layout:cpu:random"].families == 9


def test_a_survey_goes_on_after_a_broken_file(tmp_path: Path) -> None:
    folder = tmp_path / "npz" / "tile" / "cpu" / "test"
    folder.mkdir(parents=True)
    (folder / "bad.npz").write_bytes(b"no zip")
    (size,) = survey(graph_files(tmp_path / "npz", [], where="here"))
    assert size.rows("test") == 0 and size.graphs == {"test": []}
