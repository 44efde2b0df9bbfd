"""The command line: parse, call one pipeline, show the result."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:  # heavy; imported where a command needs them, so that --help stays quick
    from rich.console import Console
    from rich.table import Table

    from data.root import DataRoot
    from data.workspace import Workspace
    from pipelines.budget import Plan

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Rank compiler configurations without running them: boosted trees on TpuGraphs data.",
)

Root = Annotated[
    Path | None,
    typer.Option(
        "--data-root", help="Root of a TpuGraphs tree. Default: XLARANK_DATA, Kaggle, ~/data, the sample."
    ),
]
Work = Annotated[Path, typer.Option("--workspace", help="Folder for everything that is written.")]
Collections = Annotated[
    list[str] | None,
    typer.Option("--collection", "-c", help="layout:<source>:<search> or tile:<source>; repeatable; default all."),
]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Threads = Annotated[int, typer.Option(help="Threads of the booster; 0 takes all cores.")]
RANKERS = "lambdarank, ranknet, rankreg, xgb-pairwise, sum-pooled, stacked, or ensemble (the slowest)"
Model = Annotated[str, typer.Option(help=f"Ranker: {RANKERS}.")]
Select = Annotated[
    str,
    typer.Option(
        help="Choose by the mean over graphs, or robust: the mean less a quarter of the standard deviation."
    ),
]
Json = Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")]
WORK = Path("work")
#: Lines shown of a list of graphs.
_LISTED = 20


@app.command()
def info(data_root: Root = None, collection: Collections = None, json_file: Json = None) -> None:
    """Show what the data root holds: collections, splits, counts, broken and unrankable files."""
    from pipelines.info import info as run

    root = _data_root(data_root)
    with _progress() as progress:
        parts = run(root, collections=collection or [], progress=progress)
    table = _table("collection", "split", ">graphs", ">labelled", ">families", ">configurations", ">distinct",
                   ">nodes", ">configurable", ">MB")  # fmt: skip
    for part in parts:
        table.add_row(
            part.collection, part.split, f"{part.graphs:,}", f"{part.labelled:,}", f"{len(part.families):,}",
            f"{part.configs:,}", f"{part.distinct:,}", _range(part.nodes), _range(part.configurable),
            f"{part.bytes / 1e6:.1f}",
        )  # fmt: skip
    _show(table)
    for part in parts:
        _list(f"cannot be ranked ({part.collection} {part.split}): one distinct configuration", part.unrankable)
    broken = {f"{part.collection} {part.split} {name}": why for part in parts for name, why in part.broken.items()}
    if json_file is not None:
        _write_json(json_file, [{**vars(part), "families": sorted(part.families)} for part in parts])
    _finish(broken)


@app.command()
def build_features(
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    split: Annotated[list[str] | None, typer.Option(help="train, valid or test; repeatable; default all.")] = None,
    max_configs: Annotated[
        int, typer.Option(min=0, help="Keep at most this many configurations of each train graph; 0 keeps all.")
    ] = 0,
    sampling: Annotated[
        str,
        typer.Option(
            help="How --max-configs draws: random; thirds (the fastest, the slowest, a third at random); uniform "
            "(even steps of rank). Unlabelled graphs at random."
        ),
    ] = "random",
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 chooses by the size of the files.")] = 0,
    tier: Annotated[str, typer.Option(help="fast or full: which columns.")] = "full",
    candidates: Annotated[
        bool, typer.Option(help="With columns that look at the graph's whole candidate set (transductive).")
    ] = True,
    seed: Seed = 0,
) -> None:
    """Turn graph files into stored feature rows; goes on where it was interrupted."""
    _build(
        _data_root(data_root), _workspace(workspace), collection, split, max_configs, jobs, tier, candidates, seed,
        sampling,
    )  # fmt: skip


@app.command()
def tune(
    trials: Annotated[int, typer.Option(min=1, help="Finished trials that each study shall reach.")] = 50,
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    model: Model = "lambdarank",
    storage: Annotated[
        str | None, typer.Option(help="Optuna storage URL; default a journal in the workspace.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds per collection.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Most boosting rounds.")] = 300,
    select: Select = "mean",
    seed: Seed = 0,
    threads: Threads = 0,
) -> None:
    """Search parameters with Optuna on folds of program families; a second call continues."""
    from pipelines.tune import tune as run

    place = _built(data_root, workspace)
    with _progress() as progress:
        results = run(
            place, trials=trials, collections=collection or (), model=model, storage=storage, timeout=timeout,
            rounds=rounds, select=select, seed=seed, threads=threads, progress=progress,
        )  # fmt: skip
    table = _table(
        "collection", ">trials", ">new", ">pruned", ">out-of-fold score", ">rounds", "best parameters", ">s"
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
    _show(table)
    _list("note", [f"{result.collection}: {result.note}" for result in results if result.note])
    for result in results:
        if result.picture is not None:
            _say(f"wrote {result.picture}: the course of the study and the importance of its parameters")
    _list("not tuned", [result.skipped for result in results if result.skipped])


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
    seeds: Annotated[int, typer.Option(min=1, help="Boosters to average.")] = 3,
    with_valid: Annotated[
        bool, typer.Option("--with-valid", help="Also learn from valid, before a submission.")
    ] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Most boosting rounds; folds choose the number.")] = 300,
    select: Select = "mean",
    seed: Seed = 0,
    threads: Threads = 0,
) -> None:
    """Fit the final boosters, with tuned parameters where there are some."""
    from pipelines.train import train as run

    place = _built(data_root, workspace)
    with _progress() as progress:
        results = run(
            place, collections=collection or (), model=model, seeds=seeds, with_valid=with_valid, rounds=rounds,
            select=select, seed=seed, threads=threads, progress=progress,
        )  # fmt: skip
    table = _table("collection", "model", ">graphs", ">rows", ">families", ">rounds", "rounds chosen by",
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
    _show(table)
    for result in results:
        if result.why:
            _say(f"{result.collection}: {result.why}")
    for result in results:
        if result.importance:
            best = [f"{name} {share:.0%}" for name, share in list(result.importance.items())[:5]]
            _say(f"{result.collection} splits most on {', '.join(best)}", style="dim")
    _list("not trained", [result.skipped for result in results if result.skipped])


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
    from pipelines.evaluate import evaluate as run

    place = _built(data_root, workspace)
    with _progress() as progress:
        found = run(place, split=split, collections=collection or (), official_indices=official_indices,
                    model_from=model_from, folds=folds, threads=threads, progress=progress)  # fmt: skip
    for name, metrics in found.report.items():
        _show(_score_table(name, found.judged, metrics, graphs))
    _list("left out", [f"{name}: {why}" for name, why in found.left_out.items()])
    _list("note", found.notes)
    if json_file is not None:
        _write_json(json_file, found.report)


@app.command()
def submit(
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("submission.csv"),
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
) -> None:
    """Write the Kaggle submission for the test graphs of all trained collections."""
    from pipelines.submit import submit as run

    place = _built(data_root, workspace)
    with _progress() as progress:
        report = run(place, out, collections=collection or (), progress=progress)
    table = _table("collection", ">test graphs")
    for name, count in report.rows.items():
        table.add_row(name, str(count))
    _show(table)
    _say(f"wrote {report.out}: {sum(report.rows.values())} rows, checked")
    _list("left out", [f"{name}: {why}" for name, why in report.left_out.items()])
    _finish(report.broken)


@app.command()
def check_submission(
    file: Annotated[Path, typer.Argument(help="The submission to check.")],
    sample: Annotated[
        Path | None, typer.Option(help="sample_submission.csv: whose ids must be there. Default: the test graphs.")
    ] = None,
    data_root: Root = None,
) -> None:
    """Check a submission: ids, permutations, five of a tile; every problem is counted."""
    from pipelines.check_submission import check_submission as run

    root = None if sample is not None and data_root is None else _data_root(data_root)
    checked = run(file, sample=sample, data_root=root)
    _list("not known how many configurations", checked.unknown)
    if not checked.problems:
        _say(f"{file}: {checked.rows} rows, right (checked against {checked.against})")
        return
    for problem in checked.problems[:20]:
        _error(problem)
    many = "s" if len(checked.problems) > 1 else ""
    _error(f"{len(checked.problems)} problem{many} in {file} (checked against {checked.against})")
    raise typer.Exit(1)


@app.command()
def run_all(
    out: Annotated[
        Path, typer.Option(help="The submission; there from the first minute, then made better.")
    ] = Path("submission.csv"),
    budget_hours: Annotated[float, typer.Option(help="Wall clock, counted from now.")] = 12.0,
    budget_ram_gb: Annotated[float, typer.Option(help="Memory; 0 takes 9/10 of the machine's.")] = 0.0,
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    seeds: Annotated[int, typer.Option(min=1, help="Boosters of a final model.")] = 3,
    trials: Annotated[int, typer.Option(min=0, help="Most tuning trials per collection; 0 for none.")] = 100,
    jobs: Annotated[int, typer.Option(min=0, help="Processes that build; 0 chooses.")] = 0,
    models: Annotated[
        Path | None, typer.Option(help="A workspace with trained models: rank with these, learn nothing.")
    ] = None,
    seed: Seed = 0,
) -> None:
    """Graphs to submission within a budget of time and memory; goes on where it was interrupted."""
    from pipelines.budget import machine_budget
    from pipelines.run_all import run_all as run

    root, place = _data_root(data_root), _workspace(workspace)
    budget = machine_budget(place.root, hours=budget_hours, ram_gb=budget_ram_gb)
    with _progress() as progress:
        summary = run(
            root, place, out, budget, collections=collection or (), seeds=seeds, trials=trials, jobs=jobs,
            models=models, seed=seed, progress=progress, tell=lambda plan: _show_plan(plan, models is None),
        )  # fmt: skip
    table = _table("collection", "ranked by", ">valid, first model", ">trials", ">out of fold", ">s")
    for outcome in summary.outcomes:
        table.add_row(*outcome.cells())
    _show(table)
    for outcome in summary.outcomes:
        _list(f"note ({outcome.collection})", outcome.notes)
    _say(f"wrote {summary.out}: {summary.rows} rows, checked; {summary.seconds / 60:.1f} min")
    _finish(summary.broken)


@app.command()
def package_kaggle(
    out: Annotated[Path, typer.Option(help="A folder, or a file that ends in .zip.")] = Path("work/kaggle-dataset"),
    models: Annotated[Path | None, typer.Option(help="A workspace whose trained models come along.")] = None,
    wheelhouse: Annotated[
        bool, typer.Option("--wheelhouse", help="Also download what Kaggle's image lacks.")
    ] = False,
    owner: Annotated[str, typer.Option(help="Your Kaggle name, for the metadata.")] = "YOUR-KAGGLE-NAME",
) -> None:
    """Make the Kaggle dataset that the notebook in kaggle/ runs from; needs a git clone."""
    from pipelines.package_kaggle import package_kaggle as run

    made = run(out, models=models, wheelhouse=wheelhouse, owner=owner)
    _say(f"wrote {made.out}: {made.files} files, {made.size / 1e6:.1f} MB")
    _list("model", list(made.models))
    _list("wheel", list(made.wheels))


@app.command()
def rank(
    graph: Annotated[Path, typer.Argument(help="An npz file in TpuGraphs format.")],
    top: Annotated[int, typer.Option(min=1, help="How many to show.")] = 10,
    workspace: Work = WORK,
    collection: Annotated[str | None, typer.Option("--collection", "-c", help="Whose model to use.")] = None,
    json_file: Json = None,
) -> None:
    """Rank the configurations of one graph with a trained model."""
    from pipelines.rank import rank as run

    ranking = run(_workspace(workspace), graph, collection=collection)
    table = _table(">rank", ">configuration", ">score", ">measured ms", "identical configurations")
    for entry in ranking.best(top):
        runtime, twins = entry["runtime_ns"], entry["identical"]
        table.add_row(
            str(entry["rank"]), str(entry["configuration"]), f"{entry['score']:.4f}",
            f"{runtime / 1e6:.4f}" if runtime else "-",
            ", ".join(map(str, twins[:8])) + (f" and {len(twins) - 8} more" if len(twins) > 8 else ""),
        )  # fmt: skip
    _say(f"{ranking.graph}: {len(ranking.order):,} configurations, ranked by the model of {ranking.collection}")
    _show(table)
    if ranking.metrics:
        _say("  ".join(f"{name} {value:.3f}" for name, value in ranking.metrics.items()))
    if json_file is not None:
        _write_json(json_file, ranking.as_json(top))


@app.command()
def explain_feature(
    name: Annotated[str, typer.Argument(help="Name of a column; * and ? match several, as in 'padding__*'.")],
) -> None:
    """Say what a feature column means: its unit, formula and source."""
    from pipelines.explain_feature import explain_feature as run

    found = run(name)
    if len(found) > 1:
        table = _table("column", "meaning", "scope", "tier")
        for column in found:
            scope = f"{column.scope}{', transductive' if column.transductive else ''}"
            table.add_row(column.name, column.meaning, scope, column.tier)
        _show(table)
        return
    column = found[0]
    _headline(column.name)
    _say(column.meaning)
    _say("")
    _say(f"{column.block}, {' and '.join(column.kinds)} graphs: one value a {column.scope}; {column.tier} tier")
    if column.transductive:
        _say("transductive: looks at the other unlabelled candidates of the graph")
    _say("")
    for line in column.about.splitlines():
        _say(line)


@app.command()
def demo(
    workspace: Work = Path("work/demo"),
    trials: Annotated[int, typer.Option(min=1, help="Tuning trials per collection.")] = 8,
) -> None:
    """The whole job on the embedded sample: build, tune, train, evaluate, submit, rank."""
    from data.root import SAMPLE, find_data_root

    root, place = find_data_root(SAMPLE), _workspace(workspace)
    _headline("1. info and build-features")
    _say("XLA:CPU-measured programs in TpuGraphs format (data/sample/README.md)")
    _build(root, place, None, None, 0, 0, "full", True, 0)
    _headline("2. tune")
    tune(trials=trials, workspace=workspace)
    _headline("3. train")
    train(workspace=workspace)
    _headline("4. evaluate on valid (families that were never trained on)")
    evaluate(workspace=workspace, json_file=place.reports() / "valid.json", graphs=False)
    _headline("5. submit")
    submit(out=place.reports() / "submission.csv", workspace=workspace)
    _headline("6. rank one graph")
    rank(root.npz / "layout/cpu/random/valid/unet__a.npz", top=5, workspace=workspace)


def main() -> None:
    """Run a command; problems of the user's making end in one clear line, never a traceback."""
    from data.errors import XlarankError

    # Typer would turn a KeyboardInterrupt into exit code 1 without a word.
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        app()
    except BaseException as error:
        if _heard:  # whatever a library made of the interruption
            sys.stdout.flush()
            _leave(_heard[0])
        if not isinstance(error, XlarankError):
            raise
        _error(str(error))
        sys.exit(1)


