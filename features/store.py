"""Stored features: one parquet file per graph, one manifest per collection and split.

A row is a *distinct* configuration. Its column ``configurations`` lists the ids of all configurations that
are identical to it, ``runtime_ns`` (and, for tiles, ``normalizer_ns``) what each of them measured; the
other columns are the features, float32. Columns that are constant within the graph stand once, in the
file's metadata. With polars: ``pl.read_parquet(path).explode("configurations", "runtime_ns")``.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from xlarank.data.collection import SPLITS, Collection
from xlarank.data.errors import FeatureStoreError
from xlarank.data.files import atomic_write, read_bytes, read_text, write_json
from xlarank.data.typed_json import from_json
from xlarank.data.workspace import Workspace
from xlarank.features.instances.graph_instances import ARRAYS, Instances, LazyInstances
from xlarank.features.recipe import Recipe, Source
from xlarank.features.rows import GraphRows
from xlarank.features.seal import require_seal, seal, seal_zip, sealable

_METADATA: Final = b"xlarank"
_BOOKKEEPING: Final = ("configurations", "runtime_ns", "normalizer_ns")
MANIFEST: Final = "manifest.json"


@dataclass
class Manifest:
    """What a collection's split holds.

    Attributes:
        recipe: how the rows were made.
        data_root: where from.
        graph_columns, config_columns: names; all float32.
        graphs: name -> counts and source of every graph that was built.
        broken: name -> why, of every file that could not be.
    """

    recipe: Recipe
    data_root: str
    graph_columns: list[str]
    config_columns: list[str]
    graphs: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        return self.graph_columns + self.config_columns


@dataclass(frozen=True)
class _About:
    """What may stand in a manifest of a graph: `GraphRows.summary` and the source."""

    configs: int = 0
    rows: int = 0
    labelled: bool = False
    rankable: bool = False
    source: Source | None = None


def write_rows(path: Path, rows: GraphRows, recipe: Recipe, source: Source) -> None:
    """Write one graph's parquet file, whole or not at all."""
    order = np.argsort(rows.group, kind="stable")
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.bincount(rows.group, minlength=len(rows)), out=offsets[1:])

    def lists(values: NDArray[Any]) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[order]))

    columns: dict[str, pa.Array] = {
        "configurations": lists(rows.ids.astype(np.int32)),
        "runtime_ns": lists(rows.runtime),
        "normalizer_ns": lists(rows.normalizer),
    }
    for number, name in enumerate(rows.config_columns):
        columns[name] = pa.array(rows.config_values[:, number])
    metadata = {
        "name": rows.name,
        "recipe": asdict(recipe),
        "source": asdict(source),
        "summary": rows.summary(),
        "graph_columns": rows.constants,
        "kinds": rows.kinds,
    }
    table = pa.table(columns).replace_schema_metadata({_METADATA: sealable(metadata)})
    with atomic_write(path) as partial:
        pq.write_table(table, partial, compression="zstd", use_dictionary=False, write_statistics=False)
        seal(partial)


