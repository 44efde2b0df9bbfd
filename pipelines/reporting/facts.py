"""Results of a collection that a report shows: scores, ranks, an explanation."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError, counted
from xlarank.data.files import read_bytes
from xlarank.data.workspace import Workspace
from xlarank.features.store import Manifest, StoredGraph, read_manifests
from xlarank.models.arrays import Floats
from xlarank.models.model import Model
from xlarank.models.objectives import mean_rank
from xlarank.pipelines.ranking.model_choice import choose_for_collection
from xlarank.pipelines.support import baselines, evaluation, verdicts

#: A table row: cell by column heading.
Row = dict[str, Any]

#: The evaluated split; it has labels, and graphs in the training set are left out.
SPLIT: Final = "valid"
METRICS: Final = ("score", "slowdown@1", "slowdown@5")


@dataclass
class CollectionFacts:
    """Results of a collection.

    Attributes:
        model: the trained model, if any.
        ranker: what `rank` and `submit` use.
        ranked_by: its name, and why it ranks.
        reason: why the model has no scores; empty if it has some or all graphs are in ``left_out``.
        ranks: graph -> ``(configs,)`` ranks by ``ranker`` and by cost, from 0 (fastest) to 1; empty
            if scores are out of fold, because no valid graph can be scored.
        importance: column -> share of the gain, mean over seeds, largest first; empty for rules.
        studies: plots of studies as data URLs, because inline SVG could run scripts.
    """

    name: str
    collection: Collection
    manifests: dict[str, Manifest]
    model: Model | None = None
    ranker: Model | None = None
    reason: str = ""
    ranked_by: str = ""
    rankings: baselines.Rankings = field(default_factory=dict)
    ranks: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    studies: list[str] = field(default_factory=list)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of ``ranker``, the first ranking, ``{graph: {metric: value}}``."""
        return next(iter(self.rankings.values()), {})

    @property
    def score(self) -> tuple[float, int]:
        """Mean score of ``ranker``, and the number of its graphs."""
        values = baselines.column(self.metrics)
        return float(values.mean()), len(values)

    @property
    def sentence(self) -> str:
        """Mean score with its metric, ranker and graphs."""
        mean, graphs = self.score
        ranker = next(iter(self.rankings))[0]
        held_out = "" if self.ranks else ", out of fold"
        metric = verdicts.score_name(self.name)
        return f"{metric} {mean:.3f} by {ranker} on {counted(graphs, 'graph')}{held_out}"

    def worst_first(self) -> list[str]:
        metrics = self.metrics
        return sorted(metrics, key=lambda name: (metrics[name]["score"], name))

    def score_rows(self) -> list[Row]:
        """Return a row per graph with the scores of ``ranker``."""
        graphs: dict[str, StoredGraph] = {}
        for manifest in self.manifests.values():
            graphs |= manifest.graphs
        ceilings = evaluation.ceilings_of(self.metrics)
        rows = []
        for name, metrics in self.metrics.items():
            row: Row = {"graph": name, "distinct rows": graphs[name].rows}
            row[verdicts.score_name(self.name)] = metrics["score"]
            row |= {metric: metrics[metric] for metric in METRICS[1:]}
            if ceilings:
                row["ceiling of tau"] = ceilings.get(name)
            rows.append(row)
        return rows


def gather(workspace: Workspace, collection: Collection) -> CollectionFacts:
    """Evaluate the model of a collection on valid and return its results; write nothing."""
    manifests = read_manifests(workspace, collection)
    facts = CollectionFacts(str(collection), collection, manifests)
    for path in sorted(workspace.reports().glob(f"tune-{'-'.join(collection.parts)}-*.svg")):
        with suppress(OSError, ValueError):
            picture = b64encode(read_bytes(path)).decode()
            facts.studies.append(f"data:image/svg+xml;base64,{picture}")
    try:
        choice = choose_for_collection(workspace, collection)
        facts.model = choice.trained
        facts.ranker = choice.model
        facts.ranked_by = choice.reason
        facts.importance = facts.ranker.importance() if facts.ranker.members else {}
        if SPLIT in manifests:
            _score_valid(workspace, facts, facts.ranker)
        if not facts.metrics and facts.model is not None:
            card = facts.model.require_card()
            scored = evaluation.out_of_fold(workspace, collection, card)
            facts.rankings = evaluation.first_of(scored, facts.ranker.name)
            facts.left_out.clear()
    except XlarankError as error:
        facts.reason = str(error)
    return facts


def _score_valid(workspace: Workspace, facts: CollectionFacts, ranker: Model) -> None:
    """Add metrics of valid graphs that the models do not know, and their ranks."""
    manifest = facts.manifests[SPLIT]
    ranker.require(manifest)
    models = [ranker] if facts.model in (None, ranker) else [ranker, facts.model]
    known = {name for model in models if model for name in model.require_card().known_graphs}
    trained = dict.fromkeys(known, "in the training set of the model")
    for rows in evaluation.graphs_to_score(
        workspace, facts.collection, SPLIT, manifest, facts.left_out, trained
    ):
        for model in filter(None, models):
            scores = model.score(rows)
            evaluation.add_metrics(facts.rankings, facts.collection, rows, model.name, scores[None])
            if model is ranker:
                facts.ranks[rows.name] = mean_rank(scores[rows.group]), mean_rank(rows.cost)
