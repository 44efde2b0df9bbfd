"""Commands that tune and train rankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option, Typer

from xlarank.cli import options
from xlarank.cli.console import list_lines, progress_bars, say, show_rows, write_json
from xlarank.cli.options import built_workspace

if TYPE_CHECKING:  # slow; imported inside commands, so that --help stays fast
    from xlarank.data.workspace import Workspace
    from xlarank.models.training_data import FitSettings

app = Typer()


def spread(score: dict[str, Any] | None) -> str:
    """Return the mean of a score and, for several graphs, its standard deviation over graphs."""
    if score is None:
        return "-"
    return f"{score['mean']:.3f}" + (f" ± {score['std']:.3f}" if len(score["graphs"]) > 1 else "")


def _announce(
    workspace: Workspace, named: Sequence[str], splits: Sequence[str], fit: FitSettings, fits: float
) -> dict[str, str]:
    """Print the rows, memory and time of each collection; return those that do not fit into memory, with reasons.

    Raises `CollectionError` if such a collection is named.
    """
    from xlarank.pipelines.support.workspaces import chosen_collections, skip_unless_named
    from xlarank.pipelines.training.budget import forecast

    too_large: dict[str, str] = {}
    for collection in chosen_collections(workspace, named):
        with skip_unless_named(collection, named, too_large):
            say(forecast(workspace, collection, splits, fit, fits), "dim")
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
            help="Storage of studies: journal:PATH, postgresql+psycopg://USER@HOST/DATABASE or another SQLAlchemy "
            "URL. Default: a journal in the workspace."
        ),
    ] = None,
    worker: Annotated[bool, Option("--worker", help="Join the study at --storage as another process.")] = False,
    timeout: options.Timeout = None,
    rounds: options.Rounds = 300,
    select: options.Select = "mean",
    seed: options.Seed = 0,
    threads: options.Threads = 0,
    json_file: options.Json = None,
) -> None:
    """Tune parameters with Optuna, cross-validated by family (tiles: kernel family). Rerun to resume."""
    from xlarank.models.rankers.boosted import LambdaRank
    from xlarank.models.training_data import FitSettings
    from xlarank.pipelines.training.budget import TRIAL_FITS
    from xlarank.pipelines.training.studies import StudyOptions
    from xlarank.pipelines.tune import tune as run

    work, fit = built_workspace(data_root, workspace, collection), FitSettings(rounds, seed, threads)
    fits = TRIAL_FITS * trials if model == LambdaRank.name else 0
    too_large = _announce(work, collection or (), ("train",), fit, fits)
    with progress_bars() as progress:
        results = run(
            work, trials=trials, collections=collection or (), timeout=timeout, model=model,
            fit=fit, study=StudyOptions(storage, worker, select), progress=progress,
        )  # fmt: skip
    heads = ("collection", ">trials", ">new", ">pruned", ">out-of-fold score", ">rounds", "~best parameters", ">s")
    show_rows(heads, (
        (result.collection, str(result.trials), str(result.fresh), str(result.pruned),
         f"{result.mean:.3f} ± {result.std:.3f}", str(result.rounds),
         ", ".join(f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
                   for name, value in result.params.items()),
         f"{result.seconds:.0f}")
        for result in results if result.params is not None
    ))  # fmt: skip
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
            help="Additional training collection of the same kind; repeatable. NAME=WEIGHT weights its graphs "
            "(default 1). Only graphs of --collection are scored."
        ),
    ] = None,
    fine_tune: Annotated[
        str | None,
        Option(
            help="Fine-tune a model with up to --rounds more trees: shipped (the shipped ranker), a collection "
            "with a model in the workspace, or the folder of a model."
        ),
    ] = None,
    model: Annotated[
        str, Option(help=f"Ranker: {options.RANKERS}; or auto: the one with the best out-of-fold score.")
    ] = "lambdarank",
    seeds: options.Seeds = 3,
    with_valid: Annotated[bool, Option("--with-valid", help="Train on the valid split, too.")] = False,
    rounds: options.Rounds = 300,
    select: options.Select = "mean",
    seed: options.Seed = 0,
    threads: options.Threads = 0,
    engine: Annotated[
        str, Option(help="local, or dask: train each booster on all workers of --scheduler (lambdarank only).")
    ] = "local",
    scheduler: options.Scheduler = None,
    allow_constant: Annotated[bool, Option("--allow-constant", help="Save models with equal scores, too.")] = False,
    json_file: options.Json = None,
) -> Any:
    """Train the final models, with tuned parameters if there are any."""
    from xlarank.models.rankers.boosted import LambdaRank
    from xlarank.models.training_data import FitSettings
    from xlarank.models.validation.folds import MOST_FOLDS
    from xlarank.pipelines.fine_tune import fine_tune as run_fine_tune
    from xlarank.pipelines.train import train as run
    from xlarank.pipelines.training.fitting import TrainRequest

    extra = [name.partition("=")[0] for name in also_from or ()]
    work = built_workspace(data_root, workspace, [*collection, *extra] if collection else None)
    request = TrainRequest(
        collections=collection or (), also_from=also_from or (), model=model, seeds=seeds,
        with_valid=with_valid, rounds=rounds, select=select, seed=seed, threads=threads, engine=engine,
        scheduler=scheduler, allow_constant=allow_constant,
    )  # fmt: skip
    too_large: dict[str, str] = {}
    if scheduler is None:
        fits = MOST_FOLDS + seeds if model == LambdaRank.name and fine_tune is None else 0
        too_large = _announce(work, collection or (), request.splits, FitSettings(rounds, seed, threads), fits)
    with progress_bars() as progress:
        if fine_tune is None:
            results = run(work, request, progress=progress)
        else:
            results = run_fine_tune(work, fine_tune, request, progress=progress)
    heads = ("collection", "model", ">graphs", ">rows", ">families", ">rounds", "rounds chosen by",
             ">out-of-fold score", ">seeds", ">s")  # fmt: skip
    show_rows(heads, (
        (result.collection, result.model + (" (tuned)" if result.tuned else ""), str(result.graphs),
         f"{result.rows:,}", str(result.families), str(result.rounds), result.chosen_by,
         spread(result.folds.get("score")), str(result.seeds), f"{result.seconds:.0f}")
        for result in results if not result.skipped
    ))  # fmt: skip
    list_lines("note", [result.note for result in results if result.note])
    for result in results:
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
