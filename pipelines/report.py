"""HTML report of a workspace: data, scores, feature importance, explanations and studies."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

import xlarank
from xlarank.data.collection import SPLITS, Collection, find_data_root
from xlarank.data.errors import XlarankError, counted
from xlarank.data.files import atomic_write, read_bytes, read_text
from xlarank.data.graph import read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.meanings import cause_of, column_meanings
from xlarank.features.store import Manifest, read_manifest
from xlarank.models.arrays import Floats
from xlarank.models.card import CARD
from xlarank.models.contributions import sum_by_key
from xlarank.models.model import Model, Scores
from xlarank.models.objectives import mean_rank
from xlarank.models.stored import model_of
from xlarank.models.validation import calibration
from xlarank.models.validation.calibration import Trust
from xlarank.models.validation.metrics import summary
from xlarank.pipelines.ranking.score_difference import Explanation, explain_graph
from xlarank.pipelines.ranking.winner import best_of
from xlarank.pipelines.reporting import charts
from xlarank.pipelines.support import evaluation
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.results import leaderboard, read_results
from xlarank.pipelines.support.workspaces import chosen_collections

if TYPE_CHECKING:
    from jinja2 import Template

#: A table row: cell by column heading.
Row = dict[str, Any]

#: The evaluated split; it has labels, and graphs in the training set are left out.
SPLIT: Final = "valid"
_NO_MODEL: Final = "no model was trained"
_METRICS: Final = ("score", "slowdown@1", "slowdown@5")


@dataclass
class CollectionFacts:
    """Results of a collection.

    Attributes:
        in_use: which ranker `rank` and `submit` use instead, and why; empty if they use the model.
        reason: why the model has no scores; empty if it has some or all graphs are in ``left_out``.
        ranks: graph -> ``(configs,)`` ranks by the model and by cost, from 0 (fastest) to 1; empty
            if scores are out of fold, because no valid graph can be scored.
        certain: graph -> share of certain pairs; empty without calibration.
        importance: column -> share of the gain, mean over seeds, largest first.
        studies: plots of studies as data URLs, because inline SVG could run scripts.
        explained: explanation of the median-score graph, and its picture if there is a segment to
            draw.
    """

    name: str
    collection: Collection
    manifests: dict[str, Manifest]
    model: Model | None = None
    reason: str = ""
    in_use: str = ""
    rankings: evaluation.Rankings = field(default_factory=dict)
    ranks: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)
    certain: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    studies: list[str] = field(default_factory=list)
    explained: tuple[Explanation, str] | None = None

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of the model, the first ranking, ``{graph: {metric: value}}``."""
        return next(iter(self.rankings.values()), {})

    def worst_first(self) -> list[str]:
        return sorted(self.metrics, key=lambda name: (self.metrics[name]["score"], name))

    def score_rows(self) -> list[Row]:
        """Return a row per graph with the scores of the model."""
        graphs = {
            name: graph for part in self.manifests.values() for name, graph in part.graphs.items()
        }
        ceilings = evaluation.ceilings_of(self.metrics)
        return [
            {
                "graph": name,
                "configurations": graphs[name].rows,
                evaluation.score_name(self.name): metrics["score"],
                **{metric: metrics[metric] for metric in _METRICS[1:]},
                **({"ceiling of tau": ceilings.get(name)} if ceilings else {}),
                "pairs certain": self.certain.get(name),
            }
            for name, metrics in self.metrics.items()
        ]


@dataclass(frozen=True)
class Report:
    """Written report: size in bytes, mean score and number of graphs by collection, the same as
    sentences with metric and ranker, reasons for missing scores, written figures.
    """

    out: Path
    size: int
    scores: dict[str, tuple[float, int]]
    sentences: dict[str, str]
    left_out: dict[str, str]
    figures: list[Path]


