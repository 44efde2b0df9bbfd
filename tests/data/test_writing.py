"""Writing a graph of one's own: what is written is valid, and nothing invalid is left behind."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs import layout_arrays, tile_arrays
from xlarank.data.errors import GraphFileError
from xlarank.data.writing import write_graph


@pytest.mark.parametrize("arrays", [layout_arrays(), tile_arrays()], ids=["layout", "tile"])
def test_a_graph_comes_back(tmp_path, arrays):
    path = tmp_path / "npz" / "layout" / "my-gpu" / "a.npz"  # folders are made on the way
    graph = write_graph(path, **arrays)
    assert graph.name == "a" and [p.name for p in path.parent.iterdir()] == ["a.npz"]
    with np.load(path) as saved:
        assert set(saved.files) == set(arrays)
        for key, array in arrays.items():
            assert saved[key].dtype == array.dtype and np.array_equal(saved[key], array), key


def test_arrays_in_fortran_order_are_put_right(tmp_path):
    """`read_graph` refuses such a file, so it must not be written."""
    arrays = layout_arrays()
    arrays["node_config_feat"] = np.asfortranarray(arrays["node_config_feat"])
    graph = write_graph(tmp_path / "a.npz", **arrays)
    assert np.array_equal(graph.table.rows[graph.table.codes], layout_arrays()["node_config_feat"])


def test_an_invalid_graph_is_refused_and_the_old_file_stays(tmp_path):
    path = tmp_path / "a.npz"
    defects = [("node_config_feat", (0, 0, 0), 6), ("config_runtime", 0, -1), ("node_feat", (0, 0), np.nan)]
    for before in ({}, {"a.npz": b"what was there"}):
        for name, content in before.items():
            (tmp_path / name).write_bytes(content)
        for key, at, value in defects:
            arrays = layout_arrays()
            arrays[key][at] = value
            with pytest.raises(GraphFileError) as caught:
                write_graph(path, **arrays)
            assert str(caught.value).startswith("a.npz: ") and "partial" not in str(caught.value)
            assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_a_missing_array_is_refused_by_name(tmp_path):
    for good, key in ((layout_arrays, "node_splits"), (tile_arrays, "config_runtime_normalizers")):
        arrays = good()
        del arrays[key]
        with pytest.raises(GraphFileError, match=f"array {key} is missing"):
            write_graph(tmp_path / "a.npz", **arrays)
    assert list(tmp_path.iterdir()) == []


def test_pickles_are_not_written(tmp_path):
    """`numpy.savez` would pickle it; a file of xlarank holds plain arrays only."""
    with pytest.raises(GraphFileError, match="notes"):
        write_graph(tmp_path / "a.npz", **layout_arrays(), notes=np.array([object()]))


def test_the_same_arrays_give_the_same_bytes(tmp_path):
    for name in ("a.npz", "b.npz"):
        write_graph(tmp_path / name, **layout_arrays())
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
