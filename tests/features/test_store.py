"""Stored features: reading back what was written, and refusing damaged and outdated files."""

import json
from dataclasses import asdict, fields, replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.features.helpers import FITTING_GRAPHS, FITTING_KERNELS, graph_of
from tests.graphs import examples, layout_arrays, tile_arrays
from xlarank.data.collection import Collection
from xlarank.data.errors import FeatureStoreError
from xlarank.data.families import program_family
from xlarank.data.workspace import Workspace
from xlarank.features import store
from xlarank.features.assembly import assemble
from xlarank.features.rows import GraphRows, Recipe, Source

RECIPE = Recipe.of("layout")
SOURCE = Source(size=2**40 + 1, end=2**32 - 1)
#: Configurations 1 and 3 of the layout graph are identical, 1 and 4 of the tile graph.
LAYOUT, TILE = (assemble(graph_of(arrays)) for arrays in (layout_arrays(), tile_arrays()))


def written(path, *graphs: GraphRows, recipe=RECIPE, source=SOURCE, part=0):
    entries = {rows.name: store.StoredGraph.of(rows, part, source) for rows in graphs}
    store.write_rows(path, graphs, recipe, entries, ("layout:cpu:random", "train"))
    return path


def assert_equal_rows(rows: GraphRows, expected: GraphRows) -> None:
    assert (rows.name, rows.columns) == (expected.name, expected.columns)
    for name in ("graph_values", "config_values", "group", "ids", "runtime", "normalizer"):
        array = getattr(rows, name)
        wanted = getattr(expected, name)
        dtype = np.float32 if name.endswith("values") else np.int64
        assert array.dtype == wanted.dtype == dtype, name
        assert array.shape == wanted.shape and array.tobytes() == wanted.tobytes(), name


@given(arrays=st.one_of(FITTING_GRAPHS, FITTING_KERNELS), data=st.data())
@examples(12)
def test_rows_survive_the_file(arrays, data, next_path):
    """Repeated configurations, labels that no float holds, and a sample of the distinct rows."""
    rows = assemble(graph_of(arrays))
    runtime, normalizer = np.random.default_rng(0).integers(2**53, 2**62, (2, len(rows.ids)))
    rows = replace(rows, runtime=runtime, normalizer=normalizer)
    kept = data.draw(st.none() | st.sets(st.integers(0, len(rows) - 1), min_size=1).map(sorted))
    rows = rows if kept is None else rows.take(np.array(kept))
    (read,) = store.read_rows(written(next_path(), rows), RECIPE)
    assert_equal_rows(read, rows)


def test_a_file_is_read_without_this_package(tmp_path):
    """A row for each distinct configuration: keys, lists of identical ones, features."""
    other = LAYOUT.take(np.array([2, 3]))
    other = replace(other, name="other__b", graph_values=LAYOUT.graph_values + 1)
    path = written(tmp_path / "a.parquet", LAYOUT, other)
    table = pl.scan_parquet(tmp_path / "*.parquet").collect()
    keys = "collection graph family split configuration repeats runtime_ns label".split()
    lists = ["configurations", "runtimes_ns", "normalizers_ns"]
    assert table.columns == [*keys, *lists, *LAYOUT.columns]
    assert set(table.dtypes[11:]) == {pl.Float32}
    assert table["graph"].to_list() == [LAYOUT.name] * 5 + ["other__b"] * 2
    assert {*table["family"]} == {program_family(LAYOUT.name), "other"}
    assert table.select("collection", "split").unique().rows() == [("layout:cpu:random", "train")]
    assert table["configuration"].to_list() == [0, 1, 2, 4, 5, 2, 4]
    assert table["repeats"].to_list() == [1, 2, 1, 1, 1, 1, 1]
    assert table["configurations"].to_list()[:3] == [[0], [1, 3], [2]]
    assert table["runtimes_ns"].to_list()[1] == [20_000_001, 20_000_002]
    for name in ("runtime_ns", "label"):
        assert table[name].to_list()[:5] == LAYOUT.row_cost.tolist()
    both = np.concatenate([LAYOUT.matrix(), other.matrix()])
    np.testing.assert_array_equal(table[:, 11:].to_numpy(), both)
    for read, rows in zip(store.read_rows(path, RECIPE), (LAYOUT, other), strict=True):
        assert_equal_rows(read, rows)


def test_tables_have_the_cost_of_tiles_and_null_where_nothing_was_measured(tmp_path):
    """The fastest of identical configurations counts: cost is runtime over normalizer."""
    runtime = np.where(TILE.ids == 1, 0, TILE.runtime)  # configuration 4 is the same one
    table = pl.read_parquet(written(tmp_path / "a.parquet", replace(TILE, runtime=runtime)))
    assert table["label"].to_list() == [2.0, 1.25, 0.5, 4.0]
    assert table["configuration"].to_list() == [0, 1, 2, 3]
    path = written(tmp_path / "b.parquet", replace(TILE, runtime=0 * runtime))
    unlabelled = pl.read_parquet(path)
    assert unlabelled["label"].null_count() == unlabelled["runtime_ns"].null_count() == len(TILE)


def assert_unreadable(path):
    assert store.stored_graphs(path, RECIPE) == {}
    message = r"(?s)a\.parquet cannot be read .*expected stored features.*run build-features again"
    with pytest.raises(FeatureStoreError, match=message):
        store.read_rows(path, RECIPE)


