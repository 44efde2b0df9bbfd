"""Stored rows of a collection, as a frame."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from xlarank.data.collection import choose_splits
from xlarank.data.errors import CollectionError, FeatureStoreError, did_you_mean
from xlarank.data.workspace import DEFAULT_ROOT, Workspace

if TYPE_CHECKING:  # slow; imported inside functions, so that reading a graph stays fast
    import polars as pl

    from xlarank.features.store import Manifest


def load_rows(
    workspace: str | Path = DEFAULT_ROOT,
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
    import polars as pl

    from xlarank.features.rows import KEYS
    from xlarank.features.store import read_manifest, scan_rows
    from xlarank.pipelines.support.workspaces import chosen_collections

    opened = Workspace(Path(workspace))
    chosen, *further = chosen_collections(opened, [] if collection is None else [collection])
    if further:
        names = ", ".join(map(str, (chosen, *further)))
        raise CollectionError("no collection was named", expected=names, do="pass collection=")
    frames = []
    features = list[str]()
    for name in choose_splits([] if split is None else [split]):
        manifest = read_manifest(opened, chosen, name)
        if manifest is None or not manifest.graphs:
            continue
        features = manifest.columns
        folds = _fold_table(manifest if name == "train" else None)
        stored = scan_rows(opened, chosen, name, manifest)
        frames.append(stored.join(folds, on="graph", how="left", maintain_order="left"))
    if not frames:
        got = f"{chosen} has no rows of {split or 'any split'} in {opened.root}"
        raise CollectionError(got, do="pass another split, or run build-features")
    for column in columns or ():
        if column not in features:
            got = f"{chosen} has no column {column!r}"
            raise FeatureStoreError(got, do=did_you_mean(column, features))
    selected = features if columns is None else columns
    return pl.concat(frames).select(*KEYS, "fold", "held_out", *selected).collect()


def _fold_table(manifest: Manifest | None) -> pl.LazyFrame:
    """Return ``graph, fold, held_out`` of the graphs of a train split that can be trained on."""
    import polars as pl

    from xlarank.models.validation.folds import FoldPlan

    entries = {} if manifest is None else manifest.graphs
    names = [name for name, graph in entries.items() if graph.labelled and graph.rankable]
    plan = FoldPlan.of_graphs(names, [entries[name].kinds for name in names])
    scored = {number: fold for fold, (members, _) in enumerate(plan.folds) for number in members}
    rows = []
    for graph, name in enumerate(names):
        held_out = [number for number, fold in enumerate(plan.folds) if graph in fold.held]
        rows.append((name, scored.get(graph), held_out))
    schema = pl.Schema({"graph": pl.String(), "fold": pl.Int32(), "held_out": pl.List(pl.Int32)})
    return pl.LazyFrame(rows, schema, orient="row")
