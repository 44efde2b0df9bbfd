"""Tables can be read in every window; where no bar can be drawn there are lines, also while one step takes long."""

from __future__ import annotations

import io
import threading
import time

import pytest
from rich.console import Console
from rich.table import Table

from xlarank.cli.dataset import INFO, info_row
from xlarank.cli.progress import JobProgress, bars
from xlarank.cli.scoring import score_table
from xlarank.cli.tables import new_table, print_table
from xlarank.pipelines.info import SplitInfo

TUNE = ("collection", ">trials", ">new", ">pruned", ">out-of-fold score", ">rounds", "~best parameters", ">s")


def shown(table: Table, width: int) -> str:
    stream = io.StringIO()
    print_table(table, Console(file=stream, width=width, markup=False, force_terminal=False))
    return stream.getvalue()


def table_of(heads: tuple[str, ...], *rows: tuple[str, ...]) -> Table:
    table = new_table(*heads)
    for row in rows:
        table.add_row(*row)
    return table


def info(*collections: str) -> Table:
    """What `info` says of large collections."""
    part = SplitInfo("", "train", graphs=198, labelled=198, configs=13_300_000, distinct=12_000_000)
    part.families, part.siblings, part.bytes = set(map(str, range(99))), 190, 900_000_000
    part.nodes, part.configurable = [1013, 43_615], [20, 3143]
    return table_of(INFO, *((name, *info_row(part)[1:]) for name in collections))


def scores() -> Table:
    values = {"mean": 0.5, "std": 0.1, "low": 0.4, "high": 0.6, "graphs": {"a" * 40: 0.4, "b": 0.6}}
    metrics = ("tau", "ordered_pair_accuracy", "slowdown@1", "slowdown@5", "score")
    return score_table(dict.fromkeys(metrics, values), True)


def tuned() -> Table:
    chosen = ", ".join(f"parameter_number_{i}=0.{i}" for i in range(12))
    return table_of(TUNE, ("layout:long-source:default", "200", "8", "2", "0.463 ± 0.094", "200", chosen, "11"))


@pytest.mark.parametrize("width", [60, 80, 100, 200])
@pytest.mark.parametrize("make", [lambda: info("layout:nlp:default"), tuned, scores])
def test_no_cell_or_head_is_cut_and_no_line_is_wider_than_the_window(make, width: int) -> None:  # type: ignore[no-untyped-def]
    table = make()
    text = shown(table, width)
    assert "…" not in text and all(len(line) <= width for line in text.splitlines()), text
    words = text.split()
    for column in table.columns:
        for cell in column.cells:
            assert all(word in words for word in str(cell).split()), text
        assert column is table.columns[0] or str(column.header) in " ".join(words), text


def test_a_wide_window_gets_a_grid_a_narrow_one_groups_or_blocks() -> None:
    assert shown(info("tile:cpu"), 200).startswith("collection  split  graphs")
    assert shown(info("tile:cpu"), 60).startswith("tile:cpu\n  split: train  graphs: 198")
    assert shown(info("layout:nlp:default"), 100).startswith("layout:nlp:default\nsplit")
    long = "layout:" + "x" * 80 + ":random"
    assert shown(info(long), 60).splitlines()[0] == long
    grouped = shown(info("tile:cpu", "tile:cpu", "tile:xla"), 100).splitlines()
    assert grouped[0] == "tile:cpu" and grouped[1].startswith("split  graphs") and grouped[3] == grouped[4]
    assert grouped[5:] == ["tile:xla", grouped[3]]
    assert shown(table_of((">contribution", "operation"), ("-0.2", "two other nodes")), 20).splitlines() == [
        "contribution: -0.2", "  operation: two", "    other nodes",
    ]  # fmt: skip


def test_prose_wraps_between_words_and_only_there() -> None:
    table = table_of(("collection", "~why"), ("a", "extraordinarily long words stay whole"))
    lines = [line.rstrip() for line in shown(table, 32).splitlines()[2:]]
    assert lines == ["a           extraordinarily long", "            words stay whole"]
    assert "extraordinarily" in shown(table, 20)


def test_one_graph_has_no_spread() -> None:
    one = {"mean": 0.5, "std": 0.0, "low": 0.5, "high": 0.5, "graphs": {"a": 0.5}}
    names, values = (list(column.cells) for column in score_table({"score": one}, graphs=True).columns)
    assert names == ["a", "mean", "std", "95 % low", "95 % high"] and values == ["0.500", "0.500", "-", "-", "-"]


def test_a_long_step_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    printed: list[str] = []
    monkeypatch.setattr("xlarank.cli.progress._FIRST", 0.02)
    progress = JobProgress(printed.append)
    progress.end()  # of a job that failed before it began
    progress.begin("tuning tile:cpu", 3)
    progress.step("best 0.9")
    end = time.monotonic() + 5
    while len(printed) < 2 and time.monotonic() < end:  # no step in between
        time.sleep(0.01)
    progress.end()
    assert printed[0].startswith("tuning tile:cpu: 1 of 3, 0 s, about ") and printed[0].endswith("last: best 0.9")
    assert printed[-1] == "tuning tile:cpu: 1 of 3 in 0 s"
    progress.begin("reading", 2)
    progress.close()
    assert threading.active_count() == before, "a job that fails leaves no thread"


def test_a_short_job_prints_nothing_but_when_verbose() -> None:
    """Notes hold names of files, which must not forge lines."""
    short: list[str] = []
    verbose: list[str] = []
    screen = io.StringIO()
    with bars(Console(file=screen, width=100, force_terminal=True)) as drawn:
        for progress in (JobProgress(short.append, drawn), JobProgress(verbose.append, every=True)):
            progress.begin("reading", 2)
            progress.step("a")
            progress.step("b\nerror: no")
            progress.end()
    assert short == []
    assert [line.split(",")[0] for line in verbose] == [
        "reading: 1 of 2",
        "reading: 2 of 2",
        "reading: 2 of 2 in 0 s",
    ]
    assert verbose[1].endswith("b\\nerror: no")
    assert "reading" in screen.getvalue() and "2/2" in screen.getvalue() and "b\\nerror: no" in screen.getvalue()