class _Interrupted(BaseException):
    """The user (or the system) wants the program to end."""


#: Signals so far. The exception that a handler raises can get lost in a library; the number does not.
_heard: list[int] = []
#: Seconds for files in the making; a second signal ends the program at once.
_GRACE = 10.0


def _interrupt(number: int, frame: Any) -> None:
    _heard.append(number)
    if len(_heard) > 1:
        _leave(_heard[0])
    watchdog = threading.Timer(_GRACE, _leave, [number])
    watchdog.daemon = True
    watchdog.start()
    raise _Interrupted


def _leave(number: int) -> NoReturn:
    """End now: every file is whole or absent, so no thread needs to finish."""
    show_cursor = b"\x1b[?25h" if sys.stderr.isatty() else b""
    word = b"error: interrupted; what was finished is kept, run the same command again to go on\n"
    os.write(2, show_cursor + word)  # not through the console: the signal may have stopped it half way
    os._exit(128 + number)


def _data_root(named: Path | None) -> DataRoot:
    from data.root import find_data_root

    root = find_data_root(named)
    _say(f"data: {root.path} ({root.why})", style="dim")
    return root


def _workspace(path: Path) -> Workspace:
    from data.workspace import Workspace

    return Workspace(path)


def _built(data_root: Path | None, workspace: Path) -> Workspace:
    """The workspace, with features: built now where there are none, or none of the data root that is named.

    What is there keeps the settings it was built with.
    """
    from features.store import stored_roots

    place = _workspace(workspace)
    stored = stored_roots(place)
    if data_root is not None or not stored:
        root = _data_root(data_root)
        if str(root.path.resolve()) not in stored:
            _build(root, place, None, None, 0, 0, "full", True, 0)
    return place


