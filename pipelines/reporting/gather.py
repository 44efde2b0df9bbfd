"""Data of the report: scores, feature importance and explanation of one collection."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import SPLITS, Collection, find_data_root
from xlarank.data.errors import FeatureStoreError, ModelError, XlarankError
from xlarank.data.files import read_bytes, read_text
from xlarank.data.graph import read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.meanings import cause_of
from xlarank.features.store import Manifest, read_manifest
from xlarank.models.base import mean_importance
from xlarank.models.explanation.calibration import Trust
from xlarank.models.objectives import mean_rank
from xlarank.models.trained import CARD, Scores, TrainedModel, model_of
from xlarank.models.validation.metrics import summary
from xlarank.pipelines.ranking.score_difference import Explanation, explain_graph
from xlarank.pipelines.reporting import charts
from xlarank.pipelines.reporting.graph_picture import segment_picture
from xlarank.pipelines.support.evaluation import (
    Rankings,
    add_metrics,
    ceilings_of,
    column,
    graphs_to_score,
    rules_of,
    score_name,
    with_interval,
)  # fmt: skip

Floats = NDArray[np.float64]
#: A table row: cell by column heading.
Row = dict[str, Any]

MODEL: Final = "model"
#: The evaluated split; it has labels, and graphs in the training set are left out.
SPLIT: Final = "valid"
NO_MODEL: Final = "no model was trained"
_SLOWDOWNS: Final = ("slowdown@1", "slowdown@5")
#: With fewer non-zero differences, the p-value of a signed-rank test cannot be below 5 %.
_FEW_FOR_A_TEST: Final = 6


@dataclass
class CollectionFacts:
    """Results of a collection.

    Attributes:
        why_not: reason for missing scores; empty if there are scores.
        rankings: metrics on the valid split, the model's first.
        ranks: graph -> ``(configs,)`` ranks by the model and by cost, from 0 (fastest) to 1.
        certain: graph -> share of certain pairs; empty without calibration.
        left_out: graph -> reason why it is not evaluated.
        importance: column -> share of the gain, mean over seeds, largest first.
        studies: plots of `tune`'s studies as data URLs, because inline SVG could run scripts.
        explained: explanation of the median-score graph, and its picture if there is a segment to draw.
    """

    collection: Collection
    manifests: dict[str, Manifest]
    model: TrainedModel | None = None
    why_not: str = ""
    rankings: Rankings = field(default_factory=dict)
    ranks: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    certain: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    studies: list[str] = field(default_factory=list)
    explained: tuple[Explanation, str] | None = None

    @property
    def name(self) -> str:
        return str(self.collection)

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of the model, ``{graph: {metric: value}}``."""
        return self.rankings.get((MODEL, None), {})

    def worst_first(self) -> list[str]:
        return sorted(self.metrics, key=lambda name: (self.metrics[name]["score"], name))

    def score_rows(self) -> list[Row]:
        """Return a row per graph with the scores of the model and of the rules."""
        rules, ceilings = rules_of(self.rankings), ceilings_of(self.metrics)
        return [
            {
                "graph": name,
                "configurations": self.manifests[SPLIT].graphs[name].rows,
                score_name(self.name): metrics["score"],
                **{rule: of[name]["score"] for rule, of in rules.items()},
                **{metric: metrics[metric] for metric in _SLOWDOWNS},
                **({"ceiling of tau": ceilings.get(name)} if ceilings else {}),
                "pairs certain": self.certain.get(name),
            }
            for name, metrics in self.metrics.items()
        ]


def scores_chart(facts: CollectionFacts) -> str:
    """Draw the scores of the model and of the rules by graph."""
    values = {name: column(of) for name, of in {MODEL: facts.metrics, **rules_of(facts.rankings)}.items()}
    return charts.scores_chart(f"scores-{facts.name}", list(facts.metrics), values, score_name(facts.name))


