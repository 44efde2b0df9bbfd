"""Rank the configurations of one graph file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import Collection, choose
from xlarank.data.errors import ModelError
from xlarank.data.graph import Graph, Kind, LayoutGraph, read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.store import Manifest
from xlarank.models.trained import TrainedModel, load_model
from xlarank.models.validation.metrics import judge, order_of
from xlarank.pipelines.support.workspace_collections import trained_collections


@dataclass(frozen=True)
class Ranking:
    """An order of configurations.

    Attributes:
        graph, collection: what was ranked, by the model of which collection.
        order: ``(configs,)`` configuration ids, fastest first.
        score: ``(configs,)`` by configuration id; lower is faster; only comparable within the graph.
        same_as: ``(configs,)`` lowest id of an identical configuration.
        metrics: how good it is, where the file holds runtimes.
        runtime: ``(configs,)`` measured nanoseconds, 0 where not measured.
    """

    graph: str
    collection: str
    order: NDArray[np.intp]
    score: NDArray[np.float64]
    same_as: NDArray[np.int64]
    runtime: NDArray[np.int64]
    metrics: dict[str, float] | None

    def best(self, top: int | None = None) -> list[dict[str, Any]]:
        """The first ``top`` distinct configurations (all by default), each with its identical ones."""
        twins: dict[int, list[int]] = {}
        for config in self.order:
            twins.setdefault(int(self.same_as[config]), []).append(int(config))
        return [
            {
                "rank": place + 1,
                "configuration": members[0],
                "score": float(self.score[members[0]]),
                "runtime_ns": min((int(time) for time in self.runtime[members] if time > 0), default=None),
                "identical": members[1:],
            }
            for place, members in enumerate(list(twins.values())[:top])
        ]

    def as_json(self, top: int | None = None) -> dict[str, Any]:
        """Everything as plain values: the whole order, and the best with what is known of them."""
        return {
            "graph": self.graph,
            "collection": self.collection,
            "order": self.order.tolist(),
            "best": self.best(top),
            "metrics": self.metrics,
        }


def rank(
    workspace: Workspace, path: Path, *, collection: str | None = None, model: TrainedModel | None = None
) -> Ranking:
    """Rank every configuration of an npz file, with ``model`` or a model of the workspace.

    Without ``collection`` the model is the one of the collection whose folder the file lies in, or the only
    one of its kind. Raises `GraphFileError` for the file and `ModelError` where the model is missing or not clear.
    """
    graph = read_graph(path)
    kind: Kind = "layout" if isinstance(graph, LayoutGraph) else "tile"
    if model is None:
        model = load_model(workspace.model(_choose_model(workspace, path, kind, collection)))
    if model.card.kind != kind:
        raise ModelError(
            f"{path.name} is a {kind} graph", expected=f"a {model.card.kind} graph for {model.card.collection}"
        )
    return rank_graph(graph, kind, model)


def rank_graph(graph: Graph, kind: Kind, model: TrainedModel) -> Ranking:
    """Rank every configuration of a graph that was read already."""
    settings = model.card.recipe.settings()
    current = Manifest(
        recipe=replace(model.card.recipe, code_hash=settings.code_hash(kind)),
        data_root="",
        graph_columns=settings.graph_columns(kind),
        config_columns=settings.config_columns(kind),
    )
    model.require_rows_of(current)
    rows = assemble(graph, settings)
    score = model.predict(rows.matrix(), rows.columns, rows.instances)[rows.group]
    metrics = judge(kind, score, graph.cost, rows.group) if rows.labelled and rows.rankable else None
    return Ranking(
        graph=graph.name,
        collection=model.card.collection,
        order=order_of(score),
        score=score,
        same_as=graph.duplicates.first[graph.duplicates.group],
        runtime=graph.runtime,
        metrics=metrics,
    )


def _choose_model(workspace: Workspace, path: Path, kind: Kind, asked: str | None) -> Collection:
    trained = trained_collections(workspace)
    if not trained:
        raise ModelError(f"there is no trained {kind} model in {workspace.root}", do="run train first")
    if asked is not None:
        return choose([asked], trained, where=f"the models of {workspace.root}")[0]
    candidates = [collection for collection in trained if collection.kind == kind]
    if not candidates:
        raise ModelError(f"there is no trained {kind} model in {workspace.root}", do="run train first")
    parts = path.resolve().parts
    for collection in candidates:
        tail = (*collection.parts,)
        if any(parts[i : i + len(tail)] == tail for i in range(len(parts))):
            return collection
    if len(candidates) > 1:
        names = ", ".join(str(collection) for collection in candidates)
        raise ModelError(
            f"{path.name} could be ranked by {len(candidates)} models", expected=names, do="pass --collection"
        )
    return candidates[0]
