"""Functions for notebooks: read a graph, look at its columns, rank its configurations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xlarank.data import graph as graphs
from xlarank.data.graph import Graph, Kind, LayoutGraph, TileGraph
from xlarank.data.workspace import DEFAULT_ROOT, Workspace

if TYPE_CHECKING:
    from xlarank.pipelines.ranking.result import Ranking


def read_graph(path: str | Path, kind: Kind | None = None) -> LayoutGraph | TileGraph:
    """Read and check an npz file in TpuGraphs format.

    ``kind`` is the kind that it must be of, "layout" or "tile"; without it the arrays in the file decide.
    Raises `xlarank.data.errors.GraphFileError` naming the file for anything outside the format.

    >>> import xlarank
    >>> from xlarank.data.root import SAMPLE
    >>> graph = xlarank.read_graph(SAMPLE / "npz" / "tile" / "cpu" / "valid" / "bmm_tb__a.npz")
    >>> graph.name, graph.nodes, graph.configs, int(graph.runtime.min())
    ('bmm_tb__a', 3, 64, 566255)
    """
    return graphs.read_graph(Path(path), kind)


def rank(
    graph: Graph | str | Path, workspace: str | Path = DEFAULT_ROOT, *, collection: str | None = None
) -> Ranking:
    """Rank the configurations of a graph, or of an npz file, with a trained model of the workspace.

    Without ``collection`` the model is the one of the collection whose folder the file lies in, or the only one of
    the graph's kind; a workspace without any for layouts falls back on the ranker that comes with xlarank, which
    learned from estimates of the TPU's compiler alone.

    Raises `xlarank.data.errors.GraphFileError` for the file, `xlarank.data.errors.WorkspaceError` for a workspace
    that does not exist, and `xlarank.data.errors.ModelError` where the model is missing or not clear.

    >>> import xlarank
    >>> from xlarank.data.root import SAMPLE
    >>> xlarank.rank(SAMPLE / "npz" / "tile" / "cpu" / "valid" / "bmm_tb__a.npz", workspace="nowhere")
    Traceback (most recent call last):
    xlarank.data.errors.WorkspaceError: the workspace nowhere does not exist; check the path, or run train first
    """
    from xlarank.pipelines.rank import rank as run

    return run(Workspace(Path(workspace)), Path(graph) if isinstance(graph, str) else graph, collection=collection)
