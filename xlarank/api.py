"""Functions for notebooks: read a graph, rank its configurations, load stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from xlarank.data import graph as graphs
from xlarank.data.graph import Graph, Kind, LayoutGraph, TileGraph
from xlarank.data.workspace import DEFAULT_ROOT, Workspace

if TYPE_CHECKING:
    import polars as pl

    from xlarank.pipelines.rank import Ranking


def read_graph(path: str | Path, kind: Kind | None = None) -> LayoutGraph | TileGraph:
    """Read and check an npz file in TpuGraphs format.

    ``kind``, if given ("layout" or "tile"), rejects files of the other kind. Raises
    `xlarank.data.errors.GraphFileError` for invalid files.

    Examples:
        >>> import xlarank
        >>> from xlarank.data.collection import SAMPLE
        >>> graph = xlarank.read_graph(SAMPLE / "npz" / "tile" / "cpu" / "valid" / "bmm_tb__a.npz")
        >>> graph.name, graph.nodes, graph.configs, int(graph.runtime.min())
        ('bmm_tb__a', 3, 64, 566255)
    """
    return graphs.read_graph(Path(path), kind)


def rank(
    graph: Graph | str | Path,
    workspace: str | Path = DEFAULT_ROOT,
    *,
    collection: str | None = None,
    blocks: Sequence[str | Path] = (),
) -> Ranking:
    """Rank the configurations of a graph, or of an npz file, with a trained model of the workspace.

    The model is that of ``collection``, else of the collection whose folder contains the file, else the only one
    of the graph's kind. Without a model, layouts are ranked by the shipped TPU time model, and TPU tiles by the
    shipped ranker, trained on estimates of the TPU's compiler. ``blocks`` are the files of custom columns that the
    model was built with; their code is executed.

    Raises `xlarank.data.errors.GraphFileError`, `WorkspaceError` for a workspace that does not exist, and
    `ModelError` if there is no model or more than one.

    Examples:
        >>> import xlarank
        >>> from xlarank.data.collection import SAMPLE
        >>> xlarank.rank(SAMPLE / "npz" / "tile" / "cpu" / "valid" / "bmm_tb__a.npz", workspace="nowhere")
        Traceback (most recent call last):
        xlarank.data.errors.WorkspaceError: the workspace nowhere does not exist; check the path, or run train first
    """
    from xlarank.features.catalogue import load_blocks
    from xlarank.pipelines.rank import rank as run

    load_blocks(*blocks)
    return run(Workspace(Path(workspace)), Path(graph) if isinstance(graph, str) else graph, collection=collection)


@overload
def load_rows(
    workspace: str | Path = DEFAULT_ROOT, collection: str | None = None, split: str | None = None,
    columns: Sequence[str] | None = None, *, lazy: Literal[False] = False,
) -> pl.DataFrame: ...  # fmt: skip
@overload
def load_rows(
    workspace: str | Path = DEFAULT_ROOT, collection: str | None = None, split: str | None = None,
    columns: Sequence[str] | None = None, *, lazy: Literal[True],
) -> pl.LazyFrame: ...  # fmt: skip
def load_rows(
    workspace: str | Path = DEFAULT_ROOT, collection: str | None = None, split: str | None = None,
    columns: Sequence[str] | None = None, *, lazy: bool = False,
) -> pl.DataFrame | pl.LazyFrame:  # fmt: skip
    """Load the rows that ``build-features`` stored, one per distinct configuration.

    Columns are ``collection, graph, family, split, configuration, repeats, runtime_ns, label, fold, held_out`` and
    the features, all or those in ``columns``. ``label`` is the training target, lower is faster: the runtime, for
    tiles divided by that of the compiler's default. ``configuration`` is the first of ``repeats`` identical ones.
    To compare with ``train``, score the graphs of ``fold`` k by a ranker fitted on graphs whose ``held_out`` does
    not list k. ``.to_pandas()`` converts to pandas.

    ``collection`` may be omitted if there is only one; without ``split``, all splits are loaded. ``lazy`` returns a
    `LazyFrame` and does not check the files for damage. Raises `xlarank.data.errors.CollectionError` and
    `FeatureStoreError`.
    """
    from xlarank.pipelines.load_rows import load_rows as run

    frame = run(Workspace(Path(workspace)), collection, split=split, columns=columns, verified=not lazy)
    return frame if lazy else frame.collect()
