"""Rank the configurations of one graph file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Graph, Kind, read_graph
from xlarank.data.workspace import Workspace
from xlarank.models.explanation.calibration import AMONG_FIRST, CERTAIN, NEARLY, Calibration
from xlarank.models.trained import TrainedModel
from xlarank.models.validation.metrics import judge, order_of
from xlarank.pipelines.support.one_graph import graph_kind, model_of_file, rows_for_model


@dataclass(frozen=True)
class Trust:
    """How certain a ranking is, by what was measured out of fold for its model.

    Attributes:
        calibration: what was measured.
        certain: share of the pairs of distinct configurations of this graph that are called certain.
        first: so many of the best distinct configurations hold the best one with probability ``AMONG_FIRST``.
        first_nearly: the same for one that is at most `NEARLY` slower.
        ahead_of: ``(configs,)`` how many distinct configurations each one is certainly faster than.
    """

    calibration: Calibration
    certain: float
    first: int
    first_nearly: int
    ahead_of: NDArray[np.int64]

    @classmethod
    def of(cls, calibration: Calibration, each: NDArray[np.float64], group: NDArray[np.int64]) -> Trust:
        """From the scores of each seed ``(seeds, distinct)``."""
        slower = calibration.certainly_slower(each)
        distinct = each.shape[1]
        return cls(
            calibration=calibration,
            certain=float(slower.sum()) / max(1, distinct * (distinct - 1) // 2),
            first=calibration.first_of(distinct),
            first_nearly=calibration.first_nearly_of(distinct),
            ahead_of=slower[group],
        )

    def lines(self) -> list[str]:
        """The same in words."""
        found = self.calibration
        if np.isfinite(found.threshold):
            certain = (
                f"{self.certain:.0%} of the pairs are certain; of such pairs {found.right:.1%} were in the right "
                f"order on families never seen ({found.right_low:.1%} to {found.right_high:.1%}, "
                f"{found.graphs} graphs)"
            )
        else:
            certain = f"no pair is certain: out of fold none reached {CERTAIN:.0%} ({found.graphs} graphs)"
        first = f"the best is among the first {self.first} with {AMONG_FIRST:.0%} probability"
        nearly = f"one at most {NEARLY:.0%} slower among the first {self.first_nearly}"
        return [certain, f"{first}, {nearly}"]

    def as_json(self) -> dict[str, Any]:
        found = self.calibration
        return {
            "certain_share": self.certain,
            "certain_right": found.right if np.isfinite(found.right) else None,
            "certain_right_interval": [found.right_low, found.right_high] if np.isfinite(found.right) else None,
            "best_among_first": self.first,
            "nearly_best_among_first": self.first_nearly,
            "probability": AMONG_FIRST,
            "calibrated_on": {"graphs": found.graphs, "families": found.families, "seeds": found.seeds},
        }


@dataclass(frozen=True)
class Ranking:
    """An order of configurations.

    Attributes:
        graph, collection: what was ranked, by the model of which collection.
        order: ``(configs,)`` configuration ids, fastest first.
        score: ``(configs,)`` by configuration id; lower is faster; only comparable within the graph.
        same_as: ``(configs,)`` lowest id of an identical configuration.
        metrics: how good it is, where the file holds runtimes.
        trust: how certain it is, where the model was calibrated.
        runtime: ``(configs,)`` measured nanoseconds, 0 where not measured.
    """

    graph: str
    collection: str
    order: NDArray[np.intp]
    score: NDArray[np.float64]
    same_as: NDArray[np.int64]
    runtime: NDArray[np.int64]
    metrics: dict[str, float] | None
    trust: Trust | None = None

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
                **({"certainly_ahead_of": int(self.trust.ahead_of[members[0]])} if self.trust else {}),
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
            "trust": self.trust.as_json() if self.trust else None,
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
    each = model.predict_seeds(rows.matrix(), rows.columns, rows.instances)
    score = each.mean(axis=0)[rows.group]
    metrics = judge(kind, score, graph.cost, rows.group) if rows.labelled and rows.rankable else None
    return Ranking(
        graph=graph.name,
        collection=model.card.collection,
        order=order_of(score),
        score=score,
        same_as=graph.duplicates.first[graph.duplicates.group],
        runtime=graph.runtime,
        metrics=metrics,
        trust=Trust.of(model.calibration, each, rows.group) if model.calibration else None,
    )
