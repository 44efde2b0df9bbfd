"""Evaluations of rankings by a model or by rules: metrics of graphs, summaries and verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, counted
from xlarank.data.families import program_family
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest, each_graph, read_manifest
from xlarank.models.arrays import Floats, Indices
from xlarank.models.card import ModelCard
from xlarank.models.model import Model
from xlarank.models.rules import ESTIMATED_TIME, RULE
from xlarank.models.stored import RELAYOUT_TIME
from xlarank.models.validation import metrics as validation_metrics
from xlarank.models.validation.label_noise import tau_ceiling
from xlarank.models.validation.metrics import METRICS, SPEEDUPS, graph_metrics, summarise
from xlarank.pipelines.support.baselines import RANDOM, SHIPPED_RANKER, baselines, deduplicated

#: ``{graph: {metric: value}}``
Metrics = dict[str, dict[str, float]]
#: Metrics by ranker and seed; the seed is None for the mean of all seeds.
Rankings = dict[tuple[str, int | None], Metrics]

#: Collections that the score of the competition averages.
_KAGGLE: Final = (
    *("layout:xla:random", "layout:xla:default", "layout:nlp:random", "layout:nlp:default"),
    "tile:xla",
)


@dataclass
class Evaluation:
    """Metrics of rankings.

    Attributes:
        graphs: description of the evaluated graphs: a split, or how they were held out.
        rankings: metrics by collection; first the evaluated ranker, or the reference of a
            comparison.
        in_use: collection -> which ranker `rank` and `submit` use instead of the collection's own
            model, with its score; empty if they use that model.
        left_out: collection (or ``collection graph``) -> reason why it was not evaluated.
    """

    graphs: str
    rankings: dict[str, Rankings] = field(default_factory=dict)
    in_use: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

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
            metrics = {}
            for collection, rankings in self.rankings.items():
                if (ranker, None) in rankings:
                    metrics[collection] = rankings[ranker, None]
            if mean := mean_over_collections(metrics):
                means.append(f"{ranker}: {mean}")
        return "; ".join(means)

    @property
    def verdicts(self) -> dict[str, str]:
        """`verdict` by collection; by collection and ranker if there are several rankers."""
        verdicts = {}
        for collection, rankings in self.rankings.items():
            if not self.several:
                verdicts[collection] = verdict(collection, rankings)
            for ranker in self.several:
                if (ranker, None) in rankings:
                    text = verdict(collection, rankings, ranker)
                    verdicts[f"{collection}, {ranker}"] = text
        return verdicts

    @property
    def several(self) -> list[str]:
        """Evaluated rankers, best mean score first; empty unless a collection has two or more."""
        means: dict[str, list[float]] = {}
        most = 0
        for rankings in self.rankings.values():
            names = [name for name, seed in rankings if seed is None]
            rankers = [name for name in names if name not in _rules(rankings)]
            most = max(most, len(rankers))
            for name in rankers:
                means.setdefault(name, []).append(float(column(rankings[name, None]).mean()))
        return sorted(means, key=lambda name: -np.mean(means[name])) if most > 1 else []


def reported(collection: str, rankings: Rankings) -> dict[str, dict[str, Any]]:
    """Return ``{metric: {mean, std, low, high, graphs: {name: value}}}`` of the first ranker.

    If rules were evaluated, `METRICS` also have the means of rules (``baselines``), the standard
    deviation over seeds of the mean over graphs (``seeds_std``; None for one seed) and the mean
    with identical configurations counted once (``repeats_once``); tau of layouts has a ``ceiling``
    by graph, None if unknown.
    """
    (ranker, _), metrics = next(iter(rankings.items()))
    shown = {}
    for graph, values in metrics.items():
        shown[graph] = {name: values[name] for name in (*METRICS, *SPEEDUPS) if name in values}
    report = summarise(shown)
    rules = untrained(rankings)
    if not rules:
        return report
    seeds = [rankings[key] for key in rankings if key[0] == ranker and key[1] is not None]
    for metric in METRICS:
        summary = report[metric]
        means = {rule: float(column(rules[rule], metric).mean()) for rule in rules}
        summary["baselines"] = means
        summary["seeds_std"] = None
        if seeds:
            by_seed = np.stack([column(scored, metric) for scored in seeds], 1)
            summary["seeds_std"] = float(by_seed.mean(axis=0).std(ddof=1))
        once = [values.get(f"{metric}_once", values[metric]) for values in metrics.values()]
        summary["repeats_once"] = float(np.mean(once))
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
    """Add a graph's metrics by the mean of ``(seeds, rows)`` scores, by each seed and by rules."""
    metrics = evaluate_graph(collection, rows, scores.mean(axis=0), picked)
    rankings.setdefault((ranker, None), {})[rows.name] = metrics
    cost = rows.cost[picked]
    group = rows.group[picked]
    for seed, score in enumerate(scores if len(scores) > 1 else ()):
        metrics = graph_metrics(collection.kind, score[group], cost, group)
        rankings.setdefault((ranker, seed), {})[rows.name] = metrics
    add_untrained(rankings, collection, rows, picked)


