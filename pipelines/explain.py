"""Explanation of the difference between the scores of two configurations of a graph."""

from __future__ import annotations

from pathlib import Path

from xlarank.data.graph import read_graph
from xlarank.data.hlo.reading import node_names
from xlarank.data.workspace import Workspace
from xlarank.pipelines.ranking.model_choice import model_for_graph
from xlarank.pipelines.ranking.score_difference import Explanation, explain_graph
from xlarank.pipelines.reporting.charts import segment_picture, write_picture


def explain(
    workspace: Workspace,
    path: Path,
    *,
    config: int | None = None,
    against: str | int | None = None,
    collection: str | None = None,
    model_from: str | None = None,
    svg: Path | None = None,
    module: Path | None = None,
) -> Explanation:
    """Explain an npz file by `explain_graph`, with the model that `xlarank.pipelines.rank.rank`
    would choose.

    The largest segment is drawn into ``svg``. The HLO ``module`` of the graph gives names to its
    nodes. Raises `GraphFileError` for the file, `HloError` for the module, `ModelError` for the
    model and `XlarankError` for a configuration that the file does not have, or if there is no
    segment to draw.
    """
    graph = read_graph(path)
    model = model_for_graph(workspace, graph, path, collection=collection, model_from=model_from)
    names = () if module is None else node_names(module, graph)
    explanation = explain_graph(graph, model, config=config, against=against, names=names)
    if svg is not None:
        write_picture(svg, segment_picture(graph, explanation))
    return explanation
