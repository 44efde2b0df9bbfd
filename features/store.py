"""Stored features: one parquet file per graph, one manifest per collection and split.

A row is a *distinct* configuration. Its column ``configurations`` lists the ids of all configurations that
are identical to it, ``runtime_ns`` (and, for tiles, ``normalizer_ns``) what each of them measured; the
other columns are the features, float32. Columns that are constant within the graph stand once, in the
file's metadata, with a CRC-32 of the whole file, which no flipped bit escapes: Parquet's own checksums
leave out the footer with the graph's constants, a zip's are looked at only once a member is unpacked. With polars:
``pl.read_parquet(path).explode("configurations", "runtime_ns")``.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Sequence
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

_METADATA: Final = b"xlarank"
_BOOKKEEPING: Final = ("configurations", "runtime_ns", "normalizer_ns")
MANIFEST: Final = "manifest.json"
#: Name of the entry that says how instances were made.
_ABOUT: Final = "about"
#: The checksum before it is known, and how it stands in JSON that a file holds as plain text.
_BLANK, _MARK = b"0" * 8, b'"seal": "'
#: What pyarrow raises for files that are cut short or something else, and what numpy and zipfile do.
_BROKEN: Final = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError),
    *(pa.ArrowException, zipfile.BadZipFile, zlib.error),
)


@dataclass
class Manifest:
    """What a collection's split holds."""

    recipe: Recipe  # how the rows were made
    data_root: str  # where from
    # graph_columns, config_columns: names; all float32.
    graph_columns: list[str]
    config_columns: list[str]
    # name -> counts and source of every graph that was built.
    graphs: dict[str, dict[str, Any]] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)  # name -> why, of every file that could not be

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


def _sealable(value: dict[str, Any]) -> str:
    """JSON with a blank checksum, for a file that keeps it as it is; `_seal` fills it in."""
    return json.dumps({**value, "seal": _BLANK.decode()})


def _seal(path: Path) -> None:
    """Fill in the checksum of a file that holds `_sealable` JSON."""
    content = path.read_bytes()
    at = _place(content)
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(_digest(content, at))


def _place(content: bytes) -> int:
    at = content.rfind(_MARK)
    if at < 0:
        raise ValueError("it has no seal")
    return at + len(_MARK)


def _digest(content: bytes, at: int) -> bytes:
    view, checksum = memoryview(content), 0
    for part in (view[:at], _BLANK, view[at + len(_BLANK) :]):
        checksum = zlib.crc32(part, checksum)
    return f"{checksum:08x}".encode()


def _whole(path: Path) -> bytes:
    """The content of a file that is as it was written; raises `ValueError` for another."""
    content = read_bytes(path)
    at = _place(content)
    if content[at : at + len(_BLANK)] != _digest(content, at):
        raise ValueError("its content has changed since it was written")
    return content


def _require_made(metadata: dict[str, Any], recipe: Recipe, source: Source | None) -> None:
    """Raise `ValueError` unless a file was made by this recipe from this source."""
    if metadata["recipe"] != asdict(recipe) or source is None or metadata["source"] != asdict(source):
        raise ValueError(f"its settings or its source are not those of {MANIFEST}")


def _unreadable(path: Path, error: BaseException, expected: str) -> FeatureStoreError:
    return FeatureStoreError(f"{path} cannot be read ({error})", expected=expected, do="run build-features again")


def write_rows(path: Path, rows: GraphRows, recipe: Recipe, source: Source) -> None:
    """Write one graph's parquet file, whole or not at all."""
    order = np.argsort(rows.group, kind="stable")
    offsets = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(np.bincount(rows.group, minlength=len(rows)), out=offsets[1:])

    def lists(values: NDArray[Any]) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[order]))

    columns = {
        "configurations": lists(rows.ids.astype(np.int32)),
        "runtime_ns": lists(rows.runtime),
        "normalizer_ns": lists(rows.normalizer),
        **{name: pa.array(values) for name, values in zip(rows.config_columns, rows.config_values.T, strict=True)},
    }
    metadata = {
        "name": rows.name,
        "recipe": asdict(recipe),
        "source": asdict(source),
        "summary": rows.summary(),
        "graph_columns": rows.constants,
        "kinds": rows.kinds,
    }
    table = pa.table(columns).replace_schema_metadata({_METADATA: _sealable(metadata)})
    with atomic_write(path) as partial:
        pq.write_table(table, partial, compression="zstd", use_dictionary=False, write_statistics=False)
        _seal(partial)


def read_rows(path: Path, recipe: Recipe | None = None, source: Source | None = None) -> GraphRows:
    """Read one graph's parquet file; raises `FeatureStoreError`, also for another ``recipe`` or ``source``."""
    try:
        # half the time of pq.read_table, which counts with thousands of files
        with pq.ParquetFile(pa.BufferReader(_whole(path))) as file:
            table = file.read()
        metadata = json.loads(table.schema.metadata[_METADATA])
        if recipe is not None:
            _require_made(metadata, recipe, source)
        return _parse(table, metadata)
    except _BROKEN as error:
        raise _unreadable(path, error, "stored features") from error


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
        metadata = json.loads((pq.read_metadata(pa.BufferReader(_whole(path))).metadata or {})[_METADATA])
        _require_made(metadata, recipe, source)
        return dict(metadata["summary"])
    except _BROKEN:
        return None


