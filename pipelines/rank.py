"""Rank the configurations of one graph, or of every graph in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from xlarank.data.errors import ArgumentError, GraphFileError, XlarankError
from xlarank.data.graph import Graph, LayoutGraph, TileGraph, read_graph
from xlarank.data.workspace import Workspace
from xlarank.models.trained import TrainedModel
from xlarank.pipelines.ranking.model_choice import model_for_graph, rows_for_model
from xlarank.pipelines.ranking.result import Ranking
from xlarank.pipelines.support.progress import Progress, steps_of


def rank(
    workspace: Workspace, graph: Path | Graph, *, collection: str | None = None, model: TrainedModel | None = None
) -> Ranking:
    """Rank every configuration of a graph or of an npz file, with ``model`` or a model of the workspace.

    Without ``collection`` the model is chosen by the rule of `model_for_collection`. Raises `GraphFileError` for
    the file, `WorkspaceError` for a workspace that does not exist, `ModelError` if the model is missing or not
    clear, and `ArgumentError` for what is no graph.
    """
    if not isinstance(graph, Path | LayoutGraph | TileGraph):
        raise ArgumentError(f"{graph!r:.60} is no graph", expected="a LayoutGraph, a TileGraph or a path")
    path = graph if isinstance(graph, Path) else None
    graph = read_graph(graph) if isinstance(graph, Path) else graph
    model = model or model_for_graph(workspace, graph, path, collection=collection)
    return Ranking.of(graph, rows_for_model(graph, model), model)


def rank_folder(
    workspace: Workspace, folder: Path, *, collection: str | None = None, progress: Progress | None = None
) -> tuple[dict[str, Ranking], dict[str, str]]:
    """Rank every npz file below a folder; return the rankings and the reasons for missing ones, by name.

    Hidden files and folders and virtual environments are left out. Raises `GraphFileError` for a folder without npz
    files.
    """
    files = _graph_files(folder)
    if not files:
        raise GraphFileError(f"{folder} holds no npz files", expected="graphs in TpuGraphs format")
    rankings: dict[str, Ranking] = {}
    broken: dict[str, str] = {}
    with steps_of(progress, "ranking graphs", len(files)) as step:
        for path in files:
            name = path.relative_to(folder).as_posix().removesuffix(".npz")
            try:
                rankings[name] = rank(workspace, path, collection=collection)
            except XlarankError as error:
                broken[name] = str(error)
            step(name)
    return rankings, broken


def _graph_files(folder: Path) -> list[Path]:
    paths = []
    for place, folders, files in os.walk(folder):
        folders[:] = [x for x in folders if x[0] != "." and not Path(place, x, "pyvenv.cfg").exists()]
        paths += [Path(place, name) for name in files if name.endswith(".npz") and not name.startswith(".")]
    return sorted(paths)
