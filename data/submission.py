"""The Kaggle submission file: ``ID,TopConfigs``, configurations best first, joined by ``;``."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from xlarank.data.collection import Collection
from xlarank.data.errors import SubmissionError, counted
from xlarank.data.files import atomic_write, regular_only

HEADER: Final = ("ID", "TopConfigs")
#: Number of configurations of a tile graph that are scored.
TILE_TOP: Final = 5
_NUMBER: Final = re.compile("0|-?[1-9][0-9]{0,17}")


def submission_id(collection: Collection, graph: str) -> str:
    """Return ``layout:xla:default:<graph>`` or ``tile:xla:<graph>``."""
    return f"{collection}:{graph}"


def required_count(row_id: str, configs: int) -> int:
    """Return how many configurations a row lists: all of a layout, up to 5 of a tile graph."""
    return min(TILE_TOP, configs) if row_id.startswith("tile:") else configs


def write_submission(path: Path, rows: Mapping[str, Sequence[int]]) -> None:
    """Write ``rows``, which map ids to configurations, best first."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.write(",".join(HEADER) + "\n")
        for row_id, configs in rows.items():
            # not csv.writer, which leaves a lone \r unquoted
            special = any(letter in row_id for letter in ',"\r\n')
            quoted = '"' + row_id.replace('"', '""') + '"' if special else row_id
            stream.write(f"{quoted},{';'.join(map(str, configs))}\n")


def check_submission(path: Path, configs: Mapping[str, int]) -> None:
    """Raise the first of `submission_problems`, if any."""
    for problem in submission_problems(path, configs):
        raise problem


def submission_problems(path: Path, configs: Mapping[str, int | None]) -> Iterator[SubmissionError]:
    """Yield the problems of a file in line order, at most one per line, then missing ids.

    Every id must be listed exactly once, with every configuration exactly once (layout) or at least
    5 different ones (tile; fewer if the graph has fewer). Blank lines are skipped. ``configs``
    maps ids to numbers of configurations, None if unknown.
    """
    try:
        lines = _lines(path)
    except SubmissionError as error:
        yield error
        return
    missing = dict.fromkeys(configs)
    for number, line in lines:
        if tuple(line) == HEADER:
            got = f"line {number} of {path} repeats the header"
            yield SubmissionError(got, expected="it on the first line alone", do="remove the line")
            continue
        if len(line) != 2:
            yield SubmissionError(
                f"line {number} of {path} has {counted(len(line), 'field')}", expected="2"
            )
            continue
        row_id, listed = line
        if row_id not in configs:
            got = f"{row_id} in {path} is not a test graph"
            similar = _similar_id(row_id, configs)
            do = f"write {similar}" if similar else ""
            yield SubmissionError(got, expected="only known ids", do=do)
        elif row_id not in missing:
            yield SubmissionError(f"{row_id} is listed twice in {path}", expected="every id once")
        elif (order := _order(listed)) is None:
            got = f"{row_id} lists {listed[:40]!r}"
            yield SubmissionError(got, expected="configuration numbers joined by ;")
        elif problem := _order_problem(row_id, order, configs[row_id]):
            yield problem
        missing.pop(row_id, None)
    if missing:
        got = f"{path} lacks {counted(len(missing), 'id')}, such as {next(iter(missing))}"
        yield SubmissionError(got, expected=counted(len(configs), "row"))


def complete_submission(
    path: Path, ranked: Mapping[str, Sequence[int]], configs: Mapping[str, int]
) -> dict[str, bool]:
    """Write a checked file with a row for each of ``configs``, atomically; return for each id
    whether it is in ``ranked``. Otherwise its row has the first configurations of the graph's file.
    """
    rows = {}
    for row_id, count in configs.items():
        rows[row_id] = ranked.get(row_id, range(required_count(row_id, count)))
    with atomic_write(path) as partial:
        write_submission(partial, rows)
        check_submission(partial, configs)
    return {row_id: row_id in ranked for row_id in configs}


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Return number and fields of each line after the header, without blank lines."""
    try:
        csv.field_size_limit(2**31 - 1)  # 100,000 configurations make a field of 590 kB
        with open(path, encoding="utf-8-sig", newline="", opener=regular_only) as stream:
            reader = csv.reader(stream)
            lines = [(reader.line_num, line) for line in reader if not _is_blank(line)]
    except (OSError, ValueError, csv.Error) as error:
        raise SubmissionError(f"{path} cannot be read ({error})", expected="a CSV file") from error
    header = lines[0][1] if lines else []
    if tuple(header) != HEADER:
        got = f"{path} starts with {','.join(header) or 'nothing'}"
        do = "write these two columns alone" if {*HEADER} < {*header} else ""
        raise SubmissionError(got, expected=",".join(HEADER), do=do)
    return lines[1:]


def _is_blank(line: Sequence[str]) -> bool:
    """Return whether pandas skips a line: it is empty, or of spaces and tabs alone."""
    return not line or (len(line) == 1 and line[0] != "" and not line[0].strip(" \t"))


def _similar_id(row_id: str, ids: Iterable[str]) -> str | None:
    """Return the only id that differs in separators, folders, letter case or ``.npz`` alone.

    >>> _similar_id("npz/layout/xla/default/test/net.npz", ["layout:xla:default:net", "tile:xla:a"])
    'layout:xla:default:net'
    """
    words = _words_of(row_id)
    similar = [known for known in ids if _words_of(known)[-len(words) :] == words]
    return similar[0] if len(similar) == 1 else None


@cache
def _words_of(row_id: str) -> list[str]:
    words = re.split(r"[:/\\]", row_id.strip().casefold().removesuffix(".npz"))
    folders = ("", ".", "npz", "npz_all", "train", "valid", "test")
    return [word.strip() for word in words if word.strip() not in folders]


def _order(listed: str) -> list[int] | None:
    """Parse the configurations of a row; return None if one is not a plain number."""
    entries = listed.split(";")
    plain = all(map(_NUMBER.fullmatch, entries))  # int() also accepts " 1", "+1" and "1_0"
    return list(map(int, entries)) if plain else None


def _order_problem(
    row_id: str, order: Sequence[int], configs: int | None
) -> SubmissionError | None:
    """Return the problem of a row, if any."""
    if len(set(order)) != len(order):
        got = f"{row_id} lists a configuration twice"
        return SubmissionError(got, expected="every one at most once")
    tile = row_id.startswith("tile:")
    if configs is None and not tile:
        configs = max(order) + 1
    for extreme in (min(order), max(order)):
        if extreme < 0 or (configs is not None and extreme >= configs):
            valid = "0 or more" if configs is None else f"0 to {configs - 1}"
            return SubmissionError(f"{row_id} lists configuration {extreme}", expected=valid)
    required = 1 if configs is None else required_count(row_id, configs)
    if len(order) == required or (tile and len(order) > required):
        return None
    got = f"{row_id} lists {counted(len(order), 'configuration')}"
    return SubmissionError(got, expected=f"{required}")
