"""Stored features: one parquet file per graph, one manifest per collection and split.

A row is a *distinct* configuration. Its column ``configurations`` lists the ids of all configurations that
are identical to it, ``runtime_ns`` (and, for tiles, ``normalizer_ns``) what each of them measured; the
other columns are the features, float32. Columns that are constant within the graph stand once, in the
file's metadata. With polars: ``pl.read_parquet(path).explode("configurations", "runtime_ns")``.
"""

from __future__ import annotations

import json
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
from xlarank.data.files import whole_file, write_json
from xlarank.data.graph import Graph, TileGraph
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import FeatureSettings, GraphFeatures
from xlarank.features.block import Tier
from xlarank.features.instances.instances import Instances, LazyInstances
from xlarank.features.instances.store import read_instances

_METADATA: Final = b"xlarank"
_BOOKKEEPING: Final = ("configurations", "runtime_ns", "normalizer_ns")
MANIFEST: Final = "manifest.json"


@dataclass(frozen=True)
class Source:
    """Identity of the npz file that rows were made from."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> Source:
        stat = path.stat()
        return cls(stat.st_size, stat.st_mtime_ns)


@dataclass(frozen=True)
class Recipe:
    """Everything besides the file that decides what is stored; a difference means: build again.

    Attributes:
        code_hash: `FeatureSettings.code_hash` of the kind.
        tier, candidates: the settings behind it.
        max_configs: rows kept per graph, 0 for all.
        seed: of the sample that ``max_configs`` draws.
        sampling: how it is drawn.
    """

    code_hash: str
    tier: str
    candidates: bool
    max_configs: int
    seed: int
    sampling: str = "random"

    def settings(self) -> FeatureSettings:
        return FeatureSettings(Tier(self.tier), self.candidates)


@dataclass(frozen=True, eq=False)
class GraphRows:
    """Features and labels of one graph as stored.

    Attributes:
        name: the graph's name.
        columns: graph columns, then configuration columns.
        graph_values: ``(graph columns,)`` float32, constant within the graph.
        rows: ``(distinct, configuration columns)`` float32.
        group: ``(configs,)`` int64; the row of each stored configuration.
        ids: ``(configs,)`` int64; its index in the npz file.
        runtime: ``(configs,)`` int64 nanoseconds; 0 where withheld.
        normalizer: ``(configs,)`` int64; 1 for layouts.
        instances: what the rows are made of, read when first asked for; None for tiles.
    """

    name: str
    columns: list[str]
    graph_values: NDArray[np.float32]
    rows: NDArray[np.float32]
    group: NDArray[np.int64]
    ids: NDArray[np.int64]
    runtime: NDArray[np.int64]
    normalizer: NDArray[np.int64]
    instances: LazyInstances | None = None

    @property
    def labelled(self) -> bool:
        return bool((self.runtime > 0).all())

    @property
    def cost(self) -> NDArray[np.float64]:
        """``(configs,)`` runtime over normalizer; lower is faster."""
        return self.runtime / self.normalizer

    @property
    def row_cost(self) -> NDArray[np.float64]:
        """``(distinct,)`` the smallest cost of the configurations behind each row."""
        cost = np.full(len(self.rows), np.inf)
        np.minimum.at(cost, self.group, self.cost)
        return cost

    @property
    def rankable(self) -> bool:
        """Whether there is an order to find: two distinct configurations of different cost."""
        return len(self.rows) > 1 and (not self.labelled or bool(np.ptp(self.row_cost) > 0))

    def summary(self) -> dict[str, Any]:
        """Counts for the manifest."""
        return {
            "configs": len(self.ids),
            "rows": len(self.rows),
            "labelled": self.labelled,
            "rankable": self.rankable,
        }

    def matrix(self) -> NDArray[np.float32]:
        """``(distinct, columns)`` float32."""
        out = np.empty((len(self.rows), len(self.columns)), np.float32)
        constants = len(self.graph_values)
        out[:, :constants] = self.graph_values
        out[:, constants:] = self.rows
        return out

    def take(self, keep: NDArray[np.integer]) -> GraphRows:
        """Some of the distinct configurations (sorted row numbers), with all that are identical to them."""
        place = np.full(len(self.rows), -1)
        place[keep] = np.arange(len(keep))
        there = place[self.group] >= 0
        return replace(
            self,
            rows=self.rows[keep],
            group=place[self.group[there]],
            ids=self.ids[there],
            runtime=self.runtime[there],
            normalizer=self.normalizer[there],
            instances=_some_of(self.instances, keep) if self.instances else None,
        )


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


def rows_from_graph(graph: Graph, features: GraphFeatures, keep: NDArray[np.int64] | None = None) -> GraphRows:
    """Join features with labels; ``keep`` names the distinct configurations (sorted) to hold on to."""
    rows = GraphRows(
        name=graph.name,
        columns=[*features.graph_columns, *features.config_columns],
        graph_values=np.array(list(features.graph_columns.values()), np.float32),
        rows=features.rows,
        group=graph.duplicates.group,
        ids=np.arange(graph.configs),
        runtime=graph.runtime,
        normalizer=graph.normalizers if isinstance(graph, TileGraph) else np.ones(graph.configs, np.int64),
        instances=features.instances,
    )
    return rows if keep is None else rows.take(keep)


def _some_of(instances: LazyInstances, keep: NDArray[np.integer]) -> LazyInstances:
    return LazyInstances(lambda: instances.value.take(keep))


def write_rows(path: Path, rows: GraphRows, recipe: Recipe, source: Source) -> None:
    """Write one graph's parquet file, whole or not at all."""
    order = np.argsort(rows.group, kind="stable")
    offsets = np.zeros(len(rows.rows) + 1, np.int32)
    np.cumsum(np.bincount(rows.group, minlength=len(rows.rows)), out=offsets[1:])

    def lists(values: NDArray[Any]) -> pa.ListArray:
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[order]))

    columns: dict[str, pa.Array] = {
        "configurations": lists(rows.ids.astype(np.int32)),
        "runtime_ns": lists(rows.runtime),
        "normalizer_ns": lists(rows.normalizer),
    }
    constants = len(rows.graph_values)
    for number, name in enumerate(rows.columns[constants:]):
        columns[name] = pa.array(rows.rows[:, number])
    metadata = {
        "name": rows.name,
        "recipe": asdict(recipe),
        "source": asdict(source),
        "summary": rows.summary(),
        "graph_columns": dict(zip(rows.columns[:constants], map(float, rows.graph_values), strict=True)),
    }
    table = pa.table(columns).replace_schema_metadata({_METADATA: json.dumps(metadata)})
    with whole_file(path) as partial:
        pq.write_table(table, partial, compression="zstd", use_dictionary=False, write_statistics=False)


