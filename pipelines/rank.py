"""Rank the configurations of one graph file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Graph, Kind, read_graph
from xlarank.data.workspace import Workspace
from xlarank.models.trained import TrainedModel
from xlarank.models.validation.metrics import judge, order_of
from xlarank.pipelines.support.one_graph import graph_kind, model_of_file, rows_for_model


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
    model = model_of_file(workspace, path, graph_kind(graph), collection=collection, model=model)
    return rank_graph(graph, graph_kind(graph), model)


def rank_graph(graph: Graph, kind: Kind, model: TrainedModel) -> Ranking:
    """Rank every configuration of a graph that was read already."""
    rows = rows_for_model(graph, model)
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
