"""Searching parameters, fitting rankers, scoring them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xlarank.cli.console import (
    list_lines,
    new_table,
    plain_values,
    progress_bars,
    say,
    show,
    write_json,
)
from xlarank.cli.inputs import built_workspace
from xlarank.cli.options import (
    RANKERS,
    WORK,
    Collections,
    Json,
    Model,
    Root,
    Rounds,
    Seed,
    Seeds,
    Select,
    Threads,
    Timeout,
    Trials,
    Work,
)
from xlarank.cli.tables import Sheet
from xlarank.data.ranges import MAX_ROUNDS

app = typer.Typer()


@app.command()
def tune(
    trials: Trials = 50,
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    model: Model = "lambdarank",
    storage: Annotated[
        str | None, typer.Option(help="Optuna storage URL; default a journal in the workspace.")
    ] = None,
    timeout: Timeout = None,
    rounds: Rounds = 300,
    select: Select = "mean",
    seed: Seed = 0,
    threads: Threads = 0,
    json_file: Json = None,
) -> None:
    """Search parameters with Optuna on folds of program families; a second call continues."""
    from xlarank.pipelines.tune import tune as run

    place = built_workspace(data_root, workspace)
    with progress_bars() as progress:
        results = run(
            place, trials=trials, collections=collection or (), model=model, storage=storage, timeout=timeout,
            rounds=rounds, select=select, seed=seed, threads=threads, progress=progress,
        )  # fmt: skip
    table = new_table(
        "collection", ">trials", ">new", ">pruned", ">out-of-fold score", ">rounds", "~best parameters", ">s"
    )
    for result in results:
        if result.params is None:
            continue
        shown = ", ".join(
            f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in result.params.items()
        )
        table.add_row(
            result.collection, str(result.trials), str(result.fresh), str(result.pruned),
            f"{result.mean:.3f} ± {result.std:.3f}", str(result.rounds), shown, f"{result.seconds:.0f}",
        )  # fmt: skip
    show(table)
    list_lines("note", [f"{result.collection}: {result.note}" for result in results if result.note])
    for result in results:
        if result.picture is not None:
            say(f"wrote {result.picture}: the course of the study and the importance of its parameters")
    list_lines("not tuned", [result.skipped for result in results if result.skipped])
    write_json(json_file, [plain_values(result) for result in results])


@app.command()
def train(
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    model: Annotated[
        str,
        typer.Option(
            help=f"Ranker: {RANKERS}; or auto: per collection the one whose out-of-fold score is best, with its "
            "tuned parameters or else its defaults."
        ),
    ] = "lambdarank",
    seeds: Seeds = 3,
    with_valid: Annotated[
        bool, typer.Option("--with-valid", help="Also learn from valid, before a submission.")
    ] = False,
    rounds: Annotated[
        int, typer.Option(min=1, max=MAX_ROUNDS, help="Most boosting rounds; folds choose the number.")
    ] = 300,
    select: Select = "mean",
    seed: Seed = 0,
    threads: Threads = 0,
    json_file: Json = None,
) -> None:
    """Fit the final boosters, with tuned parameters where there are some."""
    from xlarank.pipelines.train import train as run

    place = built_workspace(data_root, workspace)
    with progress_bars() as progress:
        results = run(
            place, collections=collection or (), model=model, seeds=seeds, with_valid=with_valid, rounds=rounds,
            select=select, seed=seed, threads=threads, progress=progress,
        )  # fmt: skip
    table = new_table("collection", "model", ">graphs", ">rows", ">families", ">rounds", "rounds chosen by",
                   ">out-of-fold score", ">seeds", ">s")  # fmt: skip
    for result in results:
        if result.skipped:
            continue
        score = result.folds.get("score")
        table.add_row(
            result.collection, result.model + (" (tuned)" if result.tuned else ""), str(result.graphs),
            f"{result.rows:,}", str(result.families), str(result.rounds), result.chosen_by,
            f"{score['mean']:.3f} ± {score['std']:.3f}" if score else "-", str(result.seeds),
            f"{result.seconds:.0f}",
        )  # fmt: skip
    show(table)
    for result in results:
        if result.why:
            say(f"{result.collection}: {result.why}")
    for result in results:
        if result.importance:
            best = [f"{name} {share:.0%}" for name, share in list(result.importance.items())[:5]]
            say(f"{result.collection} splits most on {', '.join(best)}", style="dim")
    list_lines("not trained", [result.skipped for result in results if result.skipped])
    write_json(json_file, [plain_values(result) for result in results])


@app.command()
def evaluate(
    split: Annotated[str, typer.Option(help="train, valid, test, or folds for the out-of-fold scores.")] = "valid",
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    official_indices: Annotated[
        Path | None, typer.Option(help="Folder of <source>_<search>.json: judge only the official configurations.")
    ] = None,
    model_from: Annotated[
        str | None, typer.Option(help="Score with the model of this collection instead of each one's own.")
    ] = None,
    folds: Annotated[
        str,
        typer.Option(
            help="With --split folds, what is held out: family (kept by train: how new programs rank) or graph "
            "(fitted anew while other graphs of its family stay: how variants of known programs rank, higher)."
        ),
    ] = "family",
    threads: Threads = 0,
    json_file: Json = None,
    graphs: Annotated[bool, typer.Option(help="List every graph.")] = True,
) -> None:
    """Score trained models on labelled graphs: per graph, mean, spread and a bootstrap interval over graphs."""
    from xlarank.pipelines.evaluate import evaluate as run

    place = built_workspace(data_root, workspace)
    with progress_bars() as progress:
        found = run(place, split=split, collections=collection or (), official_indices=official_indices,
                    model_from=model_from, folds=folds, threads=threads, progress=progress)  # fmt: skip
    for name, metrics in found.report.items():
        show(score_table(name, found.judged, metrics, graphs))
    list_lines("left out", [f"{name}: {why}" for name, why in found.left_out.items()])
    list_lines("note", found.notes)
    write_json(json_file, found.report)


def score_table(collection: str, judged: str, metrics: dict[str, Any], graphs: bool) -> Sheet:
    first = next(iter(metrics.values()))
    table = new_table(
        "graph",
        *(f">{metric}" for metric in metrics),
        title=f"{collection}, {judged}: {len(first['graphs'])} graphs",
    )
    if graphs:
        for name in first["graphs"]:
            table.add_row(name, *(f"{metric['graphs'][name]:.3f}" for metric in metrics.values()))
        table.add_section()
    table.add_row("mean", *(f"{metric['mean']:.3f}" for metric in metrics.values()), style="bold")
    table.add_row("std", *(f"{metric['std']:.3f}" for metric in metrics.values()))
    for end in ("low", "high"):
        table.add_row(f"95 % {end}", *(f"{metric[end]:.3f}" for metric in metrics.values()))
    return table
