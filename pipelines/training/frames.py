"""Stored rows as frames, and frames with any further columns as rows of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import polars as pl

from xlarank.data.collection import Collection, choose_splits
from xlarank.data.errors import CollectionError, FeatureStoreError, ModelError, did_you_mean
from xlarank.data.graph import Kind
from xlarank.data.workspace import DEFAULT_ROOT, Workspace, WorkspaceLike
from xlarank.features.rows import KEYS, GraphRows
from xlarank.features.store import StoredGraph, read_manifest, scan_rows
from xlarank.models.arrays import Indices
from xlarank.models.card import FAMILY, KERNEL_FAMILY
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.folds import Fold, FoldPlan
from xlarank.pipelines.support.workspaces import chosen_collections

if TYPE_CHECKING:
    import pandas as pd

Frame: TypeAlias = "pl.DataFrame | pd.DataFrame"
_FOLDS: Final = ("fold", "held_out")
_EXPECTED: Final = "rows as xlarank.load_rows returns them"


def load_rows(
    workspace: WorkspaceLike = DEFAULT_ROOT,
    collection: str | None = None,
    split: str | None = None,
    columns: Sequence[str] | None = None,
) -> pl.DataFrame:
    """Load the rows that ``build-features`` stored, one per distinct configuration.

    Columns are ``collection, graph, family, split, configuration, repeats, runtime_ns, label, fold,
    held_out`` and the features, all or those in ``columns``. ``label``, which rankers are trained
    on, is the runtime, for tiles divided by the default's runtime. ``configuration`` is
    the first of ``repeats`` identical ones. To compare with ``train``, score the graphs of ``fold``
    k by a ranker fitted on graphs whose ``held_out`` does not list k; ``fold`` and ``held_out`` are
    null for graphs not trained on. ``.to_pandas()`` converts to pandas.

    ``collection`` may be omitted if there is only one; without ``split``, all splits are loaded.
    Raises `xlarank.data.errors.CollectionError`, and `FeatureStoreError` for rows that another
    `build-features` is replacing or has replaced in part.

    Examples:
        >>> import tempfile, xlarank
        >>> work = tempfile.mkdtemp()
        >>> built = xlarank.build_features(xlarank.SAMPLE, work, collection="tile:cpu")
        >>> rows = xlarank.load_rows(work, "tile:cpu", "train", columns=["estimate__sum__log"])
        >>> rows.columns[-3:], rows["graph"].n_unique()
        (['fold', 'held_out', 'estimate__sum__log'], 30)
    """
    work = Workspace.of(workspace)
    chosen, *further = chosen_collections(work, collection or ())
    if further:
        names = ", ".join(map(str, (chosen, *further)))
        raise CollectionError("no collection was named", expected=names, do="pass collection=")
    frames = []
    features = list[str]()
    for name in choose_splits(split or ()):
        manifest = read_manifest(work, chosen, name)
        if manifest is None or not manifest.graphs:
            continue
        features = manifest.columns
        folds = _fold_table(manifest.graphs if name == "train" else {})
        stored = scan_rows(work, chosen, name, manifest)
        frames.append(stored.join(folds, on="graph", how="left", maintain_order="left"))
    if not frames:
        got = f"{chosen} has no rows of {split or 'any split'} in {work.root}"
        raise CollectionError(got, do="pass another split, or run build-features")
    for column in columns or ():
        if column not in features:
            got = f"{chosen} has no column {column!r}"
            raise FeatureStoreError(got, do=did_you_mean(column, features))
    selected = features if columns is None else columns
    return pl.concat(frames).select(*KEYS, "fold", "held_out", *selected).collect()


def is_frame(value: object) -> bool:
    """Return whether a value is a frame of polars or pandas."""
    return type(value).__name__ == "DataFrame" and hasattr(value, "columns")


def polars_frame(frame: Frame) -> pl.DataFrame:
    """Return a frame of polars or pandas as one of polars."""
    return frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(pl.from_pandas(frame))


def read_frame(frame: Frame) -> tuple[Collection, pl.DataFrame]:
    """Return the collection and the rows of a frame; raises `ModelError` if it cannot be used."""
    table = polars_frame(frame)
    for name in ("collection", "graph", "configuration", "runtime_ns", "label"):
        if name not in table.columns:
            raise ModelError(f"the frame has no column {name}", expected=_EXPECTED)
    collections = table["collection"].unique().to_list()
    if len(collections) != 1 or collections[0] is None:
        listed = ", ".join(map(str, collections)) or "no rows"
        raise ModelError(f"the frame is of {listed}", expected="rows of one collection")
    for name in _features(table):
        kind = table.schema[name]
        if not (kind.is_numeric() or kind == pl.Boolean):
            got = f"the column {name} of the frame is of type {kind}"
            raise ModelError(got, expected="numbers", do="drop or encode it")
    return Collection.parse(collections[0]), table


def _features(table: pl.DataFrame) -> list[str]:
    return [name for name in table.columns if name not in (*KEYS, *_FOLDS)]


def rows_by_graph(table: pl.DataFrame) -> Iterator[tuple[Indices, GraphRows]]:
    """Yield the positions in a frame, and the rows, of each graph; each is one configuration."""
    features = _features(table)
    for part in table.with_row_index("position").partition_by("graph", maintain_order=True):
        yield part["position"].to_numpy().astype(np.intp), _graph_rows(part, features)


def frame_folds(
    table: pl.DataFrame, data: TrainingData, kind: Kind
) -> tuple[TrainingData, FoldPlan]:
    """Return the graphs with a fold in a frame, and their folds; `FoldPlan.of` if none has."""
    if not {*_FOLDS} <= {*table.columns} or table["fold"].is_null().all():
        return data, FoldPlan.of(data)
    by_graph = table.unique("graph", maintain_order=True).drop_nulls("held_out")
    held_out = dict(by_graph.select("graph", "held_out").iter_rows())
    fold = pl.col("fold").cast(pl.Int32)  # a float in pandas
    fold_of = dict(by_graph.select("graph", fold).iter_rows())
    data = replace(data, parts=[part for part in data.parts if part.name in held_out])
    folds = []
    for number in sorted({*fold_of.values()} - {None}):
        scored = [group for group, name in enumerate(data.names) if fold_of[name] == number]
        held = [group for group, name in enumerate(data.names) if number in held_out[name]]
        folds.append(Fold(scored, held))
    by_family = kind == "layout" or folds == FoldPlan.by_family(data).folds
    return data, FoldPlan(FAMILY if by_family else KERNEL_FAMILY, folds)


def _graph_rows(part: pl.DataFrame, features: list[str]) -> GraphRows:
    """Return the rows of a graph; repeats of a configuration count once."""
    runtime = part["runtime_ns"].fill_null(0).cast(pl.Int64).to_numpy()
    label = part["label"].cast(pl.Float64).fill_null(1.0).to_numpy()
    normalizer = np.maximum(1, np.rint(runtime / label)).astype(np.int64)
    return GraphRows(
        part["graph"][0],
        features,
        np.empty(0, np.float32),
        part.select(pl.col(features).cast(pl.Float32)).to_numpy(),
        np.arange(len(part)),
        part["configuration"].cast(pl.Int64).to_numpy(),
        runtime,
        normalizer,
    )


def _fold_table(graphs: dict[str, StoredGraph]) -> pl.LazyFrame:
    """Return ``graph, fold, held_out`` of the graphs that can be trained on."""
    names = [name for name, graph in graphs.items() if graph.labelled and graph.rankable]
    plan = FoldPlan.of_graphs(names, [graphs[name].kernel_families for name in names])
    scored = {number: fold for fold, (members, _) in enumerate(plan.folds) for number in members}
    rows = []
    for graph, name in enumerate(names):
        held_out = [number for number, fold in enumerate(plan.folds) if graph in fold.held]
        rows.append((name, scored.get(graph), held_out))
    schema = pl.Schema({"graph": pl.String(), "fold": pl.Int32(), "held_out": pl.List(pl.Int32)})
    return pl.LazyFrame(rows, schema, orient="row")
