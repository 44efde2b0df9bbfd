"""Options that several commands share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from xlarank.cli import console
from xlarank.data.errors import XlarankError
from xlarank.data.files import output_target
from xlarank.data.ranges import MAX_HOURS, MAX_ROUNDS, MAX_SEED, MAX_SEEDS, MAX_THREADS, MAX_TRIALS
from xlarank.data.workspace import DEFAULT_ROOT


def _json(path: Path | None) -> Path | None:
    """Refuse at once what could not be written hours later."""
    if path == console.STDOUT:
        console.settings.json_on_stdout = True
    elif path is not None:
        output_target(path)
    return path


def out_file(path: Path | None) -> Path | None:
    """Refuse at once what could not be written hours later."""
    if path == console.STDOUT:
        raise XlarankError("--out is -", expected="the name of a file", do="standard output is for --json -")
    if path is not None:
        output_target(path)
    return path


def _number(value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number of seconds, hours or gigabytes")
    return value


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


Seed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of every random choice.")]


Threads = Annotated[
    int, typer.Option(min=-1, max=MAX_THREADS, help="Threads of the booster; 0 (or -1) takes all cores.")
]


Rounds = Annotated[int, typer.Option(min=1, max=MAX_ROUNDS, help="Most boosting rounds.")]


Seeds = Annotated[int, typer.Option(min=1, max=MAX_SEEDS, help="Boosters to average.")]


Trials = Annotated[int, typer.Option(min=1, max=MAX_TRIALS, help="Finished trials that each study shall reach.")]


Jobs = Annotated[int, typer.Option(min=0, max=MAX_THREADS, help="Processes; 0 chooses by the size of the files.")]


Scheduler = Annotated[
    str | None,
    typer.Option(
        help="A Dask cluster to work on: host:port of its scheduler, or local for one of worker processes on this "
        "machine (extra: dask)."
    ),
]


Timeout = Annotated[float | None, typer.Option(min=0, callback=_number, help="Seconds per collection.")]


Hours = Annotated[float, typer.Option(min=0, max=MAX_HOURS, callback=_number, help="Wall clock, counted from now.")]


Ram = Annotated[float, typer.Option(min=0, callback=_number, help="Memory; 0 takes 9/10 of the machine's.")]


RANKERS = "lambdarank, ranknet, xgb-pairwise, sum-pooled, sibling, pair-vote or ensemble (the slowest)"


Model = Annotated[str, typer.Option(help=f"Ranker: {RANKERS}.")]


Select = Annotated[
    str,
    typer.Option(
        help="Choose by the mean over graphs, or robust: the mean less a quarter of the standard deviation."
    ),
]


Json = Annotated[
    Path | None,
    typer.Option("--json", callback=_json, help="Also write the result to this file; - is standard output."),
]


Out = Annotated[Path, typer.Option(callback=out_file, help="The file to write.")]


WORK = DEFAULT_ROOT
