"""Tables can be read in every window: nothing is cut, least of all the name of a collection."""

from __future__ import annotations

import io

from rich.console import Console

from xlarank.cli.dataset import info_table
from xlarank.cli.scoring import score_table
from xlarank.cli.tables import Sheet, block, new_table, print_sheet
from xlarank.pipelines.info import SplitInfo

LONG = "layout:" + "x" * 80 + ":random"
INFO = ("collection", "split", ">graphs", ">labelled", ">families", ">configurations", ">distinct", ">nodes",
        ">configurable", ">MB")  # fmt: skip
TUNE = ("collection", ">trials", ">new", ">pruned", ">out-of-fold score", ">rounds", "~best parameters", ">s")


def shown(sheet: Sheet, width: int) -> str:
    stream = io.StringIO()
    print_sheet(sheet, Console(file=stream, width=width, markup=False, force_terminal=False))
    return stream.getvalue()


def info_sheet(name: str) -> Sheet:
    sheet = new_table(*INFO)
    sheet.add_row(name, "train", "207", "207", "99", "16,100,000", "14,123,456", "1,013-43,615", "20-3,143", "8.0")
    return sheet


def test_no_cell_or_head_is_cut_and_no_line_is_wider_than_the_window() -> None:
    tuned = new_table(*TUNE)
    chosen = ", ".join(f"parameter_number_{i}=0.{i}" for i in range(12))
    tuned.add_row("layout:long-source:default", "200", "8", "2", "0.463 ± 0.094", "200", chosen, "11")
    values = {"mean": 0.5, "std": 0.1, "low": 0.4, "high": 0.6, "graphs": {"a" * 40: 0.4, "b": 0.6}}
    metrics = ("tau", "ordered_pair_accuracy", "slowdown@1", "slowdown@5", "score")
    scores = score_table("layout:cpu:random", "valid", dict.fromkeys(metrics, values), True)
    for sheet in (info_sheet("layout:cpu:default"), tuned, scores):
        for width in (60, 80, 100, 200):
            text = shown(sheet, width)
            assert "…" not in text and all(len(line) <= width for line in text.splitlines()), text
            words = text.split()
            for cells, _ in sheet.rows:
                for cell in cells:
                    assert all(word in words or f"{word}," in words for word in cell.rstrip(",").split()), cell
            joined = " ".join(text.split())
            assert all(column.name in joined for column in sheet.columns[1:]), text


def test_a_wide_window_gets_a_grid_a_narrow_one_groups_or_blocks() -> None:
    sheet = info_sheet("tile:cpu")
    assert shown(sheet, 200).startswith("collection  split  graphs")
    assert shown(sheet, 60).startswith("tile:cpu\n  split: train, graphs: 207")
    assert shown(info_sheet(LONG), 60).splitlines()[0] == LONG
    sheet.add_row("tile:cpu", *sheet.rows[0][0][1:])
    grouped = shown(sheet, 100).splitlines()
    assert grouped[0] == "tile:cpu" and grouped[1].startswith("split  graphs") and grouped[3] == grouped[4]
    lines = ["a", "  why: one two three", "    four five six"]
    assert block(new_table("collection", "~why"), ["a", "one two three four five six"], 24) == lines


def test_prose_wraps_between_words_and_only_there() -> None:
    sheet = new_table("collection", "~why")
    sheet.add_row("a", "extraordinarily long words stay whole")
    lines = [line.rstrip() for line in shown(sheet, 32).splitlines()[2:]]
    assert lines == ["a           extraordinarily long", "            words stay whole"]
    assert "extraordinarily" in shown(sheet, 20)


def test_info_of_the_public_dataset_is_a_table_at_100() -> None:
    part = SplitInfo(
        "layout:nlp:default", "train", graphs=198, labelled=198, configs=13_300_000, distinct=12_000_000
    )
    part.families, part.siblings, part.bytes = set(map(str, range(99))), 190, 900_000_000
    part.distinct = 12_000_000
    part.nodes, part.configurable = [1013, 43_615], [20, 3143]
    text = shown(info_table([part]), 100)
    assert text.startswith(("collection", "layout:nlp:default\nsplit"))
    assert "13.3M" in text and "1,013-43,615" in text and all(len(line) <= 100 for line in text.splitlines())


def test_one_graph_has_no_spread() -> None:
    one = {"mean": 0.5, "std": 0.0, "low": 0.5, "high": 0.5, "graphs": {"a": 0.5}}
    sheet = score_table("tile:cpu", "valid", {"score": one}, graphs=True)
    assert sheet.title == "tile:cpu, valid: 1 graph"
    assert [cells for cells, _ in sheet.rows] == [
        ["a", "0.500"], ["mean", "0.500"], ["std", "-"], ["95 % low", "-"], ["95 % high", "-"],
    ]  # fmt: skip
