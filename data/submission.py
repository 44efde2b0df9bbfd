"""The Kaggle submission file: ``ID,TopConfigs``, configurations best first, joined by ``;``."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from data.collection import Collection
from data.errors import SubmissionError

HEADER: Final = ("ID", "TopConfigs")
#: Only this many configurations of a tile graph count.
TILE_TOP: Final = 5
_NUMBER: Final = re.compile("-?[0-9]{1,18}")


def submission_id(collection: Collection, graph: str) -> str:
    """``layout:xla:default:<graph>`` or ``tile:xla:<graph>``."""
    return f"{collection}:{graph}"


def wanted_count(row_id: str, configs: int) -> int:
    """How many configurations a row must list: all for a layout graph, at most 5 for a tile graph."""
    return min(TILE_TOP, configs) if row_id.startswith("tile:") else configs


def write_submission(path: Path, rows: Mapping[str, Sequence[int]]) -> None:
    """Write rows ``{id: configurations, best first}`` to a file that is not yet in place."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEADER)
        for row_id, configs in rows.items():
            writer.writerow((row_id, ";".join(map(str, configs))))


def check_submission(path: Path, configs: Mapping[str, int]) -> None:
    """Check a file against the graphs it must cover.

    Args:
        path: the file.
        configs: id -> number of configurations of that graph.

    Raises `SubmissionError` unless every id stands there exactly once, with every configuration exactly
    once (layout) or 5 different ones (tile; fewer if the graph has fewer).
    """
    try:
        csv.field_size_limit(2**31 - 1)  # 100,000 configurations make a field of 700 kB
        with path.open(encoding="utf-8", newline="") as stream:
            lines = list(csv.reader(stream))
    except (OSError, ValueError, csv.Error) as error:
        raise SubmissionError(f"{path} cannot be read ({error})", expected="a CSV file") from error
    if not lines or tuple(lines[0]) != HEADER:
        raise SubmissionError(
            f"{path} starts with {','.join(lines[0]) if lines else 'nothing'}", expected=",".join(HEADER)
        )
    seen: set[str] = set()
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != 2:
            raise SubmissionError(f"line {number} of {path} has {len(line)} fields", expected="2")
        row_id, listed = line
        if row_id in seen:
            raise SubmissionError(f"{row_id} stands twice in {path}", expected="every id once")
        if row_id not in configs:
            raise SubmissionError(f"{row_id} in {path} is not a test graph", expected="only known ids")
        seen.add(row_id)
        _check_row(row_id, listed, configs[row_id])
    missing = [row_id for row_id in configs if row_id not in seen]
    if missing:
        raise SubmissionError(
            f"{len(missing)} ids are missing from {path}, such as {missing[0]}", expected=f"{len(configs)} rows"
        )


def _check_row(row_id: str, listed: str, configs: int) -> None:
    entries = listed.split(";")
    if not all(_NUMBER.fullmatch(entry) for entry in entries):  # int() alone takes " 1", "+1" and "1_0" too
        raise SubmissionError(f"{row_id} lists {listed[:40]!r}", expected="configuration numbers joined by ;")
    order = [int(entry) for entry in entries]
    if len(set(order)) != len(order):
        raise SubmissionError(f"{row_id} lists a configuration twice", expected="every one at most once")
    if min(order) < 0 or max(order) >= configs:
        raise SubmissionError(
            f"{row_id} lists configuration {max(order) if max(order) >= configs else min(order)}",
            expected=f"0 to {configs - 1}",
        )
    wanted = wanted_count(row_id, configs)
    if len(order) != wanted:
        raise SubmissionError(f"{row_id} lists {len(order)} configurations", expected=f"{wanted}")