def _build(
    root: DataRoot,
    workspace: Workspace,
    collection: list[str] | None,
    split: list[str] | None,
    max_configs: int,
    jobs: int,
    tier: str,
    candidates: bool,
    seed: int,
    sampling: str = "random",
) -> None:
    from data.errors import XlarankError
    from features.assemble import FeatureSettings
    from features.block import Tier
    from pipelines.build_features import build_features as run

    if tier not in (known := [member.value for member in Tier]):
        raise XlarankError(f"--tier is {tier!r}", expected=" or ".join(known))
    with _progress() as progress:
        report = run(
            root, workspace, collections=collection or (), splits=split or (),
            settings=FeatureSettings(Tier(tier), candidates), max_configs=max_configs, sampling=sampling,
            jobs=jobs, seed=seed, progress=progress,
        )  # fmt: skip
    table = _table("collection", "split", ">graphs", ">built", ">kept", ">configurations", ">rows", ">broken")
    for part in report.splits:
        table.add_row(
            part.collection, part.split, str(part.graphs), str(part.built), str(part.kept), f"{part.configs:,}",
            f"{part.rows:,}", str(len(part.broken)),
        )  # fmt: skip
    _show(table)
    for kind, (constant, varying) in report.columns.items():
        _say(f"{kind}: {constant} columns per graph + {varying} per configuration; {report.seconds:.1f} s in all")
    for part in report.splits:
        _list(f"cannot be ranked ({part.collection} {part.split}), kept for prediction", part.unrankable)
    _finish(report.broken)


