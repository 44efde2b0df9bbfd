"""Rank the configurations of one graph: its model, its rows, their scores, the order."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from xlarank.data.errors import GraphFileError, XlarankError
from xlarank.data.graph import Graph, read_graph
from xlarank.data.workspace import Workspace
from xlarank.models.trained import TrainedModel
from xlarank.models.validation.metrics import judge, order_of
from xlarank.models.validation.speedup import compiler_cost, speedups
from xlarank.pipelines.ranking.one_graph import model_for_graph, rows_for_model
from xlarank.pipelines.ranking.result import Ranking
from xlarank.pipelines.ranking.trust import Trust
from xlarank.pipelines.support.progress import Progress, Silent

if TYPE_CHECKING:
    from xlarank.pipelines.reporting.explanations import Explanation


def rank(
    workspace: Workspace, graph: Path | Graph, *, collection: str | None = None, model: TrainedModel | None = None
) -> Ranking:
    """Rank every configuration of a graph or of an npz file, with ``model`` or a model of the workspace.

    Without ``collection`` the model is the one of the collection whose folder the file lies in, or the only
    one of its kind. Raises `GraphFileError` for the file and `ModelError` where the model is missing or not clear.
    """
    path = graph if isinstance(graph, Path) else None
    graph = read_graph(graph) if isinstance(graph, Path) else graph
    model = model or model_for_graph(workspace, graph, path, collection=collection)
    rows = rows_for_model(graph, model)
    scored = model.score(rows)
    scores = scored.mean[rows.group]
    judged = rows.labelled and rows.rankable
    compiler = compiler_cost(model.card.kind, rows) if rows.labelled else None
    return Ranking(
        graph=graph.name,
        collection=model.card.collection,
        order=order_of(scores),
        scores=scores,
        same_as=graph.duplicates.first[graph.duplicates.group],
        runtime=graph.runtime,
        metrics=judge(model.card.kind, scores, graph.cost, rows.group) if judged else None,
        # what was calibrated are scores of the model alone
        trust=Trust.of(model.calibration, scored.per_seed, rows.group)
        if model.calibration and not scored.fallback
        else None,
        fallback=scored.fallback,
        shipped=model.shipped,
        speedup=None if compiler is None else np.where(np.isfinite(rows.cost), compiler / rows.cost, np.nan),
        speedups=None if compiler is None else speedups(scores, rows.cost, compiler, rows.group),
        explainer=partial(_explain, graph, model),
    )


def rank_folder(
    workspace: Workspace, folder: Path, *, collection: str | None = None, progress: Progress | None = None
) -> tuple[dict[str, Ranking], dict[str, str]]:
    """`rank` for every npz file below a folder: name below the folder -> ranking, and -> why there is none.

    Raises `GraphFileError` for a folder without npz files.
    """
    progress = progress or Silent()
    files = sorted(path for path in folder.rglob("*.npz") if not path.name.startswith("."))
    if not files:
        raise GraphFileError(f"{folder} holds no npz files", expected="graphs in TpuGraphs format")
    rankings: dict[str, Ranking] = {}
    broken: dict[str, str] = {}
    progress.begin("ranking graphs", len(files))
    for path in files:
        name = path.relative_to(folder).as_posix().removesuffix(".npz")
        try:
            rankings[name] = rank(workspace, path, collection=collection)
        except XlarankError as error:
            broken[name] = str(error)
        progress.step(name)
    progress.end()
    return rankings, broken


def _explain(graph: Graph, model: TrainedModel, *, config: int | None, against: str | int | None) -> Explanation:
    from xlarank.pipelines.reporting.explanations import explain_graph  # networkx, which ranking does without

    return explain_graph(graph, model, config=config, against=against)
