"""Rankings as CSV: a line for each distinct configuration, fastest first."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from xlarank.data.files import atomic_write
from xlarank.pipelines.ranking.result import Ranking

HEADER: Final = ("graph", "model", "rank", "configuration", "score", "runtime_ns", "identical", "speedup")


def write_rankings(path: Path, rankings: Mapping[str, Ranking]) -> None:
    """Write rankings by the name of their graphs; ``identical`` lists configurations joined by ``;``.

    Scores compare within a graph only; ``runtime_ns`` is empty where nothing was measured, ``speedup`` (over the
    compiler's own choice) where that choice's runtime is not known either. Raises `WorkspaceError`.
    """
    with atomic_write(path) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEADER)
        for name, ranking in rankings.items():
            for entry in ranking.best():
                runtime = "" if entry.runtime_ns is None else entry.runtime_ns
                same = ";".join(map(str, entry.identical))
                cells = (
                    name,
                    ranking.collection,
                    entry.rank,
                    entry.configuration,
                    repr(entry.score),
                    runtime,
                    same,
                    "" if entry.speedup is None else repr(entry.speedup),
                )
                writer.writerow(cells)