def report(
    workspace: Workspace,
    out: Path | None = None,
    *,
    compare: Workspace | None = None,
    collections: Sequence[str] = (),
    figures: Path | None = None,
    progress: Progress | None = None,
) -> Report:
    """Write the report of a workspace to ``out`` (default: ``report.html`` in its reports folder).

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
                compared_facts[str(collection)] = gather(compare, collection, explained=False)
            step(str(collection))
    evaluated = [facts for facts in all_facts if facts.metrics]
    verdicts = {facts.name: evaluation.verdict(facts.name, facts.rankings) for facts in evaluated}
    data, left_out = _data_rows(all_facts)
    text = _template().render(
        workspace=workspace.root.name,
        version=xlarank.__version__,
        graphs=sum(row["graphs"] for row in data),
        summary=evaluation.count_verdicts(verdicts.values()),
        verdicts=verdicts,
        in_use={facts.name: facts.in_use for facts in evaluated},
        overall=evaluation.mean_over_collections(
            {facts.name: facts.metrics for facts in evaluated}
        ),
        data=data,
        left_out=left_out,
        trained=[facts for facts in all_facts if facts.model],
        untrained={facts.name: facts.reason for facts in all_facts if not facts.model},
        others=compared_facts,
        other_name=compare.root.name if compare else "",
        studies=[picture for facts in all_facts for picture in facts.studies],
        board=_board(workspace, [facts.name for facts in all_facts]),
        runs=_runs(workspace),
        meanings=column_meanings(),
        no_model=_NO_MODEL,
    )
    out = out or workspace.reports() / "report.html"
    page = text.encode("utf-8", "backslashreplace")  # names of files need not be UTF-8
    with atomic_write(out) as partial:
        partial.write_bytes(page)
    pictures = []
    for name, picture in _pictures(all_facts).items() if figures else ():
        path = Path(figures or "", f"{name}.svg")
        with atomic_write(path) as partial:
            partial.write_text(charts.in_fixed_colours(picture), encoding="utf-8")
        pictures.append(path)
    scores = {facts.name: evaluation.column(facts.metrics) for facts in evaluated}
    means = {name: (float(values.mean()), len(values)) for name, values in scores.items()}
    reasons = {facts.name: facts.reason for facts in all_facts if facts.reason}
    sentences = {facts.name: _sentence(facts, *means[facts.name]) for facts in evaluated}
    return Report(out, len(page), means, sentences, reasons, pictures)


def _sentence(facts: CollectionFacts, mean: float, graphs: int) -> str:
    """Name the metric, the ranker and the graphs of a mean score, and the ranker in use."""
    ranker = next(iter(facts.rankings))[0]
    held_out = "" if facts.ranks else ", out of fold"
    metric = evaluation.score_name(facts.name)
    text = f"{metric} {mean:.3f} by {ranker} on {counted(graphs, 'graph')}{held_out}"
    return f"{text}; {facts.in_use}" if facts.in_use else text


def _pictures(all_facts: Iterable[CollectionFacts]) -> dict[str, str]:
    """Return the charts of scores, ranks and causes, and explanations, by file name."""
    pictures = {}
    for facts in all_facts:
        name = "-".join(facts.collection.parts)
        if facts.metrics:
            pictures[f"scores-{name}"] = scores_chart(facts)
        if facts.importance:
            pictures[f"causes-{name}"] = causes_chart(facts)
        for position, picture in ranks_charts(facts).items():
            pictures[f"ranks-{name}-{position}"] = picture
        if facts.explained and facts.explained[1]:
            pictures[f"explanation-{name}"] = facts.explained[1]
    return pictures


def gather(
    workspace: Workspace, collection: Collection, *, explained: bool = True
) -> CollectionFacts:
    """Evaluate the model of a collection on the valid split and return its results; write
    nothing.
    """
    manifests = {
        split: manifest
        for split in SPLITS
        if (manifest := read_manifest(workspace, collection, split))
    }
    facts = CollectionFacts(str(collection), collection, manifests)
    for path in sorted(workspace.reports().glob(f"tune-{'-'.join(collection.parts)}-*.svg")):
        with suppress(OSError, ValueError):
            facts.studies.append(
                f"data:image/svg+xml;base64,{b64encode(read_bytes(path)).decode()}"
            )
    if not (workspace.model(collection) / CARD).exists():
        facts.reason = _NO_MODEL
        return facts

    try:
        facts.model = model = model_of(workspace, collection)
        facts.importance = model.importance() if model.members else {}
        if SPLIT in manifests:
            _score_valid(workspace, facts, model)
        if not facts.metrics:
            facts.rankings = evaluation.out_of_fold(workspace, collection, model.require_card())
            facts.left_out.clear()
        facts.in_use = evaluation.in_use(facts.name, facts.rankings, *best_of(model))
        if facts.ranks and explained:
            with suppress(XlarankError):  # the graph's file cannot be read
                facts.explained = _explain_median(facts, model)
    except XlarankError as error:
        facts.reason = str(error)
    return facts


def _score_valid(workspace: Workspace, facts: CollectionFacts, model: Model) -> None:
    """Add the metrics, ranks and certainty of valid graphs that the model was not trained on."""
    manifest = facts.manifests[SPLIT]
    model.require(manifest)
    trained = dict.fromkeys(model.require_card().known_graphs, "in the training set of the model")
    for rows in evaluation.graphs_to_score(
        workspace, facts.collection, SPLIT, manifest, facts.left_out, trained
    ):
        scored = model.score(rows)
        mean = Scores(scored.mean[None])
        evaluation.add_metrics(facts.rankings, facts.collection, rows, model.name, mean)
        facts.ranks[rows.name] = mean_rank(scored.mean[rows.group]), mean_rank(rows.cost)
        if model.calibration is not None and not scored.fallback:
            trust = Trust(model.calibration, scored.per_seed, rows.group)
            facts.certain[rows.name] = trust.certain


def _explain_median(facts: CollectionFacts, model: Model) -> tuple[Explanation, str]:
    name = facts.worst_first()[len(facts.metrics) // 2]
    npz = find_data_root(Path(facts.manifests[SPLIT].data_root)).npz
    graph = read_graph(
        npz / Path(*facts.collection.parts, SPLIT, f"{name}.npz"), facts.collection.kind
    )
    explanation = explain_graph(graph, model)
    return explanation, charts.segment_picture(
        graph, explanation, standalone=False
    ) if explanation.segments else ""


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
    functions = (scores_chart, ranks_charts, causes_chart, mean_row, compared, paired_test, counted)
    environment.globals |= {function.__name__: function for function in functions}
    environment.globals |= {"calibration": calibration, "evaluation": evaluation}
    environment.filters["cell"] = _cell
    return environment.get_template("report.html.jinja")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".replace("-0.000", "0.000")
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def scores_chart(facts: CollectionFacts) -> str:
    """Draw the scores of the model and of the rules by graph."""
    values = {
        name: evaluation.column(metrics)
        for (name, _), metrics in facts.rankings.items()
        if metrics.keys() == facts.metrics.keys()
    }
    return charts.scores_chart(
        f"scores-{facts.name}", [*facts.metrics], values, evaluation.score_name(facts.name)
    )


def ranks_charts(facts: CollectionFacts) -> dict[str, str]:
    """Draw predicted against measured ranks of the best, the median and the worst graph, if the
    model ranked them anew.
    """
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
        values = {
            str(number): row[heading]
            for number, row in enumerate(rows)
            if isinstance(row[heading], float)
        }
        if values:
            means[heading] = evaluation.with_interval(summary(values))
    return means


def compared(ours: CollectionFacts, theirs: CollectionFacts) -> tuple[list[Row], Floats]:
    """Return the scores of the graphs that two workspaces share, and the differences of
    ``score``.
    """
    runs = [facts.model.name if facts.model else "-" for facts in (ours, theirs)]
    headings = {
        metric: [f"{metric}, {run}" for run in ("this", "other", "difference")]
        for metric in _METRICS
    }
    headings["score"] = [
        f"this workspace ({runs[0]})",
        f"other workspace ({runs[1]})",
        "difference",
    ]
    rows: list[Row] = []
    for name in [name for name in ours.metrics if name in theirs.metrics]:
        row: Row = {"graph": name}
        for metric in _METRICS:
            first, second = (facts.metrics[name][metric] for facts in (ours, theirs))
            row |= dict(zip(headings[metric], (first, second, first - second), strict=True))
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
            left_out += [
                {**key, "graph": name, "why": why} for name, why in (manifest.broken | tied).items()
            ]
    return rows, left_out


def _board(workspace: Workspace, collections: Sequence[str]) -> list[Row]:
    rows = leaderboard(read_results(workspace).filter(pl.col("collection").is_in(collections)))
    held_out = pl.concat_str(pl.lit(", held out by "), "held_out_by").fill_null("")
    tuned = pl.when(pl.col("tuned")).then(pl.lit(" (tuned)")).otherwise(pl.lit(""))
    return rows.select(
        "collection",
        (pl.col("split") + held_out).alias("scored on"),
        pl.col("ranker") + tuned,
        "name",
        "settings",
        "blocks",
        "rows",
        "graphs",
        pl.col("mean").alias("mean (layouts: Kendall tau, tiles: 1 - slowdown@5)"),
        pl.col("standard_error").alias("standard error"),
        pl.col("difference").alias("to the first"),
        pl.col("difference_error").alias("its standard error"),
        "seconds",
        "version",
        pl.col("time").dt.strftime("%Y-%m-%d %H:%M"),
    ).to_dicts()


def _runs(workspace: Workspace) -> list[Row]:
    """Return the logged commands of the workspace, oldest first; unreadable lines are skipped."""
    rows: list[Row] = []
    with suppress(OSError, ValueError):
        for line in read_text(workspace.reports() / "runs.jsonl").splitlines():
            with suppress(ValueError, TypeError, KeyError):
                run = json.loads(line)
                row = {
                    "began": run["began"],
                    "command": " ".join(run["arguments"]),
                    "seconds": run["seconds"],
                }
                rows.append(
                    {**row, "peak memory, MB": run.get("peak_mb"), "exit": str(run["exit"])}
                )
    return rows
