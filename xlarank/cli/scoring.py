"""Commands that score rankers: evaluate, cross-validate."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option, Typer

from xlarank.cli import console, options
from xlarank.cli.console import list_lines, list_reasons, say, show_rows, write_json
from xlarank.cli.options import built_workspace
from xlarank.data.errors import counted

if TYPE_CHECKING:  # slow; imported inside commands, so that --help stays fast
    from xlarank.pipelines.support.evaluation import Evaluation

app = Typer()


@app.command()
def evaluate(
    split: Annotated[str, Option(help="valid, test; train with --model-from, --scores.")] = "valid",
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    official_indices: Annotated[
        Path | None, Option(help="Folder of <source>_<search>.json: configurations to score.")
    ] = None,
    model_from: options.RankedBy = None,
    scores: options.ScoreFile = None,
    json_file: options.Json = None,
    graphs: Annotated[bool, Option(help="Show a row for each graph.")] = True,
) -> None:
    """Score what ranks each collection, beside its trained model, on a split with labels."""
    from xlarank.pipelines.evaluate import evaluate as run

    built = built_workspace(data_root, workspace, collection, splits=[split])
    evaluation = run(
        built,
        split=split,
        collection=collection or (),
        official_indices=official_indices,
        model_from=model_from,
        scores=scores,
    )
    show_evaluation(evaluation, graphs)
    _finish(evaluation, evaluation.report, json_file)


@app.command()
def cross_validate(
    by: Annotated[
        str,
        Option(help="Unit to hold out: kernel-family (layouts: family) or family (of programs)."),
    ] = "kernel-family",
    model: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Ranker to fit instead of the model's. Repeat to compare."),
    ] = None,
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Cross-validate: score each graph with a ranker fitted without it."""
    from xlarank.pipelines.cross_validate import cross_validate as run

    built = built_workspace(data_root, workspace, collection)
    evaluation = run(built, model, by=by, collection=collection or (), seed=seed)
    several = len(set(model or ())) > 1
    if best := evaluation.several[:1] or [*dict.fromkeys(model or ())][:1]:
        console.current_run.words["collection"] += f" --model {best[0]}"
    show_evaluation(evaluation, graphs=console.current_run.verbose, has_metrics=not several)
    _finish(evaluation, evaluation.comparison if several else evaluation.report, json_file)


def show_evaluation(evaluation: Evaluation, graphs: bool, *, has_metrics: bool = True) -> None:
    """Print the metrics of each collection, and the comparison of rankers and rules."""
    from xlarank.data.collection import Collection

    comparison = evaluation.comparison
    for name, metrics in evaluation.report.items():
        count = counted(len(metrics["score"]["graphs"]), "graph")
        labels = Collection.parse(name).label_source
        say(f"{name}, {evaluation.graphs}: {count}, {labels}", "bold")
        if name in evaluation.ranked_by:
            say(f"ranked by {evaluation.ranked_by[name]}")
        if has_metrics:
            show_rows(score_rows(metrics, graphs))
        if rows := comparison[name]:  # empty if the rankers score no graph in common
            if rows[0]["graphs"] < len(metrics["score"]["graphs"]):
                say(f"compared on {counted(rows[0]['graphs'], 'graph')}")
            show_board(rows, name)
        if has_metrics and "speedup@1" in metrics:
            say(_speedup(metrics))
    if evaluation.overall:
        say(evaluation.overall)


def _speedup(metrics: dict[str, Any]) -> str:
    """Describe how fast the first configurations are, beside the compiler's default."""
    from xlarank.pipelines.support.evaluation import with_interval

    first = with_interval(metrics["speedup@1"])
    five = with_interval(metrics["speedup@5"])
    graphs = len(metrics["speedup@1"]["graphs"])
    fewer = f", {counted(graphs, 'graph')}" if graphs < len(metrics["score"]["graphs"]) else ""
    return f"times as fast as the default{fewer}: {first}, best of the first five {five}"


def _finish(evaluation: Evaluation, result: Any, json_file: Path | None) -> None:
    list_reasons("left out", evaluation.left_out)
    list_lines("note", evaluation.notes)
    write_json(json_file, result)


def score_rows(report: dict[str, Any], graphs: bool) -> list[dict[str, str]]:
    """Return rows of metrics: per graph if ``graphs``, then mean, spread and interval."""
    metrics = {}
    for name, scores in report.items():
        if not name.startswith("speedup"):
            head = "in order" if name == "ordered_pair_accuracy" else name  # fits the window
            metrics[f">{head}"] = scores
    names = [*next(iter(metrics.values()))["graphs"]]
    ceilings = report.get("tau", {}).get("ceiling") or {}  # for graphs with repeated measurements
    rows: list[dict[str, str]] = []
    if graphs:
        for name in names:
            cells = {head: f"{scores['graphs'][name]:.3f}" for head, scores in metrics.items()}
            ceiling = f"{ceilings[name]:.3f}" if name in ceilings else ""
            rows.append({"graph": name} | cells | {">ceiling": ceiling})
        rows.append({})
    parts = {"mean": "mean"}
    if len(names) > 1:
        parts |= {"std": "std", "95 % low": "low", "95 % high": "high"}
    for label, part in parts.items():
        cells = {head: f"{scores[part]:.3f}" for head, scores in metrics.items()}
        rows.append({"graph": label} | cells | {">ceiling": ""})
    return rows


def show_board(rows: Sequence[dict[str, Any]], collection: str) -> None:
    """Print rows of `xlarank.pipelines.support.evaluation.compared`, the best first."""
    from xlarank.pipelines.support.evaluation import comparison_cells, score_name

    show_rows(
        {("" if head == "ranker" else ">") + head: cell for head, cell in cells.items()}
        for cells in comparison_cells(rows, score_name(collection))
    )
