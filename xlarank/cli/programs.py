"""Programs of one's own: into the dataset's format, and configurations for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from xlarank.cli.console import finish, list_lines, new_table, progress_bars, say, show, write_json
from xlarank.cli.inputs import workspace_at
from xlarank.cli.options import WORK, Json, Out, Seed, Work
from xlarank.data.wording import counted

app = typer.Typer()


@app.command()
def import_hlo(
    files: Annotated[
        list[Path], typer.Argument(help="HLO (binary or text), or TpuGraphs' protobufs; the content decides.")
    ],
    out: Annotated[Path, typer.Option(help="Data root to write to; graphs go below its npz/.")],
    collection: Annotated[
        str | None,
        typer.Option("--collection", "-c", help="Default: layout:own:default, and tile:own for kernels."),
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    name: Annotated[str | None, typer.Option(help="Instead of the file's name; for a single file.")] = None,
    json_file: Json = None,
) -> None:
    """Turn HLO programs, or TpuGraphs protobufs, into graph files of the dataset's format."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA's parser warns of things that nothing here uses
    from xlarank.pipelines.import_hlo import import_hlo as run

    with progress_bars() as progress:
        report = run(files, out, collection=collection, split=split, name=name, progress=progress)
    table = new_table("graph", "collection", ">nodes", ">edges", ">configurable", ">configurations", "labels", ">s")
    for graph in report.graphs:
        table.add_row(
            graph.graph, graph.collection, f"{graph.nodes:,}", f"{graph.edges:,}", f"{graph.configurable:,}",
            f"{graph.configs:,}", "yes" if graph.labelled else "-", f"{graph.seconds:.2f}",
        )  # fmt: skip
    show(table)
    for graph in report.graphs:
        list_lines(f"note ({graph.graph})", list(graph.notes))
    list_lines("left out", report.left_out)
    if report.graphs:
        say(f"wrote {counted(len(report.graphs), 'graph')} below {out}")
    write_json(json_file, report.as_json())
    finish(report.broken)


@app.command()
def propose(
    graph: Annotated[Path, typer.Argument(help="A layout graph's npz file, or an HLO program.")],
    out: Out,
    search: Annotated[
        str, typer.Option(help="random, or evolve: a genetic search guided by a trained model's scores.")
    ] = "random",
    configs: Annotated[int, typer.Option(min=1, help="How many; the first is the compiler's default.")] = 1000,
    workspace: Work = WORK,
    collection: Annotated[
        str | None, typer.Option("--collection", "-c", help="Whose model guides the search.")
    ] = None,
    slots: Annotated[
        str, typer.Option(help="output, or all: operand layouts too, which hardly matter on a TPU.")
    ] = "output",
    per_node: Annotated[int, typer.Option(min=2, help="Candidate rows a node, the default among them.")] = 8,
    named: Annotated[
        int, typer.Option(min=0, max=6, help="Name only this many minor-most dimensions; 0 names all.")
    ] = 0,
    min_elements: Annotated[int, typer.Option(min=0, help="Leave smaller outputs to the compiler.")] = 1024,
    generations: Annotated[int, typer.Option(min=1, help="Of evolve.")] = 12,
    seed: Seed = 0,
    json_file: Json = None,
) -> None:
    """Propose layout configurations for a program and write them as a graph file."""
    from typing import Any, cast

    from xlarank.pipelines.propose import propose as run

    found = run(
        graph, out, search=cast(Any, search), configs=configs, workspace=workspace_at(workspace),
        collection=collection, slots=cast(Any, slots), per_node=per_node, named=named or None,
        min_elements=min_elements, generations=generations, seed=seed,
    )  # fmt: skip
    low, high = found.choices
    say(
        f"{found.graph}: {found.free} of {found.configurable} configurable nodes have a choice, of {low} to {high} "
        f"rows each (10^{found.space:.1f} configurations)"
    )
    if found.guided_by is not None:
        say(f"the model of {found.guided_by} likes {found.default_place:,} of them better than the default")
    if found.configs < configs:
        say(f"there are only {found.configs:,} to propose")
    say(f"wrote {found.out}: {counted(found.configs, 'configuration')} ({found.search}), {found.seconds:.1f} s")
    write_json(json_file, found.as_json())
