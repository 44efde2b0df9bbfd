"""Commands about the dataset: its files, its features and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from xlarank.cli.console import (
    finish,
    headline,
    list_lines,
    new_table,
    number_range,
    plain_values,
    progress_bars,
    rounded,
    say,
    show,
    write_json,
)
from xlarank.cli.inputs import build, data_root_of, warn_of_skipped_files, workspace_at
from xlarank.cli.options import WORK, Collections, Jobs, Json, Root, Scheduler, Seed, Work

if TYPE_CHECKING:  # heavy; imported where a command needs it, so that --help stays quick
    from xlarank.cli.tables import Sheet
    from xlarank.pipelines.info import SplitInfo

app = typer.Typer()


@app.command()
def info(data_root: Root = None, collection: Collections = None, json_file: Json = None) -> None:
    """Show collections, splits, counts, and broken or unrankable files of the data root."""
    from xlarank.pipelines.info import info as run

    root = data_root_of(data_root)
    with progress_bars() as progress:
        parts = run(root, collections=collection or [], progress=progress)
    show(info_table(parts))
    for part in parts:
        list_lines(
            f"cannot be ranked ({part.collection} {part.split}): one distinct configuration", part.unrankable
        )
    broken = {f"{part.collection} {part.split} {name}": why for part in parts for name, why in part.broken.items()}
    broken |= warn_of_skipped_files(root)
    write_json(json_file, [plain_values(part) for part in parts])
    finish(broken)


def info_table(parts: Sequence[SplitInfo]) -> Sheet:
    """Return the table of `info`: large numbers rounded, so that it fits 100 characters."""
    table = new_table("collection", "split", ">graphs", ">labelled", ">families", ">configs", ">distinct", ">nodes",
                      ">configurable", ">siblings", ">MB")  # fmt: skip
    for part in parts:
        table.add_row(
            part.collection, part.split, f"{part.graphs:,}", f"{part.labelled:,}", f"{len(part.families):,}",
            rounded(part.configs), rounded(part.distinct), number_range(part.nodes),
            number_range(part.configurable), f"{part.siblings:,}" if part.configurable else "-",
            f"{part.bytes / 1e6:.1f}",
        )  # fmt: skip
    return table


@app.command()
def build_features(
    data_root: Root = None,
    workspace: Work = WORK,
    collection: Collections = None,
    split: Annotated[list[str] | None, typer.Option(help="train, valid or test; repeatable. Default: all.")] = None,
    max_configs: Annotated[
        int,
        typer.Option(
            min=0,
            max=2**31 - 1,
            help="Maximum configurations of a train graph, drawn at random; 0: all.",
        ),
    ] = 0,
    jobs: Jobs = 0,
    tier: Annotated[str, typer.Option(help="Columns: fast or full.")] = "full",
    candidates: Annotated[
        bool, typer.Option(help="Include columns computed from all candidates of a graph (transductive).")
    ] = True,
    seed: Seed = 0,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Delete features and models of another data root."),
    ] = False,
    scheduler: Scheduler = None,
    json_file: Json = None,
) -> None:
    """Compute and store the features of graph files; rerun to resume."""
    from xlarank.data.errors import XlarankError
    from xlarank.features.block import Tier
    from xlarank.features.recipe import FeatureSettings
    from xlarank.pipelines.build_features import BuildRequest

    if tier not in (known := [member.value for member in Tier]):
        raise XlarankError(f"--tier is {tier!r}", expected=" or ".join(known))
    request = BuildRequest(
        collections=collection or (), splits=split or (), settings=FeatureSettings(Tier(tier), candidates),
        max_configs=max_configs, jobs=jobs, seed=seed, replace=replace, scheduler=scheduler,
    )  # fmt: skip
    build(data_root_of(data_root), workspace_at(workspace), request, json_file)


@app.command()
def explain_feature(
    name: Annotated[str, typer.Argument(help="Name of a column, or a pattern such as 'padding__*'.")],
    json_file: Json = None,
) -> None:
    """Describe a feature column: meaning, unit, formula and source."""
    from xlarank.pipelines.describe_columns import describe_columns as run

    columns = run(name)
    write_json(json_file, [plain_values(column) for column in columns])
    if len(columns) > 1:
        table = new_table("column", "~meaning", "scope", "tier")
        for column in columns:
            scope = f"{column.scope}{', transductive' if column.transductive else ''}"
            table.add_row(column.name, column.meaning, scope, column.tier)
        show(table)
        return
    (column,) = columns
    headline(column.name)
    say(column.meaning)
    say("")
    say(f"{column.block}, {' and '.join(column.kinds)} graphs: one value per {column.scope}; {column.tier} tier")
    if column.transductive:
        say("transductive: computed from all candidates of the graph, without labels")
    say("")
    for line in column.about.splitlines():
        say(line)
