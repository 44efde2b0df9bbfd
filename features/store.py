"""Stored features: parquet files of many small graphs or one large one.

Each split of a collection has a manifest. A row is a *distinct* configuration, with the columns of
`xlarank.features.rows.rows_table`. Between its keys and its features, list columns hold the ids and
the runtimes (0: not measured) of all configurations identical to it. A column costs 300 bytes per
file, more than its values in a graph of 64 rows, so a file has many graphs. The metadata holds a
CRC-32 of the entire file, because Parquet's checksums omit the footer.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from xlarank.data.collection import SPLITS, Collection, find_data_root
from xlarank.data.errors import DataRootError, FeatureStoreError, reasons
from xlarank.data.files import atomic_write, from_json, read_bytes, read_text, write_json
from xlarank.data.workspace import Workspace
from xlarank.features.catalogue import columns_version
from xlarank.features.rows import (
    KEYS,
    GraphRows,
    Recipe,
    Source,
    rows_of_configurations,
    rows_table,
)

#: List columns, with an entry for each of the identical configurations -> array of `GraphRows`.
_LISTS: Final = {"configurations": "ids", "runtimes_ns": "runtime", "normalizers_ns": "normalizer"}
MANIFEST: Final = "manifest.json"
_BUILD_AGAIN: Final = "run build-features again"
#: Placeholder of a checksum, and the JSON before it in a file.
_BLANK = b"0" * 8
_MARK = b'"seal": "'
#: Errors that polars (whose panic is no `Exception`) and numpy raise for broken files.
_BROKEN: Final = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError),
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
)


@dataclass(frozen=True)
class StoredGraph:
    """Summary of a graph's stored rows, with their source and the number of their file."""

    configs: int
    rows: int
    kernel_families: list[str]
    labelled: bool
    rankable: bool
    part: int
    source: Source

    @classmethod
    def of(cls, rows: GraphRows, part: int, source: Source) -> StoredGraph:
        return cls(
            len(rows.ids),
            len(rows),
            list(rows.kernel_families),
            rows.labelled,
            rows.rankable,
            part,
            source,
        )


@dataclass
class Manifest:
    """Stored rows of a collection's split.

    Attributes:
        graphs: name -> entry, for each graph that was built.
        broken: name -> reason, for each file that could not be read.
        files: name -> identity, for each file of the split when it was built.
    """

    recipe: Recipe
    data_root: str
    columns: list[str]
    graphs: dict[str, StoredGraph] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    files: dict[str, Source] = field(default_factory=dict)


def _checksum(content: bytes | bytearray) -> tuple[slice, bytes]:
    """Return the place of a file's checksum, and the checksum of its content."""
    start = content.rfind(_MARK) + len(_MARK)
    place = slice(start, start + len(_BLANK))
    view = memoryview(content)
    checksum = zlib.crc32(view[place.stop :], zlib.crc32(_BLANK, zlib.crc32(view[:start])))
    return place, f"{checksum:08x}".encode()


def _read_verified(
    path: Path, recipe: Recipe, expected: Mapping[str, StoredGraph] | None = None
) -> tuple[io.BytesIO, int, dict[str, StoredGraph]]:
    """Return the content of a file, its number of graph columns and its graphs.

    Raises `ValueError` if the file has changed since it was written, has another recipe, or other
    graphs than ``expected``.
    """
    content = read_bytes(path)
    place, checksum = _checksum(content)
    if content[place] != checksum:
        raise ValueError("its content has changed since it was written")
    file = io.BytesIO(content)
    metadata = json.loads(pl.read_parquet_metadata(file)["xlarank"])
    entries = metadata["graphs"].items()
    graphs = {name: from_json(StoredGraph, entry, name) for name, entry in entries}
    if from_json(Recipe, metadata["recipe"]) != recipe or expected not in (None, graphs):
        raise ValueError(f"its settings or its source differ from {MANIFEST}")
    return file, metadata["graph_columns"], graphs


@contextmanager
def _reading(path: Path, expected: str = "stored features") -> Iterator[None]:
    """Convert errors of broken files to a `FeatureStoreError`."""
    try:
        yield
    except _BROKEN as error:
        got = f"{path} cannot be read ({error})"
        raise FeatureStoreError(got, expected=expected, do=_BUILD_AGAIN) from error


