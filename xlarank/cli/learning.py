"""Commands that tune, train and score rankers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from typer import Exit, Option, Typer

from xlarank.cli import options
from xlarank.cli.console import (
    list_lines,
    list_reasons,
    new_table,
    progress_bars,
    say,
    show,
    show_rows,
    write_json,
)
from xlarank.cli.options import built_workspace, read_scores, workspace_at
from xlarank.data.errors import counted
from xlarank.data.files import atomic_write

if TYPE_CHECKING:  # slow; imported inside commands, so that --help stays fast
    from xlarank.data.workspace import Workspace
    from xlarank.models.training_data import FitSettings
    from xlarank.pipelines.support.evaluation import Evaluation

app = Typer()

_Name = Annotated[str, Option(help="Name of this run in the leaderboard.")]
_ShowGraphs = Annotated[bool, Option(help="Show a row for each graph.")]


def spread(score: dict[str, Any] | None) -> str:
    """Return the mean of a score and, for several graphs, its standard deviation over graphs."""
    if score is None:
        return "-"
    return f"{score['mean']:.3f}" + (f" ± {score['std']:.3f}" if len(score["graphs"]) > 1 else "")


def _announce(
    workspace: Workspace,
    named: Sequence[str],
    splits: Sequence[str],
    fit: FitSettings,
    fits: float = 0,
) -> dict[str, str]:
    """Print the rows, memory and, unless ``fits`` is 0, time of each collection; return why some
    do not fit into memory.
    """
    from xlarank.data.collection import Collection
    from xlarank.pipelines.support.workspaces import chosen_collections, each_collection
    from xlarank.pipelines.training.budget import forecast

    too_large: dict[str, str] = {}

    def run(collection: Collection) -> None:
        say(forecast(workspace, collection, splits, fit, fits), "dim")

    each_collection(chosen_collections(workspace, named), named, too_large, run)
    return too_large


@app.command()
def tune(
    trials: options.Trials = 50,
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    model: options.Model = "lambdarank",
    storage: Annotated[
        str | None,
        Option(
            help="Storage of studies: journal:PATH, postgresql+psycopg://USER@HOST/DATABASE or "
            "another SQLAlchemy "
            "URL. Default: a journal in the workspace."
        ),
    ] = None,
    worker: Annotated[
        bool, Option("--worker", help="Join the study at --storage as another process.")
    ] = False,
    timeout: options.Timeout = None,
    max_rows: Annotated[
        int,
        Option(min=0, help="Rows of a trial, a sample; the best trial is scored on all. 0: all."),
    ] = 20_000,
    rounds: options.Rounds = 300,
    select: options.Select = "mean",
    seed: options.Seed = 0,
    threads: options.Threads = 0,
    json_file: options.Json = None,
) -> None:
    """Tune parameters with Optuna, cross-validated by family (tiles: kernel family), ten trials of
    each collection in turn. Rerun to resume.
    """
    from xlarank.models.training_data import FitSettings
    from xlarank.pipelines.training.studies import StudyOptions
    from xlarank.pipelines.tune import params_text
    from xlarank.pipelines.tune import tune as run

    work = built_workspace(data_root, workspace, collection)
    fit = FitSettings(rounds, seed, threads)
    too_large = _announce(work, collection or (), ("train",), fit)
    with progress_bars() as progress:
        results = run(
            work,
            trials=trials,
            collections=collection or (),
            timeout=timeout,
            model=model,
            fit=fit,
            study=StudyOptions(storage, worker, select, max_rows),
            progress=progress,
            report=partial(say, style="dim"),
        )
    heads = (
        "collection",
        ">trials",
        ">new",
        ">pruned",
        ">out-of-fold score",
        ">defaults",
        ">rounds",
        "~best parameters",
        ">s",
    )
    show_rows(
        heads,
        (
            (
                result.collection,
                str(result.trials),
                str(result.fresh),
                str(result.pruned),
                f"{result.mean:.3f} ± {result.std:.3f}",
                f"{result.defaults:.3f}",
                str(result.rounds),
                params_text(result.params),
                f"{result.seconds:.0f}",
            )
            for result in results
            if result.params is not None
        ),
    )
    list_lines("note", [f"{result.collection}: {result.note}" for result in results if result.note])
    for path in (path for result in results for path in result.pictures):
        say(f"wrote {path}")
    list_lines("not tuned", [result.skipped for result in results if result.skipped])
    write_json(json_file, results)
    if too_large:
        raise Exit(1)


@app.command()
def train(
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    also_from: Annotated[
        list[str] | None,
        Option(
            help="Additional training collection of the same kind; repeatable. NAME=WEIGHT "
            "weights its graphs "
            "(default 1). Only graphs of --collection are scored."
        ),
    ] = None,
    fine_tune: Annotated[
        str | None,
        Option(
            help="Fine-tune a model with up to --rounds more trees: shipped (the shipped "
            "ranker), a collection "
            "with a model in the workspace, or the folder of a model."
        ),
    ] = None,
    model: Annotated[
        str,
        Option(
            help=f"Ranker: {options.RANKERS}; or auto: the one with the best out-of-fold score."
        ),
    ] = "lambdarank",
    seeds: options.Seeds = 3,
    with_valid: Annotated[
        bool, Option("--with-valid", help="Train on the valid split, too.")
    ] = False,
    rounds: options.Rounds = 300,
    select: options.Select = "mean",
    seed: options.Seed = 0,
    threads: options.Threads = 0,
    engine: Annotated[
        str,
        Option(
            help=(
                "local, or dask: train each booster on all workers of --scheduler (lambdarank "
                "only)."
            )
        ),
    ] = "local",
    scheduler: options.Scheduler = None,
    allow_constant: Annotated[
        bool, Option("--allow-constant", help="Save models with equal scores, too.")
    ] = False,
    name: _Name = "",
    json_file: options.Json = None,
) -> Any:
    """Train the final models, with tuned parameters if there are any."""
    from xlarank.data.collection import Collection
    from xlarank.features.store import read_manifest
    from xlarank.models.rankers import DEFAULT
    from xlarank.models.training_data import FitSettings
    from xlarank.models.validation.folds import MOST_FOLDS
    from xlarank.pipelines.train import train as run
    from xlarank.pipelines.training.settings import TrainSettings

    extra = [name.partition("=")[0] for name in also_from or ()]
    work = built_workspace(data_root, workspace, [*collection, *extra] if collection else None)
    settings = TrainSettings(
        collections=collection or (),
        also_from=also_from or (),
        model=model,
        fine_tune=fine_tune,
        seeds=seeds,
        with_valid=with_valid,
        rounds=rounds,
        select=select,
        seed=seed,
        threads=threads,
        engine=engine,
        scheduler=scheduler,
        allow_constant=allow_constant,
    )
    too_large: dict[str, str] = {}
    if scheduler is None:
        fits = MOST_FOLDS + seeds if model == DEFAULT and fine_tune is None else 0
        too_large = _announce(
            work, collection or (), settings.splits, FitSettings(rounds, seed, threads), fits
        )
    with progress_bars() as progress:
        results = run(work, settings, name=name, progress=progress)
    names = [result.collection for result in results if not result.skipped]
    has_valid = any(read_manifest(work, Collection.parse(of), "valid") for of in names)
    options.current_run.words["scored_by"] = (
        "evaluate" if has_valid and not with_valid else "cross-validate"
    )
    heads = (
        "collection",
        "model",
        ">graphs",
        ">rows",
        ">families",
        ">rounds",
        "rounds chosen by",
        ">out-of-fold score",
        ">seeds",
        ">s",
    )
    show_rows(
        heads,
        (
            (
                result.collection,
                result.model + (" (tuned)" if result.tuned else ""),
                str(result.graphs),
                f"{result.rows:,}",
                str(result.families),
                str(result.rounds),
                result.chosen_by,
                spread(result.folds.get("score")),
                str(result.seeds),
                f"{result.seconds:.0f}",
            )
            for result in results
            if not result.skipped
        ),
    )
    list_lines("note", [result.note for result in results if result.note])
    for result in results:
        if result.comparison:
            say(f"{result.collection}, out of fold", "bold")
            show(ranking_table(result.comparison, result.collection))
        if result.ranked_by:
            trained = "the trained model ranks with --model-from trained"
            say(f"{result.collection}: {result.ranked_by}; rank and submit use it, {trained}")
        if result.why:
            say(f"{result.collection}: {result.why}")
        if result.fallback:
            say(f"{result.collection}: fallback for unseen kernel families: {result.fallback}")
        if result.importance:
            best = [f"{name} {share:.0%}" for name, share in list(result.importance.items())[:5]]
            say(f"{result.collection}: most important columns: {', '.join(best)}", "dim")
    list_lines("not trained", [result.skipped for result in results if result.skipped])
    write_json(json_file, results)
    if too_large:
        raise Exit(1)
    return results


@app.command()
def evaluate(
    split: options.Split = "valid",
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    official_indices: Annotated[
        Path | None, Option(help="Folder of <source>_<search>.json: configurations to score.")
    ] = None,
    model_from: Annotated[
        str | None,
        Option(help="Model that scores all collections: shipped, a collection, or a folder."),
    ] = None,
    scores: options.ScoresOf = None,
    weights: options.Weights = None,
    name: _Name = "",
    json_file: options.Json = None,
    graphs: _ShowGraphs = True,
) -> Any:
    """Score trained models on a split with labels: per graph, mean, spread and a bootstrap
    interval.
    """
    from xlarank.pipelines.evaluate import evaluate as run
    from xlarank.pipelines.support.evaluation import with_interval

    built = built_workspace(data_root, workspace, collection, trained=not scores)
    with progress_bars() as progress:
        evaluation = run(
            built,
            split=split,
            collections=collection or (),
            official_indices=official_indices,
            model_from=model_from,
            scores=read_scores(scores, weights, split),
            name=name,
            progress=progress,
        )
    report = evaluation.report
    _show(evaluation, graphs)
    _show_comparison(evaluation)
    for collection_name, metrics in report.items():
        if "speedup@1" in metrics:
            first, five = (with_interval(metrics[metric]) for metric in ("speedup@1", "speedup@5"))
            count = counted(len(metrics["speedup@1"]["graphs"]), "graph")
            say(
                f"{collection_name}: {first} times as fast as the compiler's default, best of the "
                f"first five {five}; {count}"
            )
    _finish(evaluation, report, json_file)
    return evaluation


@app.command()
def cross_validate(
    by: Annotated[
        str,
        Option(
            help=(
                "Unit to hold out: kind (a kernel family; layouts: family), family (a "
                "program) or graph."
            )
        ),
    ] = "kind",
    model: Annotated[
        list[str] | None,
        Option(
            help=(
                f"Ranker to fit instead of that of the model: {options.RANKERS}. Repeat to compare."
            )
        ),
    ] = None,
    without: Annotated[
        list[str] | None,
        Option(
            help=(
                "Block of columns to leave out, by the name of its class: what it is worth; "
                "repeatable."
            )
        ),
    ] = None,
    with_valid: Annotated[
        bool, Option("--with-valid", help="With --model: fit on train and valid.")
    ] = False,
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    rounds: options.Rounds = 300,
    seed: options.Seed = 0,
    threads: options.Threads = 0,
    name: _Name = "",
    json_file: options.Json = None,
    graphs: _ShowGraphs = True,
) -> None:
    """Cross-validate: score each graph with a ranker fitted without it."""
    from xlarank.models.training_data import FitSettings
    from xlarank.pipelines.cross_validate import cross_validate as run
    from xlarank.pipelines.cross_validate import worth_of_blocks

    built = built_workspace(data_root, workspace, collection)
    with progress_bars() as progress:
        evaluation = run(
            built,
            model,
            by=by,
            collections=collection or (),
            with_valid=with_valid,
            fit=FitSettings(rounds, seed, threads),
            without=without or (),
            name=name,
            progress=progress,
        )
    several = len(set(model or ())) > 1 or without
    if best := evaluation.several[:1] or [*dict.fromkeys(model or ())][:1]:
        if not without:
            options.current_run.words["collection"] += f" --model {best[0]}"
    if not several:
        _show(evaluation, graphs)
    _show_comparison(evaluation)
    for collection_name, text in worth_of_blocks(evaluation, without).items() if without else ():
        say(f"{collection_name}: {text}")
    _finish(evaluation, evaluation.comparison if several else evaluation.report, json_file)


def _show(evaluation: Evaluation, graphs: bool) -> None:
    """Print each collection's name, number of graphs and metrics."""
    for name, metrics in evaluation.report.items():
        count = counted(len(metrics["score"]["graphs"]), "graph")
        say(f"{name}, {evaluation.graphs}: {count}", "bold")
        show(score_table(metrics, graphs))


