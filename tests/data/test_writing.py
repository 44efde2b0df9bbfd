"""Writing a graph of one's own: what is written is valid, and nothing invalid is left behind."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graphs import layout_arrays, tile_arrays
from xlarank.data.errors import GraphFileError
from xlarank.data.writing import write_graph


@pytest.mark.parametrize("arrays", [layout_arrays(), tile_arrays()], ids=["layout", "tile"])
def test_a_graph_comes_back_and_the_same_arrays_give_the_same_bytes(tmp_path, arrays):
    path = tmp_path / "npz" / "layout" / "my-gpu" / "a.npz"  # folders are made on the way
    graph = write_graph(path, **arrays)
    assert graph.name == "a" and [p.name for p in path.parent.iterdir()] == ["a.npz"]
    with np.load(path) as saved:
        assert set(saved.files) == set(arrays)
        for key, array in arrays.items():
            assert saved[key].dtype == array.dtype and np.array_equal(saved[key], array), key
    # `read_graph` refuses Fortran order, so it must not be written.
    write_graph(tmp_path / "b.npz", **{key: np.asfortranarray(array) for key, array in arrays.items()})
    assert (tmp_path / "b.npz").read_bytes() == path.read_bytes()


def test_an_invalid_graph_is_refused_and_the_old_file_stays(tmp_path):
    wrong = [
        *((key, {key: np.full_like(layout_arrays()[key], 9)}) for key in ("node_config_feat", "node_config_ids")),
        ("config_runtime", {"config_runtime": -layout_arrays()["config_runtime"]}),
        # `numpy.savez` would pickle it; a file of xlarank holds plain arrays only.
        ("array notes holds Python objects", {"notes": np.array([object()])}),
    ]
    for before in ({}, {"a.npz": b"what was there"}):
        for name, content in before.items():
            (tmp_path / name).write_bytes(content)
        for words, arrays in wrong:
            with pytest.raises(GraphFileError) as caught:
                write_graph(tmp_path / "a.npz", **{**layout_arrays(), **arrays})
            assert str(caught.value).startswith("a.npz: ") and words in str(caught.value)
            assert "partial" not in str(caught.value)
            assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
