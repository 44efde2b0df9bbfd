"""Tables, sentences and charts of the report's template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from xlarank.data.family import program_family
from xlarank.data.wording import counted
from xlarank.features.meanings import column_meanings
from xlarank.models.explanation.calibration import AMONG_FIRST, CERTAIN, NEARLY
from xlarank.models.validation.fold_plan import FOLDS_OF
from xlarank.pipelines.reporting import charts
from xlarank.pipelines.reporting.gather import MODEL, CollectionFacts, paired
from xlarank.pipelines.support import evaluation
from xlarank.pipelines.support.evaluation import interval, measure

Floats = NDArray[np.float64]
Cell = str | int | float | None
View = dict[str, Any]

_TOP_COLUMNS: Final = 25
_TOP_NODES: Final = 12
#: With fewer graphs that differ a signed-rank test can never come out below 5 %.
_FEW_FOR_A_TEST: Final = 6


@dataclass(frozen=True)
class Table:
    """Rows under heads; ``sums`` stay at the end when a reader sorts."""

    heads: Sequence[str]
    rows: list[Sequence[Cell]]
    sums: list[Sequence[Cell]] = field(default_factory=list)

    @property
    def right(self) -> list[bool]:
        """Which columns hold numbers, and are aligned right."""
        return [
            all(isinstance(value, int | float | None) for value in column) and any(v is not None for v in column)
            for column in zip(*self.rows, strict=True)
        ]


def format_cell(value: Cell) -> str:
    """A value of a table as text; a `Markup` stays one."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value + 0.0:.3f}".replace("-0.000", "0.000")
    return f"{value:,}" if isinstance(value, int) else value


def verdict(facts: CollectionFacts) -> str:
    """One sentence: whether the model beats the best rule without learning on valid, and how sure that is."""
    rankings = {name: facts.column(name, "score") for name in facts.graphs[0].metrics if name != MODEL}
    return evaluation.verdict(facts.collection, facts.column(MODEL, "score"), rankings)


def data_views(all_facts: Sequence[CollectionFacts]) -> tuple[Table, Table]:
    """What was found, and the files that were left out."""
    rows: list[Sequence[Cell]] = []
    left_out: list[Sequence[Cell]] = []
    for facts in all_facts:
        for split, manifest in facts.manifests.items():
            about = manifest.graphs.values()
            labelled = any(one.get("labelled", True) for one in about)
            rows.append(
                [
                    facts.name, split, facts.collection.label_source if labelled else "withheld",
                    len(manifest.graphs), sum(int(one.get("configs", 0)) for one in about),
                    sum(int(one.get("rows", 0)) for one in about),
                    sum(not one.get("rankable", True) for one in about), len(manifest.broken),
                ]
            )  # fmt: skip
            left_out += [[facts.name, split, name, why] for name, why in manifest.broken.items()]
            left_out += [
                [facts.name, split, name, "nothing to rank: all its configurations are one or cost the same"]
                for name, one in manifest.graphs.items()
                if not one.get("rankable", True)
            ]
    heads = ["collection", "split", "labels", "graphs", "configurations", "distinct rows", "not rankable", "broken"]
    return Table(heads, rows), Table(["collection", "split", "graph", "why"], left_out)


def collection_view(facts: CollectionFacts, number: int, other: tuple[CollectionFacts, str] | None) -> View:
    """Everything about one collection; ``other`` is another workspace's facts and its name."""
    return {
        "id": f"c{number}",
        "name": facts.name,
        "why_not": facts.why_not or "no labelled graph outside the training set of the model",
        "scores": _scores(facts),
        "compared": _compared(facts, *other) if other else None,
        "ranks": _ranks(facts),
        "trust": _trust(facts),
        "explained": _explained(facts),
        "columns": _columns(facts),
    }


