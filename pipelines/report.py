"""HTML report of a workspace: data, scores, feature importance, explanations and studies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import xlarank
from xlarank.data.errors import counted
from xlarank.data.files import atomic_write, read_text
from xlarank.data.workspace import Workspace
from xlarank.features.meanings import cause_of, column_meanings
from xlarank.models.arrays import Floats
from xlarank.models.contributions import sum_by_key
from xlarank.models.validation.metrics import summary
from xlarank.pipelines.reporting import charts
from xlarank.pipelines.reporting.facts import METRICS, CollectionFacts, Row, gather
from xlarank.pipelines.support import baselines, evaluation, verdicts
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.results import leaderboard, read_results
from xlarank.pipelines.support.workspaces import chosen_collections

if TYPE_CHECKING:
    from jinja2 import Template


def report(
    workspace: Workspace,
    out: Path,
    *,
    compare: Workspace | None = None,
    collections: Sequence[str] = (),
    figures: Path | None = None,
    progress: Progress | None = None,
) -> tuple[list[CollectionFacts], list[Path]]:
    """Write the report of a workspace to ``out``; return its facts, and the paths of pictures.

    The page is self-contained and has a light and a dark theme. Models are scored anew on the valid
    split, or have their out-of-fold scores if there is none; with ``compare``, those of another
    workspace are scored too and compared graph by graph. ``figures`` is a folder for the pictures
    as SVG files.

    Raises `CollectionError` if the workspace has no stored features.
    """
    chosen = chosen_collections(workspace, collections)
    all_facts: list[CollectionFacts] = []
    compared_facts: dict[str, CollectionFacts] = {}
    with steps_of(progress, "reporting", len(chosen)) as step:
        for collection in chosen:
            all_facts.append(gather(workspace, collection))
            if compare is not None:
                compared_facts[str(collection)] = gather(compare, collection)
            step(str(collection))
    other_name = compare.root.name if compare else ""
    text = _page(workspace, all_facts, compared_facts, other_name)
    page = text.encode("utf-8", "backslashreplace")  # names of files need not be UTF-8
    with atomic_write(out) as partial:
        partial.write_bytes(page)
    pictures = [] if figures is None else _write_pictures(all_facts, figures)
    return all_facts, pictures


def _page(
    workspace: Workspace,
    all_facts: Sequence[CollectionFacts],
    compared_facts: Mapping[str, CollectionFacts],
    other_name: str,
) -> str:
    """Return the report as HTML; ``compared_facts`` are of the workspace ``other_name``."""
    evaluated = [facts for facts in all_facts if facts.metrics]
    texts = {facts.name: verdicts.verdict(facts.name, facts.rankings) for facts in evaluated}
    data, left_out = _data_rows(all_facts)
    return _template().render(
        workspace=workspace.root.name,
        version=xlarank.__version__,
        graphs=sum(row["graphs"] for row in data),
        summary=verdicts.count_verdicts(texts.values()),
        texts=texts,
        ranked_by={facts.name: facts.ranked_by for facts in evaluated},
        overall=verdicts.mean_over_collections({facts.name: facts.metrics for facts in evaluated}),
        data=data,
        left_out=left_out,
        trained=[facts for facts in all_facts if facts.model],
        untrained={facts.name: facts.reason for facts in all_facts if not facts.model},
        others=compared_facts,
        other_name=other_name,
        studies=[picture for facts in all_facts for picture in facts.studies],
        board=_board(workspace, [facts.name for facts in all_facts]),
        runs=_runs(workspace),
        meanings=column_meanings(),
    )


def _write_pictures(all_facts: Iterable[CollectionFacts], folder: Path) -> list[Path]:
    """Write the charts of metrics, causes and ranks."""
    pictures = {}
    for facts in all_facts:
        name = "-".join(facts.collection.parts)
        if facts.metrics:
            for metric, picture in metric_charts(facts).items():
                pictures[folder / f"{metric}-{name}.svg"] = picture
        if facts.importance:
            pictures[folder / f"causes-{name}.svg"] = causes_chart(facts)
        for position, picture in ranks_charts(facts).items():
            pictures[folder / f"ranks-{name}-{position}.svg"] = picture
    for path, picture in pictures.items():
        charts.write_picture(path, picture)
    return [*pictures]


def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(charts.__file__).parent),
        extensions=["jinja2.ext.do"],
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    functions = [metric_charts, ranks_charts, causes_chart, mean_row]
    functions += [compared, paired_test, counted]
    environment.globals |= {function.__name__: function for function in functions}
    environment.globals |= {"evaluation": evaluation, "verdicts": verdicts}
    environment.filters["cell"] = _cell
    return environment.get_template("report.html.jinja")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".replace("-0.000", "0.000")
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def metric_charts(facts: CollectionFacts) -> dict[str, str]:
    """Draw scores and slowdowns of the rankings by graph; tiles are scored by slowdown@5."""
    metrics_of = {"scores": "score", "slowdown1": "slowdown@1", "slowdown5": "slowdown@5"}
    if facts.collection.kind == "tile":
        metrics_of.pop("slowdown5")
    order = np.argsort(baselines.column(facts.metrics))
    used = facts.ranker.name if facts.ranker else ""
    pictures = {}
    for name, metric in metrics_of.items():
        values = {}
        for (ranking, _), metrics in facts.rankings.items():
            if metrics.keys() == facts.metrics.keys():
                column = baselines.column(metrics, metric)
                values[ranking + charts.IN_USE * (ranking == used)] = column
        label = verdicts.score_name(facts.name) if metric == "score" else metric
        title = f"{name}-{facts.name}"
        pictures[name] = charts.metric_chart(title, [*facts.metrics], values, label, order)
    return pictures


def ranks_charts(facts: CollectionFacts) -> dict[str, str]:
    """Draw predicted against measured ranks of the best, median and worst graph, if ranked anew."""
    if not facts.ranks:
        return {}
    names = facts.worst_first()
    pictures = {}
    shown = {names[0]: "worst", names[len(names) // 2]: "median", names[-1]: "best"}
    for name, position in reversed(shown.items()):
        title = f"{position}: {charts.short(name)}\n{facts.metrics[name]['score']:.3f}"
        picture_id = f"ranks-{facts.name}-{position}"
        pictures[position] = charts.ranks_chart(picture_id, title, *facts.ranks[name])
    return pictures


def causes_chart(facts: CollectionFacts) -> str:
    """Draw the share of the gain by physical cause."""
    shares = sum_by_key({cause_of(name): share} for name, share in facts.importance.items())
    bars = [(cause.value, share, "") for cause, share in shares.items()]
    return charts.bars_chart(f"causes-{facts.name}", bars, xlabel="share of the gain")


def mean_row(rows: Sequence[Row]) -> Row:
    """Return a row with the mean and 95 % interval of each float column."""
    means: Row = dict.fromkeys(rows[0]) | {"graph": "mean, 95 % interval"}
    for heading in rows[0]:
        values = {}
        for number, row in enumerate(rows):
            if isinstance(row[heading], float):
                values[str(number)] = row[heading]
        if values:
            means[heading] = verdicts.with_interval(summary(values))
    return means


def compared(ours: CollectionFacts, theirs: CollectionFacts) -> tuple[list[Row], Floats]:
    """Return the scores of graphs that two workspaces share, and the differences of ``score``."""
    this, other = [facts.model.name if facts.model else "-" for facts in (ours, theirs)]
    heads = [f"this workspace ({this})", f"other workspace ({other})", "difference"]
    headings = {"score": heads}
    for metric in METRICS[1:]:
        headings[metric] = [f"{metric}, {run}" for run in ("this", "other", "difference")]
    rows: list[Row] = []
    for graph in ours.metrics:
        if graph not in theirs.metrics:
            continue
        row: Row = {"graph": graph}
        for metric, heads in headings.items():
            first = ours.metrics[graph][metric]
            second = theirs.metrics[graph][metric]
            row |= dict(zip(heads, (first, second, first - second), strict=True))
        rows.append(row)
    return rows, np.array([row["difference"] for row in rows])


def paired_test(difference: Floats) -> str:
    """Return the result of Wilcoxon's signed-rank test as a sentence."""
    from scipy.stats import wilcoxon

    differing = difference[difference != 0]
    if len(differing) < 6:  # p cannot be below 5 %
        return f"Too few graphs differ for a test: {len(differing)}."
    p = float(wilcoxon(differing).pvalue)
    likely = "more than chance makes likely" if p < 0.05 else "no more than chance makes likely"
    return f"Wilcoxon's signed-rank test over graphs: p = {p:.3g}, {likely}."


