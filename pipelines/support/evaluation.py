"""Metrics of evaluated rankings: by graph, in summary, in comparison and in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, counted
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest, each_graph
from xlarank.models.arrays import Floats, Indices
from xlarank.models.card import ModelCard
from xlarank.models.model import RULE
from xlarank.models.validation.metrics import (
    METRICS,
    SPEEDUPS,
    compiler_cost,
    graph_metrics,
    paired_difference,
    speedups,
    summarise,
    summary,
    tau_ceiling,
)
from xlarank.pipelines.support.baselines import Metrics, Rankings, baselines, is_untrained, mean_of
from xlarank.pipelines.support.tables import Table
from xlarank.pipelines.training.training_sets import training_rows

if TYPE_CHECKING:  # imported when a table is requested
    import polars as pl

#: Collections that the score of the competition averages.
_KAGGLE: Final = (
    *("layout:xla:random", "layout:xla:default", "layout:nlp:random", "layout:nlp:default"),
    "tile:xla",
)


@dataclass(repr=False)
class Evaluation(Table):
    """Metrics of rankings.

    Attributes:
        graphs: description of the evaluated graphs: a split, or how they were held out.
        rankings: metrics by collection; the evaluated ranker comes first.
        ranked_by: collection -> what `rank` and `submit` use, and why.
        several: rankers that are compared, the best mean score first; empty for a single one.
        left_out: collection (or ``collection graph``) -> reason why it was not evaluated.
    """

    graphs: str
    rankings: dict[str, Rankings] = field(default_factory=dict)
    ranked_by: dict[str, str] = field(default_factory=dict)
    several: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        lines = []
        for name, rows in self.comparison.items():
            line = f"{name}, {self.graphs}"
            if rows:
                score = f"{rows[0]['ranker']} {rows[0]['score']['mean']:.3f}"
                line += f": {score} on {counted(rows[0]['graphs'], 'graph')}"
            lines.append(line)
        return "\n".join(filter(None, [*lines, self.overall]))

    def to_polars(self) -> pl.DataFrame:
        """Return what ranks each collection and what it is compared with (`board`)."""
        return board(self.comparison)

    @property
    def report(self) -> dict[str, dict[str, dict[str, Any]]]:
        """`reported` metrics by collection."""
        return {name: reported(name, rankings) for name, rankings in self.rankings.items()}

    @property
    def comparison(self) -> dict[str, list[dict[str, Any]]]:
        """`compared` rankers and rules by collection."""
        return {collection: compared(rankings) for collection, rankings in self.rankings.items()}

    @property
    def overall(self) -> str:
        """`mean_over_collections` of the first rankers, or of each ranker if there are several."""
        if not self.several:
            firsts = {name: next(iter(self.rankings[name].values())) for name in self.rankings}
            return mean_over_collections(firsts)
        means = []
        for ranker in self.several:
            metrics = {name: rankings[ranker] for name, rankings in self.rankings.items()}
            if mean := mean_over_collections(metrics):
                means.append(f"{ranker}: {mean}")
        return "; ".join(means)


def reported(collection: str, rankings: Rankings) -> dict[str, dict[str, Any]]:
    """Return ``{metric: {mean, std, low, high, graphs: {name: value}}}`` of the first ranker.

    `METRICS` also have the means of rules (``baselines``); tau of layouts has a ``ceiling`` by
    graph, None if unknown.
    """
    metrics = next(iter(rankings.values()))
    shown = {}
    for graph, values in metrics.items():
        shown[graph] = {name: values[name] for name in (*METRICS, *SPEEDUPS) if name in values}
    report = summarise(shown)
    for metric in METRICS:
        means = report[metric]["baselines"] = {}
        for ranker, scored in rankings.items():
            if is_untrained(ranker):
                means[ranker.removeprefix(RULE)] = mean_of(scored, metric)
    if collection.startswith("layout:"):
        report["tau"]["ceiling"] = ceilings_of(metrics) or None
    return report


def add_metrics(
    rankings: Rankings,
    collection: Collection,
    rows: GraphRows,
    ranker: str,
    scores: Floats,
    picked: Indices | slice = slice(None),
) -> None:
    """Add a graph's metrics by ``(rows,)`` scores and by rules."""
    metrics = evaluate_graph(collection, rows, scores, picked)
    rankings.setdefault(ranker, {})[rows.name] = metrics
    add_untrained(rankings, collection, rows, picked)


