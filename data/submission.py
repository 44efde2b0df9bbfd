"""The Kaggle submission file: ``ID,TopConfigs``, configurations best first, joined by ``;``."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError, counted
from xlarank.data.files import atomic_write, regular_only

HEADER: Final = ("ID", "TopConfigs")
#: Number of configurations of a tile graph that are scored.
TILE_TOP: Final = 5


def submission_id(collection: Collection, graph: str) -> str:
    """Return ``layout:xla:default:<graph>`` or ``tile:xla:<graph>``."""
    return f"{collection}:{graph}"


def required_count(row_id: str, configs: int) -> int:
    """Return how many configurations a row lists: all of a layout, up to 5 of a tile graph."""
    return min(TILE_TOP, configs) if row_id.startswith("tile:") else configs


def write_submission(path: Path, rows: Mapping[str, Sequence[int]]) -> None:
    """Write ``rows``, which map ids to configurations, best first."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEADER)
        for row_id, configs in rows.items():
            writer.writerow([row_id, ";".join(map(str, configs))])


def submission_problems(path: Path, configs: Mapping[str, int | None]) -> Iterator[str]:
    """Yield the problems of a file in line order, at most one per line, then missing ids.

    Every id must be listed exactly once, with every configuration exactly once (layout) or at least
    5 different ones (tile; fewer if the graph has fewer). Blank lines are skipped. ``configs``
    maps ids to numbers of configurations, None if unknown. Raises `XlarankError` for a file without
    the two columns.
    """
    missing = dict.fromkeys(configs)
    for number, line in _lines(path):
        if len(line) != len(HEADER):
            yield f"line {number} of {path} has {counted(len(line), 'field')}; expected 2"
            continue
        row_id, listed = line
        if row_id not in configs:
            known = f"ids of test graphs, such as {next(iter(configs), 'none')}"
            yield f"line {number} of {path} is for {row_id}; expected {known}"
        elif row_id not in missing:
            yield f"{row_id} is listed twice in {path}; expected every id once"
        elif (count := configs[row_id]) is not None:
            if problem := _order_problem(row_id, listed, count):
                yield f"{row_id} lists {problem}"
        missing.pop(row_id, None)
    if missing:
        lacking = f"{counted(len(missing), 'id')}, such as {next(iter(missing))}"
        yield f"{path} lacks {lacking}; expected {counted(len(configs), 'row')}"


def complete_submission(
    path: Path, ranked: Mapping[str, Sequence[int]], configs: Mapping[str, int]
) -> dict[str, bool]:
    """Write a checked file with a row for each of ``configs``; return which ids are ``ranked``.

    The others list the first configurations of the graph's file.
    """
    rows = {}
    for row_id, count in configs.items():
        rows[row_id] = ranked.get(row_id, range(required_count(row_id, count)))
    with atomic_write(path) as partial:
        write_submission(partial, rows)
        for problem in submission_problems(partial, configs):
            raise XlarankError(problem)
    return {row_id: row_id in ranked for row_id in configs}


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return number and fields of each line after the header, without blank lines."""
    try:
        csv.field_size_limit(2**31 - 1)  # 100,000 configurations make a field of 590 kB
        with open(path, encoding="utf-8-sig", newline="", opener=regular_only) as stream:
            reader = csv.reader(stream)
            lines = [(reader.line_num, line) for line in reader if line]
    except (OSError, ValueError, csv.Error) as error:
        raise XlarankError(f"{path} cannot be read ({error})", expected="a CSV file") from error
    header = lines[0][1] if lines else []
    if tuple(header) != HEADER:
        got = f"{path} starts with {','.join(header) or 'nothing'}"
        raise XlarankError(got, expected=",".join(HEADER))
    return lines[1:]


def _order_problem(row_id: str, listed: str, configs: int) -> str:
    """Return what is wrong about the configurations of a row, and what was expected; else empty."""
    entries = listed.split(";")
    if not all(entry.isascii() and entry.isdecimal() for entry in entries):  # int() takes " +1_0"
        return f"{listed[:40]!r}; expected configuration numbers joined by ;"
    order = list(map(int, entries))
    if len(set(order)) != len(order):
        return "a configuration twice; expected every one at most once"
    if max(order) >= configs:
        return f"configuration {max(order)}; expected 0 to {configs - 1}"
    required = required_count(row_id, configs)
    if len(order) < required:
        return f"{counted(len(order), 'configuration')}; expected {required}"
    return ""