def write_rows(
    path: Path,
    graphs: Sequence[GraphRows],
    recipe: Recipe,
    entries: dict[str, StoredGraph],
    split: tuple[str, str],
) -> None:
    """Write the rows of graphs with equal columns; ``split`` names collection and split."""
    table = rows_table(graphs, *split)
    arrays = {"row": rows_of_configurations(graphs)}
    for name, array in _LISTS.items():
        arrays[name] = np.concatenate([getattr(graph, array) for graph in graphs])
    by_row = pl.DataFrame(arrays).sort("row", maintain_order=True)
    lists = by_row.group_by("row", maintain_order=True).agg(pl.all()).drop("row")
    members = {graph.name: asdict(entries[graph.name]) for graph in graphs}
    width = len(graphs[0].graph_columns)
    metadata = {"recipe": asdict(recipe), "graph_columns": width, "graphs": members}
    metadata["seal"] = _BLANK.decode()
    table = table[:, : len(KEYS)].hstack(lists).hstack(table[:, len(KEYS) :])
    file = io.BytesIO()
    table.write_parquet(file, statistics=False, metadata={"xlarank": json.dumps(metadata)})
    content = bytearray(file.getbuffer())
    place, checksum = _checksum(content)
    content[place] = checksum
    with atomic_write(path) as partial:
        partial.write_bytes(content)


def read_rows(
    path: Path, recipe: Recipe, expected: Mapping[str, StoredGraph] | None = None
) -> list[GraphRows]:
    """Return the graphs of a file; raises `FeatureStoreError` if it is damaged or another one."""
    with _reading(path):
        file, width, entries = _read_verified(path, recipe, expected)
        features = [*pl.read_parquet_schema(file)][len(KEYS) + len(_LISTS) :]
        table = pl.read_parquet(file, columns=[*_LISTS, *features[width:]])
        values = table.select(features[width:]).to_numpy(order="c")
        starts = [0, *accumulate(entry.rows for entry in entries.values())]
        # constants are in each graph's first row; for a single large graph, only that row is read
        first_rows = starts[-2] + 1
        first = pl.read_parquet(file, columns=features[:width], n_rows=first_rows)
        constants = first[starts[:-1]].to_numpy()
        graphs = []
        for number, (name, entry) in enumerate(entries.items()):
            rows = slice(starts[number], starts[number + 1])
            lists = table[rows].select(*_LISTS).with_row_index("row").explode(*_LISTS)
            columns = lists.sort("configurations")
            group, ids, runtime, normalizer = (
                column.to_numpy().astype(np.int64) for column in columns
            )
            arrays = constants[number], values[rows], group, ids, runtime, normalizer
            graphs.append(
                GraphRows(name, features, *arrays, kernel_families=tuple(entry.kernel_families))
            )
        return graphs


def stored_graphs(path: Path, recipe: Recipe) -> dict[str, StoredGraph]:
    """Return the graphs of a file; none unless the file is intact and of this recipe."""
    try:
        _, _, graphs = _read_verified(path, recipe)
        return graphs
    except _BROKEN:
        return {}


def write_manifest(
    workspace: Workspace, collection: Collection, split: str, manifest: Manifest
) -> None:
    """Write the manifest of a split, and remove row files that it does not list."""
    folder = workspace.features(collection, split)
    write_json(folder / MANIFEST, asdict(manifest))
    listed = _row_files(workspace, collection, split, manifest)
    for path in {*folder.glob("[!.]*.parquet")} - listed.keys():
        path.unlink(missing_ok=True)


def _row_files(
    workspace: Workspace, collection: Collection, split: str, manifest: Manifest
) -> dict[Path, dict[str, StoredGraph]]:
    """Return the graphs of each file of rows."""
    files: dict[Path, dict[str, StoredGraph]] = {}
    for name, graph in manifest.graphs.items():
        files.setdefault(workspace.rows(collection, split, graph.part), {})[name] = graph
    return files


