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
from xlarank.models.card import CARD
from xlarank.models.model import Model
from xlarank.models.objectives import mean_rank
from xlarank.models.stored import model_of
from xlarank.pipelines.ranking.winner import best_of
from xlarank.pipelines.support import baselines, evaluation, verdicts

#: A table row: cell by column heading.
Row = dict[str, Any]

#: The evaluated split; it has labels, and graphs in the training set are left out.
SPLIT: Final = "valid"
NO_MODEL: Final = "no model was trained"
METRICS: Final = ("score", "slowdown@1", "slowdown@5")


@dataclass
class CollectionFacts:
    """Results of a collection.

    Attributes:
        ranker: what `rank` and `submit` use: the model, or a simpler ranker that is as good.
        in_use: name of ``ranker``, its score and why it is used; empty if it is the model.
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
    in_use: str = ""
    rankings: baselines.Rankings = field(default_factory=dict)
    ranks: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    studies: list[str] = field(default_factory=list)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of the model, the first ranking, ``{graph: {metric: value}}``."""
        return next(iter(self.rankings.values()), {})

    @property
    def used_metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of ``ranker``; of the model if they are not those of the same graphs."""
        name = verdicts.ranking_name(self.ranker) if self.ranker else ""
        metrics = self.rankings.get((name, None), {})
        return metrics if metrics.keys() == self.metrics.keys() else self.metrics

    @property
    def score(self) -> tuple[float, int]:
        """Mean score of the model, and the number of its graphs."""
        values = baselines.column(self.metrics)
        return float(values.mean()), len(values)

    @property
    def sentence(self) -> str:
        """Mean score with its metric, ranker and graphs, and the ranker in use."""
        mean, graphs = self.score
        ranker = next(iter(self.rankings))[0]
        held_out = "" if self.ranks else ", out of fold"
        metric = verdicts.score_name(self.name)
        text = f"{metric} {mean:.3f} by {ranker} on {counted(graphs, 'graph')}{held_out}"
        return f"{text}; {self.in_use}" if self.in_use else text

    def worst_first(self) -> list[str]:
        metrics = self.used_metrics
        return sorted(metrics, key=lambda name: (metrics[name]["score"], name))

    def score_rows(self) -> list[Row]:
        """Return a row per graph with the scores of ``ranker``."""
        graphs: dict[str, StoredGraph] = {}
        for manifest in self.manifests.values():
            graphs |= manifest.graphs
        ceilings = evaluation.ceilings_of(self.metrics)
        rows = []
        for name, metrics in self.used_metrics.items():
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
    if not (workspace.model(collection) / CARD).exists():
        facts.reason = NO_MODEL
        return facts

    try:
        facts.model = model = model_of(workspace, collection)
        facts.ranker, why = best_of(model)
        facts.importance = facts.ranker.importance() if facts.ranker.members else {}
        if SPLIT in manifests:
            _score_valid(workspace, facts, model, facts.ranker)
        if not facts.metrics:
            facts.rankings = evaluation.out_of_fold(workspace, collection, model.require_card())
            facts.left_out.clear()
        facts.in_use = verdicts.in_use(facts.name, facts.rankings, facts.ranker, why)
    except XlarankError as error:
        facts.reason = str(error)
    return facts


def _score_valid(workspace: Workspace, facts: CollectionFacts, model: Model, ranker: Model) -> None:
    """Add metrics of valid graphs that the model does not know, and their ranks."""
    manifest = facts.manifests[SPLIT]
    model.require(manifest)
    trained = dict.fromkeys(model.require_card().known_graphs, "in the training set of the model")
    for rows in evaluation.graphs_to_score(
        workspace, facts.collection, SPLIT, manifest, facts.left_out, trained
    ):
        used = ranker.score(rows)
        scores = used if ranker is model else model.score(rows)
        evaluation.add_metrics(facts.rankings, facts.collection, rows, model.name, scores[None])
        facts.ranks[rows.name] = mean_rank(used[rows.group]), mean_rank(rows.cost)
