"""The parts of the report, each from plain facts to HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.family import program_family
from xlarank.data.label_source import label_source
from xlarank.features.meanings import column_meanings
from xlarank.models.explanation.calibration import AMONG_FIRST, CERTAIN, NEARLY
from xlarank.models.validation.bootstrap import bootstrap_interval
from xlarank.models.validation.fold_plan import FOLDS_OF
from xlarank.models.validation.judged import RANDOM
from xlarank.models.validation.metrics import summarise
from xlarank.pipelines.reporting import charts
from xlarank.pipelines.reporting.gather import MODEL, CollectionFacts, GraphScores, paired
from xlarank.pipelines.reporting.html import Cell, Raw, card, folded, paragraph, table, text

Floats = NDArray[np.float64]

_TOP_COLUMNS: Final = 25
_TOP_NODES: Final = 12
#: With fewer graphs that differ a signed-rank test can never come out below 5 %.
_FEW_FOR_A_TEST: Final = 6
#: Pictures of studies are files of their own; in the page they take its colours.
_STUDY_COLOURS: Final = {
    "#ffffff": "var(--card)", "#1f2d3d": "currentColor", "#44546a": "var(--soft)", "#dfe5ec": "var(--line)",
}  # fmt: skip


def measure(facts: CollectionFacts) -> str:
    """What the score of a collection is, in words."""
    return "Kendall tau" if facts.collection.kind == "layout" else "1 - slowdown@5"


def source(facts: CollectionFacts) -> str:
    """What stands behind the labels, as far as the collection's name says."""
    return label_source(facts.collection).value


def interval(values: Floats) -> str:
    """Mean and its 95 % interval."""
    if len(values) == 0:
        return "-"
    low, high = bootstrap_interval(values)
    return f"{values.mean():.3f} ({low:.3f} to {high:.3f})".replace("-0.000", "0.000")


