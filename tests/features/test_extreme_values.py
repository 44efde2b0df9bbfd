"""The largest numbers that a file may hold give finite columns without a warning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.graphs import Arrays, layout_arrays, save_npz, tile_arrays
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import MAX_ELEMENTS, MAX_FEATURE, read_graph
from xlarank.data.schema import NODE_COLUMN, NODE_COLUMNS
from xlarank.features.assemble import assemble

DIMENSION = NODE_COLUMN["shape_dimensions_0"]


def finite_or_refused(arrays: Arrays, path: Path) -> bool:
    """Whether the file was read; warnings are errors here."""
    try:
        graph = read_graph(save_npz(path, arrays))
    except GraphFileError:
        return False
    rows = assemble(graph)
    for column, name in zip(rows.matrix().T, rows.columns, strict=True):
        assert np.isfinite(column).all(), name
    return True


@pytest.mark.parametrize("make", [layout_arrays, tile_arrays])
@pytest.mark.parametrize("value", [MAX_FEATURE * 0.99, -MAX_FEATURE * 0.99])
def test_every_node_column_at_its_limit(make: Callable[[], Arrays], value: float, tmp_path: Path) -> None:
    read = 0
    for number in range(0, len(NODE_COLUMNS), 3):
        arrays = make()
        arrays["node_feat"] = arrays["node_feat"].astype(np.float32)
        arrays["node_feat"][:, number : number + 3] = value
        read += finite_or_refused(arrays, tmp_path / "a.npz")
    assert read > 10


@pytest.mark.parametrize("make", [layout_arrays, tile_arrays])
def test_the_largest_tensors(make: Callable[[], Arrays], tmp_path: Path) -> None:
    arrays = make()
    arrays["node_feat"] = arrays["node_feat"].astype(np.float32)
    arrays["node_feat"][:, DIMENSION : DIMENSION + 6] = (MAX_ELEMENTS / 8, 2, 2, 2, 1, 1)
    assert finite_or_refused(arrays, tmp_path / "a.npz")