def read_rows(path: Path) -> GraphRows:
    """Read one graph's parquet file; raises `FeatureStoreError`."""
    try:
        with pq.ParquetFile(path) as file:  # half the time of pq.read_table, which counts with thousands of files
            return _parse(file.read())
    except (OSError, pa.ArrowException, AttributeError, KeyError, TypeError, ValueError) as error:
        raise FeatureStoreError(
            f"{path} cannot be read ({error})", expected="stored features", do="run build-features again"
        ) from error


def _parse(table: pa.Table) -> GraphRows:
    metadata = json.loads(table.schema.metadata[_METADATA])
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
        rows=rows,
        group=np.repeat(np.arange(len(sizes)), sizes)[order],
        ids=flat["configurations"][order].astype(np.int64),
        runtime=flat["runtime_ns"][order],
        normalizer=flat["normalizer_ns"][order],
    )


def current_summary(path: Path, recipe: Recipe, source: Source) -> dict[str, Any] | None:
    """`GraphRows.summary` of the file in place if it is whole, from this source and by this recipe; else None."""
    if not path.exists():
        return None
    try:
        metadata = json.loads((pq.read_metadata(path).metadata or {})[_METADATA])
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
        value = json.loads(path.read_text(encoding="utf-8"))
        return Manifest(**{**value, "recipe": Recipe(**value["recipe"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FeatureStoreError(
            f"{path} cannot be read ({error})", expected="a manifest", do="run build-features again"
        ) from error


def stored_collections(workspace: Workspace) -> list[Collection]:
    """Collections that have a manifest for at least one split."""
    root = workspace.root / "features"
    found = {
        Collection(path.relative_to(root).parts[:-2])
        for split in SPLITS
        for path in root.glob(f"*/**/{split}/{MANIFEST}")
    }
    return sorted(found)


def stored_roots(workspace: Workspace) -> set[str]:
    """Data roots that the stored rows were made from."""
    found = set()
    for collection in stored_collections(workspace):
        for split in SPLITS:
            manifest = read_manifest(workspace, collection, split)
            if manifest is not None:
                found.add(manifest.data_root)
    return found


def load_split(workspace: Workspace, collection: Collection, split: str) -> list[GraphRows]:
    """All graphs of a split in the order of the manifest; empty where nothing was built."""
    return list(each_graph(workspace, collection, split))


def each_graph(workspace: Workspace, collection: Collection, split: str) -> Iterator[GraphRows]:
    """The same one by one: the stored rows of a split need not fit into memory together."""
    manifest = read_manifest(workspace, collection, split)
    if manifest is None:
        return
    for name, about in manifest.graphs.items():
        rows = read_rows(workspace.graph_rows(collection, split, name))
        if collection.kind == "layout":
            path = workspace.graph_instances(collection, split, name)
            rows = replace(rows, instances=LazyInstances(partial(_instances_beside, path, manifest.recipe, about)))
        yield rows


def _instances_beside(path: Path, recipe: Recipe, about: dict[str, Any]) -> Instances:
    return read_instances(path, recipe, Source(**about["source"]))