def ranks_charts(facts: CollectionFacts) -> str:
    """Draw predicted against measured ranks of the best, the median and the worst graph."""
    names = facts.worst_first()
    shown = {names[0]: "worst", names[len(names) // 2]: "median", names[-1]: "best"}
    pages = []
    for name, which in reversed(shown.items()):
        title = f"{which}: {charts.short(name)}\n{facts.metrics[name]['score']:.3f}"
        pages.append(charts.ranks_chart(f"ranks-{facts.name}-{which}", [(title, *facts.ranks[name])]))
    return "".join(pages)


def causes_chart(facts: CollectionFacts) -> str:
    """Draw the share of the gain by physical cause."""
    shares = defaultdict[str, float](float)
    for name, share in facts.importance.items():
        shares[cause_of(name)] += share
    return charts.bars_chart(f"causes-{facts.name}", shares, "share of the gain")


def mean_row(rows: Sequence[Row]) -> Row:
    """Return a row with the mean and 95 % interval of each float column."""
    means: Row = dict.fromkeys(rows[0]) | {"graph": "mean, 95 % interval"}
    for head in rows[0]:
        values = {str(number): row[head] for number, row in enumerate(rows) if isinstance(row[head], float)}
        if values:
            means[head] = with_interval(summary(values))
    return means


def compared(ours: CollectionFacts, theirs: CollectionFacts) -> tuple[list[Row], Floats]:
    """Return the scores of the graphs that two workspaces share, and the differences of ``score``."""
    rows: list[Row] = []
    runs = [facts.model.card.model if facts.model else "-" for facts in (ours, theirs)]
    for name in [name for name in ours.metrics if name in theirs.metrics]:
        row: Row = {"graph": name}
        for metric in ("score", *_SLOWDOWNS):
            heads = [f"{metric}, {run}" for run in ("this", "other", "difference")]
            if metric == "score":
                heads = [f"this workspace ({runs[0]})", f"other workspace ({runs[1]})", "difference"]
            this, other = (facts.metrics[name][metric] for facts in (ours, theirs))
            row |= dict(zip(heads, (this, other, this - other), strict=True))
        rows.append(row)
    return rows, np.array([row["difference"] for row in rows])


def paired_test(difference: Floats) -> str:
    """Return the result of Wilcoxon's signed-rank test as a sentence."""
    from scipy.stats import wilcoxon

    differing = difference[difference != 0]
    if len(differing) < _FEW_FOR_A_TEST:
        return f"Too few graphs differ for a test: {len(differing)}."
    p = float(wilcoxon(differing).pvalue)
    likely = "more than chance makes likely" if p < 0.05 else "no more than chance makes likely"
    return f"Wilcoxon's signed-rank test over graphs: p = {p:.3g}, {likely}."


def data_rows(all_facts: Iterable[CollectionFacts]) -> tuple[list[Row], list[Row]]:
    """Return counts of each split, and the graphs that were left out."""
    rows, left_out = [], []
    for facts in all_facts:
        for split, manifest in facts.manifests.items():
            graphs, key = manifest.graphs, {"collection": facts.name, "split": split}
            why = "nothing to rank: all its configurations are one or cost the same"
            same = {name: why for name, graph in graphs.items() if not graph.rankable}
            labelled = any(graph.labelled for graph in graphs.values())
            rows.append({
                **key, "labels": facts.collection.label_source if labelled else "withheld", "graphs": len(graphs),
                "configurations": sum(graph.configs for graph in graphs.values()),
                "distinct rows": sum(graph.rows for graph in graphs.values()),
                "not rankable": len(same), "broken": len(manifest.broken),
            })  # fmt: skip
            left_out += [{**key, "graph": name, "why": why} for name, why in (manifest.broken | same).items()]
    return rows, left_out


def gather(workspace: Workspace, collection: Collection, *, explained: bool = True) -> CollectionFacts:
    """Evaluate the model of a collection on the valid split and return its results; write nothing."""
    manifests = {split: read_manifest(workspace, collection, split) for split in SPLITS}
    known = {split: manifest for split, manifest in manifests.items() if manifest is not None}
    facts = CollectionFacts(collection, known)
    for path in sorted(workspace.reports().glob(f"tune-{'-'.join(collection.parts)}-*.svg")):
        with suppress(OSError, ValueError):
            facts.studies.append(f"data:image/svg+xml;base64,{b64encode(read_bytes(path)).decode()}")
    if not (workspace.model(collection) / CARD).exists():
        facts.why_not = NO_MODEL
        return facts

    def refuse(name: str) -> str:
        return "in the training set of the model" if name in model.card.known_graphs else ""

    try:
        facts.model = model = model_of(workspace, collection)
        facts.importance = mean_importance(model.rankers)
        if SPLIT not in known:
            facts.why_not = f"there is no {SPLIT} split to score the model on"
            return facts
        model.require(known[SPLIT])
        for rows in graphs_to_score(workspace, collection, SPLIT, known[SPLIT], facts.left_out, refuse):
            scored = model.score(rows)
            add_metrics(facts.rankings, collection, rows, MODEL, Scores(scored.mean[None]))
            facts.ranks[rows.name] = mean_rank(scored.mean[rows.group]), mean_rank(rows.cost)
            if model.calibration is not None and not scored.fallback:
                facts.certain[rows.name] = Trust(model.calibration, scored.per_seed, rows.group).certain
        if explained and facts.metrics:
            facts.explained = _explained(facts, model)
    except (ModelError, FeatureStoreError) as error:
        facts.why_not = str(error)
    return facts


def _explained(facts: CollectionFacts, model: TrainedModel) -> tuple[Explanation, str] | None:
    """Explain the best configuration of the median-score graph; return None if its file cannot be read."""
    name = facts.worst_first()[len(facts.metrics) // 2]
    try:
        npz = find_data_root(Path(facts.manifests[SPLIT].data_root)).npz
        read = read_graph(npz / Path(*facts.collection.parts, SPLIT, f"{name}.npz"), facts.collection.kind)
        explanation = explain_graph(read, model)
        return explanation, segment_picture(read, explanation, alone=False) if explanation.segments else ""
    except XlarankError:
        return None


def read_runs(workspace: Workspace) -> list[Row]:
    """Return the logged commands of the workspace, oldest first; unreadable lines are skipped."""
    rows: list[Row] = []
    try:
        lines = read_text(workspace.reports() / "runs.jsonl").splitlines()
    except (OSError, ValueError):
        return rows
    for line in lines:
        with suppress(ValueError, TypeError, KeyError):
            run = json.loads(line)
            row = {"began": run["began"], "command": " ".join(run["arguments"]), "seconds": run["seconds"]}
            rows.append({**row, "peak memory, MB": run.get("peak_mb"), "exit": str(run["exit"])})
    return rows
