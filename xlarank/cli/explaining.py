"""Commands that explain rankings: explain, report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Typer

from xlarank.cli import console, options
from xlarank.cli.console import list_lines, list_reasons, progress, say, show_rows, write_json
from xlarank.data.errors import counted

if TYPE_CHECKING:  # slow; imported inside commands, so that --help stays fast
    from xlarank.pipelines.ranking.score_difference import Explanation

app = Typer()
#: Contributions below this are not shown.
_SMALL = 5e-5


def _show_copies(result: Explanation, top: int) -> None:
    """Print the copies and the slow nodes that only one of two configurations has."""
    from xlarank.features.layout.config_costs import REASONS

    def total(costs: Sequence[Any]) -> str:
        return f"estimated {sum(cost.nanoseconds for cost in costs) / 1e3:.3f} µs"

    for config, copies, nodes in (
        (result.now, result.copies, result.slow_nodes),
        (result.then, result.copies_against, result.slow_nodes_against),
    ):
        if copies:
            say(f"only {config} needs {counted(len(copies), 'copy')}, {total(copies)}")
        show_rows(
            {
                ">output of node": copy.node,
                "layout": f"{_order(copy.before)} to {_order(copy.after)}",
                "read by": ", ".join(map(str, copy.readers[:4])) or "the result",
                ">kB": f"{copy.bytes / 1e3:,.1f}",
                ">µs": f"{copy.nanoseconds / 1e3:.3f}",
            }
            for copy in copies[:top]
        )
        if nodes:
            say(f"only {config} has {counted(len(nodes), 'slow node')}, {total(nodes)} more")
        show_rows(
            {
                ">node": node.node,
                "reason": REASONS[node.quantity],
                ">µs": f"{node.nanoseconds / 1e3:.3f}",
            }
            for node in nodes[:top]
        )


def _show_difference(result: Explanation) -> None:
    """Print which configuration is ahead, by how much, and the causes."""
    first, second = result.ranks
    relation = "level with"
    if result.difference:
        relation = "ahead of" if first < second else "behind"
    against = f", {result.against}" if result.against != f"configuration {result.then}" else ""
    now = f"configuration {result.now}"
    ranked = f"{now} (rank {first} of {result.configurations:,}) is ranked {relation}"
    by = f"by the {result.model} of {result.collection}"
    say(f"{result.graph}: {ranked} {result.then} (rank {second}{against}), {by}")
    say(f"score difference {result.difference:+z.4f} (below 0: {now} is faster)")
    for title, pair in (("estimated", result.estimated), ("runtimes", result.runtime)):
        if pair:
            say(f"{title} {pair[0] / 1e6:.4f} against {pair[1] / 1e6:.4f} ms")
    causes = result.causes.items()
    show_rows({">contribution": f"{value:+z.4f}", "cause": name} for name, value in causes)


def _show_nodes(result: Explanation, top: int) -> None:
    """Print the contributions of nodes, and those of the others together."""
    rows = []
    for node in result.nodes[:top]:
        if abs(node.value) < _SMALL:
            break
        text = f"{node.opcode} {node.shape}"
        if node.name:
            text = f"{node.name}: {text} {node.op_name}".rstrip()
        row = {
            ">contribution": f"{node.value:+z.4f}",
            ">estimated µs": "" if node.nanoseconds is None else f"{node.nanoseconds / 1000:+z.3f}",
            ">node": str(node.node),
            "~operation": text,
            "~now": node.now,
            "~then": node.then,
        }
        rows.append(row)
    remaining = {}
    if other_nodes := result.nodes[len(rows) :]:
        remaining[counted(len(other_nodes), "other node")] = sum(node.value for node in other_nodes)
    if rows and abs(result.rest) >= _SMALL:
        remaining["not attributed to a single node"] = result.rest
    empty = dict.fromkeys(rows[0] if rows else (), "")
    for text, value in remaining.items():
        rows.append(empty | {">contribution": f"{value:+z.4f}", "~operation": text})
    show_rows(rows)


def _order(layout: Sequence[int] | None) -> str:
    return "other" if layout is None else f"{{{','.join(map(str, layout))}}}"


@app.command()
def explain(
    graph: Path,
    config: int | None = None,
    against: str | None = None,
    top: options.Positive = 10,
    workspace: options.Work = options.WORK,
    collection: options.ModelOf = None,
    model_from: options.RankedBy = None,
    blocks: options.Blocks = None,
    module: Path | None = None,
    svg: options.OptionalOut = None,
    json_file: options.Json = None,
) -> None:
    """Explain why one configuration is ranked ahead of another: by node, cause and column.

    Args:
        graph: An npz file in TpuGraphs format.
        config: Configuration to explain. Default: the best.
        against: Configuration to compare with, or default (sets no layout).
        top: Number of rows in each table.
        collection: Collection of the model.
        module: HLO module of the graph, for names of nodes.
        svg: Draw the largest segment into this file.
    """
    from xlarank.features.meanings import column_meanings
    from xlarank.pipelines.explain import explain as run

    result = run(
        options.workspace_at(workspace),
        graph,
        config=config,
        against=against,
        collection=collection,
        model_from=model_from,
        svg=svg,
        module=module,
    )
    _show_difference(result)
    _show_copies(result, top)
    _show_nodes(result, top)
    meanings = column_meanings()
    columns = list(result.columns.items())[:top]
    if columns and not blocks:
        console.current_run.keep(columns[0][0])
    show_rows(
        {">contribution": f"{value:+z.4f}", "column": name, "~meaning": meanings.get(name, "")}
        for name, value in columns
    )
    for number, (nodes, value) in enumerate(result.segments.items(), 1):
        inside = ", ".join(map(result.called, nodes[:12]))
        inside += " ..." if len(nodes) > 12 else ""
        say(f"segment {number} (connected nodes): {value:+z.4f}, nodes {inside}")
    list_lines("note", list(result.notes))
    if svg is not None:
        say(f"wrote {svg}")
    write_json(json_file, result.as_json())


@app.command()
def report(
    out: options.OptionalOut = None,
    compare: Path | None = None,
    figures: Path | None = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    json_file: options.Json = None,
) -> Any:
    """Write one HTML page: scores, baselines, explanations, importance of columns.

    Args:
        out: Default: reports/report.html in the workspace.
        compare: Workspace to compare with, graph by graph (paired test).
        figures: Folder for the pictures as SVG files, as for a paper.
    """
    from xlarank.data.workspace import Workspace
    from xlarank.pipelines.report import report as run
    from xlarank.pipelines.support.workspaces import has_labels

    work = options.workspace_at(workspace)
    out = out or work.reports() / "report.html"
    all_facts, pictures = run(
        work,
        out,
        compare=Workspace(compare) if compare is not None else None,
        figures=figures,
        collections=collection or (),
        progress=progress,
    )
    scored = [facts for facts in all_facts if facts.metrics]
    for facts in scored:
        say(f"{facts.name}: {facts.sentence}")
    missing = [facts for facts in all_facts if facts.reason and has_labels(work, facts.collection)]
    list_reasons("not scored", {facts.name: facts.reason for facts in missing})
    if figures is not None:
        say(f"wrote {counted(len(pictures), 'picture')} to {figures}")
    size = out.stat().st_size
    say(f"wrote {out}: {size / 1e6:.1f} MB, opens in any browser without a network")
    scores = {facts.name: facts.score for facts in scored}
    write_json(json_file, {"out": str(out), "bytes": size, "judged": scores})
    return out
