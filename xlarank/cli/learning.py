"""Searching parameters, fitting rankers."""

from __future__ import annotations

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
    Scheduler,
    Seed,
    Seeds,
    Select,
    Threads,
    Timeout,
    Trials,
    Work,
)
from xlarank.cli.tables import with_spread
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
        str | None,
        typer.Option(
            help="Where studies are stored: journal:PATH, postgresql+psycopg://USER@HOST/DATABASE, or another "
            "SQLAlchemy URL; default a journal in the workspace."
        ),
    ] = None,
    worker: Annotated[
        bool,
        typer.Option("--worker", help="One of several processes, on any machines: join the study at --storage."),
    ] = False,
    timeout: Timeout = None,
    rounds: Rounds = 300,
    select: Select = "mean",
    seed: Seed = 0,
    threads: Threads = 0,
    json_file: Json = None,
) -> None:
    """Search parameters with Optuna on folds of families, or of kinds of kernels; a second call continues."""
    from xlarank.models.fit_settings import FitSettings
    from xlarank.pipelines.study.storage import StudyOptions
    from xlarank.pipelines.tune import tune as run

    place = built_workspace(data_root, workspace)
    with progress_bars() as progress:
        results = run(
            place, trials=trials, collections=collection or (), timeout=timeout, model=model,
            fit=FitSettings(rounds, seed, threads), study=StudyOptions(storage, worker, select), progress=progress,
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
    for path in [path for result in results for path in result.pictures]:
        say(f"wrote {path}")
    if not any(result.pictures for result in results):
        say("no pictures of studies without matplotlib: pip install 'xlarank[report]'")
    list_lines("not tuned", [result.skipped for result in results if result.skipped])
    write_json(json_file, [plain_values(result) for result in results])


@app.command()
def train(
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    also_from: Annotated[
        list[str] | None,
        typer.Option(
            help="A collection of the same kind to learn from, too, and not to be judged on; repeatable. "
            "NAME=WEIGHT says what one of its graphs counts beside one of the own collection, 1 unless told."
        ),
    ] = None,
    fine_tune: Annotated[
        str | None,
        typer.Option(
            help="Go on from a model instead of learning from nothing: shipped (the one that comes with xlarank), "
            "a collection with a model in the workspace, or the folder of a model. --rounds are then added to it."
        ),
    ] = None,
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
    engine: Annotated[
        str,
        typer.Option(help="local; or dask: each booster is grown by all workers of --scheduler (lambdarank only)."),
    ] = "local",
    scheduler: Scheduler = None,
    allow_constant: Annotated[
        bool,
        typer.Option("--allow-constant", help="Save a model that learned nothing, too."),
    ] = False,
    json_file: Json = None,
) -> None:
    """Fit the final boosters, with tuned parameters where there are some."""
    from xlarank.pipelines.fine_tune import fine_tune as continue_model
    from xlarank.pipelines.train import train as fit_anew

    place = built_workspace(data_root, workspace)
    with progress_bars() as progress:
        settings: dict[str, Any] = {
            "collections": collection or (), "also_from": also_from or (), "model": model, "seeds": seeds,
            "with_valid": with_valid, "rounds": rounds, "select": select, "seed": seed, "threads": threads,
            "engine": engine, "scheduler": scheduler, "progress": progress,
        }  # fmt: skip
        if fine_tune is not None:
            results = continue_model(place, fine_tune, **settings)
        else:
            results = fit_anew(place, allow_constant=allow_constant, **settings)
    table = new_table("collection", "model", ">graphs", ">rows", ">families", ">rounds", "rounds chosen by",
                   ">out-of-fold score", ">seeds", ">s")  # fmt: skip
    for result in results:
        if result.skipped:
            continue
        score = result.folds.get("score")
        table.add_row(
            result.collection, result.model + (" (tuned)" if result.tuned else ""), str(result.graphs),
            f"{result.rows:,}", str(result.families), str(result.rounds), result.chosen_by,
            with_spread(score) if score else "-", str(result.seeds),
            f"{result.seconds:.0f}",
        )  # fmt: skip
    show(table)
    list_lines("note", [result.note for result in results if result.note])
    for result in results:
        if result.why:
            say(f"{result.collection}: {result.why}")
    for result in results:
        if result.fallback:
            say(f"{result.collection}: kinds of kernels never seen fall back, {result.fallback}")
    for result in results:
        if result.importance:
            best = [f"{name} {share:.0%}" for name, share in list(result.importance.items())[:5]]
            say(f"{result.collection} splits most on {', '.join(best)}", style="dim")
    list_lines("not trained", [result.skipped for result in results if result.skipped])
    write_json(json_file, [plain_values(result) for result in results])