def _data_rows(all_facts: Iterable[CollectionFacts]) -> tuple[list[Row], list[Row]]:
    """Return counts of each split, and the graphs that were left out."""
    rows = []
    left_out = []
    reason = "nothing to rank: all its configurations are one or cost the same"
    for facts in all_facts:
        for split, manifest in facts.manifests.items():
            graphs = manifest.graphs.values()
            key = {"collection": facts.name, "split": split}
            tied = {name: reason for name, graph in manifest.graphs.items() if not graph.rankable}
            labelled = any(graph.labelled for graph in graphs)
            rows.append(
                {
                    **key,
                    "labels": facts.collection.label_source if labelled else "withheld",
                    "graphs": len(graphs),
                    "configurations": sum(graph.configs for graph in graphs),
                    "distinct rows": sum(graph.rows for graph in graphs),
                    "not rankable": len(tied),
                    "broken": len(manifest.broken),
                }
            )
            reasons = (manifest.broken | tied).items()
            left_out += [{**key, "graph": name, "why": why} for name, why in reasons]
    return rows, left_out


def _board(workspace: Workspace, collections: Sequence[str]) -> list[Row]:
    rows = leaderboard(read_results(workspace).filter(pl.col("collection").is_in(collections)))
    held_out = pl.concat_str(pl.lit(", held out by "), "held_out_by").fill_null("")
    tuned = pl.when("tuned").then(pl.lit(" (tuned)")).otherwise(pl.lit(""))
    time = pl.col("time").dt.strftime("%Y-%m-%d %H:%M")
    rows = rows.with_columns(pl.col("split") + held_out, pl.col("ranker") + tuned, time)
    headings = {
        "split": "scored on",
        "mean": "mean (layouts: Kendall tau, tiles: 1 - slowdown@5)",
        "standard_error": "standard error",
        "difference": "to the first",
        "difference_error": "its standard error",
    }
    return rows.drop("held_out_by", "tuned").rename(headings).to_dicts()


def _runs(workspace: Workspace) -> list[Row]:
    """Return the logged commands of the workspace, oldest first; unreadable lines are skipped."""
    rows: list[Row] = []
    with suppress(OSError, ValueError):
        for line in read_text(workspace.reports() / "runs.jsonl").splitlines():
            with suppress(ValueError, TypeError, KeyError):
                run = json.loads(line)
                row = {"began": run["began"], "command": " ".join(run["arguments"])}
                row |= {"seconds": run["seconds"], "peak memory, MB": run.get("peak_mb")}
                rows.append(row | {"exit": str(run["exit"])})
    return rows
