"""How good rankings are: of trained models on a split, and of graphs that a ranker never saw."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from xlarank.cli.console import list_lines, new_table, progress_bars, say, show, write_json
from xlarank.cli.inputs import built_workspace
from xlarank.cli.options import RANKERS, WORK, Collections, Json, Root, Rounds, Seed, Threads, Work
from xlarank.cli.tables import Sheet, with_interval
from xlarank.data.ranges import MAX_THREADS
from xlarank.data.wording import counted, reasons

if TYPE_CHECKING:  # heavy; imported where a command needs them, so that --help stays quick
    from xlarank.pipelines.support.evaluation import Comparison, Evaluation

app = typer.Typer()

#: What `evaluate --split` took before there was `cross-validate`.
_FOLDS: Final = "folds"
_OLD: Final = f"evaluate --split {_FOLDS} is the old word for cross-validate and goes with version 0.3"

Listed = Annotated[bool, typer.Option(help="List every graph.")]


@app.command()
def evaluate(
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "valid",
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    official_indices: Annotated[
        Path | None, typer.Option(help="Folder of <source>_<search>.json: judge only the official configurations.")
    ] = None,
    model_from: Annotated[
        str | None, typer.Option(help="Score with the model of this collection instead of each one's own.")
    ] = None,
    folds: Annotated[str | None, typer.Option(hidden=True, help=_OLD)] = None,
    threads: Annotated[int, typer.Option(hidden=True, min=-1, max=MAX_THREADS, help=_OLD)] = 0,
    json_file: Json = None,
    graphs: Listed = True,
) -> None:
    """Score trained models on labelled graphs: per graph, mean, spread and a bootstrap interval over graphs."""
    from xlarank.data.errors import XlarankError
    from xlarank.pipelines.cross_validate import cross_validate as out_of_fold
    from xlarank.pipelines.evaluate import evaluate as run

    if folds is not None and split != _FOLDS:
        raise XlarankError("--folds without --split folds", do="run cross-validate --by instead")
    place = built_workspace(data_root, workspace)
    with progress_bars() as progress:
        if split == _FOLDS:
            found = out_of_fold(
                place, by=folds or "family", collections=collection or (), threads=threads, progress=progress
            )  # fmt: skip
            found.notes.append(_OLD)
        else:
            found = run(place, split=split, collections=collection or (), official_indices=official_indices,
                        model_from=model_from, progress=progress)  # fmt: skip
    _show(found, graphs, json_file)


@app.command()
def cross_validate(
    by: Annotated[
        str,
        typer.Option(
            help="What is held out with a graph: family (how new programs rank); graph (nothing else: how variants "
            "of known programs rank, higher); kind (of kernel, told from the graph; layouts: family)."
        ),
    ] = "family",
    model: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Fit this ranker, in place of the trained model's, on the train split: {RANKERS}. Repeated: "
            "rankers side by side, with differences to the first."
        ),
    ] = None,
    with_valid: Annotated[
        bool, typer.Option("--with-valid", help="With --model: on the train and valid splits together.")
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
    """Score graphs out of fold, each by a ranker that never saw it nor what is held out with it; writes nothing."""
    from xlarank.pipelines.cross_validate import cross_validate as run
    from xlarank.pipelines.cross_validate import cross_validate_rankers

    place = built_workspace(data_root, workspace)
    models = list(dict.fromkeys(model or ()))
    with progress_bars() as progress:
        if len(models) > 1:
            compared = cross_validate_rankers(
                place, models, by=by, collections=collection or (), with_valid=with_valid, rounds=rounds, seed=seed,
                threads=threads, progress=progress,
            )  # fmt: skip
        else:
            found = run(
                place, by=by, collections=collection or (), model=models[0] if models else None,
                with_valid=with_valid, rounds=rounds, seed=seed, threads=threads, progress=progress,
            )  # fmt: skip
    if len(models) > 1:
        _show_compared(compared, json_file)
    else:
        _show(found, graphs, json_file)


def _show(found: Evaluation, graphs: bool, json_file: Path | None) -> None:
    for name, metrics in found.report.items():
        show(score_table(name, found.judged, metrics, graphs))
    for name, metrics in found.speedups.items():
        first, five = (with_interval(about) for about in metrics.values())
        count = counted(len(next(iter(metrics.values()))["graphs"]), "graph")
        say(f"{name}: {first} times as fast as the compiler's own choice, best of five {five}; {count}")
    list_lines("left out", reasons(found.left_out))
    list_lines("note", found.notes)
    write_json(
        json_file, {name: {**metrics, **found.speedups.get(name, {})} for name, metrics in found.report.items()}
    )


def _show_compared(found: Comparison, json_file: Path | None) -> None:
    for name, rankers in found.report.items():
        show(comparison_table(name, found.judged, rankers))
    list_lines("left out", reasons(found.left_out))
    list_lines("note", found.notes)
    write_json(json_file, found.report)


def comparison_table(collection: str, judged: str, rankers: dict[str, dict[str, Any]]) -> Sheet:
    """Rankers side by side: tau and what their choices lose, then the differences to the first with intervals."""
    from xlarank.models.validation.paired import COMPARED, Difference

    metrics = COMPARED["tile" if collection.startswith("tile:") else "layout"]
    first, count = next(iter(rankers)), len(next(iter(rankers.values()))[metrics[0]]["graphs"])
    table = new_table(
        "ranker", *(f">{metric}" for metric in metrics), title=f"{collection}, {judged}: {counted(count, 'graph')}"
    )
    for name, report in rankers.items():
        table.add_row(name, *(f"{report[metric]['mean']:.3f}" for metric in metrics))
    for name, report in list(rankers.items())[1:]:
        table.add_section()
        between = [report[metric]["difference"] for metric in metrics]
        lines = [str(Difference(**one)).split(" ", 1) if one else ["-", ""] for one in between]
        table.add_row(f"{name} less {first}", *(line[0] for line in lines))
        table.add_row("95 % (paired)", *(line[1].strip("()") for line in lines))
    return table


def score_table(collection: str, judged: str, metrics: dict[str, Any], graphs: bool) -> Sheet:
    """One collection's scores: a row for each graph on request, then mean, spread and interval."""
    first = next(iter(metrics.values()))
    table = new_table(
        "graph",
        *(f">{metric}" for metric in metrics),
        title=f"{collection}, {judged}: {counted(len(first['graphs']), 'graph')}",
    )
    if graphs:
        for name in first["graphs"]:
            table.add_row(name, *(f"{metric['graphs'][name]:.3f}" for metric in metrics.values()))
        table.add_section()
    table.add_row("mean", *(f"{metric['mean']:.3f}" for metric in metrics.values()), style="bold")
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
            table.add_row("mean, identical ones counted once", *once)
        table.add_section()
    for name in without:
        table.add_row(f"no model: {name}", *(f"{metric['baselines'][name]:.3f}" for metric in metrics.values()))
    return table
