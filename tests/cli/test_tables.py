"""Tables can be read in every window: nothing is cut, least of all the name of a collection."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from xlarank.cli.scoring import score_table
from xlarank.cli.tables import Sheet, block, new_table, print_sheet

WIDTHS = (60, 80, 100, 200)
LONG = "layout:a-source-with-a-long-name:default"
INFO = ("collection", "split", ">graphs", ">labelled", ">families", ">configurations", ">distinct", ">nodes",
        ">configurable", ">MB")  # fmt: skip


def shown(sheet: Sheet, width: int) -> str:
    stream = io.StringIO()
    print_sheet(sheet, Console(file=stream, width=width, markup=False, force_terminal=False))
    return stream.getvalue()


def tune_sheet(name: str) -> Sheet:
    sheet = new_table(
        "collection", ">trials", ">new", ">pruned", ">out-of-fold score", ">rounds", "~best parameters", ">s"
    )
    chosen = ", ".join(f"parameter_number_{i}=0.{i}" for i in range(12))
    sheet.add_row(name, "200", "8", "2", "0.463 ± 0.094", "200", chosen, "11")
    return sheet


def info_sheet(name: str) -> Sheet:
    sheet = new_table(*INFO)
    sheet.add_row(
        name, "train", "207", "207", "99", "16,100,000", "14,123,456", "1,013-43,615", "20-3,143", "812.0"
    )
    return sheet


def train_sheet(name: str) -> Sheet:
    sheet = new_table("collection", "model", ">graphs", ">rows", ">families", ">rounds", "rounds chosen by",
                      ">out-of-fold score", ">seeds", ">s")  # fmt: skip
    sheet.add_row(name, "lambdarank (tuned)", "29", "1,656", "9", "75", "9 folds by family", "0.6 ± 0.2", "3", "18")
    return sheet


def evaluate_sheet(name: str) -> Sheet:
    values = {"mean": 0.5, "std": 0.1, "low": 0.4, "high": 0.6, "graphs": {name: 0.4, "b": 0.6}}
    metrics = ("tau", "ordered_pair_accuracy", "slowdown@1", "slowdown@5", "score")
    return score_table("layout:cpu:random", "valid", dict.fromkeys(metrics, values), True)


SHEETS = [info_sheet, tune_sheet, train_sheet, evaluate_sheet]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("made", SHEETS)
@pytest.mark.parametrize("name", ["layout:cpu:default", LONG])
def test_no_cell_is_cut_and_no_line_is_wider_than_the_window(made, name, width) -> None:
    sheet = made(name)
    text = shown(sheet, width)
    assert "…" not in text
    assert all(len(line) <= width for line in text.splitlines()), text
    words = text.replace("│", " ").split()
    for cells, _ in sheet.rows:
        for cell in cells:
            assert all(word in words or f"{word}," in words for word in cell.rstrip(",").split()), (cell, text)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("made", SHEETS)
def test_every_head_is_told_whole(made, width) -> None:
    sheet = made("layout:cpu:default")
    text = " ".join(shown(sheet, width).replace("┃", " ").split())
    assert all(column.name in text for column in sheet.columns[1:])


def test_one_graph_has_no_spread() -> None:
    one = {"mean": 0.5, "std": 0.0, "low": 0.5, "high": 0.5, "graphs": {"a": 0.5}}
    sheet = score_table("tile:cpu", "valid", {"score": one}, graphs=True)
    assert sheet.title == "tile:cpu, valid: 1 graph"
    assert [cells for cells, _ in sheet.rows] == [
        ["a", "0.500"], ["mean", "0.500"], ["std", "-"], ["95 % low", "-"], ["95 % high", "-"],
    ]  # fmt: skip


def test_a_wide_window_gets_a_grid_and_a_narrow_one_blocks() -> None:
    assert "┃ collection" in shown(info_sheet("tile:cpu"), 200)
    assert shown(info_sheet("tile:cpu"), 60).startswith("tile:cpu\n  split: train, graphs: 207")


def test_a_name_wider_than_the_window_is_still_whole() -> None:
    name = "layout:" + "x" * 80 + ":random"
    assert shown(info_sheet(name), 60).splitlines()[0] == name


def test_a_pair_longer_than_the_window_goes_on_below_itself() -> None:
    sheet = new_table("collection", "~why")
    assert block(sheet, ["a", "one two three four five six"], 24) == [
        "a",
        "  why: one two three",
        "    four five six",
    ]
