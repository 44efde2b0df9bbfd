"""Commands that tune and train rankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option, Typer

from xlarank.cli import console, options
from xlarank.cli.console import list_lines, say, show_rows, write_json
from xlarank.cli.options import built_workspace
from xlarank.cli.scoring import show_board

if TYPE_CHECKING:  # slow; imported inside commands, so that --help stays fast
    from xlarank.pipelines.train import TrainResult
    from xlarank.pipelines.tune import TuneResult

app = Typer()


@app.command()
def tune(
    trials: Annotated[int, Option(min=1, help="Trials of each study, earlier ones included.")] = 50,
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    model: options.Model = "lambdarank",
    storage: Annotated[
        str | None,
        Option(help="SQLAlchemy URL of a database to share. Default: SQLite in the workspace."),
    ] = None,
    timeout: Annotated[float | None, Option(min=0, help="Maximum seconds, for all.")] = None,
    rounds: options.Rounds = 300,
    select: options.Select = "mean",
    seed: options.Seed = 0,
    threads: options.Threads = 0,
    json_file: options.Json = None,
) -> None:
    """Tune parameters with Optuna, cross-validated by family (tiles: kernel family).

    Rerun to resume.
    """
    from xlarank.pipelines.tune import tune as run

    work = built_workspace(data_root, workspace, collection)
    results = run(
        work,
        trials=trials,
        collection=collection or (),
        timeout=timeout,
        model=model,
        storage=storage,
        rounds=rounds,
        select=select,
        seed=seed,
        threads=threads,
    )
    _show_tuned(results)
    write_json(json_file, results)


def _params_text(params: dict[str, Any]) -> str:
    values = {name: f"{x:.3g}" if isinstance(x, float) else x for name, x in params.items()}
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _show_tuned(results: Sequence[TuneResult]) -> None:
    show_rows(
        {
            "collection": result.collection,
            ">trials": result.trials,
            ">new": result.fresh,
            ">pruned": result.pruned,
            ">out-of-fold score": f"{result.mean:.3f} ± {result.std:.3f}",
            ">defaults": f"{result.defaults:.3f}",
            ">rounds": result.rounds,
            "best parameters": _params_text(result.params) if result.tuned else "the defaults",
        }
        for result in results
        if result.params is not None
    )
    list_lines("note", [f"{result.collection}: {result.note}" for result in results if result.note])
    for path in (path for result in results for path in result.pictures):
        say(f"wrote {path}")
    list_lines("not tuned", [result.skipped for result in results if result.skipped])


@app.command()
def train(
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    also_from: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Additional training collection, not scored; repeatable."),
    ] = None,
    model: options.Model = "lambdarank",
    seeds: Annotated[int, Option(min=1, help="Number of boosters that are averaged.")] = 3,
    with_valid: Annotated[bool, Option("--with-valid", help="Train on valid, too.")] = False,
    rounds: options.Rounds = 300,
    select: options.Select = "mean",
    seed: options.Seed = 0,
    threads: options.Threads = 0,
    json_file: options.Json = None,
) -> None:
    """Train the final models, with tuned parameters if there are any."""
    from xlarank.data.collection import Collection
    from xlarank.pipelines.train import train as run

    named = [*collection, *(also_from or ())] if collection else None
    work = built_workspace(data_root, workspace, named)
    results = run(
        work,
        collection=collection or (),
        also_from=also_from or (),
        model=model,
        seeds=seeds,
        with_valid=with_valid,
        rounds=rounds,
        select=select,
        seed=seed,
        threads=threads,
    )
    trained = [Collection.parse(result.collection) for result in results]
    has_valid = any(work.features(of, "valid").exists() for of in trained)
    console.current_run.keep("evaluate" if has_valid and not with_valid else "cross-validate")
    _show_trained(results)
    write_json(json_file, results)


def _show_trained(results: Sequence[TrainResult]) -> None:
    """Print what was trained, the comparisons out of fold, and what was not trained."""
    from xlarank.pipelines.support.evaluation import with_interval

    show_rows(
        {
            "collection": result.collection,
            "model": result.model + (" (tuned)" if result.tuned else ""),
            ">graphs": result.graphs,
            ">rows": f"{result.rows:,}",
            ">rounds": result.rounds,
            "chosen by": result.chosen_by,
            ">out of fold": with_interval(result.folds["score"]) if result.folds else "-",
        }
        for result in results
        if not result.skipped
    )
    for result in results:
        if result.ranked_by:
            say(f"{result.collection} is ranked by {result.ranked_by}", "bold")
        if result.comparison:
            show_board(result.comparison, result.collection)
        if result.fallback:
            say(f"unseen kernel families: {result.fallback}")
    list_lines("not trained", [result.skipped for result in results if result.skipped])
