"""Compute the scores, importance and explanation of one collection for the report."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import SPLITS, Collection
from xlarank.data.errors import FeatureStoreError, ModelError, XlarankError
from xlarank.data.files import read_text
from xlarank.data.graph import read_graph
from xlarank.data.root import find_data_root
from xlarank.data.workspace import Workspace
from xlarank.features.meanings import cause_of
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest, each_graph, read_manifest
from xlarank.models.explanation.calibration import Calibration
from xlarank.models.objectives import mean_rank
from xlarank.models.trained import CARD, TrainedModel, model_of
from xlarank.models.validation.evaluation import evaluate_graph
from xlarank.pipelines.ranking.result import Trust
from xlarank.pipelines.ranking.score_difference import Explanation, explain_graph, segment_picture

Floats = NDArray[np.float64]

#: The split that reports score: labelled, and not trained on.
SPLIT: Final = "valid"
MODEL: Final = "model"
NO_MODEL: Final = "no model was trained"


@dataclass(frozen=True, eq=False)
class GraphScores:
    """Scores of one graph.

    Attributes:
        distinct: number of distinct configurations.
        metrics: ranking (the model's, or one that needs no model) -> metrics.
        predicted, measured: ``(configs,)`` ranks by the model and by cost, 0 to 1, 0 is the fastest.
        certain: share of the pairs that are certain; None without calibration.
    """

    name: str
    distinct: int
    metrics: dict[str, dict[str, float]]
    predicted: Floats
    measured: Floats
    certain: float | None

    @property
    def score(self) -> float:
        return self.metrics[MODEL]["score"]


@dataclass
class CollectionFacts:
    """Results of a collection.

    Attributes:
        model: None where there is none, or none that can be used; ``why_not`` says why.
        importance: column -> share of the gain, the mean over seeds, largest first.
        explained: the graph of the median score, with its picture where there is a segment to draw.
        studies: SVG of the studies, as `tune` left them.
    """

    collection: Collection
    manifests: dict[str, Manifest]
    model: TrainedModel | None = None
    why_not: str = ""
    graphs: list[GraphScores] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    explained: tuple[Explanation, str] | None = None
    studies: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.collection)

    @property
    def calibration(self) -> Calibration | None:
        return self.model.calibration if self.model else None

    @property
    def learned(self) -> set[str]:
        """Names of the graphs that the model was trained on."""
        return self.model.card.known_graphs if self.model else set()

    def column(self, ranking: str, metric: str) -> Floats:
        """``(graphs,)``."""
        return np.array([graph.metrics[ranking][metric] for graph in self.graphs])

    def by_cause(self) -> dict[str, float]:
        """Share of the gain by physical cause, the largest first."""
        shares = defaultdict[str, float](float)
        for name, share in self.importance.items():
            shares[cause_of(name)] += share
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    def sorted_by_score(self) -> list[GraphScores]:
        """Worst first."""
        return sorted(self.graphs, key=lambda graph: (graph.score, graph.name))


def gather(workspace: Workspace, collection: Collection, *, explained: bool = True) -> CollectionFacts:
    """Score the model of a collection on the valid split and compute its results; nothing is written."""
    manifests = {split: read_manifest(workspace, collection, split) for split in SPLITS}
    facts = CollectionFacts(collection, {split: m for split, m in manifests.items() if m is not None})
    facts.studies = study_pictures(workspace, collection)
    if not (workspace.model(collection) / CARD).exists():
        facts.why_not = NO_MODEL
        return facts
    try:
        facts.model = model_of(workspace, collection)
        facts.importance = _importance(facts.model)
        manifest = facts.manifests.get(SPLIT)
        if manifest is None:
            facts.why_not = f"there is no {SPLIT} split to score the model on"
            return facts
        facts.model.require_rows_of(manifest)
        _judge_all(workspace, facts)
        if explained and facts.graphs:
            facts.explained = _explained(manifest, facts)
    except (ModelError, FeatureStoreError) as error:
        facts.why_not = str(error)
    return facts


def _importance(model: TrainedModel) -> dict[str, float]:
    shares = defaultdict[str, float](float)
    for ranker in model.rankers:
        for name, share in ranker.importance().items():
            shares[name] += share / len(model.rankers)
    return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))


def _judge_all(workspace: Workspace, facts: CollectionFacts) -> None:
    assert facts.model is not None
    learned = facts.learned
    for rows in each_graph(workspace, facts.collection, SPLIT, facts.manifests[SPLIT]):
        if not rows.labelled:
            facts.left_out[rows.name] = "its labels are withheld"
        elif not rows.rankable:
            facts.left_out[rows.name] = "all its configurations cost the same"
        elif rows.name in learned:
            facts.left_out[rows.name] = "in the training set of the model"
        else:
            facts.graphs.append(_judged(facts, rows))


def _judged(facts: CollectionFacts, rows: GraphRows) -> GraphScores:
    assert facts.model is not None
    scores, calibration = facts.model.score(rows), facts.calibration
    judged = evaluate_graph(facts.collection, rows, scores.mean)
    certain = None
    if calibration is not None and not scores.fallback:
        certain = Trust.of(calibration, scores.per_seed, rows.group).certain
    return GraphScores(
        rows.name,
        len(rows),
        {MODEL: judged.metrics, **judged.baselines},
        mean_rank(scores.mean[rows.group]),
        mean_rank(rows.cost),
        certain,
    )


def _explained(manifest: Manifest, facts: CollectionFacts) -> tuple[Explanation, str] | None:
    """Explain the best configuration of the graph of the median score, if its file still exists."""
    assert facts.model is not None
    graph = facts.sorted_by_score()[len(facts.graphs) // 2]
    try:
        npz = find_data_root(Path(manifest.data_root)).npz
        read = read_graph(npz / Path(*facts.collection.parts, SPLIT, f"{graph.name}.npz"), facts.collection.kind)
        found = explain_graph(read, facts.model)
        return found, segment_picture(read, found, alone=False) if found.segments else ""
    except XlarankError:
        return None


def study_pictures(workspace: Workspace, collection: Collection) -> list[str]:
    """Return the plots of the collection's studies that `tune` wrote."""
    stem = f"tune-{'-'.join(collection.parts)}-"
    found = []
    for path in sorted(workspace.reports().glob(f"{stem}*.svg")):
        try:
            found.append(read_text(path))
        except (OSError, ValueError):
            continue
    return found


def read_runs(workspace: Workspace) -> list[dict[str, Any]]:
    """The commands that worked in the workspace, oldest first; lines that cannot be read are skipped."""
    try:
        lines = read_text(workspace.reports() / "runs.jsonl").splitlines()
    except (OSError, ValueError):
        return []
    found: list[dict[str, Any]] = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and isinstance(value.get("arguments"), list):
            found.append(value)
    return found


def paired(
    ours: Sequence[GraphScores], theirs: Sequence[GraphScores], metric: str = "score"
) -> tuple[list[str], Floats, Floats]:
    """Names and one metric of the graphs that were scored in both workspaces."""
    other = {graph.name: graph.metrics[MODEL][metric] for graph in theirs}
    both = [graph for graph in ours if graph.name in other]
    return (
        [graph.name for graph in both],
        np.array([graph.metrics[MODEL][metric] for graph in both]),
        np.array([other[graph.name] for graph in both]),
    )