def _scores(facts: CollectionFacts) -> View | None:
    """Scores per graph beside what needs no model."""
    if not facts.graphs:
        return None
    rankings = list(facts.graphs[0].metrics)
    columns = {measure(facts.collection) if one == MODEL else one: (one, "score") for one in rankings}
    columns |= {name: (MODEL, name) for name in ("slowdown@1", "slowdown@5")}
    rows: list[Sequence[Cell]] = [
        [
            graph.name,
            graph.distinct,
            *(graph.metrics[one][metric] for one, metric in columns.values()),
            graph.certain,
        ]
        for graph in sorted(facts.graphs, key=lambda one: -one.score)
    ]
    certain = [graph.certain for graph in facts.graphs if graph.certain is not None]
    means = [interval(facts.column(*one)) for one in columns.values()]
    sums: list[Cell] = ["mean, 95 % interval", None, *means, f"{np.mean(certain):.3f}" if certain else None]
    families = {program_family(name) for name in facts.learned}
    related = sum(program_family(graph.name) in families for graph in facts.graphs)
    unseen = len(facts.graphs) - related
    kinship = f"{unseen} of {len(facts.graphs)}" if related else "all"
    return {
        "text": f"Valid graphs, {kinship} of families outside the training set of the model; labels are "
        f"{facts.collection.label_source}. {measure(facts.collection)}: higher is better. slowdown@k: how much "
        "slower than the best the best of the first k is.",
        "chart": charts.scores_chart(
            f"scores-{facts.name}",
            [graph.name for graph in facts.graphs],
            {ranking: facts.column(ranking, "score").tolist() for ranking in rankings},
            measure(facts.collection),
        ),
        "table": Table(["graph", "configurations", *columns, "pairs certain"], rows, [sums]),
        "left_out": Table(["graph", "why"], [[name, why] for name, why in facts.left_out.items()]),
    }