def data_section(all_facts: Sequence[CollectionFacts]) -> str:
    """What was found, and what was left out."""
    rows: list[Sequence[Cell]] = []
    left_out: list[Sequence[Cell]] = []
    for facts in all_facts:
        for split, manifest in facts.manifests.items():
            about = manifest.graphs.values()
            rows.append(
                [
                    facts.name, split, source(facts), len(manifest.graphs),
                    sum(int(one.get("configs", 0)) for one in about), sum(int(one.get("rows", 0)) for one in about),
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
    listed = table(["collection", "split", "graph", "why"], left_out)
    return card(table(heads, rows)) + folded(f"{len(left_out)} files left out, with reasons", listed)


def study_section(all_facts: Sequence[CollectionFacts]) -> str:
    """The course of each study and the importance of its parameters."""
    parts = []
    for facts in all_facts:
        for picture in facts.studies:
            own = picture
            for colour, token in _STUDY_COLOURS.items():
                own = own.replace(colour, token)
            own = re.sub(r"<svg ", '<svg role="img" style="width:100%;max-width:960px" ', own, count=1)
            parts.append(card(own))
    return "".join(parts)


def scores_section(facts: CollectionFacts) -> str:
    """Scores per graph beside what needs no model."""
    if not facts.graphs:
        return paragraph(f"Not judged: {facts.why_not or 'no labelled graph that the model did not learn from'}.")
    rankings = list(facts.graphs[0].metrics)
    heads = ["graph", "configurations", measure(facts), *(r for r in rankings if r != MODEL)]
    heads += ["slowdown@1", "slowdown@5", "pairs certain"]
    rows: list[Sequence[Cell]] = [
        [
            graph.name, graph.distinct, graph.score,
            *(graph.metrics[ranking]["score"] for ranking in rankings if ranking != MODEL),
            graph.metrics[MODEL]["slowdown@1"], graph.metrics[MODEL]["slowdown@5"], graph.certain,
        ]
        for graph in sorted(facts.graphs, key=lambda one: -one.score)
    ]  # fmt: skip
    sums: list[Cell] = ["mean, 95 % interval", None, interval(facts.column(MODEL, "score"))]
    sums += [interval(facts.column(ranking, "score")) for ranking in rankings if ranking != MODEL]
    sums += [interval(facts.column(MODEL, name)) for name in ("slowdown@1", "slowdown@5")]
    certain = [graph.certain for graph in facts.graphs if graph.certain is not None]
    sums.append(f"{np.mean(certain):.3f}" if certain else None)
    chart = charts.scores_chart(
        f"scores-{facts.name}",
        [graph.name for graph in facts.graphs],
        {ranking: facts.column(ranking, "score").tolist() for ranking in rankings},
        measure(facts),
    )
    told = paragraph(
        f"Valid graphs, {_kinship(facts)}; labels are {source(facts)}. {measure(facts)}: higher is better. "
        "slowdown@k: how much slower than the best the best of the first k is."
    )
    left = table(["graph", "why"], [[name, why] for name, why in facts.left_out.items()])
    return told + card(chart) + card(table(heads, rows, [sums])) + folded("graphs left out", left)


def _kinship(facts: CollectionFacts) -> str:
    """How near the judged graphs are to those learned from."""
    assert facts.model is not None
    learned = {program_family(name) for name in facts.learned}
    related = sum(program_family(graph.name) in learned for graph in facts.graphs)
    if not related:
        return "all of families that the model never saw"
    return f"{related} of {len(facts.graphs)} of families that the model learned from"


def folds_section(facts: CollectionFacts) -> str:
    """What the model's own folds said when it was trained."""
    if facts.model is None or not facts.model.card.folds:
        return ""
    folds = facts.model.card.folds
    score: Any = summarise(folds)["score"]
    rows: list[Sequence[Cell]] = [[name, one["score"], one["slowdown@5"]] for name, one in folds.items()]
    title = (
        f"out of fold, when it was trained: {score['mean']:.3f} ({score['low']:.3f} to {score['high']:.3f}) "
        f"over {len(folds)} graphs"
    )
    return folded(title, table(["graph", measure(facts), "slowdown@5"], rows))


def ranks_section(facts: CollectionFacts) -> str:
    """Predicted against measured rank of the best, the median and the worst graph."""
    ordered = facts.sorted_by_score()
    if not ordered:
        return ""
    shown: list[tuple[str, GraphScores]] = [("best", ordered[-1])]
    if len(ordered) > 2:
        shown.append(("median", ordered[len(ordered) // 2]))
    if len(ordered) > 1:
        shown.append(("worst", ordered[0]))
    panels = [(f"{what}: {one.name}\n{one.score:.3f}", one.predicted, one.measured) for what, one in shown]
    return card(charts.ranks_chart(f"ranks-{facts.name}", panels))


def columns_section(facts: CollectionFacts) -> str:
    """What the columns are worth, by cause and one by one."""
    if not facts.importance:
        return ""
    meanings = column_meanings()
    rows: list[Sequence[Cell]] = [
        [Raw(f"<code>{text(name)}</code>"), share, meanings.get(name, ""), name.split("__")[0]]
        for name, share in list(facts.importance.items())[:_TOP_COLUMNS]
    ]
    by_block: list[Sequence[Cell]] = [[name, share] for name, share in facts.by_block().items()]
    return (
        paragraph(
            "Share of the gain of all splits of the trees: what the model looks at, not what is true.", soft=True
        )
        + card(charts.bars_chart(f"causes-{facts.name}", facts.by_cause(), "share of the gain"))
        + card(table(["column", "share of the gain", "what it holds", "block"], rows))
        + folded("the same by block", table(["block", "share of the gain"], by_block))
    )


def trust_section(facts: CollectionFacts) -> str:
    """Where the model is sure, and where not."""
    found = facts.calibration
    if found is None:
        return paragraph("Not calibrated: run calibrate, then report again.", soft=True) if facts.model else ""
    if np.isfinite(found.threshold):
        told = (
            f"A pair is called certain where its scores lie at least {found.threshold:.2f} standard deviations of "
            f"the {found.seeds} seeds apart: {found.certain:.0%} of the pairs. Of such pairs {found.right:.1%} "
            f"were in the right order ({found.right_low:.1%} to {found.right_high:.1%} over graphs; the aim was "
            f"{CERTAIN:.0%}), each graph judged by a threshold from the other families."
        )
    else:
        told = f"No pair can be called certain: at no distance of the scores {CERTAIN:.0%} of them are right."
    first = (
        f"With {AMONG_FIRST:.0%} probability the best is among the first {found.first:.0%} of a graph's distinct "
        f"configurations, and one at most {NEARLY:.0%} slower among the first {found.first_nearly:.0%}."
    )
    bins: list[Sequence[Cell]] = [
        [one.distance, one.pairs, one.right, f"{one.right_low:.3f} to {one.right_high:.3f}"] for one in found.bins
    ]
    unsure: list[Sequence[Cell]] = [
        [graph.name, graph.certain, graph.score]
        for graph in sorted(facts.graphs, key=lambda one: one.certain if one.certain is not None else 1.0)
    ]
    chart = charts.reliability_chart(
        f"trust-{facts.name}",
        [one.distance for one in found.bins],
        [one.right for one in found.bins],
        [one.right_low for one in found.bins],
        [one.right_high for one in found.bins],
    )
    held_out = f"{found.families} {FOLDS_OF[found.by]}"
    heads = ["median distance of the scores", "pairs", "in the right order", "95 % interval over graphs"]
    return (
        paragraph(f"Measured out of fold on {found.graphs} graphs of {held_out}. {told} {first}")
        + card(chart, table(heads, bins))
        + card(table(["graph, least sure first", "pairs certain", measure(facts)], unsure))
    )


def explained_section(facts: CollectionFacts) -> str:
    """Why the best configuration of the median graph comes first."""
    if facts.explained is None:
        return ""
    found = facts.explained.found
    told = paragraph(
        f"{found.graph}, the graph of the median score: configuration {found.now} (rank {found.ranks[0]} of "
        f"{found.configurations:,}) against {found.then} (rank {found.ranks[1]}, {found.against}). "
        f"Difference of the scores {found.difference:+.3f}; contributions add up to it, those below 0 speak for "
        f"{found.now}."
    )
    causes: list[Sequence[Cell]] = [[name, value] for name, value in found.causes.items()]
    nodes: list[Sequence[Cell]] = [
        [node.node, str(node.text), node.now, node.then, node.value] for node in found.nodes[:_TOP_NODES]
    ]
    other = sum(node.value for node in found.nodes[_TOP_NODES:])
    sums: list[Sequence[Cell]] = []
    if len(found.nodes) > _TOP_NODES:
        sums.append(["", f"{len(found.nodes) - _TOP_NODES} other nodes", "", "", f"{other:+.3f}"])
    if found.nodes:
        sums.append(["", "the whole graph: what no node answers for alone", "", "", f"{found.rest:+.3f}"])
    notes = "".join(paragraph(note, soft=True) for note in found.notes)
    return (
        told
        + (card(facts.explained.picture) if facts.explained.picture else "")
        + card(table(["cause", "contribution"], causes))
        + (card(table(["node", "operation", "now", "then", "contribution"], nodes, sums)) if nodes else "")
        + notes
    )


def compared_section(ours: CollectionFacts, theirs: CollectionFacts, other: str) -> str:
    """Two runs graph by graph, with a paired test."""
    names, mine, yours = paired(ours.graphs, theirs.graphs)
    if not names:
        return paragraph(f"No graph was judged in both runs ({theirs.why_not or 'other graphs'}).")
    difference = mine - yours
    columns = [mine, yours, difference]
    for metric in ("slowdown@1", "slowdown@5"):
        _, slower, others = paired(ours.graphs, theirs.graphs, metric)
        columns += [slower, others, slower - others]
    rows: list[Sequence[Cell]] = [
        [name, *map(float, values)] for name, *values in zip(names, *columns, strict=True)
    ]
    sums: list[Cell] = ["mean, 95 % interval", *map(interval, columns)]
    better, worse = int((difference > 0).sum()), int((difference < 0).sum())
    told = f"{better} of {len(names)} graphs are ranked better than in {other}, {worse} worse. "
    told += paired_test(difference)
    told += " The intervals of differences are paired: graphs are drawn with both runs' values."
    chart = charts.pairs_chart(f"pairs-{ours.name}", names, mine, yours, measure(ours))
    models = [facts.model.card.model if facts.model else "-" for facts in (ours, theirs)]
    heads = ["graph", f"this run ({models[0]})", f"other run ({models[1]})", "difference"]
    heads += [
        f"{metric}, {run}" for metric in ("slowdown@1", "slowdown@5") for run in ("this", "other", "difference")
    ]
    return paragraph(told) + card(chart) + card(table(heads, rows, [sums]))


def paired_test(difference: Floats) -> str:
    """Wilcoxon's signed-rank test in words."""
    from scipy.stats import wilcoxon

    differing = difference[difference != 0]
    if len(differing) < _FEW_FOR_A_TEST:
        return f"{len(differing)} graphs that differ are too few for a test."
    p = float(wilcoxon(differing).pvalue)
    verdict = "more than chance makes likely" if p < 0.05 else "no more than chance makes likely"
    return f"Wilcoxon's signed-rank test over graphs: p = {p:.3g}, {verdict}."


def runs_section(runs: Sequence[dict[str, Any]]) -> str:
    """Time and memory of the commands, as far as recorded."""
    rows: list[Sequence[Cell]] = []
    for run in runs:
        memory, seconds = run.get("peak_mb"), run.get("seconds")
        rows.append(
            [
                str(run.get("began", "")),
                Raw(f"<code>{text(' '.join(map(str, run['arguments'])))}</code>"),
                float(seconds) if isinstance(seconds, int | float) else None,
                int(memory) if isinstance(memory, int | float) else None,
                str(run.get("exit", "")),
            ]
        )
    return card(table(["began", "command", "seconds", "peak memory, MB", "exit"], rows)) if rows else ""


def versions_section(all_facts: Sequence[CollectionFacts]) -> str:
    """What the models were made with."""
    rows: list[Sequence[Cell]] = []
    for facts in all_facts:
        if facts.model is not None:
            one = facts.model.card
            versions = ", ".join(f"{name} {version}" for name, version in one.versions.items())
            rows.append([facts.name, one.model, one.rounds, len(one.seeds), one.recipe.code_hash, versions])
    heads = ["collection", "model", "rounds", "seeds", "feature code", "versions when it was trained"]
    return card(table(heads, rows)) if rows else ""


def baseline_names(facts: CollectionFacts) -> list[str]:
    """Rankings that need no model, without the random one."""
    return [name for name in facts.graphs[0].metrics if name not in (MODEL, RANDOM)] if facts.graphs else []
