"""Functions for notebooks: rank a graph, load rows, cross-validate on them, submit scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from xlarank.data.collection import Collection, choose_splits
from xlarank.data.errors import CollectionError, FeatureStoreError, did_you_mean
from xlarank.data.graph import Graph, GraphLike
from xlarank.data.workspace import DEFAULT_ROOT, Workspace

if TYPE_CHECKING:  # slow; imported inside functions, so that reading a graph stays fast
    import pandas as pd
    import polars as pl

    from xlarank.features.store import Manifest
    from xlarank.graph_ranker import GraphRanker
    from xlarank.pipelines.rank import Ranking
    from xlarank.pipelines.submit import Submission
    from xlarank.pipelines.training.graphs import OutOfFold


def rank(
    graph: Graph | str | Path,
    workspace: str | Path = DEFAULT_ROOT,
    *,
    target: str | None = None,
    collection: str | None = None,
    model_from: str | None = None,
) -> Ranking:
    """Rank the configurations of a graph, or of an npz file.

    The hardware is ``target`` ("tpugraphs" for a file of the TpuGraphs dataset, or a chip:
    "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v6e", "cpu", "nvidia-h200"), or the hardware of
    ``collection``; else of the collection whose folder contains the file, else as the file says.

    If the workspace has a trained model of ``collection``, by default the folder's, the
    highest mean out of fold ranks: the model, or the ranker that needs no training. That is the
    estimated time, for tiles of TPUs trees that learned from estimates of the TPU's compiler.
    ``model_from`` decides otherwise: "trained", "shipped", a collection with a model or the folder
    of one.

    Raises `xlarank.data.errors.GraphFileError`, `ParameterError` if nothing names the hardware, and
    `ModelError` if there is no model.

    Examples:
        >>> import xlarank
        >>> from xlarank.data.collection import SAMPLE
        >>> kernel = SAMPLE / "npz" / "tile" / "cpu" / "valid" / "bmm_tb__a.npz"
        >>> xlarank.rank(kernel, workspace="nowhere").reason
        'estimated time of the loops on cpu'
    """
    from xlarank.pipelines.rank import rank as run

    return run(
        Workspace(Path(workspace)),
        graph,
        target=target,
        collection=collection,
        model_from=model_from,
    )


@overload
def load_rows(
    workspace: str | Path = DEFAULT_ROOT,
    collection: str | None = None,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    lazy: Literal[False] = False,
) -> pl.DataFrame: ...
@overload
def load_rows(
    workspace: str | Path = DEFAULT_ROOT,
    collection: str | None = None,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    lazy: Literal[True],
) -> pl.LazyFrame: ...
def load_rows(
    workspace: str | Path = DEFAULT_ROOT,
    collection: str | None = None,
    split: str | None = None,
    columns: Sequence[str] | None = None,
    *,
    lazy: bool = False,
) -> pl.DataFrame | pl.LazyFrame:
    """Load the rows that ``build-features`` stored, one per distinct configuration.

    Columns are ``collection, graph, family, split, configuration, repeats, runtime_ns, label, fold,
    held_out`` and the features, all or those in ``columns``. ``label``, which rankers are trained
    on, is the runtime, for tiles divided by the default's runtime. ``configuration`` is
    the first of ``repeats`` identical ones. To compare with ``train``, score the graphs of ``fold``
    k by a ranker fitted on graphs whose ``held_out`` does not list k; ``fold`` and ``held_out`` are
    null for graphs not trained on. ``.to_pandas()`` converts to pandas.

    ``collection`` may be omitted if there is only one; without ``split``, all splits are loaded.
    ``lazy`` returns a `LazyFrame` and does not check the values in the files. Raises
    `xlarank.data.errors.CollectionError`, and `FeatureStoreError` for rows that another
    `build-features` is replacing or has replaced in part.
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
            if split is not None:
                raise _missing_split(opened, chosen, split)
            continue
        if features and manifest.columns != features:
            got = f"the splits of {chosen} have different columns"
            raise FeatureStoreError(
                got, do="pass split=, or run build-features again for all of them"
            )
        features = manifest.columns
        folds = _fold_table(manifest if name == "train" else None)
        stored = scan_rows(opened, chosen, name, manifest, verified=not lazy)
        frames.append(stored.join(folds, on="graph", how="left", maintain_order="left"))
    if not frames:
        raise CollectionError(f"{chosen} has no graphs in {opened.root}", do="run build-features")
    for column in columns or ():
        if column not in features:
            got = f"{chosen} has no column {column!r}"
            raise FeatureStoreError(got, do=did_you_mean(column, features))
    selected = features if columns is None else columns
    rows = pl.concat(frames).select(*KEYS, "fold", "held_out", *selected)
    return rows if lazy else rows.collect()


def _missing_split(workspace: Workspace, collection: Collection, split: str) -> CollectionError:
    from xlarank.features.store import read_manifests

    manifests = read_manifests(workspace, collection)
    built = [name for name, manifest in manifests.items() if manifest.graphs]
    got = f"{collection} has no {split} split in {workspace.root}"
    do = f"pass another split, or build-features from a data root with {split} graphs"
    return CollectionError(got, expected=" or ".join(built), do=do)


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


def cross_validate(
    graphs: Iterable[GraphLike] | pl.DataFrame | pd.DataFrame, ranker: GraphRanker | None = None
) -> OutOfFold:
    """Score each graph by a ranker fitted without its family, at the best number of rounds.

    ``graphs`` are measured graphs, or a frame of one collection as `load_rows` returns it, with any
    further columns of numbers. The folds of a frame are those of `train`, its columns ``fold`` and
    ``held_out``; without them families are held out. ``ranker`` is not fitted itself; by default it
    is ``GraphRanker()``.

    Raises `xlarank.data.errors.ModelError` for rows that cannot be used.
    """
    from xlarank.graph_ranker import GraphRanker
    from xlarank.pipelines.training.graphs import TrainingRows

    ranker = GraphRanker() if ranker is None else ranker
    rows = TrainingRows.of(graphs, ranker.target, folds=True)
    return rows.cross_validate(ranker.ranker, ranker.params, ranker.settings)


def submit(
    out: str | Path = "submission.csv",
    workspace: str | Path = DEFAULT_ROOT,
    *,
    collections: Sequence[str] = (),
    model_from: str | None = None,
    scores: pl.DataFrame | pd.DataFrame | str | Path | None = None,
) -> Submission:
    """Write a Kaggle submission of the test graphs of a workspace.

    ``scores`` is a frame or a file with the columns ``graph``, ``configuration`` and ``score``,
    lower is faster, and optionally ``collection`` and ``split``, for any of the graphs; the others
    are ranked as by the command ``submit``.

    Raises `xlarank.data.errors.CollectionError` if there is nothing to rank, `SubmissionError` for
    scores that do not fit, and `ModelError` if ``model_from`` has no model.
    """
    from xlarank.pipelines.submit import submit as run
    from xlarank.pipelines.support.score_files import Scores

    source = Path(scores) if isinstance(scores, str) else scores
    return run(
        Workspace(Path(workspace)),
        Path(out),
        collections=collections,
        model_from=model_from,
        scores=None if source is None else Scores.read([source], "test"),
    )