def add_untrained(
    rankings: Rankings,
    collection: Collection,
    rows: GraphRows,
    picked: Indices | slice = slice(None),
) -> None:
    """Add a graph's metrics by rules, the estimated time and the shipped trees."""
    for name, metrics in baselines(collection, rows, picked).items():
        rankings.setdefault(name, {}).setdefault(rows.name, metrics)


def out_of_fold(workspace: Workspace, collection: Collection, card: ModelCard) -> Rankings:
    """Return the out-of-fold metrics that a card stores, and metrics of rules on the same rows.

    Graphs that were removed are left out; raises `CollectionError` if there is none.
    """
    rankings: Rankings = {card.model: {}}
    for rows in training_rows(workspace, collection, card):
        if rows.name in card.folds:
            rankings[card.model][rows.name] = card.folds[rows.name]
            add_untrained(rankings, collection, rows)
    if not rankings[card.model]:
        do = "evaluate on valid, or train on two program families or more"
        raise CollectionError(f"{collection} has no graph with scores out of fold", do=do)
    return rankings


def first_of(rankings: Rankings, ranker: str) -> Rankings:
    """Return the rankings, one ranker's first."""
    return dict(sorted(rankings.items(), key=lambda item: item[0] != ranker))


def compared(rankings: Rankings) -> list[dict[str, Any]]:
    """Compare rankers and rules on the graphs that all rankers score.

    Returns a row for each that scores all of these graphs: what ranks (the first of ``rankings``),
    then the others, the best first; of several rankers, all by score. A row has summaries
    (`xlarank.models.validation.metrics.summary`) of ``score``, ``slowdown@1`` and ``slowdown@5``,
    and the paired ``difference`` to the first row, with its 95 % interval.
    """
    by_name = {name: metrics for name, metrics in rankings.items() if metrics}
    trained = [name for name in by_name if not is_untrained(name)]
    rankers = trained or [*by_name]
    common = set.intersection(*(set(by_name[name]) for name in rankers)) if rankers else set()
    rows = []
    for name, metrics in by_name.items():
        if common and common <= metrics.keys():
            row: dict[str, Any] = {"ranker": name, "graphs": len(common), "difference": None}
            for metric in ("score", "slowdown@1", "slowdown@5"):
                scores = {graph: metrics[graph][metric] for graph in metrics if graph in common}
                row[metric] = summary(scores, metric)
            rows.append(row)
    first = next(iter(rankings), "") if len(trained) < 2 else ""
    rows.sort(key=lambda row: (row["ranker"] != first, -row["score"]["mean"]))
    for row in rows[1:]:
        gap = paired_difference(row["score"]["graphs"], rows[0]["score"]["graphs"])._asdict()
        del gap["error"]
        row["difference"] = gap
    return rows


def board(comparison: Mapping[str, Sequence[Mapping[str, Any]]]) -> pl.DataFrame:
    """Return `compared` rankers of collections as a frame.

    ``difference`` is the mean difference of the score to the first ranker of the collection, and
    ``low`` and ``high`` its 95 % interval.
    """
    import polars as pl

    rows = []
    for collection, rankers in comparison.items():
        for ranker in rankers:
            gap = ranker["difference"] or {}
            row = {"collection": collection, "ranker": ranker["ranker"], "graphs": ranker["graphs"]}
            row |= {"score": ranker["score"]["mean"], "std": ranker["score"]["std"]}
            row |= {name: ranker[name]["mean"] for name in ("slowdown@1", "slowdown@5")}
            row |= {"difference": gap.get("mean"), "low": gap.get("low"), "high": gap.get("high")}
            rows.append(row)
    numbers = ("score", "std", "slowdown@1", "slowdown@5", "difference", "low", "high")
    schema = {"collection": pl.String, "ranker": pl.String, "graphs": pl.Int64}
    return pl.DataFrame(rows, schema | dict.fromkeys(numbers, pl.Float64))


