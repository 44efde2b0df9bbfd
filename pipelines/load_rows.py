"""Stored rows as a polars frame, with the folds of `train`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from xlarank.data.collection import choose_splits
from xlarank.data.errors import CollectionError, FeatureStoreError, did_you_mean
from xlarank.data.workspace import Workspace
from xlarank.features.rows import KEYS
from xlarank.features.store import Manifest, read_manifest, scan_rows
from xlarank.models.validation.folds import FoldPlan
from xlarank.pipelines.support.workspaces import chosen_collections

#: Columns of folds, after the keys.
FOLDS: Final = ("fold", "held_out")


def load_rows(
    workspace: Workspace, collection: str | None = None, *, split: str | None = None,
    columns: Sequence[str] | None = None, verified: bool = True,
) -> pl.LazyFrame:  # fmt: skip
    """Return the rows of a collection: `KEYS`, `FOLDS` and the features, or those named by ``columns``.

    ``fold`` numbers the fold of `train` that scores a training graph, and ``held_out`` lists those that are trained
    without it: kernels that may be of several kinds are held out more than once. Both are null outside the train
    split and for graphs that are not trained on. ``verified`` reads and checks all files now.

    Raises `CollectionError` for a collection or split that was not built, and `FeatureStoreError` for files that
    are not whole, splits of different columns and unknown ``columns``.
    """
    known = chosen_collections(workspace, [] if collection is None else [collection])
    if len(known) > 1:
        names = ", ".join(map(str, known))
        raise CollectionError("no collection was named", expected=names, do="pass collection=")
    place, frames, features = known[0], [], list[str]()
    for name in choose_splits([] if split is None else [split]):
        manifest = read_manifest(workspace, place, name)
        if manifest is None or not manifest.graphs:
            if split is not None:
                raise CollectionError(f"{place} has no {split} split in {workspace.root}", do="run build-features")
            continue
        if features and manifest.columns != features:
            got = f"the splits of {place} have different columns"
            raise FeatureStoreError(got, do="pass split=, or run build-features again for all of them")
        features = manifest.columns
        rows = scan_rows(workspace, place, name, manifest, verified=verified)
        folds = _fold_table(manifest if name == "train" else None)
        frames.append(rows.join(folds, on="graph", how="left", maintain_order="left"))
    if not frames:
        raise CollectionError(f"{place} has no graphs in {workspace.root}", do="run build-features")
    for column in columns or ():
        if column not in features:
            raise FeatureStoreError(f"{place} has no column {column!r}", do=did_you_mean(column, features))
    return pl.concat(frames).select(*KEYS, *FOLDS, *(features if columns is None else columns))


def _fold_table(manifest: Manifest | None) -> pl.LazyFrame:
    """Return ``graph, fold, held_out`` of the graphs of a train split that can be trained on."""
    entries = {} if manifest is None else manifest.graphs
    names = [name for name, graph in entries.items() if graph.labelled and graph.rankable]
    plan = FoldPlan.of_graphs(names, [entries[name].kinds for name in names])
    scored = {number: fold for fold, (members, _) in enumerate(plan.folds) for number in members}
    held_out = [[fold for fold, held in enumerate(plan.held) if number in held] for number in range(len(names))]
    folds = [scored.get(number) for number in range(len(names))]
    types: list[pl.DataType | type[pl.DataType]] = [pl.String, pl.Int32, pl.List(pl.Int32)]
    return pl.LazyFrame([names, folds, held_out], dict(zip(("graph", *FOLDS), types, strict=True)))
