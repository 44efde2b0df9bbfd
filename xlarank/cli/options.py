"""Options that several commands share."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

from typer import BadParameter, Option

from xlarank.cli import console
from xlarank.data.errors import XlarankError
from xlarank.data.files import output_target
from xlarank.data.ranges import MAX_HOURS, MAX_ROUNDS, MAX_SEED, MAX_SEEDS, MAX_THREADS, MAX_TRIALS
from xlarank.data.workspace import DEFAULT_ROOT


def _json(path: Path | None) -> Path | None:
    if path == console.STDOUT:
        console.settings.json_on_stdout = True
        return path
    return out_file(path)


def out_file(path: Path | None) -> Path | None:
    """Return the path; raises at once for one that could not be written hours later."""
    if path == console.STDOUT:
        raise XlarankError("--out is -", expected="the name of a file", do="standard output is for --json -")
    if path is not None:
        output_target(path)
    return path


def _number(value: float | None) -> float | None:
    if value is not None and math.isnan(value):
        raise BadParameter("nan is not a number of seconds, hours or gigabytes")
    return value


Root = Annotated[
    Path | None,
    Option("--data-root", help="Folder in TpuGraphs format. Default: XLARANK_DATA, Kaggle, ~/data, the sample."),
]
Work = Annotated[Path, Option("--workspace", help="Folder for features, studies, models and reports.")]
Collections = Annotated[
    list[str] | None,
    Option("--collection", "-c", help="layout:SOURCE:SEARCH or tile:SOURCE; repeatable. Default: all."),
]
ModelOf = Annotated[str | None, Option("--collection", "-c", help="Collection whose model to use.")]
Split = Annotated[str, Option(help="train, valid or test.")]
Seed = Annotated[int, Option(min=0, max=MAX_SEED, help="Seed of all random numbers.")]
Threads = Annotated[int, Option(min=-1, max=MAX_THREADS, help="Threads for training; 0 or -1: all cores.")]
Rounds = Annotated[
    int,
    Option(min=1, max=MAX_ROUNDS, help="Maximum number of boosting rounds; cross-validation chooses the number."),
]
Seeds = Annotated[int, Option(min=1, max=MAX_SEEDS, help="Number of boosters whose scores are averaged.")]
Trials = Annotated[
    int, Option(min=1, max=MAX_TRIALS, help="Total number of trials of each study, including earlier ones.")
]
Jobs = Annotated[
    int, Option(min=0, max=MAX_THREADS, help="Number of processes; 0: chosen by the size of the files.")
]
Scheduler = Annotated[
    str | None,
    Option(
        help="Dask cluster to use: host:port of its scheduler, or local for processes on this machine (extra: "
        "dask)."
    ),
]
Timeout = Annotated[float | None, Option(min=0, callback=_number, help="Maximum seconds per collection.")]
Hours = Annotated[
    float,
    Option(min=0, max=MAX_HOURS, callback=_number, help="Time budget in hours, from the start of the command."),
]
Ram = Annotated[float, Option(min=0, callback=_number, help="Gigabytes of memory; 0: 90 % of the machine's.")]
RANKERS = "lambdarank, ranknet, xgb-pairwise, sum-pooled, sibling, pair-vote, tile-cost or ensemble"
Model = Annotated[str, Option(help=f"Ranker: {RANKERS}.")]
Select = Annotated[
    str,
    Option(
        help="Score to select by: mean over graphs, or robust (mean minus a quarter of the standard deviation)."
    ),
]
Json = Annotated[
    Path | None, Option("--json", callback=_json, help="Write the result as JSON to this file; -: standard output.")
]
Out = Annotated[Path, Option(callback=out_file, help="File to write.")]
WORK = DEFAULT_ROOT