def _show_comparison(evaluation: Evaluation) -> None:
    """Print the comparison of rankers and rules, verdicts, and the mean over collections."""
    for name, rows in evaluation.comparison.items():
        if not rows:  # the rankers score no graph in common
            continue
        count = counted(rows[0]["graphs"], "graph")
        say(f"{name}, {evaluation.graphs}: compared on {count}", "bold")
        show(ranking_table(rows, name))
    for name, text in evaluation.verdicts.items():
        say(f"{name}: {text}")
        if used := evaluation.in_use.get(name):
            say(f"{name}: {used}")
    if evaluation.overall:
        say(evaluation.overall)


def _finish(evaluation: Evaluation, result: Any, json_file: Path | None) -> None:
    list_reasons("left out", evaluation.left_out)
    list_lines("note", evaluation.notes)
    write_json(json_file, result)


def score_table(report: dict[str, Any], graphs: bool) -> Table:
    """Return a table of a collection's metrics: per graph if ``graphs``, then mean, spread,
    interval and rules.
    """
    metrics = {name: scores for name, scores in report.items() if not name.startswith("speedup")}
    first = next(iter(metrics.values()))
    ceilings = metrics.get("tau", {}).get("ceiling") or {}  # for graphs with repeated measurements
    # Fits the window.
    heads = ("in order" if name == "ordered_pair_accuracy" else name for name in metrics)
    table = new_table("~graph", *(f">{head}" for head in heads), *[">ceiling"] * bool(ceilings))

    def add(label: str, *path: str, ceiling: float | None = None, style: str = "") -> None:
        values = [reduce(getitem, path, scores) for scores in metrics.values()]
        table.add_row(
            label,
            *(f"{value:.3f}" for value in values + [ceiling] * (ceiling is not None)),
            style=style,
        )

    if graphs:
        for name in first["graphs"]:
            add(name, "graphs", name, ceiling=ceilings.get(name))
        table.add_section()
    complete = ceilings.keys() == first["graphs"].keys()
    add("mean", "mean", ceiling=fmean(ceilings.values()) if complete else None, style="bold")
    for label, part in (("std", "std"), ("95 % low", "low"), ("95 % high", "high")):
        if len(first["graphs"]) > 1:
            add(label, part)
        else:
            table.add_row(label, *"-" * len(metrics))
    if first.get("seeds_std") is not None:
        add("std over seeds", "seeds_std")
    if "baselines" in first:
        if any(scores["repeats_once"] != scores["mean"] for scores in metrics.values()):
            # a submission lists every configuration, and the mean above counts each of them
            add("mean, identical counted once", "repeats_once")
    return table


