"""Columns of real files: as they were frozen, and against the slow reference.

The snapshots below `snapshots/` hold a handful of rows each; `tests.features.make_snapshots` says how they are
made again. Both need the real files that `XLARANK_TEST_DATA` names.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.helpers import by_name, layout_of, load, tile_of
from tests.features.make_snapshots import FOLDER, PLACES, Snapshot, moved, read, take
from tests.features.oracle_layout import LayoutOracle
from tests.features.oracle_tile import TileOracle
from tests.graphs import Arrays
from xlarank.data.collection import discover
from xlarank.features.assemble import assemble
from xlarank.features.layout.context import LayoutContext

#: Configurations that the slow reference works through: layout files, tile files.
FEW_LAYOUTS, FEW_TILES = 4, 25
PER_CONFIG = ("node_config_feat", "config_feat", "config_runtime", "config_runtime_normalizers")


@pytest.mark.parametrize("name", PLACES)
def test_columns_are_as_they_were_frozen(real_data, name):
    """New columns are welcome; a frozen one keeps its name and its numbers."""
    frozen, now = read(name), take(real_data / "npz" / f"{PLACES[name]}.npz")
    assert now.distinct == frozen.distinct
    assert now.at.tolist() == frozen.at.tolist()
    assert sorted(set(frozen.columns) - set(now.columns)) == []
    for column, values in frozen.columns.items():
        np.testing.assert_allclose(now.columns[column], values, rtol=1e-5, atol=1e-6, err_msg=column)


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
    features = assemble(graph)
    oracle = LayoutOracle(arrays, LayoutContext(graph).slot_tensor.tolist())
    found = {**by_name(features), **features.constants}
    for column, values in {**oracle.config_columns(), **oracle.graph_columns()}.items():
        np.testing.assert_allclose(found[column], values, rtol=1e-5, atol=1e-6, err_msg=column)


def test_tile_columns_of_real_files_agree_with_the_slow_reference(real_data):
    files = [file for file in discover(real_data / "npz") if file.collection.kind == "tile"]
    assert files
    for file in files:
        arrays = few(load(file.path), FEW_TILES)
        oracle, features = TileOracle(arrays), assemble(tile_of(arrays))
        found = {**by_name(features), **features.constants}
        expected = {**oracle.config_columns(), **oracle.graph_columns()}
        for column in sorted(expected):
            message = f"{column} of {file.name}"
            np.testing.assert_allclose(found[column], expected[column], rtol=1e-5, atol=1e-5, err_msg=message)


# The snapshots themselves, without any real file ----------------------------------------------------------------


def test_there_is_a_small_snapshot_of_each_place():
    assert {path.stem for path in FOLDER.glob("*.npz")} == set(PLACES)
    for path in FOLDER.glob("*.npz"):
        assert path.stat().st_size < 20_000, path.name


@pytest.mark.parametrize("name", PLACES)
def test_a_snapshot_holds_numbers_that_tell_configurations_apart(name):
    snapshot = read(name)
    kind = name.split("_")[0]
    assert len(snapshot.columns) > 200 and {"size__nodes__log", "degrees__in__mean"} <= set(snapshot.columns)
    assert ("change__nodes_set__share" in snapshot.columns) == (kind == "layout")
    for column, values in snapshot.columns.items():
        assert values.shape == snapshot.at.shape and values.dtype == np.float32, column
        assert np.isfinite(values).all(), column
    if snapshot.distinct > 1:
        differing = [column for column, values in snapshot.columns.items() if np.ptp(values) > 0]
        assert len(snapshot.at) == 6 and len(differing) > 20


def test_what_moved_is_told_by_name():
    columns = {"a__b__c": np.ones(2, np.float32), "d__e__f": np.zeros(2, np.float32)}
    before = Snapshot(2, np.arange(2), columns)
    after = Snapshot(
        2, np.arange(2), {**columns, "d__e__f": np.array([0, 1], np.float32), "new__one__x": columns["a__b__c"]}
    )
    assert moved(before, before) == []
    assert moved(before, after) == ["d__e__f", "new__one__x"]
    assert moved(after, Snapshot(2, np.arange(1), {name: v[:1] for name, v in after.columns.items()})) == sorted(
        after.columns
    )