def _show_plan(plan: Plan, learning: bool) -> None:
    budget = plan.budget
    _say(
        f"budget: {budget.hours:g} h, {budget.ram_gb:.1f} GB of memory, {budget.disk_gb:.0f} GB of disk, "
        f"{budget.cores} cores; {plan.jobs} build at a time"
    )
    if learning:
        table = _table(*plan.COLUMNS)
        for row in plan.rows():
            table.add_row(*row)
        _show(table)
        _list("note", list(plan.notes))


def _score_table(collection: str, judged: str, metrics: dict[str, Any], graphs: bool) -> Table:
    from rich.table import Table

    first = next(iter(metrics.values()))
    table = Table(title=f"{collection}, {judged}: {len(first['graphs'])} graphs", title_justify="left")
    table.add_column("graph")
    for metric in metrics:
        table.add_column(metric, justify="right")
    if graphs:
        for name in first["graphs"]:
            table.add_row(name, *(f"{metric['graphs'][name]:.3f}" for metric in metrics.values()))
        table.add_section()
    table.add_row("mean", *(f"{metric['mean']:.3f}" for metric in metrics.values()), style="bold")
    table.add_row("std", *(f"{metric['std']:.3f}" for metric in metrics.values()))
    for end in ("low", "high"):
        table.add_row(f"95 % {end}", *(f"{metric[end]:.3f}" for metric in metrics.values()))
    return table


