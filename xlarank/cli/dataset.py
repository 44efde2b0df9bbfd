"""Commands about the dataset: its files, its features and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from typer import Argument, Option, Typer

from xlarank.cli import console, options
from xlarank.cli.console import finish, list_reasons, say, show_rows, write_json
from xlarank.data.errors import XlarankError, counted
from xlarank.data.hardware import DEFAULT_CHIP
from xlarank.data.workspace import Workspace

app = Typer()

#: Heads and formats of the quantities of a graph file.
LABELS: Final = {
    "configurations": ("configurations", ","),
    "measured": ("measured", ","),
    "distinct": ("distinct", ","),
    "best_ns": ("runtime of the fastest, ns", ","),
    "default_ns": ("runtime of the compiler's default, ns", ","),
    "repeat_std": ("noise of identical configurations", ".4%"),
    "ceiling": ("ceiling of tau", ".3f"),
}


@app.command()
def info(
    graph: Annotated[
        Path | None,
        Argument(help="npz file: show its labels; HLO file, module:function: configurable nodes."),
    ] = None,
    data_root: options.Root = None,
    collection: options.Collections = None,
    json_file: options.Json = None,
) -> None:
    """Show collections, splits, counts, and broken or unrankable files of the data root."""
    from xlarank.pipelines.info import file_info
    from xlarank.pipelines.info import info as run
    from xlarank.pipelines.programs.kinds import is_module

    if graph is not None:
        if data_root is not None or collection:
            got = f"both {graph} and a data root or collection are named"
            raise XlarankError(got, expected="one of them")
        if graph.is_dir():
            do = f"pass `data_root={graph}` for the collections of a folder"
            raise XlarankError(f"{graph} is a folder", expected="a graph's npz file", do=do)
        if is_module(graph):
            _show_nodes(graph, json_file)
            return
        values = file_info(graph)
        _show_labels(graph, values)
        write_json(json_file, values)
        return
    root = options.data_root_of(data_root)
    parts = run(root, collection=collection or ())
    show_rows(
        {
            "collection": part.collection,
            "split": part.split,
            ">graphs": f"{part.graphs:,}",
            ">labels": f"{part.labelled:,}",
            ">families": f"{len(part.families):,}",
            ">configs": f"{part.configs:,}",
            ">unique": f"{part.distinct:,}",
            ">nodes": _span(part.nodes),
            ">configurable": _span(part.configurable),
        }
        for part in parts
    )
    broken = {}
    for part in parts:
        unrankable = dict.fromkeys(part.unrankable, options.UNRANKABLE)
        list_reasons(f"cannot be ranked ({part.collection} {part.split})", unrankable)
        for name, text in part.broken.items():
            broken[f"{part.collection} {part.split} {name}"] = text
    broken |= options.warn_of_skipped_files(root)
    console.current_run.keep("build-features")
    write_json(json_file, parts)
    finish(broken)


def _show_labels(graph: Path, values: Mapping[str, float | None]) -> None:
    """Print counts and noise of the labels of a graph file."""
    from xlarank.pipelines.programs.kinds import error_of_file

    say(graph.name.removesuffix(".npz"), "bold")
    rows = []
    for name, (head, form) in LABELS.items():
        if values.get(name) is not None:
            rows.append({"quantity": head, ">value": f"{values[name]:{form}}"})
    show_rows(rows)
    if error := error_of_file(graph):
        say(error)
    console.current_run.keep("rank", graph)


def _show_nodes(program: Path, json_file: Path | None) -> None:
    from xlarank.pipelines.programs.propose import configurable_nodes

    nodes = configurable_nodes(program)
    show_rows(
        {
            ">node": node["node"],
            "name": node["name"],
            "opcode": node["opcode"],
            "shape": node["shape"],
            "minor to major": node["layout"] or "-",
            "source": node["source"],
        }
        for node in nodes
    )
    say(f"{counted(len(nodes), 'configurable node')} of {program}")
    if nodes:
        console.current_run.keep("rank", program, "--target", DEFAULT_CHIP)
    write_json(json_file, nodes)


def _span(values: list[int]) -> str:
    return "-".join(f"{end:,}" for end in sorted({min(values), max(values)})) if values else "-"


@app.command()
def build_features(
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    split: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="train, valid, test; repeatable. Default: all."),
    ] = None,
    max_configs: Annotated[int, Option(min=0, help="Configurations of a train graph; 0: all.")] = 0,
    jobs: Annotated[int, Option(min=0, help="Processes; 0: by cores and sizes.")] = 0,
    scheduler: Annotated[str | None, Option(help="host:port of a Dask scheduler.")] = None,
    json_file: options.Json = None,
) -> None:
    """Compute and store the features of graph files; rerun to resume."""
    broken = options.build(
        options.data_root_of(data_root),
        Workspace(workspace),
        json_file,
        collection=collection or (),
        split=split or (),
        max_configs=max_configs,
        jobs=jobs,
        scheduler=scheduler,
    )
    finish(broken)


@app.command()
def explain_feature(
    name: Annotated[str, Argument(help="Name of a column, or a pattern such as 'padding__*'.")],
) -> None:
    """Describe a feature column: meaning, unit, formula and source; '*' lists the blocks."""
    from xlarank.features.catalogue import BLOCKS, blocks_by_column

    if name == "*":
        show_rows(
            {
                "block": block.name,
                "graphs": " and ".join(block.kinds),
                ">columns": len(block.columns),
                "such as": [*block.columns][-1],
            }
            for block in BLOCKS
        )
        say("explain-feature NAME describes a column, 'padding__*' lists the columns of a block")
        return
    columns = blocks_by_column(name)
    if len(columns) > 1:
        show_rows(
            {
                "column": column,
                "meaning": block.columns[column].meaning,
                "scope": block.scope + ", listwise" * block.listwise,
            }
            for column, block in columns.items()
        )
        return
    ((column, block),) = columns.items()
    say(column, "bold")
    say(block.columns[column].meaning)
    say(f"{block.name}, {' and '.join(block.kinds)} graphs: one value per {block.scope}")
    if block.listwise:
        say("listwise: computed from all candidates of the graph, without labels")
    for line in block.about.replace("`", "").splitlines():  # they would be read as options
        say(line)