def evaluate_graph(
    collection: Collection, rows: GraphRows, scores: Floats, picked: Indices | slice = slice(None)
) -> dict[str, float]:
    """Return the metrics of ``(rows,)`` scores of a labelled graph.

    Includes `METRICS`; `SPEEDUPS` if the cost of the compiler's default is known; and
    ``tau_ceiling`` if enough layouts were measured twice.
    """
    kind = collection.kind
    cost = rows.cost[picked]
    group = rows.group[picked]
    score = scores[group]
    metrics = graph_metrics(kind, score, cost, group)
    if (compiler := compiler_cost(kind, rows)) is not None:
        metrics |= speedups(score, rows.row_cost[group], compiler, group)
    if kind == "layout" and (ceiling := tau_ceiling(cost, group)) is not None:
        metrics["tau_ceiling"] = ceiling
    return metrics


def graphs_to_score(
    workspace: Workspace,
    collection: Collection,
    split: str,
    manifest: Manifest,
    left_out: dict[str, str],
    excluded: Mapping[str, str],
) -> Iterator[GraphRows]:
    """Yield the labelled, rankable graphs except ``excluded``; record why others are left out."""
    for rows in each_graph(workspace, collection, split, manifest):
        if reason := rows.unusable or excluded.get(rows.name):
            left_out[rows.name] = reason
        else:
            yield rows


def ceilings_of(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the largest tau that repeated measurements allow, for graphs that have them."""
    known = [name for name, values in metrics.items() if "tau_ceiling" in values]
    return {name: metrics[name]["tau_ceiling"] for name in known}


def score_name(collection: str) -> str:
    return "Kendall tau" if collection.startswith("layout:") else "1 - slowdown@5"


def with_interval(scores: Mapping[str, Any]) -> str:
    """Format a `summary` as its mean, with the 95 % interval for several graphs.

    >>> with_interval({"mean": 0.25, "low": 0.2, "high": 0.3, "graphs": {"a": 0.2, "b": 0.3}})
    '0.250 (0.200 to 0.300)'
    """
    text = f"{scores['mean']:.3f}"
    if len(scores["graphs"]) > 1:
        text += f" ({scores['low']:.3f} to {scores['high']:.3f})"
    return text.replace("-0.000", "0.000")


def mean_over_collections(metrics: Mapping[str, Metrics]) -> str:
    """Describe the mean of the collections' mean scores, as Kaggle weights it; empty for one.

    If the five collections of the competition are among them, others do not count.

    >>> one, other = ({"a": {"score": score}} for score in (0.75, 0.25))
    >>> mean_over_collections({"tile:cpu": one, "layout:cpu:random": other})
    'mean over 2 collections, equally weighted: 0.500'
    >>> mean_over_collections({"tile:cpu": one, **dict.fromkeys(_KAGGLE, other)})
    "mean over Kaggle's five collections, equally weighted: 0.250"
    """
    is_complete = metrics.keys() >= {*_KAGGLE}
    names = _KAGGLE if is_complete else tuple(metrics)
    if len(names) < 2:
        return ""
    mean = np.mean([mean_of(metrics[name]) for name in names])
    label = "Kaggle's five collections" if is_complete else f"{len(names)} collections"
    return f"mean over {label}, equally weighted: {mean:.3f}"


def comparison_cells(
    rows: Sequence[Mapping[str, Any]], score: str = "score"
) -> list[dict[str, str]]:
    """Format the rows of `compared` by column heading."""
    table = []
    for row in rows:
        gap = row["difference"]
        lead = f"{gap['mean']:+.3f}" if gap else "-"
        if gap and gap["graphs"] > 1:
            lead += f" ({gap['low']:+.3f}, {gap['high']:+.3f})"
        cells = {"ranker": row["ranker"], score: f"{row['score']['mean']:.3f}"}
        cells["to the first (95 %)"] = lead
        cells["slowdown@1"] = f"{row['slowdown@1']['mean']:.3f}"
        cells["@5"] = f"{row['slowdown@5']['mean']:.3f}"
        table.append(cells)
    return table