def ranking_table(rows: Sequence[dict[str, Any]], collection: str) -> Table:
    """Return the table of `xlarank.pipelines.support.evaluation.compared`, the best first."""
    from xlarank.pipelines.support.evaluation import comparison_cells, score_name

    table = new_table(
        "~ranker", f">{score_name(collection)}", ">to the first (95 %)", ">slowdown@1", ">@5"
    )
    for cells in comparison_cells(rows):
        table.add_row(*cells.values())
    return table


@app.command()
def leaderboard(
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    metric: Annotated[
        str, Option(help="Metric to order by: score, tau, slowdown@1, slowdown@5, ...")
    ] = "score",
    csv: Annotated[
        Path | None, Option(callback=options.out_file, help="Write the table to this file.")
    ] = None,
    json_file: options.Json = None,
) -> None:
    """Show rankers and rules side by side, from all evaluations of the workspace."""
    from xlarank.pipelines.leaderboard import leaderboard as run
    from xlarank.pipelines.support.evaluation import score_name

    board = run(workspace_at(workspace), collections=collection or (), metric=metric)
    for _, part in board.group_by("collection", "split", "held_out_by", maintain_order=True):
        first = part.row(0, named=True)
        held_out = f", held out by {first['held_out_by']}" if first["held_out_by"] else ""
        say(f"{first['collection']}, {first['split']}{held_out}", "bold")
        name = score_name(first["collection"]) if metric == "score" else metric
        heads = ["~ranker", f">{name}", ">to the first", ">graphs", "~blocks"]
        heads += ["when", ">rows", "~settings", ">s", "version"]
        show_rows(heads, map(_board_cells, part.iter_rows(named=True)), extra=5)
    if csv is not None:
        with atomic_write(csv) as partial:
            partial.write_text(board.write_csv(), encoding="utf-8")
        say(f"wrote {csv}")
    write_json(json_file, board.to_dicts())


def _board_cells(row: dict[str, Any]) -> list[str]:
    """Return the cells of a run in the leaderboard; errors are standard errors."""
    name = f", {row['name']}" if row["name"] else ""
    error = row["difference_error"]
    difference = "-"
    if row["difference"] or error:  # both are 0 for the first
        difference = f"{row['difference']:+.3f}" + ("" if error is None else f" ± {error:.3f}")
    return [
        row["ranker"] + (" (tuned)" if row["tuned"] else "") + name,
        f"{row['mean']:.3f}",
        difference,
        str(row["graphs"]),
        row["blocks"] or "-",
        f"{row['time']:%Y-%m-%d %H:%M}",
        "-" if row["rows"] is None else f"{row['rows']:,}",
        row["settings"] or "-",
        "-" if row["seconds"] is None else f"{row['seconds']:.1f}",
        row["version"],
    ]
