"""Commands that explain rankings: explain, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option, Typer

from xlarank.cli import console, options
from xlarank.cli.console import list_lines, list_reasons, say, show_rows, write_json
from xlarank.data.errors import counted
from xlarank.data.workspace import Workspace

if TYPE_CHECKING:  # slow; imported inside commands, so that --help stays fast
    from xlarank.pipelines.ranking.score_difference import Explanation

app = Typer()
#: Number of rows in each table.
_TOP: Final = 10


def _microseconds(nanoseconds: float, sign: str = "") -> str:
    return f"{nanoseconds / 1e3:{sign},.3f}"


def _show_difference(result: Explanation) -> None:
    """Print which configuration is ahead, by how much, the causes and the columns."""
    from xlarank.features.catalogue import meaning_of

    first, second = result.ranks
    relation = "level with"
    if result.difference:
        relation = "ahead of" if first < second else "behind"
    against = str(result.against)
    if result.against_is != f"configuration {against}":
        against += f", {result.against_is}"
    name = f"configuration {result.configuration}"
    of = "" if result.collection.endswith(":any") else f" of {result.collection}"
    say(f"{result.graph}: {name} (rank {first} of {result.configurations:,})")
    say(f"is ranked {relation} {against} (rank {second}), by {result.model}{of}")
    say(f"score difference {result.difference:+z.4f} (below 0: {name} is faster)")
    for title, pair in (("estimated", result.estimated_ns), ("in the file", result.runtime_ns)):
        if pair:
            say(f"{title}: {_microseconds(pair[0])} against {_microseconds(pair[1])} µs")
    show_rows(
        {">contribution": f"{value:+z.4f}", "cause": cause}
        for cause, value in result.causes.items()
    )
    show_rows(
        {">contribution": f"{value:+z.4f}", "column": name, "meaning": meaning_of(name)}
        for name, value in list(result.columns.items())[:_TOP]
    )


def _show_nodes(result: Explanation) -> None:
    """Print the nodes whose estimated time differs, and segments: sums over connected nodes."""
    if not result.nodes:
        return
    total = _microseconds(sum(node["nanoseconds"] for node in result.nodes), "+")
    say(f"estimated time changes by {total} µs in {counted(len(result.nodes), 'node')}")
    show_rows(
        {
            ">µs": _microseconds(node["nanoseconds"], "+"),
            ">node": node["node"],
            "operation": f"{node['opcode']} {node['shape']}",
            f"set by {result.configuration}": node["layouts"],
            f"set by {result.against}": node["layouts_against"],
        }
        for node in result.nodes[:_TOP]
    )
    rows = []
    for segment in result.segments:
        nodes = segment["nodes"]
        if len(nodes) > 1:
            listed = ", ".join(map(str, nodes[:12])) + ", ..." * (len(nodes) > 12)
            change = _microseconds(segment["nanoseconds"], "+")
            rows.append({">µs": change, "connected nodes": listed})
    show_rows(rows)


def _show_copies(result: Explanation) -> None:
    """Print the copies and the slow nodes that only one of two configurations has."""
    from xlarank.features.layout.config_costs import REASONS

    for config, copies, nodes in (
        (result.configuration, result.copies, result.slow_nodes),
        (result.against, result.copies_against, result.slow_nodes_against),
    ):
        if copies:
            total = _microseconds(sum(copy.nanoseconds for copy in copies))
            say(f"only {config} needs {counted(len(copies), 'copy')}, estimated {total} µs")
        show_rows(
            {
                ">µs": _microseconds(copy.nanoseconds),
                ">output of node": copy.node,
                "layout": copy.orders,
                "read by": ", ".join(map(str, copy.readers[:4])) or "the result",
                ">kB": f"{copy.bytes / 1e3:,.1f}",
            }
            for copy in copies[:_TOP]
        )
        if nodes:
            total = _microseconds(sum(node.nanoseconds for node in nodes))
            say(f"only {config} has {counted(len(nodes), 'slow node')}, estimated {total} µs more")
        show_rows(
            {
                ">µs": _microseconds(node.nanoseconds),
                "node": str(node.node),
                "reason": REASONS[node.quantity],
            }
            for node in nodes[:_TOP]
        )


@app.command()
def explain(
    graph: Annotated[Path, Argument(help="An npz file in TpuGraphs format.")],
    config: Annotated[int | None, Option(help="Configuration. Default: the best.")] = None,
    against: Annotated[
        str | None,
        Option(help="Configuration to compare with. Default: the compiler's own choice."),
    ] = None,
    workspace: options.Work = options.WORK,
    target: options.Target = None,
    collection: options.ModelOf = None,
    model_from: options.RankedBy = None,
    json_file: options.Json = None,
) -> None:
    """Explain why one configuration is ranked ahead of another: causes, columns, nodes, copies."""
    from xlarank.pipelines.ranking.score_difference import explain as run

    result = run(
        graph,
        workspace,
        config=config,
        against=against,
        target=target,
        collection=collection,
        model_from=model_from,
    )
    _show_difference(result)
    _show_nodes(result)
    _show_copies(result)
    if result.columns:
        console.current_run.keep(next(iter(result.columns)))
    list_lines("note", list(result.notes))
    write_json(json_file, result)


@app.command()
def report(
    out: Annotated[
        Path | None,
        Option(callback=options.out_file, help="Default: reports/report.html in the workspace."),
    ] = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
) -> None:
    """Write one HTML page: the board, ranks, copies of the worst graph, columns."""
    from xlarank.pipelines.report import report as run

    work = Workspace(workspace)
    options.build_changed(work, collection)
    out = out or work.reports() / "report.html"
    unscored = {}
    for section in run(work, out, collection=collection or ()):
        if section["metrics"]:
            say("{name}: {sentence}".format_map(section))
        else:
            unscored[section["name"]] = section["reason"]
    list_reasons("not scored", unscored)
    say(f"wrote {out}, which opens in any browser without a network")
