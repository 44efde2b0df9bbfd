"""Columns of real files: as they were frozen, and against the slow reference.

The snapshots below `snapshots/` hold a handful of rows each. After a change that is meant to move numbers,
``python -m tests.features.test_real_snapshot`` freezes them anew and prints which columns moved; say in the commit
why. All need the real files that `XLARANK_TEST_DATA` names.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TEST_DATA
from tests.features.helpers import compare_layout, compare_tile, load
from tests.graphs import Arrays
from xlarank.data.collection import discover
from xlarank.data.graph import read_graph
from xlarank.features.assemble import assemble

FOLDER = Path(__file__).parent / "snapshots"
#: Snapshot -> place of the file below ``npz``.
PLACES = {
    "layout_train": "layout/xla/random/train/openai_v0_rnn_optimized",
    "layout_valid": "layout/xla/random/valid/unet_3d.4x4.bf16",
    "layout_alexnet": "layout/xla/default/train/alexnet_train_batch_32",
    "layout_attention": "layout/nlp/random/test/23559853d9702baaaacbb0c83fd32266",
    "tile_train": "tile/xla/train/alexnet_train_batch_32_4ae805e53b8d2b8a",
    "tile_test": "tile/xla/test/0abaea94d7b0a1c1f1b0bd23b73ce38c",
}
#: Distinct configurations kept, evenly spread over a graph's.
ROWS = 6
#: Configurations that the slow reference works through: layout files, tile files.
FEW_LAYOUTS, FEW_TILES = 4, 25
PER_CONFIG = ("node_config_feat", "config_feat", "config_runtime", "config_runtime_normalizers")


def snapshot(path: Path) -> dict[str, np.ndarray]:
    """Some rows of a graph as the code makes them now: ``values`` is ``(columns, rows)``."""
    rows = assemble(read_graph(path))
    at = np.unique(np.linspace(0, len(rows) - 1, ROWS).astype(np.int64))
    names = np.array("\n".join(rows.columns).encode())
    return {"distinct": np.array(len(rows)), "at": at, "names": names, "values": rows.matrix(at).T}


def moved(frozen: Arrays, now: Arrays) -> list[str]:
    """Frozen columns that are gone or differ; new ones are welcome."""
    before, after = (
        dict(zip(each["names"].item().decode().split("\n"), each["values"], strict=True)) for each in (frozen, now)
    )
    if not (np.array_equal(frozen["at"], now["at"]) and frozen["distinct"] == now["distinct"]):
        return sorted(before)
    none = np.full(len(frozen["at"]), np.nan)
    return [name for name in before if not np.allclose(after.get(name, none), before[name], rtol=1e-5, atol=1e-6)]


@pytest.mark.parametrize("name", PLACES)
def test_columns_are_as_they_were_frozen(real_data, name):
    frozen = load(FOLDER / f"{name}.npz")
    assert len(frozen["values"]) > 200 and np.ptp(frozen["values"], axis=1).any() == (frozen["distinct"] > 1)
    assert moved(frozen, snapshot(real_data / "npz" / f"{PLACES[name]}.npz")) == []


def few(arrays: Arrays, count: int) -> Arrays:
    """The same graph with evenly spread configurations only."""
    at = np.unique(np.linspace(0, len(arrays["config_runtime"]) - 1, count).astype(int))
    return {name: array[at] if name in PER_CONFIG else array for name, array in arrays.items()}


@pytest.mark.slow
def test_columns_of_real_files_agree_with_the_slow_reference(real_data):
    for name in PLACES:
        if name.startswith("layout"):
            compare_layout(few(load(real_data / "npz" / f"{PLACES[name]}.npz"), FEW_LAYOUTS))
    files = [file.path for file in discover(real_data / "npz") if file.collection.kind == "tile"]
    assert files
    for path in files:
        compare_tile(few(load(path), FEW_TILES))


def test_what_moved_is_told_by_name():
    before = {"distinct": np.array(2), "at": np.arange(2), "names": np.array(b"a\nb"), "values": np.eye(2)}
    after = {**before, "names": np.array(b"b\nnew\na"), "values": np.array([[0, 1], [5, 5], [0, 1]])}
    assert moved(before, before) == [] and moved(before, after) == ["a"]
    assert moved(before, {**before, "names": np.array(b"a\nc")}) == ["b"]
    assert moved(before, {**before, "distinct": np.array(3)}) == ["a", "b"]


if __name__ == "__main__":
    for name, place in PLACES.items():
        path, now = FOLDER / f"{name}.npz", snapshot(Path(os.environ[TEST_DATA]) / "npz" / f"{place}.npz")
        print(f"{name}: moved {', '.join(moved(load(path), now)) or 'nothing'}")
        np.savez_compressed(path, **now)