def add_untrained(
    rankings: Rankings,
    collection: Collection,
    rows: GraphRows,
    picked: Indices | slice = slice(None),
) -> None:
    """Add a graph's metrics by rules and by the shipped ranker."""
    for name, metrics in baselines(collection, rows, picked).items():
        label = name if name == SHIPPED_RANKER else RULE + name
        rankings.setdefault((label, None), {})[rows.name] = metrics


def out_of_fold(workspace: Workspace, collection: Collection, card: ModelCard) -> Rankings:
    """Return the out-of-fold metrics that a card stores, and those of rules on the same graphs.

    Graphs that were removed are left out; raises `CollectionError` if none is left.
    """
    rankings: Rankings = {(card.model, None): {}}
    for split in card.trained_on:
        if manifest := read_manifest(workspace, collection, split):
            others = dict.fromkeys(manifest.graphs.keys() - card.folds.keys(), "")
            for rows in graphs_to_score(workspace, collection, split, manifest, {}, others):
                rankings[card.model, None][rows.name] = card.folds[rows.name]
                add_untrained(rankings, collection, rows)
    if not rankings[card.model, None]:
        got = f"{collection} has no graph with out-of-fold scores"
        do = "train on two program families or more, or train again"
        raise CollectionError(got, do=do)
    return rankings


def compared(rankings: Rankings) -> list[dict[str, Any]]:
    """Return a row per ranker, rule and shipped ranker, the best first, on the graphs that all
    rankers score.

    Rules and the shipped ranker are left out where they do not score all of these graphs. ``score``
    is a summary as in `xlarank.models.validation.metrics.summary`; ``difference`` is the paired
    difference to the first row, with its 95 % interval; ``slowdown@1`` and ``slowdown@5`` are
    means.
    """
    means = [name for name, seed in rankings if seed is None]
    by_name = {name: rankings[name, None] for name in means if rankings[name, None]}
    rankers = by_name.keys() - _rules(rankings) or by_name.keys()
    common = set.intersection(*(set(by_name[name]) for name in rankers)) if rankers else set()
    shared = {}
    for name, metrics in by_name.items():
        if common and common <= metrics.keys():
            shared[name] = {graph: metrics[graph] for graph in metrics if graph in common}
    rows = []
    for name, metrics in shared.items():
        row: dict[str, Any] = {"ranker": name, "graphs": len(common)}
        for metric in ("score", "slowdown@1", "slowdown@5"):
            scores = {graph: values[metric] for graph, values in metrics.items()}
            row[metric] = validation_metrics.summary(scores, metric)
        rows.append(row)
    rows.sort(key=lambda row: -row["score"]["mean"])
    for row in rows:
        row["difference"] = None
        if row is not rows[0]:
            pair = (shared[row["ranker"]], shared[rows[0]["ranker"]])
            row["difference"] = validation_metrics.difference(*pair, "score")
    return rows


def comparison_cells(
    rows: Sequence[Mapping[str, Any]], score: str = "score"
) -> list[dict[str, str]]:
    """Format the rows of `compared` as cells by column heading; ``score`` names the metric."""
    table = []
    for row in rows:
        gap = row["difference"]
        lead = f"{gap['mean']:+.3f}" if gap else "-"
        if gap and gap["graphs"] > 1:
            lead += f" ({gap['low']:+.3f}, {gap['high']:+.3f})"
        table.append(
            {
                "ranker": row["ranker"],
                score: f"{row['score']['mean']:.3f}",
                "to the first (95 %)": lead,
                "slowdown@1": f"{row['slowdown@1']['mean']:.3f}",
                "@5": f"{row['slowdown@5']['mean']:.3f}",
            }
        )
    return table


