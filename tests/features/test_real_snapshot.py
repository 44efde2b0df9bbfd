"""Columns of real files: as they were frozen, and against the slow reference.

The snapshots below `snapshots/` hold a handful of rows each; `tests.features.make_snapshots` says how they are
made again. Both need the real files that `XLARANK_TEST_DATA` names.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.helpers import layout_of, load, tile_of, wrong_columns
from tests.features.make_snapshots import FOLDER, PLACES, Snapshot, moved, read, take
from tests.features.oracle_layout import LayoutOracle
from tests.features.oracle_tile import TileOracle
from tests.graphs import Arrays
from xlarank.data.collection import discover
from xlarank.features.assemble import assemble
from xlarank.features.layout.layout_context import LayoutContext

#: Configurations that the slow reference works through: layout files, tile files.
FEW_LAYOUTS, FEW_TILES = 4, 25
PER_CONFIG = ("node_config_feat", "config_feat", "config_runtime", "config_runtime_normalizers")


@pytest.mark.parametrize("name", PLACES)
def test_columns_are_as_they_were_frozen(real_data, name):
    """New columns are welcome; a frozen one keeps its name and its numbers."""
    frozen, now = read(name), take(real_data / "npz" / f"{PLACES[name]}.npz")
    assert (now.distinct, now.at.tolist()) == (frozen.distinct, frozen.at.tolist())
    kept = {column: now.columns[column] for column in frozen.columns}
    assert moved(frozen, Snapshot(now.distinct, now.at, kept)) == []


def few(arrays: Arrays, count: int) -> Arrays:
    """The same graph with evenly spread configurations only."""
    configs = len(arrays["config_runtime"])
    at = np.unique(np.linspace(0, configs - 1, count).astype(int))
    return {name: array[at] if name in PER_CONFIG else array for name, array in arrays.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PLACES if name.startswith("layout")])
def test_layout_columns_of_real_files_agree_with_the_slow_reference(real_data, name):
    arrays = few(load(real_data / "npz" / f"{PLACES[name]}.npz"), FEW_LAYOUTS)
    graph = layout_of(arrays)
    oracle = LayoutOracle(arrays, LayoutContext(graph).slot_tensor.tolist())
    expected = {**oracle.config_columns(), **oracle.graph_columns()}
    assert wrong_columns(assemble(graph), expected, relative=1e-5, absolute=1e-6) == []


def test_tile_columns_of_real_files_agree_with_the_slow_reference(real_data):
    files = [file for file in discover(real_data / "npz") if file.collection.kind == "tile"]
    assert files
    for file in files:
        arrays = few(load(file.path), FEW_TILES)
        oracle = TileOracle(arrays)
        expected = {**oracle.config_columns(), **oracle.graph_columns()}
        wrong = wrong_columns(assemble(tile_of(arrays)), expected, relative=1e-5, absolute=1e-5)
        assert wrong == [], file.name


def test_snapshots_hold_numbers_that_tell_configurations_apart():
    """Without any real file."""
    assert {path.stem for path in FOLDER.glob("*.npz")} == set(PLACES)
    for name in PLACES:
        snapshot = read(name)
        assert (FOLDER / f"{name}.npz").stat().st_size < 20_000
        assert len(snapshot.columns) > 200 and {"size__nodes__log", "degrees__in__mean"} <= set(snapshot.columns)
        assert ("change__nodes_set__share" in snapshot.columns) == name.startswith("layout")
        values = np.stack(list(snapshot.columns.values()))
        assert values.dtype == np.float32 and np.isfinite(values).all()
        if snapshot.distinct > 1:
            assert len(snapshot.at) == 6 and np.count_nonzero(np.ptp(values, axis=1) > 0) > 20


def test_what_moved_is_told_by_name():
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    before = Snapshot(2, np.arange(2), {"a__b__c": ones, "d__e__f": zeros})
    after = Snapshot(2, np.arange(2), {"a__b__c": ones, "d__e__f": zeros + np.arange(2), "new__one__x": ones})
    assert moved(before, before) == [] and moved(before, after) == ["d__e__f", "new__one__x"]
    fewer = Snapshot(2, np.arange(1), {name: values[:1] for name, values in after.columns.items()})
    assert moved(after, fewer) == sorted(after.columns)