def scan_rows(
    workspace: Workspace, collection: Collection, split: str, manifest: Manifest
) -> pl.LazyFrame:
    """Return the rows of a split as a query on the content of its files.

    Raises `FeatureStoreError` for missing and damaged files, for files of another build than the
    manifest's, and for graph files that have changed since.
    """
    require_unchanged(collection, split, manifest)
    contents = list[Any]()
    for path, graphs in _row_files(workspace, collection, split, manifest).items():
        with _reading(path):
            contents.append(_read_verified(path, manifest.recipe, graphs)[0])
    return pl.scan_parquet(contents, glob=False)


def read_manifest(workspace: Workspace, collection: Collection, split: str) -> Manifest | None:
    """Return the manifest, None if nothing was built; raise `FeatureStoreError` if it is broken."""
    path = workspace.features(collection, split) / MANIFEST
    if not path.exists():
        return None
    with _reading(path, "a manifest"):
        return from_json(Manifest, json.loads(read_text(path)))


def read_manifests(
    workspace: Workspace, collection: Collection, splits: Sequence[str] = SPLITS
) -> dict[str, Manifest]:
    """Return the manifests of the splits that were built; raises as `read_manifest`."""
    manifests = {split: read_manifest(workspace, collection, split) for split in splits}
    return {split: manifest for split, manifest in manifests.items() if manifest is not None}


def stored_collections(workspace: Workspace) -> list[Collection]:
    """Return the collections that have a manifest for at least one split."""
    root = workspace.root / "features"
    paths = [path for split in SPLITS for path in root.glob(f"*/**/{split}/{MANIFEST}")]
    return sorted({Collection(path.relative_to(root).parts[:-2]) for path in paths})


def stored_roots(workspace: Workspace) -> set[str]:
    """Return the data roots that the stored rows were made from."""
    return {
        manifest.data_root
        for collection in stored_collections(workspace)
        for manifest in read_manifests(workspace, collection).values()
    }


def changed_files(collection: Collection, split: str, manifest: Manifest) -> dict[str, str]:
    """Return by name which files are "changed", "added" or "removed" since the rows were built.

    Empty if the data root no longer has the collection.
    """
    try:
        folder = find_data_root(manifest.data_root).npz.joinpath(*collection.parts)
    except DataRootError:
        return {}
    if not any(folder.glob("*/*.npz")):
        return {}
    paths = {path.name.removesuffix(".npz"): path for path in folder.glob(f"{split}/[!.]*.npz")}
    changes = dict.fromkeys(manifest.files.keys() - paths.keys(), "removed")
    for name, path in paths.items():
        source = manifest.files.get(name)
        try:
            if Source.of(path) != source:
                changes[name] = "changed" if source else "added"
        except OSError:
            if name not in manifest.broken:
                changes[name] = "changed"
    return dict(sorted(changes.items()))


def require_unchanged(collection: Collection, split: str, manifest: Manifest) -> None:
    """Raise `FeatureStoreError` if `changed_files` has an entry."""
    if changes := changed_files(collection, split, manifest):
        listed = "; ".join(reasons(changes))
        got = f"the {split} rows of {collection} are older than their files ({listed})"
        expected = f"rows of the files in {manifest.data_root}"
        raise FeatureStoreError(got, expected=expected, do=_BUILD_AGAIN)


def each_graph(
    workspace: Workspace, collection: Collection, split: str, manifest: Manifest | None = None
) -> Iterator[GraphRows]:
    """Yield the graphs of a split in the order of its manifest; none if it was not built.

    Raises `FeatureStoreError` as `scan_rows`, and for rows of another version of the columns.
    """
    manifest = manifest or read_manifest(workspace, collection, split)
    if manifest is None:
        return
    version = columns_version(collection.kind)
    if manifest.recipe.columns_version != version:
        got = f"the {split} rows of {collection} have another version of the columns"
        raise FeatureStoreError(got, expected=f"version {version}", do=_BUILD_AGAIN)
    require_unchanged(collection, split, manifest)
    for path, graphs in _row_files(workspace, collection, split, manifest).items():
        yield from read_rows(path, manifest.recipe, graphs)