def mean_over_collections(metrics: Mapping[str, Metrics]) -> str:
    """Describe the mean of the collections' mean scores, as Kaggle weights it; empty for one.

    If the five collections of the competition are among them, others do not count.

    >>> one, other = ({"a": {"score": score}} for score in (0.75, 0.25))
    >>> mean_over_collections({"tile:cpu": one, "layout:cpu:random": other})
    'mean over tile:cpu and layout:cpu:random, equally weighted: 0.500'
    >>> mean_over_collections({"tile:cpu": one, **dict.fromkeys(_KAGGLE, other)})
    "mean over Kaggle's five collections, equally weighted: 0.250"
    """
    is_complete = metrics.keys() >= {*_KAGGLE}
    names = _KAGGLE if is_complete else tuple(metrics)
    if len(names) < 2:
        return ""
    mean = np.mean([column(metrics[name]).mean() for name in names])
    label = "Kaggle's five collections" if is_complete else " and ".join(names)
    return f"mean over {label}, equally weighted: {mean:.3f}"


def evaluate_graph(
    collection: Collection, rows: GraphRows, scores: Floats, picked: Indices | slice = slice(None)
) -> dict[str, float]:
    """Return the metrics of ``(rows,)`` scores of a labelled graph.

    Includes `METRICS`, each also as ``<metric>_once`` with identical configurations counted once;
    `SPEEDUPS` if the cost of the compiler's default is known; and ``tau_ceiling`` if enough layouts
    were measured twice.
    """
    kind = collection.kind
    compiler = validation_metrics.compiler_cost(collection.kind, rows)
    cost = rows.cost[picked]
    group = rows.group[picked]
    score = scores[group]
    metrics = graph_metrics(kind, score, cost, group)
    once = graph_metrics(kind, *deduplicated(score, cost, group))
    metrics |= {f"{metric}_once": value for metric, value in once.items()}
    if compiler is not None:
        metrics |= validation_metrics.speedups(score, rows.row_cost[group], compiler, group)
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
        if not rows.labelled:
            left_out[rows.name] = "its labels are withheld"
        elif not rows.rankable:
            left_out[rows.name] = "all its configurations cost the same"
        elif rows.name in excluded:
            left_out[rows.name] = excluded[rows.name]
        else:
            yield rows


def column(metrics: Mapping[str, Mapping[str, float]], metric: str = "score") -> Floats:
    """Return the values of a metric, ``(graphs,)``."""
    return np.array([values[metric] for values in metrics.values()])


def untrained(rankings: Rankings) -> dict[str, Metrics]:
    """Return the rankings by rules and by the shipped ranker, by name."""
    return {name.removeprefix(RULE): rankings[name, None] for name in _rules(rankings)}


def _rules(rankings: Rankings) -> list[str]:
    return [name for name, _ in rankings if name.startswith(RULE) or name == SHIPPED_RANKER]