def _finish(broken: dict[str, str]) -> None:
    """Name broken files and leave with an exit code that tells; everything else was done."""
    if broken:
        for name, why in broken.items():
            _error(f"{name}: {why}")
        _error(f"{len(broken)} broken file{'s' if len(broken) > 1 else ''}; the others were dealt with")
        raise typer.Exit(1)


@contextmanager
def _progress() -> Iterator[Any]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    class Bar:
        """Shows a job of `pipelines.progress.Progress` as a bar."""

        def __init__(self, bars: Progress) -> None:
            self.bars = bars

        def begin(self, what: str, total: int) -> None:
            self.task = self.bars.add_task(what, total=total, note="")

        def step(self, note: str = "") -> None:
            self.bars.update(self.task, advance=1, note=_plain(note))

        def end(self) -> None:
            self.bars.stop_task(self.task)

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", style="dim", markup=False),
    )
    with Progress(*columns, console=_console(stderr=True), refresh_per_second=4) as bars:
        yield Bar(bars)


def _table(*columns: str) -> Table:
    """A table; a column that starts with > is aligned right."""
    from rich.table import Table

    table = Table()
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left")
    return table


def _console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; wide enough for every table where the output goes to a file."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # names of files and folders are not markup
    return Console(file=stream, width=None if stream.isatty() else 150, markup=False)


def _show(table: Table) -> None:
    if table.row_count:
        _console().print(table)


def _say(text: str, *, style: str = "") -> None:
    _console().print(_plain(text), style=style, highlight=False, soft_wrap=True)


def _headline(text: str) -> None:
    _console().print()
    _say(text, style="bold")


def _list(title: str, lines: list[str]) -> None:
    from rich.text import Text

    # A tile collection may have a thousand kernels of one configuration; --json of `info` has them all.
    shown = lines if len(lines) <= _LISTED else [*lines[:_LISTED], f"and {len(lines) - _LISTED:,} more"]
    for line in shown:
        text = Text.assemble((f"{title}:", "yellow"), " ", _plain(line))
        _console().print(text, highlight=False, soft_wrap=True)


def _error(text: str) -> None:
    from rich.text import Text

    line = Text.assemble(("error:", "red"), " ", _plain(text))
    _console(stderr=True).print(line, highlight=False, soft_wrap=True)


def _plain(text: str) -> str:
    """Line breaks and control characters spelled out: a file name must not forge output."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _write_json(path: Path, value: Any) -> None:
    from data.files import write_json

    write_json(path, value)
    _say(f"wrote {path}")


def _range(values: list[int]) -> str:
    if not values:
        return "-"
    return f"{min(values):,}" if min(values) == max(values) else f"{min(values):,}-{max(values):,}"


if __name__ == "__main__":
    main()