def read_rows(path: Path, recipe: Recipe | None = None, source: object = None) -> GraphRows:
    """Read one graph's parquet file; raises `FeatureStoreError`, also for another ``recipe`` or ``source``."""
    try:
        content = read_bytes(path)
        require_seal(content)
        # half the time of pq.read_table, which counts with thousands of files
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            table = file.read()
        metadata = json.loads(table.schema.metadata[_METADATA])
        if recipe is not None and (metadata["recipe"], metadata["source"]) != (asdict(recipe), source):
            raise ValueError(f"its settings or its source are not those of {MANIFEST}")
        return _parse(table, metadata)
    except (OSError, pa.ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FeatureStoreError(
            f"{path} cannot be read ({error})", expected="stored features", do="run build-features again"
        ) from error


def _parse(table: pa.Table, metadata: dict[str, Any]) -> GraphRows:
    names = [name for name in table.column_names if name not in _BOOKKEEPING]
    rows = np.empty((table.num_rows, len(names)), np.float32)
    for number, name in enumerate(names):
        rows[:, number] = table.column(name).to_numpy()
    lists = table.column("configurations").combine_chunks()
    sizes = np.diff(lists.offsets.to_numpy())
    flat = {name: table.column(name).combine_chunks().flatten().to_numpy() for name in _BOOKKEEPING}
    order = np.argsort(flat["configurations"], kind="stable")
    constants = metadata["graph_columns"]
    return GraphRows(
        name=metadata["name"],
        columns=[*constants, *names],
        graph_values=np.array(list(constants.values()), np.float32),
        config_values=rows,
        group=np.repeat(np.arange(len(sizes)), sizes)[order],
        ids=flat["configurations"][order].astype(np.int64),
        runtime=flat["runtime_ns"][order],
        normalizer=flat["normalizer_ns"][order],
        kinds=tuple(metadata["kinds"]),
    )


def current_summary(path: Path, recipe: Recipe, source: Source) -> dict[str, Any] | None:
    """`GraphRows.summary` of the file in place if it is whole, from this source and by this recipe; else None."""
    if not path.exists():
        return None
    try:
        content = read_bytes(path)
        require_seal(content)
        metadata = json.loads((pq.read_metadata(pa.BufferReader(content)).metadata or {})[_METADATA])
        same = metadata["recipe"] == asdict(recipe) and metadata["source"] == asdict(source)
        return dict(metadata["summary"]) if same else None
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return None


def write_manifest(workspace: Workspace, collection: Collection, split: str, manifest: Manifest) -> None:
    write_json(workspace.features(collection, split) / MANIFEST, asdict(manifest))


def read_manifest(workspace: Workspace, collection: Collection, split: str) -> Manifest | None:
    """The manifest of a split, or None where nothing was built; raises `FeatureStoreError` if broken."""
    path = workspace.features(collection, split) / MANIFEST
    if not path.exists():
        return None
    try:
        manifest = from_json(Manifest, json.loads(read_text(path)))
        for name, about in manifest.graphs.items():
            from_json(_About, about, name)
        return manifest
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise FeatureStoreError(
            f"{path} cannot be read ({error})", expected="a manifest", do="run build-features again"
        ) from error


def stored_collections(workspace: Workspace) -> list[Collection]:
    """Collections that have a manifest for at least one split."""
    root = workspace.root / "features"
    collections = {
        Collection(path.relative_to(root).parts[:-2])
        for split in SPLITS
        for path in root.glob(f"*/**/{split}/{MANIFEST}")
    }
    return sorted(collections)


def stored_roots(workspace: Workspace) -> set[str]:
    """Data roots that the stored rows were made from."""
    roots = set()
    for collection in stored_collections(workspace):
        for split in SPLITS:
            manifest = read_manifest(workspace, collection, split)
            if manifest is not None:
                roots.add(manifest.data_root)
    return roots


def load_split(workspace: Workspace, collection: Collection, split: str) -> list[GraphRows]:
    """All graphs of a split in the order of the manifest; empty where nothing was built."""
    return list(each_graph(workspace, collection, split))


def each_graph(
    workspace: Workspace, collection: Collection, split: str, manifest: Manifest | None = None
) -> Iterator[GraphRows]:
    """The same one by one: the stored rows of a split need not fit into memory together.

    ``manifest`` is that of the split, where it was read before. Raises `FeatureStoreError` for rows that are not as
    it describes: another `build-features` has written them, perhaps with other settings.
    """
    manifest = manifest or read_manifest(workspace, collection, split)
    if manifest is None:
        return
    for name, about in manifest.graphs.items():
        rows = read_rows(workspace.graph_rows(collection, split, name), manifest.recipe, about.get("source"))
        if collection.kind == "layout":
            path = workspace.graph_instances(collection, split, name)
            rows = replace(rows, instances=LazyInstances(partial(_instances_beside, path, manifest.recipe, about)))
        yield rows


def _instances_beside(path: Path, recipe: Recipe, about: dict[str, Any]) -> Instances:
    return read_instances(path, recipe, Source(**about["source"]))


_ABOUT: Final = "about"
#: What numpy and zipfile raise for files that are cut short or something else.
_BROKEN: Final = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


def write_instances(path: Path, instances: Instances, recipe: Recipe, source: Source) -> None:
    """Write one graph's instances, whole or not at all; raises `WorkspaceError`."""
    about = {"columns": instances.columns, "recipe": asdict(recipe), "source": asdict(source)}
    arrays: dict[str, Any] = {name: getattr(instances, name) for name in ARRAYS}
    # node by node: neighbouring entries are mostly equal, and half the size when compressed
    arrays["codes"] = np.ascontiguousarray(instances.codes.T)
    arrays[_ABOUT] = np.array(json.dumps(about))
    with atomic_write(path) as partial:
        with partial.open("wb") as stream:
            np.savez_compressed(stream, **arrays)
        seal_zip(partial)


def _whole(path: Path) -> io.BytesIO:
    """The content of a file that is as it was written; raises `ValueError` for another."""
    content = read_bytes(path)
    require_seal(content)
    return io.BytesIO(content)


def instances_current(path: Path, recipe: Recipe, source: Source) -> bool:
    """Whether the file in place is whole and was made from this source by this recipe."""
    try:
        with np.load(_whole(path), allow_pickle=False) as archive:
            about = json.loads(str(archive[_ABOUT]))
            return bool(about["recipe"] == asdict(recipe) and about["source"] == asdict(source))
    except _BROKEN:
        return False


def read_instances(path: Path, recipe: Recipe, source: Source) -> Instances:
    """Read one graph's instances; raises `FeatureStoreError` unless they are whole and of this making."""
    try:
        with np.load(_whole(path), allow_pickle=False) as archive:
            about = json.loads(str(archive[_ABOUT]))
            if about["recipe"] != asdict(recipe) or about["source"] != asdict(source):
                raise ValueError("it was made from another file or by other code than the rows")
            arrays = {name: archive[name] for name in ARRAYS}
            arrays["codes"] = np.ascontiguousarray(arrays["codes"].T)
            return Instances(columns=[str(name) for name in about["columns"]], **arrays)
    except _BROKEN as error:
        raise FeatureStoreError(
            f"{path} cannot be read ({error})", expected="stored instances", do="run build-features again"
        ) from error