def write_instances(path: Path, instances: Instances, recipe: Recipe, source: Source) -> None:
    """Write one graph's instances beside its rows, whole or not at all; raises `WorkspaceError`.

    Only the codes of the nodes grow with the configurations, one or two bytes each.
    """
    about = {"columns": instances.columns, "recipe": asdict(recipe), "source": asdict(source)}
    arrays: dict[str, Any] = {name: getattr(instances, name) for name in ARRAYS}
    # node by node: neighbouring entries are mostly equal, and half the size when compressed
    arrays["codes"] = np.ascontiguousarray(instances.codes.T)
    arrays[_ABOUT] = np.array(json.dumps(about))
    with atomic_write(path) as partial:
        with partial.open("wb") as stream:
            np.savez_compressed(stream, **arrays)
        with zipfile.ZipFile(partial, "a") as archive:
            archive.comment = _sealable({}).encode()
        _seal(partial)


def _instance_arrays(path: Path, recipe: Recipe, source: Source, names: Sequence[str]) -> dict[str, Any]:
    """The columns of stored instances and the arrays that are named; raises one of `_BROKEN`."""
    with np.load(io.BytesIO(_whole(path)), allow_pickle=False) as archive:
        about = json.loads(str(archive[_ABOUT]))
        _require_made(about, recipe, source)
        return {"columns": list(map(str, about["columns"])), **{name: archive[name] for name in names}}


def instances_current(path: Path, recipe: Recipe, source: Source) -> bool:
    """Whether the file in place is whole and was made from this source by this recipe."""
    try:
        return bool(_instance_arrays(path, recipe, source, ()))
    except _BROKEN:
        return False


def read_instances(path: Path, recipe: Recipe, source: Source) -> Instances:
    """Read one graph's instances; raises `FeatureStoreError` unless they are whole and of this making."""
    try:
        arrays = _instance_arrays(path, recipe, source, ARRAYS)
        return Instances(**{**arrays, "codes": np.ascontiguousarray(arrays["codes"].T)})
    except _BROKEN as error:
        raise _unreadable(path, error, "stored instances") from error


def write_manifest(workspace: Workspace, collection: Collection, split: str, manifest: Manifest) -> None:
    write_json(workspace.features(collection, split) / MANIFEST, asdict(manifest))


def read_manifest(workspace: Workspace, collection: Collection, split: str) -> Manifest | None:
    """The manifest of a split, or None where nothing was built; raises `FeatureStoreError` if broken."""
    path = workspace.features(collection, split) / MANIFEST
    if not path.exists():
        return None
    try:
        manifest = from_json(Manifest, json.loads(read_text(path)))
        manifest.recipe.settings()
        for name, about in manifest.graphs.items():
            from_json(_About, about, name)
        return manifest
    except _BROKEN as error:
        raise _unreadable(path, error, "a manifest") from error


def stored_collections(workspace: Workspace) -> list[Collection]:
    """Collections that have a manifest for at least one split."""
    root = workspace.root / "features"
    paths = [path for split in SPLITS for path in root.glob(f"*/**/{split}/{MANIFEST}")]
    return sorted({Collection(path.relative_to(root).parts[:-2]) for path in paths})


def stored_roots(workspace: Workspace) -> set[str]:
    """Data roots that the stored rows were made from."""
    built = [(collection, split) for collection in stored_collections(workspace) for split in SPLITS]
    manifests = [read_manifest(workspace, collection, split) for collection, split in built]
    return {manifest.data_root for manifest in manifests if manifest is not None}


def each_graph(
    workspace: Workspace, collection: Collection, split: str, manifest: Manifest | None = None
) -> Iterator[GraphRows]:
    """Yield the graphs of a split in the order of the manifest; none where nothing was built.

    ``manifest`` is that of the split, where it was read before. Raises `FeatureStoreError` for rows that are not as
    it describes: another `build-features` has written them, perhaps with other settings; and for rows of other
    feature code than that in place.
    """
    manifest = manifest or read_manifest(workspace, collection, split)
    if manifest is None:
        return
    if manifest.recipe.code_hash != manifest.recipe.settings().code_hash(collection.kind):
        raise FeatureStoreError(
            f"the {split} rows of {collection} were made by other feature code",
            expected="rows of the code in place",
            do=f"run build-features --data-root {manifest.data_root}",
        )
    for name, about in manifest.graphs.items():
        source = from_json(_About, about, name).source
        rows = read_rows(workspace.graph_rows(collection, split, name), manifest.recipe, source)
        if collection.kind == "layout" and source is not None:
            path = workspace.graph_instances(collection, split, name)
            rows = replace(rows, instances=LazyInstances(partial(read_instances, path, manifest.recipe, source)))
        yield rows