def test_a_broken_file_is_neither_current_nor_read(tmp_path):
    path = written(tmp_path / "a.parquet", LAYOUT)
    content = path.read_bytes()
    # The last eight bytes are its length and the magic word.
    footer = int.from_bytes(content[-8:-4], "little")
    for wrong in (
        *(content[:-1], content[: len(content) // 2], b"", content[:-4] + b"PAR0"),
        content[: -8 - footer] + bytes(footer) + content[-8:],
        b"this is no parquet file, but it is longer than twelve bytes",
        content[:4] + bytes(400) + content[404:],  # damage that only reading all of it shows
    ):
        path.write_bytes(wrong)
        assert_unreadable(path)
    texts = ("no json", "[]", "{}", '{"seal": "00000000"}', '{"recipe": 1, "seal": "00000000"}')
    for metadata in (None, {"other": "{}"}, *({"xlarank": text} for text in texts)):
        pl.DataFrame({"x": [1.0]}).write_parquet(path, metadata=metadata)
        assert_unreadable(path)
    path.unlink()
    assert_unreadable(path)


def test_another_recipe_means_build_again(tmp_path):
    path = written(tmp_path / "a.parquet", LAYOUT)
    changes = [{"columns_version": "f"}, {"hardware": "cpu"}, {"max_configs": 1000}]
    assert {field.name for field in fields(RECIPE)} == set().union(*changes)
    for other in (replace(RECIPE, **change) for change in changes):
        assert store.stored_graphs(path, other) == {}
        with pytest.raises(FeatureStoreError, match="differ from manifest"):
            store.read_rows(path, other)


COLLECTION = Collection.parse("layout:cpu:random")
PLAIN = store.Manifest(
    recipe=RECIPE,
    data_root="data/sample",
    columns=["size__nodes__log", "change__nodes_set__share", "change__nodes_changed__share"],
    graphs={
        "b": store.StoredGraph(6, 5, ["convolution"], True, True, 0, Source(1, 0)),
        "a": store.StoredGraph(2, 2, [], False, True, 1, SOURCE),
    },
    broken={"c": "the file has no configurations"},
)


def test_a_manifest_is_read_back_and_collections_with_one_are_listed(tmp_path):
    workspace = Workspace(tmp_path)
    tile = Collection.parse("tile:xla")
    assert store.stored_collections(workspace) == []
    assert list(store.each_graph(workspace, COLLECTION, "train")) == []
    assert store.read_manifest(workspace, COLLECTION, "train") is None
    for collection, split in ((tile, "test"), (COLLECTION, "train"), (COLLECTION, "valid")):
        store.write_manifest(workspace, collection, split, PLAIN)
    assert store.stored_collections(workspace) == [COLLECTION, tile]
    manifest = store.read_manifest(workspace, COLLECTION, "train")
    assert manifest == PLAIN and list(manifest.graphs) == ["b", "a"], "the order is kept"
    with pytest.raises(FeatureStoreError, match=r"part-0000\.parquet cannot be read"):
        # A graph of the manifest that is gone.
        list(store.each_graph(workspace, COLLECTION, "train"))


def test_a_broken_manifest_is_refused(tmp_path):
    workspace = Workspace(tmp_path)
    whole = asdict(PLAIN)
    store.write_manifest(workspace, COLLECTION, "train", PLAIN)
    values = [{name: value for name, value in whole.items() if name != "columns"}]
    changes = ({"later": 1}, {"recipe": None}, {"recipe": {**asdict(RECIPE), "later": 1}})
    values += [{**whole, **change} for change in changes]
    texts = [b"", b"{", b"[]", b"[" * 100_000, b"\xff\xfe"]
    texts += [json.dumps(value).encode() for value in values]
    said = r"manifest\.json cannot be read .*run build-feat"
    for content in texts:
        (workspace.features(COLLECTION, "train") / store.MANIFEST).write_bytes(content)
        for read in (store.read_manifest, lambda *split: list(store.each_graph(*split))):
            with pytest.raises(FeatureStoreError, match=said):
                read(workspace, COLLECTION, "train")


def test_a_split_is_loaded_in_the_order_of_its_manifest(tmp_path):
    """Two graphs of one file, then one of another."""
    workspace = Workspace(tmp_path)
    a, b, c = (replace(LAYOUT.take(np.arange(n)), name=name) for n, name in enumerate("abc", 1))
    written(workspace.rows(COLLECTION, "train", 0), c, a)
    written(workspace.rows(COLLECTION, "train", 1), b, part=1)
    parts = ((c, 0), (a, 0), (b, 1))
    entries = {rows.name: store.StoredGraph.of(rows, part, SOURCE) for rows, part in parts}
    manifest = replace(PLAIN, graphs=entries)
    store.write_manifest(workspace, COLLECTION, "train", manifest)
    loaded = [(rows.name, len(rows)) for rows in store.each_graph(workspace, COLLECTION, "train")]
    assert loaded == [("c", 3), ("a", 1), ("b", 2)]
    # of another recipe, of a build that did not end, of another graph
    said = r"part-0001\.parquet .*differ from manifest.*run build-feat"
    other = {"recipe": replace(RECIPE, columns_version="f")}
    for rows, changed in ((b, other), (b, {"source": Source(1, 3)}), (a, {})):
        written(workspace.rows(COLLECTION, "train", 1), rows, part=1, **changed)
        with pytest.raises(FeatureStoreError, match=said):
            list(store.each_graph(workspace, COLLECTION, "train"))
        with pytest.raises(FeatureStoreError, match=said):
            store.scan_rows(workspace, COLLECTION, "train", manifest)
