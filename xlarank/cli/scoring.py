"""How good rankings are: of trained models on a split, and of graphs that a ranker never saw."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from typer import Option, Typer

from xlarank.cli.console import list_lines, list_reasons, progress_bars, say, show, show_rows, write_json
from xlarank.cli.inputs import built_workspace, read_scores, workspace_at
from xlarank.cli.options import (
    RANKERS,
    WORK,
    Collections,
    Json,
    Root,
    Rounds,
    ScoresOf,
    Seed,
    Split,
    Threads,
    Weights,
    Work,
    out_file,
)
from xlarank.cli.tables import new_table
from xlarank.data.errors import counted

if TYPE_CHECKING:  # heavy; imported where a command needs them, so that --help stays quick
    from xlarank.pipelines.support.evaluation import Evaluation

app = Typer()

#: Shorter names of metrics, so that tables fit.
HEADS = {"ordered_pair_accuracy": "in order"}
Listed = Annotated[bool, Option(help="Show a row for each graph.")]


@app.command()
def evaluate(
    split: Split = "valid",
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    official_indices: Annotated[
        Path | None, Option(help="Folder of <source>_<search>.json: score only these configurations.")
    ] = None,
    model_from: Annotated[
        str | None, Option(help="Score all collections with the model of this collection.")
    ] = None,
    scores: ScoresOf = None,
    weights: Weights = None,
    json_file: Json = None,
    graphs: Listed = True,
) -> Any:
    """Score trained models on a split with labels: per graph, mean, spread and a bootstrap interval."""
    from xlarank.pipelines.evaluate import evaluate as run

    place = built_workspace(data_root, workspace, collection, trained=not scores)
    with progress_bars() as progress:
        evaluation = run(
            place, split=split, collections=collection or (), official_indices=official_indices,
            model_from=model_from, scores=read_scores(scores, weights, split), progress=progress,
        )  # fmt: skip
    _show(evaluation, graphs, json_file)
    return evaluation


@app.command()
def cross_validate(
    by: Annotated[
        str, Option(help="Unit to hold out: family (a program), graph, or kind (of kernels; layouts: family).")
    ] = "family",
    model: Annotated[
        list[str] | None,
        Option(help=f"Ranker to fit instead of the trained model's: {RANKERS}. Repeat to compare with the first."),
    ] = None,
    without: Annotated[
        list[str] | None,
        Option(help="Block of columns to leave out, by the name of its class: what it is worth; repeatable."),
    ] = None,
    with_valid: Annotated[
        bool, Option("--with-valid", help="With --model: fit on the train and valid splits.")
    ] = False,
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    rounds: Rounds = 300,
    seed: Seed = 0,
    threads: Threads = 0,
    json_file: Json = None,
    graphs: Listed = True,
) -> None:
    """Cross-validate: score each graph with a ranker fitted without it."""
    from xlarank.models.training_data import FitSettings
    from xlarank.pipelines.cross_validate import cross_validate as run
    from xlarank.pipelines.cross_validate import cross_validate_rankers

    place = built_workspace(data_root, workspace, collection)
    models = list(dict.fromkeys(model or ()))
    with progress_bars() as progress:
        settings: dict[str, Any] = {
            "by": by, "collections": collection or (), "with_valid": with_valid,
            "fit": FitSettings(rounds, seed, threads), "progress": progress,
        }  # fmt: skip
        if len(models) > 1 or without:
            evaluation = cross_validate_rankers(place, models, without=without or (), **settings)
        else:
            evaluation = run(place, model=models[0] if models else None, **settings)
    _show(evaluation, graphs, json_file)


def _show(evaluation: Evaluation, graphs: bool, json_file: Path | None) -> None:
    for name, metrics in evaluation.report.items():
        count = counted(len(next(iter(metrics.values()))["graphs"]), "graph")
        say(f"{name}, {evaluation.judged}: {count}", "bold")
        rankers = evaluation.rankers.get(name)
        show(comparison_table(name, rankers) if rankers else score_table(metrics, graphs))
    for name, text in evaluation.verdicts.items():
        say(f"{name}: {text}")
    for name, metrics in evaluation.speedups.items():
        first, five = (with_interval(summary) for summary in metrics.values())
        count = counted(len(next(iter(metrics.values()))["graphs"]), "graph")
        say(f"{name}: {first} times as fast as the compiler's default, best of the first five {five}; {count}")
    list_reasons("left out", evaluation.left_out)
    list_lines("note", evaluation.notes)
    report = (evaluation.rankers or evaluation.report).items()
    write_json(json_file, {name: {**metrics, **evaluation.speedups.get(name, {})} for name, metrics in report})


def with_interval(summary: Mapping[str, Any]) -> str:
    """Return a mean with its 95 % interval over graphs; one graph has none.

    >>> with_interval({"mean": 0.25, "low": 0.2, "high": 0.3, "graphs": {"a": 0.2, "b": 0.3}})
    '0.250 (0.200 to 0.300)'
    >>> with_interval({"mean": 0.25, "low": 0.25, "high": 0.25, "graphs": {"a": 0.25}})
    '0.250'
    """
    interval = f" ({summary['low']:.3f} to {summary['high']:.3f})" if len(summary["graphs"]) > 1 else ""
    return f"{summary['mean']:.3f}{interval}"


def comparison_table(collection: str, rankers: dict[str, dict[str, Any]]) -> Table:
    """Return the metrics of rankers side by side, then the differences to the first with intervals."""
    from xlarank.models.validation.metrics import COMPARED, Difference

    metrics = COMPARED["tile" if collection.startswith("tile:") else "layout"]
    first = next(iter(rankers))
    table = new_table("ranker", *(f">{metric}" for metric in metrics))
    for name, report in rankers.items():
        table.add_row(name, *(f"{report[metric]['mean']:.3f}" for metric in metrics))
    for name, report in list(rankers.items())[1:]:
        table.add_section()
        between = [report[metric]["difference"] for metric in metrics]
        lines = [str(Difference(**one)).split(" ", 1) if one else ["-", ""] for one in between]
        table.add_row(f"{name} minus {first}", *(line[0] for line in lines))
        table.add_row("95 % (paired)", *(line[1].strip("()") for line in lines))
    return table


def score_table(metrics: dict[str, Any], graphs: bool) -> Table:
    """Return the scores of a collection: a row for each graph on request, then mean, spread and interval."""
    first = next(iter(metrics.values()))
    ceilings = metrics.get("tau", {}).get("ceiling") or {}  # of some graphs
    heads = [HEADS.get(metric, metric) for metric in metrics] + ["ceiling"] * bool(ceilings)
    table = new_table("~graph", *(f">{head}" for head in heads))
    if graphs:
        for name in first["graphs"]:
            most = [f"{ceilings[name]:.3f}"] if name in ceilings else []
            table.add_row(name, *(f"{metric['graphs'][name]:.3f}" for metric in metrics.values()), *most)
        table.add_section()
    most = [f"{fmean(ceilings.values()):.3f}"] if ceilings.keys() == first["graphs"].keys() else []
    table.add_row("mean", *(f"{metric['mean']:.3f}" for metric in metrics.values()), *most, style="bold")
    several = len(first["graphs"]) > 1  # one graph has no spread
    for label, part in (("std", "std"), ("95 % low", "low"), ("95 % high", "high")):
        table.add_row(label, *(f"{metric[part]:.3f}" if several else "-" for metric in metrics.values()))
    if first.get("seeds_std") is not None:
        table.add_row("std over seeds", *(f"{metric['seeds_std']:.3f}" for metric in metrics.values()))
    without = first.get("baselines", {})
    if without:
        if any(metric["repeats_once"] != metric["mean"] for metric in metrics.values()):
            # a submission lists every configuration, and the mean above counts each of them
            once = (f"{metric['repeats_once']:.3f}" for metric in metrics.values())
            table.add_row("mean, identical counted once", *once)
        table.add_section()
    for name in without:
        table.add_row(f"rule: {name}", *(f"{metric['baselines'][name]:.3f}" for metric in metrics.values()))
    return table


@app.command()
def leaderboard(
    workspace: Work = WORK,
    collection: Collections = None,
    metric: Annotated[str, Option(help="Metric to order by: score, tau, slowdown@1, slowdown@5, ...")] = "score",
    csv: Annotated[Path | None, Option(callback=out_file, help="Write the table to this file.")] = None,
    json_file: Json = None,
) -> None:
    """Show rankers and rules side by side, from all evaluations of the workspace."""
    from xlarank.pipelines.leaderboard import leaderboard as run

    board = run(workspace_at(workspace), collections=collection or (), metric=metric)
    heads = ("collection", "scored on", "ranker", ">graphs", f">{metric}", ">s.e.", ">to the first", ">s.e.", ">s",
             "version", "when")  # fmt: skip
    show_rows(heads, (
        (row["collection"], row["split"] + (f", held out by {row['held_out_by']}" if row["held_out_by"] else ""),
         row["ranker"] + (" (tuned)" if row["tuned"] else ""), str(row["graphs"]),
         *("-" if row[name] is None else f"{row[name]:{style}}" for name, style in _CELLS.items()), row["version"],
         f"{row['time']:%Y-%m-%d %H:%M}")
        for row in board.iter_rows(named=True)
    ))  # fmt: skip
    if csv is not None:
        board.write_csv(csv)
        say(f"wrote {csv}")
    times = [{**row, "time": row["time"].isoformat()} for row in board.iter_rows(named=True)]
    write_json(json_file, times)


#: Columns of the leaderboard and how they are shown.
_CELLS = {"mean": ".3f", "standard_error": ".3f", "difference": "+.3f", "difference_error": ".3f", "seconds": ".1f"}
