"""Compilers at work: labels for layouts of one's own programs, and better layouts for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from xlarank.cli import interruption
from xlarank.cli.console import list_lines, new_table, progress_bars, say, show, write_json
from xlarank.cli.inputs import workspace_at
from xlarank.cli.options import WORK, Json, Seed, Work

app = typer.Typer()

_Target = Annotated[str, typer.Option(help="tpu-v3, tpu-v4, tpu-v5e or tpu-v6e; collect also takes cpu.")]
_Jobs = Annotated[int, typer.Option(min=1, max=64, help="Configurations compiled at a time.")]
_Limit = Annotated[float, typer.Option(min=1, help="Seconds that one configuration may compile.")]


@app.command()
def collect(
    program: Annotated[
        str,
        typer.Option(help="HLO file, or module:function that returns a JAX callable and its arguments."),
    ],
    out: Annotated[Path, typer.Option(help="Data root to write to; graphs go below its npz/.")],
    target: _Target = "tpu-v3",
    search: Annotated[str, typer.Option(help="random, or evolve: a genetic search by the label.")] = "random",
    configs: Annotated[int, typer.Option(min=1, help="How many; the first is the compiler's own choice.")] = 64,
    tiles: Annotated[
        bool,
        typer.Option(
            "--tiles",
            help="Tile sizes of each kernel instead of layouts, for a TPU; --name, --split and --limit apply.",
        ),
    ] = False,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "train",
    name: Annotated[str | None, typer.Option(help="Name of the graph; default: that of the program.")] = None,
    jobs: _Jobs = 1,
    limit: _Limit = 120.0,
    per_node: Annotated[int, typer.Option(min=2, help="Candidate rows a node, the default among them.")] = 8,
    operands: Annotated[
        bool, typer.Option(help="Constrain operands too; estimates then follow no TPU any more.")
    ] = False,
    effort: Annotated[
        float | None, typer.Option(min=-1, max=1, help="XLA's optimisation effort; -1 is faster, labels differ.")
    ] = None,
    seed: Seed = 0,
    json_file: Json = None,
) -> None:
    """Label layouts of a program: estimated by the TPU's compiler without a TPU, or measured on this CPU."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # XLA's parser warns of things that nothing here uses
    from typing import Any, cast

    if tiles:
        _collect_tiles(program, out, target, split, name, limit, json_file)
        return
    from xlarank.pipelines.collect import CollectSettings
    from xlarank.pipelines.collect import collect as run

    settings = CollectSettings(
        target=target, search=cast(Any, search), configs=configs, seed=seed, per_node=per_node, operands=operands,
        limit=limit, effort=effort,
    )  # fmt: skip
    with progress_bars() as progress:
        found = run(program, out, settings, split=split, name=name, jobs=jobs, progress=progress)
    counts = ", ".join(f"{count} {status}" for status, count in found.statuses.items())
    done = "wrote" if found.fresh else "there already:"
    say(f"{done} {found.path} ({counts}); labels are {found.manifest['source']}")
    if (tau := found.manifest.get("retest_tau")) is not None:
        say(f"two halves of the rounds agree with Kendall tau {tau:.3f}: no ranker can be judged beyond that")
    if found.manifest.get("loops_counted_once"):
        say("a loop's number of runs is not known; its body was counted once")
    write_json(json_file, found.manifest)


def _collect_tiles(
    program: str, out: Path, target: str, split: str, name: str | None, limit: float, json_file: Path | None
) -> None:
    from xlarank.pipelines.collect_tiles import TileSettings, collect_tiles

    found = collect_tiles(program, out, TileSettings(target, limit=limit), split=split, name=name)
    counts = ", ".join(f"{count} {status}" for status, count in found.statuses.items())
    done = "wrote" if found.fresh else "there already:"
    say(f"{done} {found.path} (kernels: {counts}); labels are {found.manifest['source']}")
    list_lines("kernels, with their tiles", [f"{file}: {count}" for file, count in found.files.items()])
    write_json(json_file, found.manifest)


@app.command()
def advise(
    program: Annotated[
        str, typer.Argument(help="HLO file, or module:function that returns a JAX callable and its arguments.")
    ],
    target: _Target = "tpu-v4",
    budget: Annotated[int, typer.Option(min=1, help="Compilations, the compiler's own choice included.")] = 60,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the advice, the configuration and the edited module.")
    ] = None,
    workspace: Work = WORK,
    collection: Annotated[str | None, typer.Option("--collection", "-c", help="Whose model ranks.")] = None,
    shipped: Annotated[
        bool,
        typer.Option("--shipped", help="Where the workspace has no model for TPUs: rank with the one of xlarank."),
    ] = False,
    jobs: _Jobs = 1,
    limit: _Limit = 120.0,
    per_node: Annotated[int, typer.Option(min=2, help="Candidate rows a node, the default among them.")] = 8,
    seed: Seed = 0,
    json_file: Json = None,
) -> None:
    """Find better layouts for a program, verified by the TPU's compiler without a TPU."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # as above
    from xlarank.pipelines.advise import AdviceSettings
    from xlarank.pipelines.advise import advise as run

    interruption.nothing_is_kept()
    settings = AdviceSettings(target, budget, seed=seed, per_node=per_node, jobs=jobs, limit=limit)
    with progress_bars() as progress:
        advice = run(
            program, settings, out=out, workspace=workspace_at(workspace), collection=collection, shipped=shipped,
            progress=progress,
        )  # fmt: skip
    by = f"by the model of {advice.ranked_by}" if advice.ranked_by else "at random"
    failed = sum(one.status != "ok" for one in advice.verified)
    say(
        f"{advice.program}: {len(advice.verified)} compiled for {target} ({failed} failed), proposed {by} and by a "
        f"genetic search"
    )
    table = new_table("estimated by the compiler", ">ms", ">times as fast")
    table.add_row("the compiler's own choice", f"{advice.default_ns / 1e6:.4f}", "1.000")
    table.add_row("best found", f"{advice.best_ns / 1e6:.4f}", f"{advice.speedup:.3f}")
    show(table)
    if not advice.changes:
        say("nothing compiled beats the compiler's own choice: leave the layouts to it")
    changes = new_table("operation", "opcode", "shape", "minor to major", "major to minor", "from")
    for change in advice.changes:
        changes.add_row(
            change.name, change.opcode, change.shape, _order(change.minor_to_major), _order(change.major_to_minor),
            change.source,
        )  # fmt: skip
    show(changes)
    for line in advice.lines:
        say(line)
    list_lines("wrote", advice.files)
    write_json(json_file, advice.as_json())


def _order(dimensions: tuple[int, ...]) -> str:
    return ",".join(map(str, dimensions))
