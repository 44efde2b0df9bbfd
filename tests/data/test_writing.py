"""Writing a graph of one's own: what is written is valid, and nothing invalid is left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from tests.graphs import LAYOUT_KEYS, TILE_KEYS, layout_arrays, layout_graphs, tile_arrays, tile_graphs
from xlarank.data.errors import GraphFileError, WorkspaceError
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph
from xlarank.data.writing import write_graph


@given(arrays=layout_graphs())
def test_a_layout_graph_comes_back(next_path, arrays):
    path = next_path()
    graph = write_graph(path, **arrays)
    assert isinstance(graph, LayoutGraph)
    assert graph.name == path.stem
    with np.load(path) as saved:
        assert set(saved.files) == set(arrays)
        for key, array in arrays.items():
            assert saved[key].dtype == array.dtype and np.array_equal(saved[key], array), key


@given(arrays=tile_graphs())
def test_a_tile_graph_comes_back(next_path, arrays):
    graph = write_graph(next_path(), **arrays)
    assert isinstance(graph, TileGraph)
    assert np.array_equal(graph.config_feat, arrays["config_feat"])
    assert np.array_equal(graph.runtime, arrays["config_runtime"])


def test_arrays_in_fortran_order_are_put_right(tmp_path):
    """`read_graph` refuses such a file, so it must not be written."""
    arrays = layout_arrays()
    arrays["node_config_feat"] = np.asfortranarray(arrays["node_config_feat"])
    graph = write_graph(tmp_path / "a.npz", **arrays)
    assert np.array_equal(graph.table.rows[graph.table.codes], layout_arrays()["node_config_feat"])


def test_folders_are_made_on_the_way(tmp_path):
    path = tmp_path / "npz" / "layout" / "my-gpu" / "random" / "train" / "a.npz"
    write_graph(path, **layout_arrays())
    assert read_graph(path, "layout").nodes == 5
    assert [p.name for p in path.parent.iterdir()] == ["a.npz"]


@pytest.mark.parametrize("old", [None, b"what was there"])
@pytest.mark.parametrize(
    ("key", "at", "value"),
    [
        ("node_config_feat", (0, 0, 0), 6),
        ("config_runtime", 0, -1),
        ("node_opcode", 0, 121),
        ("node_feat", (0, 0), np.nan),
    ],
)
def test_an_invalid_graph_is_refused_and_the_old_file_stays(tmp_path, old, key, at, value):
    path = tmp_path / "a.npz"
    if old:
        path.write_bytes(old)
    arrays = layout_arrays()
    arrays[key][at] = value
    with pytest.raises(GraphFileError):
        write_graph(path, **arrays)
    left = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert left == ({"a.npz": old} if old else {})


@pytest.mark.parametrize(
    ("good", "key"),
    [*((layout_arrays, key) for key in LAYOUT_KEYS), *((tile_arrays, key) for key in TILE_KEYS)],
)
def test_a_missing_array_is_refused_by_name(tmp_path, good, key):
    arrays = good()
    del arrays[key]
    # Without its configurations a layout graph is taken for a tile graph.
    missing = "config_feat" if key == "node_config_feat" else key
    with pytest.raises(GraphFileError, match=f"array {missing} is missing"):
        write_graph(tmp_path / "a.npz", **arrays)
    assert list(tmp_path.iterdir()) == []


def test_the_refusal_names_the_file_that_was_asked_for(tmp_path):
    arrays = layout_arrays()
    arrays["config_runtime"][0] = -1
    with pytest.raises(GraphFileError) as caught:
        write_graph(tmp_path / "a.npz", **arrays)
    assert str(caught.value).startswith("a.npz: ")
    assert "partial" not in str(caught.value)


def test_pickles_are_not_written(tmp_path):
    """`numpy.savez` would pickle it; a file of xlarank holds plain arrays only."""
    with pytest.raises(GraphFileError, match="notes"):
        write_graph(tmp_path / "a.npz", **layout_arrays(), notes=np.array([object()]))


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkspaceError, match="cannot write"):
        write_graph(tmp_path / "file" / "a.npz", **layout_arrays())


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    for name in ("a.npz", "b.npz"):
        write_graph(tmp_path / name, **layout_arrays())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
