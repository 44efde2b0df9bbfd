"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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


Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]


Threads = Annotated[int, typer.Option(help="Threads of the booster; 0 takes all cores.")]


RANKERS = "lambdarank, ranknet, rankreg, xgb-pairwise, sum-pooled, stacked, or ensemble (the slowest)"


Model = Annotated[str, typer.Option(help=f"Ranker: {RANKERS}.")]


Select = Annotated[
    str,
    typer.Option(
        help="Choose by the mean over graphs, or robust: the mean less a quarter of the standard deviation."
    ),
]


Json = Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")]


WORK = Path("work")
