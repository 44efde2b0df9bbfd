"""Commands that rank and explain: rank, submit, check-submission, explain, calibrate, report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option, Typer

from xlarank.cli import console, options
from xlarank.cli.console import (
    error_line,
    finish,
    list_lines,
    list_reasons,
    say,
    show_rows,
    write_json,
)
from xlarank.cli.options import (
    WORK,
    Blocks,
    Collections,
    Json,
    ModelOf,
    RankedBy,
    Threads,
    Work,
    out_file,
    workspace_at,
)
from xlarank.data.errors import counted, reasons

if TYPE_CHECKING:  # slow; imported inside commands, so that --help stays fast
    from xlarank.pipelines.rank import Ranked, Ranking
    from xlarank.pipelines.ranking.score_difference import Explanation

app = Typer()

_SHIPPED = {
    "layout": (
        "the shipped time model of TPU layouts, in which nothing is learned; it was designed on "
        "programs measured on TPU v3 and may be wrong about others"
    ),
    "tile": "the shipped ranker, trained on estimates of the TPU's compiler",
}


@app.command()
def rank(
    graph: Annotated[
        Path, Argument(help="npz file in TpuGraphs format, or a folder of such files.")
    ],
    top: Annotated[
        int, Option(min=1, max=2**31 - 1, help="Number of configurations to show.")
    ] = 10,
    workspace: Work = WORK,
    collection: ModelOf = None,
    model_from: RankedBy = None,
    blocks: Blocks = None,
    csv: Annotated[
        Path | None, Option(callback=out_file, help="Write distinct configurations to this file.")
    ] = None,
    json_file: Json = None,
) -> None:
    """Rank the configurations of a graph, or of each graph in a folder."""
    from xlarank.pipelines.rank import rank as run
    from xlarank.pipelines.rank import rank_folder, write_rankings

    work = workspace_at(workspace)
    broken: dict[str, str] = {}
    if graph.is_dir():
        with console.progress_bars() as progress:
            rankings, broken = rank_folder(
                work, graph, collection=collection, model_from=model_from, progress=progress
            )
        _show_rankings(rankings, top)
        result = {name: ranking.as_json(top) for name, ranking in rankings.items()}
    else:
        ranking = run(work, graph, collection=collection, model_from=model_from)
        rankings = {ranking.graph: ranking}
        _show_ranking(ranking, top, asked=model_from == "shipped")
        if ranking.source[0].duplicates.distinct > 1:  # else there is nothing to explain
            options.current_run.keep(graph)
        result = ranking.as_json(top)
    if csv is not None:
        write_rankings(csv, rankings)
        say(f"wrote {csv}")
    write_json(json_file, result)
    finish(broken)


def _show_ranking(ranking: Ranking, top: int, asked: bool) -> None:
    configs = counted(len(ranking.order), "configuration")
    say(f"{ranking.graph}: {configs}, ranked by {ranking.ranked_by}")
    for note in ranking.notes:
        say(note)
    if ranking.shipped and not ranking.notes:
        kind = ranking.collection.partition(":")[0]
        why = f"the workspace has no {kind} model for this target: using"
        say(f"{'--model-from asks for' if asked else why} {_SHIPPED[kind]}")
    if ranking.fallback:
        say(ranking.fallback)
    timed = ranking.estimated is not None
    has_speedups = bool(ranking.speedups)
    heads = [">estimated µs"] * timed + [">ms in file"] + [">speedup"] * has_speedups
    show_rows(
        (">rank", ">configuration", ">score (lower is faster)", *heads, "~identical"),
        (
            (
                str(entry.rank),
                str(entry.configuration),
                f"{entry.score:.4f}",
                *[f"{(entry.estimated_ns or 0) / 1000:.3f}"] * timed,
                _milliseconds(entry.runtime_ns),
                *[f"{entry.speedup:.3f}" if entry.speedup else "-"] * has_speedups,
                _identical(entry),
            )
            for entry in ranking.best(top)
        ),
    )
    if ranking.tied_first:
        say(f"{ranking.tied_first:,} of {configs} tie for first, in file order")
    _show_losses(ranking)
    if ranking.metrics:
        metrics = (
            f"{name} {value:.3f}" for name, value in ranking.metrics.items() if name != "score"
        )
        say(f"agreement with the labels: {', '.join(metrics)}")
    if ranking.speedups:
        first, five = ranking.speedups.values()
        say(
            f"{first:.3f} times as fast as the compiler's default, best of the first five "
            f"{five:.3f}"
        )
    for line in ranking.trust.lines() if ranking.trust else ():
        say(line)


def _show_losses(ranking: Ranking) -> None:
    """Print up to three nodes of the best configuration that would be faster with another
    layout.
    """
    from xlarank.features.meanings import describe_node

    first = int(ranking.order[0])
    graph = ranking.source[0]
    times = ranking.node_times(first)
    total = sum(node.nanoseconds for node in times)
    largest_losses = sorted(times, key=lambda node: node.fastest_ns - node.nanoseconds)[:3]
    for node in largest_losses:
        share = (node.nanoseconds - node.fastest_ns) / total if total else 0.0
        if share >= 0.001:
            if node.order == node.fastest_order:
                cause = "an operand has the contracted dimension along its lanes"
            else:
                order = ",".join(map(str, node.fastest_order))
                cause = (
                    f"{node.lanes} of {node.tile_lanes} lanes are used; output "
                    f"{{{order},...}} saves it"
                )
            say(
                f"configuration {first}: {share:.1%} of the estimated {total / 1e6:.3f} "
                "ms is lost by node "
                f"{node.node}, {' '.join(describe_node(graph, node.node))}: {cause}"
            )


def _milliseconds(runtime_ns: int | None) -> str:
    return "-" if runtime_ns is None else f"{runtime_ns / 1e6:.4f}"


def _identical(entry: Ranked) -> str:
    """Return the identical configurations, with their runtimes if these were measured."""
    configurations = [
        str(config) if runtime is None else f"{config} ({_milliseconds(runtime)} ms)"
        for config, runtime in zip(entry.identical, entry.identical_runtime_ns, strict=True)
    ]
    rest = f" and {len(configurations) - 8} more" if len(configurations) > 8 else ""
    return ", ".join(configurations[:8]) + rest


def _show_rankings(rankings: dict[str, Ranking], top: int) -> None:
    show_rows(
        ("graph", "model", ">configurations", "~best", ">tau", ">speedup@1", ">speedup@5"),
        (
            (
                name,
                ranking.ranked_by.removeprefix("the model of ").partition(", chosen by")[0],
                f"{len(ranking.order):,}",
                ", ".join(str(entry.configuration) for entry in ranking.best(min(top, 5))),
                f"{ranking.metrics['tau']:.3f}" if ranking.metrics else "-",
                *(
                    [f"{value:.3f}" for value in ranking.speedups.values()]
                    if ranking.speedups
                    else "--"
                ),
            )
            for name, ranking in rankings.items()
        ),
    )


@app.command()
def submit(
    out: options.Out = Path("submission.csv"),
    data_root: options.Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    model_from: Annotated[
        str | None,
        Option(
            help="Collection whose model ranks those without; shipped: the shipped ranker; "
            "trained: the models, even if a rule is better out of fold."
        ),
    ] = None,
    scores: options.ScoresOf = None,
    weights: options.Weights = None,
    strict: Annotated[
        bool, Option("--strict", help="Fail if a test graph is not ranked by a model.")
    ] = False,
    json_file: Json = None,
) -> None:
    """Write the Kaggle submission: all test graphs, unranked ones in their default order."""
    from xlarank.data.collection import find_data_root, refuse_sample_on_kaggle
    from xlarank.data.workspace import Workspace
    from xlarank.features.store import stored_roots
    from xlarank.pipelines.submit import submit as run

    if data_root is None:
        stored = sorted(stored_roots(Workspace(workspace)))
        refuse_sample_on_kaggle(map(Path, stored) if stored else [find_data_root().path])
    work = options.built_workspace(
        data_root, workspace, collection, trained=not scores and model_from != "shipped"
    )
    with console.progress_bars() as progress:
        report = run(
            work,
            out,
            collections=collection or (),
            model_from=model_from,
            scores=options.read_scores(scores, weights, "test"),
            progress=progress,
        )
    ranked = ((name, str(count), report.models[name]) for name, count in report.rows.items())
    show_rows(("collection", ">test graphs", "ranked by"), ranked)
    options.current_run.keep(out)
    rows = counted(len(report.origin), "row")
    say(f"wrote {report.out}: {rows}, checked")
    causes = reasons(
        {name: reason for name, reason in report.left_out.items() if report.covers(name)}
    )
    causes += [counted(len(report.broken), "broken file")] if report.broken else []
    unranked = [
        f"{count} of {rows} are not ranked by a model ({'; '.join(causes)}): {origin} order"
        for origin, count in report.unranked().items()
    ]
    chosen = [f"{', '.join(names)}: {why}" for why, names in report.choices.items()]
    list_lines("note", [*unranked, *chosen, *report.notes])
    for name in sorted(name for name in report.left_out if not report.covers(name)):
        say(f"{name} has no test graphs, so no rows")
    write_json(json_file, report)
    finish(report.broken)
    if strict and report.unranked():
        error_line("not every test graph is ranked by a model, as --strict asks")
        raise Exit(1)


@app.command()
def check_submission(
    file: Annotated[Path, Argument(help="Submission to check.")],
    sample: Annotated[
        Path | None, Option(help="File with the expected ids. Default: the test graphs.")
    ] = None,
    data_root: options.Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    json_file: Json = None,
) -> None:
    """Check a submission: ids, permutations, five configurations of each tile.

    The test graphs are those of --data-root, else of the data root of --workspace, of XLARANK_DATA,
    or of the data root of the default workspace.
    """
    from xlarank.data.collection import ENVIRONMENT
    from xlarank.data.errors import DataRootError
    from xlarank.data.workspace import Workspace
    from xlarank.features.store import stored_roots
    from xlarank.pipelines.submit import check_submission as run

    root = None
    work = Workspace(workspace)
    from_environment = workspace == WORK and os.environ.get(ENVIRONMENT)
    stored = set() if data_root is not None or from_environment else stored_roots(work)
    if stored:
        with suppress(DataRootError):  # moved: the workspace has the test graphs, too
            root = options.data_root_of(Path(min(stored)), f"of the workspace {workspace}")
    elif data_root is not None or from_environment or sample is None:
        root = options.data_root_of(data_root)
    checked = run(
        file,
        sample=sample,
        data_root=root,
        workspace=work if stored else None,
        collections=collection or (),
    )
    write_json(json_file, checked)
    list_reasons("not known how many configurations", checked.unknown)
    if not checked.problems:
        say(f"{file}: {counted(checked.rows, 'row')}, right (checked against {checked.against})")
        return
    for problem in checked.problems[:20]:
        error_line(problem)
    error_line(
        f"{counted(len(checked.problems), 'problem')} in {file} (checked against {checked.against})"
    )
    raise Exit(1)


def _show_copies(result: Explanation, top: int) -> None:
    """Print the copies and the slow nodes that only one of two configurations has."""
    from xlarank.features.layout.config_costs import REASONS

    for config, copies in ((result.now, result.copies), (result.then, result.copies_against)):
        rows = []
        for copy in copies[:top]:
            layouts = " to ".join(_order(layout) for layout in (copy.before, copy.after))
            readers = ", ".join(map(str, copy.readers[:4])) or "the result"
            size = f"{copy.bytes / 1e3:,.1f}"
            time = f"{copy.nanoseconds / 1e3:.3f}"
            rows.append((str(copy.node), layouts, readers, size, time))
        if rows:
            total = sum(copy.nanoseconds for copy in copies) / 1e3
            count = counted(len(copies), "copy")
            say(f"only {config} needs {count}, estimated {total:.3f} µs")
            show_rows((">output of node", "layout", "read by", ">kB", ">µs"), rows)
    for config, nodes in (
        (result.now, result.slow_nodes),
        (result.then, result.slow_nodes_against),
    ):
        if nodes:
            total = sum(node.nanoseconds for node in nodes) / 1e3
            count = counted(len(nodes), "slow node")
            say(f"only {config} has {count}, estimated {total:.3f} µs more")
            reasons_of = [
                (str(node.node), REASONS[node.quantity], f"{node.nanoseconds / 1e3:.3f}")
                for node in nodes[:top]
            ]
            show_rows((">node", "reason", ">µs"), reasons_of)


def _order(layout: Sequence[int] | None) -> str:
    return "other" if layout is None else f"{{{','.join(map(str, layout))}}}"


@app.command()
def explain(
    graph: Annotated[Path, Argument(help="An npz file in TpuGraphs format.")],
    config: Annotated[
        int | None, Option(help="Configuration to explain. Default: the best.")
    ] = None,
    against: Annotated[
        str | None, Option(help="Configuration to compare with, or default (sets no layout).")
    ] = None,
    top: Annotated[int, Option(min=1, help="Number of rows in each table.")] = 10,
    workspace: Work = WORK,
    collection: ModelOf = None,
    model_from: RankedBy = None,
    blocks: Blocks = None,
    module: Annotated[
        Path | None, Option(help="HLO module of the graph, for names of nodes.")
    ] = None,
    svg: Annotated[
        Path | None, Option(callback=out_file, help="Draw the largest segment into this file.")
    ] = None,
    json_file: Json = None,
) -> None:
    """Explain why one configuration is ranked ahead of another: by node, pair, cause and column."""
    from xlarank.features.meanings import column_meanings
    from xlarank.pipelines.explain import explain as run

    result = run(
        workspace_at(workspace),
        graph,
        config=config,
        against=against,
        collection=collection,
        model_from=model_from,
        svg=svg,
        module=module,
    )
    relation = (
        "ahead of" if result.difference < 0 else "behind" if result.difference > 0 else "level with"
    )
    first, second = result.ranks
    against = f", {result.against}" if result.against != f"configuration {result.then}" else ""
    say(
        f"{result.graph}: configuration {result.now} (rank {first} of "
        f"{result.configurations:,}) is ranked "
        f"{relation} {result.then} (rank {second}{against}), by the {result.model} of "
        f"{result.collection}"
    )
    say(
        f"score difference {result.difference:+.4f} (below 0: configuration {result.now} is faster)"
    )
    for title, pair in (("estimated", result.estimated), ("runtimes", result.runtime)):
        if pair:
            say(f"{title} {pair[0] / 1e6:.4f} against {pair[1] / 1e6:.4f} ms")
    show_rows(
        (">contribution", "cause"),
        ((f"{value:+.4f}", name) for name, value in result.causes.items()),
    )
    _show_copies(result, top)
    nodes = [node for node in result.nodes[:top] if abs(node.value) >= 5e-5]
    other_nodes = result.nodes[len(nodes) :]
    timed = [">estimated µs"] if result.estimated else []
    rows = []
    for node in nodes:
        times = [] if node.nanoseconds is None else [f"{node.nanoseconds / 1000:+.3f}"]
        text = f"{node.opcode} {node.shape}"
        if node.name:
            text = f"{node.name}: {text} {node.op_name}".rstrip()
        rows.append((f"{node.value:+.4f}", *times, str(node.node), text, node.now, node.then))
    remaining = {}
    if other_nodes:
        remaining[counted(len(other_nodes), "other node")] = sum(node.value for node in other_nodes)
    if nodes and abs(result.rest) >= 5e-5:
        remaining["not attributed to a single node"] = result.rest
    rows += [
        (f"{value:+.4f}", *[""] * len(timed), "", text, "", "") for text, value in remaining.items()
    ]
    show_rows((">contribution", *timed, ">node", "operation", "now", "then"), rows)
    pairs = ((f"{pair.value:+.4f}", pair.now, pair.then) for pair in result.pairs[:top])
    show_rows((">contribution", "pair now", "pair then"), pairs)
    meanings = column_meanings()
    columns = list(result.columns.items())[:top]
    if columns and not blocks:
        options.current_run.keep(columns[0][0])
    named_columns = ((f"{value:+.4f}", name, meanings.get(name, "")) for name, value in columns)
    show_rows((">contribution", "column", "~meaning"), named_columns)
    for number, segment in enumerate(result.segments, 1):
        inside = ", ".join(map(result.called, segment.nodes[:12])) + (
            " ..." if len(segment.nodes) > 12 else ""
        )
        say(f"segment {number}: {segment.value:+.4f}, nodes {inside}")
    list_lines("note", list(result.notes))
    if svg is not None:
        say(f"wrote {svg}")
    write_json(json_file, result.as_json())


@app.command()
def calibrate(
    workspace: Work = WORK,
    collection: Collections = None,
    threads: Threads = 0,
    json_file: Json = None,
) -> None:
    """Measure out of fold how certain rankings are; rank and report then show it."""
    from xlarank.models.card import FOLDS_OF
    from xlarank.pipelines.calibrate import calibrate as run

    with console.progress_bars() as progress:
        calibrations, left_out = run(
            workspace_at(workspace),
            collections=collection or (),
            threads=threads,
            progress=progress,
        )
    heads = (
        "collection",
        ">graphs",
        ">held out",
        ">seeds",
        ">pairs certain",
        ">of these right",
        ">best in first",
        ">nearly best in first",
    )
    rows = []
    for name, trust in calibrations.items():
        interval = f"{trust.right_low:.1%} to {trust.right_high:.1%}"
        right = "-" if isnan(trust.right) else f"{trust.right:.1%} ({interval})"
        held_out = f"{trust.families} {FOLDS_OF[trust.by]}"
        certain = f"{trust.certain:.1%}"
        first = [
            "-" if isnan(share) else f"{share:.0%}" for share in (trust.first, trust.first_nearly)
        ]
        rows.append((name, str(trust.graphs), held_out, str(trust.seeds), certain, right, *first))
    show_rows(heads, rows)
    list_reasons("left out", left_out)
    write_json(json_file, {name: trust.as_json() for name, trust in calibrations.items()})


@app.command()
def report(
    out: Annotated[
        Path | None,
        Option(callback=out_file, help="Default: reports/report.html in the workspace."),
    ] = None,
    compare: Annotated[
        Path | None, Option(help="Workspace to compare with, graph by graph (paired test).")
    ] = None,
    figures: Annotated[
        Path | None, Option(help="Folder for the pictures as SVG files, as for a paper.")
    ] = None,
    workspace: Work = WORK,
    collection: Collections = None,
    json_file: Json = None,
) -> Any:
    """Write one HTML page: scores, baselines, certainty, explanations, importance of columns."""
    from xlarank.data.workspace import Workspace
    from xlarank.pipelines.report import report as run

    other = Workspace(compare) if compare is not None else None
    with console.progress_bars() as progress:
        written = run(
            workspace_at(workspace),
            out,
            compare=other,
            figures=figures,
            collections=collection or (),
            progress=progress,
        )
    for name, sentence in written.sentences.items():
        say(f"{name}: {sentence}")
    list_reasons("not scored", written.left_out)
    if figures is not None:
        say(f"wrote {counted(len(written.figures), 'picture')} to {figures}")
    say(f"wrote {written.out}: {written.size / 1e6:.1f} MB, opens in any browser without a network")
    write_json(
        json_file, {"out": str(written.out), "bytes": written.size, "judged": written.scores}
    )
    return written
