"""Commands that rank: rank, submit, check-submission."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option, Typer

from xlarank.cli import console, options
from xlarank.cli.console import error_line, finish, list_lines, say, show_rows, write_json
from xlarank.data.errors import ParameterError, counted, reasons, shortened
from xlarank.data.workspace import Workspace

if TYPE_CHECKING:  # slow; imported inside commands, so that --help stays fast
    from xlarank.pipelines.rank import Ranking
    from xlarank.pipelines.submit import Submission

app = Typer()


@app.command()
def rank(
    graph: Annotated[
        Path,
        Argument(help="npz file, folder of npz files, or program (HLO file, module:function)."),
    ],
    top: Annotated[int, Option(min=1, help="Number of lines to show; ties share a line.")] = 10,
    workspace: options.Work = options.WORK,
    target: options.Target = None,
    collection: options.ModelOf = None,
    model_from: options.RankedBy = None,
    configs: Annotated[int, Option(min=1, help="Configurations to propose for a program.")] = 64,
    check: Annotated[int, Option(min=0, help="Compile the first CHECK; no TPU is needed.")] = 0,
    out: Annotated[
        Path | None,
        Option(callback=options.graph_out, help="npz file for the proposed configurations."),
    ] = None,
    csv: Annotated[
        Path | None,
        Option(callback=options.out_file, help="Write distinct configurations to this file."),
    ] = None,
    json_file: options.Json = None,
) -> None:
    """Rank the configurations of a graph, of each graph in a folder, or of a program."""
    from xlarank.pipelines.programs.kinds import error_of_file, is_program
    from xlarank.pipelines.rank import rank as run
    from xlarank.pipelines.rank import rank_folder, write_rankings

    named: dict[str, Any] = {"target": target, "collection": collection, "model_from": model_from}
    broken: dict[str, str] = {}
    if graph.is_dir():
        rankings, broken = rank_folder(graph, workspace, **named)
        _show_rankings(rankings, top)
        result: Any = {name: ranking.as_json(top) for name, ranking in rankings.items()}
    elif is_program(graph):
        from xlarank.pipelines.programs.propose import estimates, propose
        from xlarank.pipelines.programs.sources import write_configurations

        proposed, module = propose(graph, target, collection, configs=configs)
        ranking = run(proposed, workspace, **named)
        rankings = {ranking.graph: ranking}
        show_ranking(ranking, top, " proposed")
        result = ranking.as_json(top)
        if check:
            chosen = [0, *(int(at) for at in ranking.order if at)][: check + 1]
            estimates_ns = estimates(proposed, module, chosen, ranking.target)
            _show_check(estimates_ns)
            result["estimates_ns"] = estimates_ns
        if out is not None:
            write_configurations(out, proposed)
            say(f"wrote {out}")
            console.current_run.keep(out)
    else:
        if check or out is not None:
            got = f"{graph} has configurations of its own, and check and out are for a program"
            raise ParameterError(got, expected="an HLO program or module:function")
        ranking = run(graph, workspace, **named)
        rankings = {ranking.graph: ranking}
        show_ranking(ranking, top)
        result = ranking.as_json(top)
        if error := error_of_file(graph):
            say(error)
        if len(ranking.data.first) > 1:  # else there is nothing to explain
            console.current_run.keep(graph)
    if csv is not None:
        write_rankings(csv, rankings)
        say(f"wrote {csv}")
    write_json(json_file, result)
    finish(broken)


def _show_check(estimates_ns: dict[int, int | None]) -> None:
    default = estimates_ns[0]
    show_rows(
        {
            "configuration": number or "0, the compiler's default",
            ">estimated ms": f"{time_ns / 1e6:.4f}" if time_ns else "does not compile",
            ">times as fast": f"{default / time_ns:.3f}" if default and time_ns else "-",
        }
        for number, time_ns in estimates_ns.items()
    )
    compiled = [time_ns for time_ns in estimates_ns.values() if time_ns is not None]
    if not compiled or min(compiled) == default:
        say("none is faster than the compiler's default; advise searches with the compiler")


def show_ranking(ranking: Ranking, top: int, proposed: str = "") -> None:
    import numpy as np

    configs = counted(len(ranking.order), "configuration")
    say(f"{ranking.graph}: {configs}{proposed}", "bold")
    say(f"ranked by {ranking.reason}")
    for note in filter(None, [*ranking.notes, ranking.fallback]):
        say(note)
    rows = []
    place = 1
    for configurations in ranking.ties(top):
        first = configurations[0]
        row = {
            ">place": str(place),
            "configurations": shortened(configurations.tolist()),
            ">score (lower is faster)": f"{ranking.scores[first]:.4f}",
        }
        if ranking.estimated is not None:
            row[">estimated µs"] = f"{ranking.estimated[first] / 1000:.3f}"
        if ranking.runtime.any():
            runtimes = np.sort(ranking.runtime[configurations])
            measured = [f"{runtime / 1e6:.4f}" for runtime in runtimes if runtime > 0]
            row[">ms in file"] = " to ".join(dict.fromkeys(measured[:1] + measured[-1:])) or "-"
        if ranking.speedup is not None:
            known = ranking.speedup[configurations]
            known = known[~np.isnan(known)]
            row[">speedup"] = f"{known.mean():.3f}" if len(known) else "-"
        rows.append(row)
        place += len(configurations)
    show_rows(rows)
    if ranking.default_place:
        default, place, tied = ranking.default_place
        ties = f", with {counted(tied, 'other')}" if tied else ""
        say(f"the compiler's default, configuration {default}: place {place:,}{ties}")
    if ranking.metrics:
        values = ranking.metrics
        taus = f"tau {values['tau']:.3f}, tau_b {values['tau_b']:.3f}"
        ordered = f"ordered pairs {values['ordered_pair_accuracy']:.3f}"
        slowdowns = f"slowdown@1 {values['slowdown@1']:.3f}, @5 {values['slowdown@5']:.3f}"
        say(f"agreement with the labels: {taus}, {ordered}, {slowdowns}")
    if ranking.speedups:
        first, five = ranking.speedups.values()
        over = f" (expected over {ranking.tied_first:,} ties)" if ranking.tied_first else ""
        best = f"best of the first five {five:.3f}"
        say(f"{first:.3f} times as fast as the compiler's default{over}, {best}")


def _show_rankings(rankings: dict[str, Ranking], top: int) -> None:
    rows: dict[str, list[dict[str, str]]] = {}
    for name, ranking in rankings.items():
        first, five = [f"{value:.3f}" for value in (ranking.speedups or {}).values()] or ["-", "-"]
        row = {
            "graph": name,
            ">configurations": f"{len(ranking.order):,}",
            "best": ", ".join(str(entry["configuration"]) for entry in ranking.best(min(top, 5))),
            ">tau": f"{ranking.metrics['tau']:.3f}" if ranking.metrics else "-",
            ">speedup@1": first,
            ">speedup@5": five,
        }
        rows.setdefault(ranking.reason, []).append(row)
    for ranker, rows_of in rows.items():
        say(f"ranked by {ranker}", "bold")
        show_rows(rows_of)


@app.command()
def submit(
    out: options.Out = Path("submission.csv"),
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    model_from: options.RankedBy = None,
    scores: options.ScoreFile = None,
    json_file: options.Json = None,
) -> None:
    """Write the Kaggle submission of all test graphs; nothing has to be trained before."""
    from xlarank.data.collection import refuse_sample_on_kaggle
    from xlarank.features.store import stored_roots
    from xlarank.pipelines.submit import submit as run

    work = Workspace(workspace)
    stored = sorted(stored_roots(work))
    root = options.data_root_of(data_root) if data_root is not None or not stored else None
    refuse_sample_on_kaggle([root.path] if root is not None else map(Path, stored))
    options.build_changed(work, collection, ["test"])
    report = run(
        out, work, data_root=root, collection=collection or (), model_from=model_from, scores=scores
    )
    console.current_run.keep(out)
    _show_submission(report)
    write_json(json_file, report)
    finish(report.broken | console.current_run.broken)
    if report.unranked:
        causes = reasons(
            {name: why for name, why in report.left_out.items() if report.covers(name)}
        )
        unranked = f"{report.unranked} of {len(report.ranked)} test graphs"
        error_line(f"{unranked} are in the order of their files ({'; '.join(causes)})")
        raise Exit(1)


def _show_submission(report: Submission) -> None:
    show_rows(
        {"collection": name, ">graphs": count, "ranked by": report.ranked_by[name]}
        for name, count in report.rows.items()
    )
    rows = counted(len(report.ranked), "row")
    say(f"wrote {report.out}: {rows}, checked")
    if without := sorted(name for name in report.left_out if not report.covers(name)):
        say(f"no rows for lack of test graphs: {', '.join(without)}")


@app.command()
def check_submission(
    file: Annotated[Path, Argument(help="Submission to check.")],
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    json_file: options.Json = None,
) -> None:
    """Check a submission: ids, permutations, five configurations of each tile.

    The test graphs come from --data-root, else from the data root of the workspace.
    """
    from xlarank.pipelines.submit import check_submission as run

    root = options.data_root_of(data_root, Workspace(workspace))
    checked = run(file, data_root=root, collection=collection or ())
    write_json(json_file, checked)
    if not checked.problems:
        say(f"{file} is valid (checked against {counted(checked.rows, 'test graph')})")
        return
    list_lines("error", checked.problems, error=True)
    problems = counted(len(checked.problems), "problem")
    error_line(f"{problems} in {file} (checked against {counted(checked.rows, 'test graph')})")
    raise Exit(1)