def ceilings_of(metrics: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the largest tau that repeated measurements allow, for graphs that have them."""
    known = [name for name, values in metrics.items() if "tau_ceiling" in values]
    return {name: metrics[name]["tau_ceiling"] for name in known}


def score_name(collection: str) -> str:
    return "Kendall tau" if collection.startswith("layout:") else "1 - slowdown@5"


def with_interval(summary: Mapping[str, Any]) -> str:
    """Format the mean of `xlarank.models.validation.metrics.summary`, with its 95 % interval for
    several graphs.

    >>> with_interval({"mean": 0.25, "low": 0.2, "high": 0.3, "graphs": {"a": 0.2, "b": 0.3}})
    '0.250 (0.200 to 0.300)'
    """
    text = f"{summary['mean']:.3f}"
    if len(summary["graphs"]) > 1:
        text += f" ({summary['low']:.3f} to {summary['high']:.3f})"
    return text.replace("-0.000", "0.000")


def count_unseen(model: Model, names: Iterable[str]) -> int:
    """Count the graphs of families outside the training set of a model."""
    known_families = {program_family(name) for name in model.require_card().known_graphs}
    return sum(program_family(name) not in known_families for name in names)


def known_families(related: int, graphs: int) -> str:
    """Say how many graphs are of families in the training set of a model.

    >>> known_families(1, 1), known_families(0, 2)
    ('1 of 1 graph is of a family in the training set of the model', '0 of 2 graphs are of \
families in the training set of the model')
    """
    one = "is of a family" if related == 1 else "are of families"
    return f"{related} of {counted(graphs, 'graph')} {one} in the training set of the model"


def ranking_name(model: Model) -> str:
    """Return the name of a model, rule or shipped ranker in `Rankings`."""
    return SHIPPED_RANKER if model.shipped else model.name


def in_use(collection: str, rankings: Rankings, chosen: Model, why: str) -> str:
    """Say which ranker `rank` and `submit` use in place of a model, and its score on the same
    graphs; empty without the reason ``why`` of `xlarank.pipelines.ranking.winner.best_of`.
    """
    if not why:
        return ""
    name = ranking_name(chosen)
    metrics = rankings.get((name, None), {})
    score = ""
    if metrics.keys() == next(iter(rankings.values())).keys():
        scores = {graph: values["score"] for graph, values in metrics.items()}
        mean = with_interval(validation_metrics.summary(scores))
        score = f": {score_name(collection)} {mean} on these graphs"
    return f"rank and submit use {name}{score}; it{why.removeprefix(name)}"


def verdict(collection: str, rankings: Rankings, ranker: str = "") -> str:
    """Return a sentence with the score of a ranker, by default the first, and a comparison with the
    best rule, except the rule that it is.

    >>> model, rule = ({"a": {"score": x}, "b": {"score": x + 0.25}} for x in (0.5, 0.25))
    >>> verdict("layout:cpu:random", {("lambdarank", None): model, ("rule: file order",
    ...     None): rule})
    'better than the best rule without learning (file order, 0.375): Kendall tau 0.625 (0.500 to
    0.750), ahead on 2 of 2 graphs, by +0.250 (95 % interval +0.250 to +0.250) on average'
    """
    metrics = rankings[ranker, None] if ranker else next(iter(rankings.values()))
    label = ranker or next(iter(rankings))[0]
    scores = {name: values["score"] for name, values in metrics.items()}
    score = f"{score_name(collection)} {with_interval(validation_metrics.summary(scores))}"
    rules = {
        name: np.array([scored[graph]["score"] for graph in scores])
        for name, scored in untrained(rankings).items()
        if name not in (RANDOM, *_same_as(label)) and scores.keys() <= scored.keys()
    }
    rule = max(rules, key=lambda name: rules[name].mean())
    leads = np.array([*scores.values()]) - rules[rule]
    low, high = validation_metrics.bootstrap_interval(leads)
    if rule == SHIPPED_RANKER:
        best_rule = f"the shipped ranker ({rules[rule].mean():.3f})"
    else:
        best = "best other rule" if _same_as(label) else "best rule"
        best_rule = f"the {best} without learning ({rule}, {rules[rule].mean():.3f})"
    if len(metrics) == 1:
        return f"on one graph alone, beside {best_rule}: {score}"
    if not leads.any():
        return f"level with {best_rule} on every graph: {score}"
    count = f"ahead on {(leads > 0).sum()} of {counted(len(metrics), 'graph')}"
    lead = f"by {leads.mean():+.3f} (95 % interval {low:+.3f} to {high:+.3f}) on average"
    if low > 0 or high < 0:
        compared_with = f"{'better' if low > 0 else 'worse'} than {best_rule}"
    else:
        place = "ahead of" if leads.mean() > 0 else "behind"
        compared_with = f"{place} {best_rule}, but not significantly"
    return f"{compared_with}: {score}, {count}, {lead}"


def _same_as(label: str) -> tuple[str, ...]:
    """Return the names, among rules and the shipped ranker, of an evaluated shipped ranker."""
    if not label.endswith(SHIPPED_RANKER):
        return ()
    return (ESTIMATED_TIME,) if label.startswith(RELAYOUT_TIME) else (SHIPPED_RANKER,)


def count_verdicts(verdicts: Iterable[str]) -> str:
    """Count models by their verdicts.

    >>> count_verdicts(["better than ...", "behind ..., but not significantly: ..."])
    'Beside the best rule without learning, of 2 models: 1 better, 0 worse, 1 not significantly \
different.'
    """
    texts = list(verdicts)
    starts = ("better", "worse", "on one graph alone")
    better, worse, alone = (sum(text.startswith(start) for text in texts) for start in starts)
    others = len(texts) - better - worse - alone
    counts = f"{better} better, {worse} worse, {others} not significantly different"
    counts += f", {alone} on one graph alone" if alone else ""
    return f"Beside the best rule without learning, of {counted(len(texts), 'model')}: {counts}."
