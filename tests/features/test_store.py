"""Stored features: what is written is read back, and what is not whole or not current is noticed."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields, replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.features.helpers import graph_of, kernel_graphs, layout_of, shared_shape_graphs, tile_of
from tests.graphs import layout_arrays, tile_arrays
from xlarank.data.collection import Collection
from xlarank.data.errors import FeatureStoreError, WorkspaceError
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.program.tensors import Tiling
from xlarank.features.recipe import Recipe, Source
from xlarank.features.rows import GraphRows
from xlarank.features.store import (
    MANIFEST,
    Manifest,
    current_summary,
    load_split,
    read_manifest,
    read_rows,
    stored_collections,
    write_manifest,
    write_rows,
)

RECIPE = Recipe(code_hash="0123456789abcdef", tier="full", candidates=True, max_configs=0, seed=0)
SOURCE = Source(size=2**40 + 1, mtime_ns=1_700_000_000_123_456_789)
#: One apart where float32 (2**24), float64 (2**53) and both together would make them equal.
LABELS = (2**24 + 1, 2**24, 2**53 + 1, 2**53, 2**62 + 1, 2**62)


def rows_of(arrays, keep=None) -> GraphRows:
    graph = graph_of(arrays)
    return assemble(graph) if keep is None else assemble(graph).take(np.asarray(keep))


def written(path, rows: GraphRows, recipe=RECIPE, source=SOURCE):
    write_rows(path, rows, recipe, source)
    return path


def assert_equal_rows(found: GraphRows, expected: GraphRows) -> None:
    assert (found.name, found.columns) == (expected.name, expected.columns)
    for name, dtype in {
        "graph_values": np.float32,
        "config_values": np.float32,
        "group": np.int64,
        "ids": np.int64,
        "runtime": np.int64,
        "normalizer": np.int64,
    }.items():
        got, want = getattr(found, name), getattr(expected, name)
        assert got.dtype == want.dtype == dtype, name
        assert got.shape == want.shape and got.tobytes() == want.tobytes(), name


# Rows -----------------------------------------------------------------------------------------------------


@given(arrays=st.one_of(shared_shape_graphs(), kernel_graphs()), data=st.data())
@examples(40)
def test_rows_survive_the_file(arrays, data, next_path):
    """With repeated configurations, and with a sample of the distinct ones kept."""
    graph = graph_of(arrays)
    distinct = graph.duplicates.distinct
    keep = data.draw(st.none() | st.sets(st.integers(0, distinct - 1), min_size=1).map(sorted))
    rows = rows_of(arrays, keep)
    assert_equal_rows(read_rows(written(next_path(), rows)), rows)


@pytest.mark.parametrize("arrays", [layout_arrays(), tile_arrays()], ids=["layout", "tile"])
def test_labels_stay_exact(arrays, tmp_path):
    count = len(arrays["config_runtime"])
    arrays["config_runtime"] = np.array(LABELS[:count], np.int64)
    if "config_runtime_normalizers" in arrays:
        arrays["config_runtime_normalizers"] = np.array(LABELS[1 : count + 1], np.int64)
    found = read_rows(written(tmp_path / "a.parquet", rows_of(arrays)))
    assert found.runtime.tolist() == list(LABELS[:count])
    assert found.ids.tolist() == list(range(count))
    wanted = list(LABELS[1 : count + 1]) if "config_runtime_normalizers" in arrays else [1] * count
    assert found.normalizer.tolist() == wanted


def test_the_cost_of_a_row_is_the_least_of_its_configurations():
    """Configurations 1 and 3 of the layout graph are identical, 1 and 4 of the tile graph."""
    layout, tile = rows_of(layout_arrays()), rows_of(tile_arrays())
    assert layout.group.tolist() == [0, 1, 2, 1, 3, 4]
    assert layout.row_cost.tolist() == [20_000_003, 20_000_001, 20_000_007, 40_000_001, 40_000_000]
    assert tile.cost.tolist() == [2, 1, 0.5, 4, 1.25], "over the normalizer"
    assert tile.row_cost.tolist() == [2, 1, 0.5, 4]


def test_kept_rows_bring_all_their_configurations(tmp_path):
    """The first, the second (configurations 1 and 3) and the last of five distinct configurations."""
    everything, found = rows_of(layout_arrays()), rows_of(layout_arrays(), keep=[0, 1, 4])
    assert found.ids.tolist() == [0, 1, 3, 5]
    assert found.group.tolist() == [0, 1, 1, 2]
    assert found.runtime.tolist() == [20_000_003, 20_000_001, 20_000_002, 40_000_000]
    assert np.array_equal(found.config_values, everything.config_values[[0, 1, 4]])
    assert_equal_rows(read_rows(written(tmp_path / "a.parquet", found)), found)
    assert found.summary() == {"configs": 4, "rows": 3, "labelled": True, "rankable": True}


@pytest.mark.parametrize(
    ("runtime", "keep", "rankable"),
    [
        ([5, 7, 5, 9, 5, 5], None, True),  # 7 and 9 are one configuration, its best is 7
        ([5, 5, 5, 9, 5, 5], None, False),  # all rows have a best of 5
        ([1, 2, 3, 4, 5, 6], [2], False),  # one row
        ([0, 0, 0, 0, 0, 0], None, True),  # withheld
        ([0, 0, 0, 0, 0, 0], [1], False),  # one row, withheld
    ],
)
def test_what_can_be_ranked(runtime, keep, rankable):
    rows = rows_of({**layout_arrays(), "config_runtime": np.array(runtime, np.int64)}, keep)
    assert (rows.rankable, rows.labelled) == (rankable, any(runtime))


def test_same_rows_same_bytes(tmp_path):
    one, other = (written(tmp_path / name, rows_of(tile_arrays())) for name in ("a.parquet", "b.parquet"))
    assert one.read_bytes() == other.read_bytes()


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = written(tmp_path / "a.parquet", rows_of(layout_arrays()))
    before = path.read_bytes()

    def fail(table, where, **options):
        where.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(WorkspaceError, match="No space left"):
        write_rows(path, rows_of(tile_arrays()), RECIPE, SOURCE)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# As a table, for others --------------------------------------------------------------------------------------


def test_polars_reads_and_explodes_a_layout_file_as_the_docstring_says(tmp_path):
    graph = layout_of(layout_arrays())
    path = written(tmp_path / "a.parquet", rows_of(layout_arrays()))
    table = pl.read_parquet(path)
    assert table.columns[:3] == ["configurations", "runtime_ns", "normalizer_ns"]
    assert table.columns[3:] == assemble(graph).config_columns
    assert set(table.dtypes[3:]) == {pl.Float32}
    assert table.schema["runtime_ns"] == pl.List(pl.Int64)
    assert table["configurations"].to_list() == [[0], [1, 3], [2], [4], [5]]
    flat = table.explode("configurations", "runtime_ns")
    assert flat["configurations"].to_list() == [0, 1, 3, 2, 4, 5]
    assert flat["runtime_ns"].to_list() == graph.runtime[[0, 1, 3, 2, 4, 5]].tolist()
    name = "change__nodes_set__share"
    assert flat[name].to_list() == [0, 0.5, 0.5, 1, 0.5, 0.5]


def test_graph_columns_stand_in_the_metadata(tmp_path):
    path = written(tmp_path / "a.parquet", rows_of(layout_arrays()))
    metadata = json.loads(pq.read_metadata(path).metadata[b"xlarank"])
    assert metadata["name"] == "graph"
    assert metadata["graph_columns"] == assemble(layout_of(layout_arrays())).constants
    assert metadata["recipe"] == asdict(RECIPE) and metadata["source"] == asdict(SOURCE)


# Broken files --------------------------------------------------------------------------------------------------


def without_footer(content: bytes) -> bytes:
    """Its last eight bytes are its length and the magic word."""
    length = int.from_bytes(content[-8:-4], "little")
    return content[: -8 - length] + bytes(length) + content[-8:]


BROKEN = {
    "end": lambda content: content[:-1],
    "half": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "text": lambda content: b"this is no parquet file, but it is longer than twelve bytes",
    "magic": lambda content: content[:-4] + b"PAR0",
    "footer": without_footer,
}


@pytest.mark.parametrize("damage", BROKEN)
def test_a_broken_file_is_neither_current_nor_read(damage, tmp_path):
    path = written(tmp_path / "a.parquet", rows_of(layout_arrays()))
    content = path.read_bytes()
    path.write_bytes(BROKEN[damage](content))
    assert current_summary(path, RECIPE, SOURCE) is None
    with pytest.raises(FeatureStoreError, match=r"(?s)a\.parquet cannot be read .*run build-features again"):
        read_rows(path)
    path.write_bytes(content[:4] + bytes(400) + content[404:])  # damage that only reading all of it shows
    with pytest.raises(FeatureStoreError, match="cannot be read"):
        read_rows(path)


def test_a_missing_file_is_neither_current_nor_read(tmp_path):
    assert current_summary(tmp_path / "none.parquet", RECIPE, SOURCE) is None
    with pytest.raises(FeatureStoreError, match=r"none\.parquet cannot be read"):
        read_rows(tmp_path / "none.parquet")


@pytest.mark.parametrize(
    "metadata",
    [None, {"other": "{}"}, {"xlarank": "no json"}, {"xlarank": "[]"}, {"xlarank": "{}"}, {"xlarank": b"\xff"}],
)
def test_a_parquet_file_of_others_is_neither_current_nor_read(metadata, tmp_path):
    table = pa.table({"x": pa.array([1.0])})
    pq.write_table(table.replace_schema_metadata(metadata) if metadata else table, tmp_path / "a.parquet")
    assert current_summary(tmp_path / "a.parquet", RECIPE, SOURCE) is None
    with pytest.raises(FeatureStoreError, match="expected stored features"):
        read_rows(tmp_path / "a.parquet")


# Current or not ------------------------------------------------------------------------------------------------


def test_a_current_file_tells_its_counts(tmp_path):
    rows = rows_of(layout_arrays())
    path = written(tmp_path / "a.parquet", rows)
    assert current_summary(path, RECIPE, SOURCE) == rows.summary()
    assert rows.summary() == {"configs": 6, "rows": 5, "labelled": True, "rankable": True}


OTHER_RECIPES = {
    "code_hash": "fedcba9876543210",
    "tier": "fast",
    "candidates": False,
    "max_configs": 1000,
    "seed": 1,
    "tiling": Tiling(sublanes=16),
}


def test_another_recipe_or_source_means_build_again(tmp_path):
    """The time is compared in whole nanoseconds, beyond what a float holds."""
    path = written(tmp_path / "a.parquet", rows_of(layout_arrays()))
    assert set(OTHER_RECIPES) == {field.name for field in fields(Recipe)}
    for name, value in OTHER_RECIPES.items():
        assert current_summary(path, replace(RECIPE, **{name: value}), SOURCE) is None, name
    for other in (Source(SOURCE.size - 1, SOURCE.mtime_ns), Source(SOURCE.size, SOURCE.mtime_ns + 1)):
        assert current_summary(path, RECIPE, other) is None


def test_a_source_is_size_and_time_of_its_file(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(b"12345")
    os.utime(path, ns=(1_700_000_000_123_456_789,) * 2)
    assert Source.of(path) == Source(5, path.stat().st_mtime_ns)
    path.write_bytes(b"123456")
    assert Source.of(path).size == 6


# The manifest --------------------------------------------------------------------------------------------------

COLLECTION = Collection.parse("layout:cpu:random")
PLAIN = Manifest(
    recipe=RECIPE,
    data_root="data/sample",
    graph_columns=["size__nodes__log"],
    config_columns=["change__nodes_set__share", "change__nodes_changed__share"],
    graphs={"b": {"configs": 6, "source": {"size": 1, "mtime_ns": 2**62 + 1}}, "a": {"configs": 1}},
    broken={"c": "the file has no configurations"},
)


def test_a_manifest_is_read_back(tmp_path):
    workspace = Workspace(tmp_path)
    write_manifest(workspace, COLLECTION, "train", PLAIN)
    found = read_manifest(workspace, COLLECTION, "train")
    assert found == PLAIN
    assert isinstance(found.recipe, Recipe)
    assert list(found.graphs) == ["b", "a"], "the order is kept"
    assert found.columns == ["size__nodes__log", "change__nodes_set__share", "change__nodes_changed__share"]


def without(name):
    return json.dumps({key: value for key, value in asdict(PLAIN).items() if key != name}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        without("config_columns"),
        json.dumps({**asdict(PLAIN), "later": 1}).encode(),
        json.dumps({**asdict(PLAIN), "recipe": None}).encode(),
        json.dumps({**asdict(PLAIN), "recipe": {**asdict(RECIPE), "later": 1}}).encode(),
    ],
)
def test_a_broken_manifest_is_refused(content, tmp_path):
    workspace = Workspace(tmp_path)
    write_manifest(workspace, COLLECTION, "train", PLAIN)
    (workspace.features(COLLECTION, "train") / MANIFEST).write_bytes(content)
    for read in (read_manifest, load_split):
        with pytest.raises(FeatureStoreError, match=r"manifest\.json cannot be read .*run build-features again"):
            read(workspace, COLLECTION, "train")


def test_a_split_is_loaded_in_the_order_of_its_manifest(tmp_path):
    workspace = Workspace(tmp_path)
    for name, keep in (("a", [0]), ("b", [0, 1])):
        rows = replace(rows_of(layout_arrays(), keep), name=name)
        write_rows(workspace.graph_rows(COLLECTION, "train", name), rows, RECIPE, SOURCE)
    made = {name: {"source": asdict(SOURCE)} for name in ("b", "a")}
    write_manifest(workspace, COLLECTION, "train", replace(PLAIN, graphs=made))
    assert [(rows.name, len(rows)) for rows in load_split(workspace, COLLECTION, "train")] == [
        ("b", 2),
        ("a", 1),
    ]
    for changed in (replace(RECIPE, tier="fast"), SOURCE), (RECIPE, replace(SOURCE, size=1)):
        write_rows(workspace.graph_rows(COLLECTION, "train", "a"), rows, *changed)  # a build that did not end
        with pytest.raises(FeatureStoreError, match=r"a\.parquet .*not those of manifest.*run build-features"):
            load_split(workspace, COLLECTION, "train")


def test_a_graph_of_the_manifest_that_is_gone_is_missed(tmp_path):
    workspace = Workspace(tmp_path)
    write_manifest(workspace, COLLECTION, "train", PLAIN)
    with pytest.raises(FeatureStoreError, match=r"b\.parquet cannot be read"):
        load_split(workspace, COLLECTION, "train")


def test_collections_with_a_manifest_are_found(tmp_path):
    workspace, tile = Workspace(tmp_path), Collection.parse("tile:xla")
    assert stored_collections(workspace) == load_split(workspace, COLLECTION, "train") == []
    assert read_manifest(workspace, COLLECTION, "train") is None
    write_manifest(workspace, tile, "test", PLAIN)
    write_manifest(workspace, COLLECTION, "train", PLAIN)
    write_manifest(workspace, COLLECTION, "valid", PLAIN)
    (tmp_path / "features/layout/xla/random/train").mkdir(parents=True)
    assert stored_collections(workspace) == [COLLECTION, tile]


def test_a_tile_graph_keeps_its_normalizers_when_rows_are_dropped():
    rows = assemble(tile_of(tile_arrays())).take(np.array([1, 3]))
    assert rows.ids.tolist() == [1, 3, 4]
    assert rows.normalizer.tolist() == [30_000, 2_500, 20_000]
