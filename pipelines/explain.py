"""Explanation of the difference between the scores of two configurations of a graph."""

from __future__ import annotations

from pathlib import Path

from xlarank.data.graph import GraphLike, as_graph
from xlarank.data.workspace import Workspace
from xlarank.pipelines.ranking.model_choice import ModelFrom, choose_for_graph
from xlarank.pipelines.ranking.score_difference import Explanation, explain_graph


def explain(
    workspace: Workspace,
    graph: GraphLike,
    *,
    config: int | None = None,
    against: str | int | None = None,
    target: str | None = None,
    collection: str | None = None,
    model_from: ModelFrom | None = None,
) -> Explanation:
    """Explain a graph or an npz file by `explain_graph`, with the model that
    `xlarank.pipelines.rank.rank` would choose.

    Raises `GraphFileError` for the file, `ModelError` for the model and `XlarankError` for a
    configuration that the file does not have.
    """
    path = Path(graph) if isinstance(graph, str | Path) else None
    graph = as_graph(graph)
    choice, hardware = choose_for_graph(
        workspace, graph, path, target=target, collection=collection, model_from=model_from
    )
    return explain_graph(graph, choice.model, hardware, config=config, against=against)