def _ranks(facts: CollectionFacts) -> str:
    """Predicted and true ranks of the best, the median and the worst graph."""
    ordered = facts.sorted_by_score()
    if not ordered:
        return ""
    shown = {"best": ordered[-1]}
    if len(ordered) > 2:
        shown["median"] = ordered[len(ordered) // 2]
    if len(ordered) > 1:
        shown["worst"] = ordered[0]
    return "".join(
        charts.ranks_chart(
            f"ranks-{facts.name}-{what}",
            [(f"{what}: {charts.short(one.name)}\n{one.score:.3f}", one.predicted, one.measured)],
        )
        for what, one in shown.items()
    )


def _columns(facts: CollectionFacts) -> View | None:
    """Importance of the columns, by cause and one by one."""
    if not facts.importance:
        return None
    meanings = column_meanings()
    rows: list[Sequence[Cell]] = [
        [Markup("<code>{}</code>").format(name), share, meanings.get(name, "")]
        for name, share in list(facts.importance.items())[:_TOP_COLUMNS]
    ]
    return {
        "chart": charts.bars_chart(f"causes-{facts.name}", facts.by_cause(), "share of the gain"),
        "table": Table(["column", "share of the gain", "what it holds"], rows),
    }


def _trust(facts: CollectionFacts) -> View:
    """Certainty: how often the order of pairs is right."""
    found = facts.calibration
    if found is None:
        return {"text": "Not calibrated: run calibrate, then report again.", "table": None}
    if np.isfinite(found.threshold):
        certain = (
            f"A pair is called certain where its scores lie at least {found.threshold:.2f} standard deviations of "
            f"the {found.seeds} seeds apart: {found.certain:.0%} of the pairs. Of such pairs {found.right:.1%} "
            f"were in the right order ({found.right_low:.1%} to {found.right_high:.1%} over graphs; the aim was "
            f"{CERTAIN:.0%}), each graph with the threshold of the other families."
        )
    else:
        certain = f"No pair can be called certain: at no distance of the scores {CERTAIN:.0%} of them are right."
    first = (
        f"With {AMONG_FIRST:.0%} probability the best is among the first {found.first:.0%} of a graph's distinct "
        f"configurations, and one at most {NEARLY:.0%} slower among the first {found.first_nearly:.0%}."
    )
    heads = ["median distance of the scores", "pairs", "in the right order", "95 % interval over graphs"]
    bins: list[Sequence[Cell]] = [
        [one.distance, one.pairs, one.right, f"{one.right_low:.3f} to {one.right_high:.3f}"] for one in found.bins
    ]
    return {
        "text": f"Measured out of fold on {counted(found.graphs, 'graph')} of {found.families} "
        f"{FOLDS_OF[found.by]}. {certain} {first}",
        "chart": charts.reliability_chart(f"trust-{facts.name}", found.bins),
        "table": Table(heads, bins),
    }


def _explained(facts: CollectionFacts) -> View | None:
    """Explanation of the best configuration of the median graph."""
    if facts.explained is None:
        return None
    found, picture = facts.explained
    nodes: list[Sequence[Cell]] = [
        [node.node, str(node.text), node.now, node.then, node.value] for node in found.nodes[:_TOP_NODES]
    ]
    sums: list[Sequence[Cell]] = []
    if len(found.nodes) > _TOP_NODES:
        other = sum(node.value for node in found.nodes[_TOP_NODES:])
        sums.append(["", f"{len(found.nodes) - _TOP_NODES} other nodes", "", "", f"{other:+.3f}"])
    sums.append(["", "the whole graph: what no node answers for alone", "", "", f"{found.rest:+.3f}"])
    return {
        "text": f"{found.graph}, the graph of the median score: configuration {found.now} (rank {found.ranks[0]} "
        f"of {found.configurations:,}) against {found.then} (rank {found.ranks[1]}, {found.against}). The scores "
        f"differ by {found.difference:+.3f}; contributions add up to it, those below 0 speak for {found.now}.",
        "picture": picture,
        "causes": Table(["cause", "contribution"], [[name, value] for name, value in found.causes.items()]),
        "nodes": Table(["node", "operation", "now", "then", "contribution"], nodes, sums if nodes else []),
        "notes": found.notes,
    }


def _compared(ours: CollectionFacts, theirs: CollectionFacts, other: str) -> View:
    """Two runs graph by graph, with a paired test."""
    names, mine, yours = paired(ours.graphs, theirs.graphs)
    if not names:
        return {
            "text": f"No graph was scored in both workspaces ({theirs.why_not or 'other graphs'}).",
            "table": None,
        }
    difference = mine - yours
    columns = [mine, yours, difference]
    for metric in ("slowdown@1", "slowdown@5"):
        _, slower, others = paired(ours.graphs, theirs.graphs, metric)
        columns += [slower, others, slower - others]
    better, worse = int((difference > 0).sum()), int((difference < 0).sum())
    models = [facts.model.card.model if facts.model else "-" for facts in (ours, theirs)]
    heads = ["graph", f"this workspace ({models[0]})", f"other workspace ({models[1]})", "difference"]
    heads += [
        f"{metric}, {run}" for metric in ("slowdown@1", "slowdown@5") for run in ("this", "other", "difference")
    ]
    return {
        "text": f"{better} of {counted(len(names), 'graph')} ranked better than in {other}, {worse} worse. "
        f"{paired_test(difference)} Intervals of differences are paired by graph.",
        "table": Table(
            heads,
            [[name, *map(float, values)] for name, *values in zip(names, *columns, strict=True)],
            [["mean, 95 % interval", *map(interval, columns)]],
        ),
    }


def paired_test(difference: Floats) -> str:
    """Result of Wilcoxon's signed-rank test in a sentence."""
    from scipy.stats import wilcoxon

    differing = difference[difference != 0]
    if len(differing) < _FEW_FOR_A_TEST:
        return f"Too few graphs differ for a test: {len(differing)}."
    p = float(wilcoxon(differing).pvalue)
    likely = "more than chance makes likely" if p < 0.05 else "no more than chance makes likely"
    return f"Wilcoxon's signed-rank test over graphs: p = {p:.3g}, {likely}."


def runs_view(runs: Sequence[dict[str, Any]]) -> Table:
    """Time and memory of the commands, as far as recorded."""
    rows: list[Sequence[Cell]] = []
    for run in runs:
        memory, seconds = run.get("peak_mb"), run.get("seconds")
        rows.append(
            [
                str(run.get("began", "")),
                Markup("<code>{}</code>").format(" ".join(map(str, run["arguments"]))),
                float(seconds) if isinstance(seconds, int | float) else None,
                int(memory) if isinstance(memory, int | float) else None,
                str(run.get("exit", "")),
            ]
        )
    return Table(["began", "command", "seconds", "peak memory, MB", "exit"], rows)


def versions_view(all_facts: Sequence[CollectionFacts]) -> Table:
    """What the models were made with."""
    rows: list[Sequence[Cell]] = []
    for facts in all_facts:
        if facts.model is not None:
            one = facts.model.card
            versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
            rows.append([facts.name, one.model, one.rounds, len(one.seeds), one.recipe.code_hash, versions])
    return Table(["collection", "model", "rounds", "seeds", "feature code", "versions when it was trained"], rows)
