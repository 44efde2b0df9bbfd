"""Checking a submission against a sample or the test graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.pipelines.trees import LAYOUT, TILE, data_root, write_tree
from xlarank.data.errors import SubmissionError
from xlarank.data.submission import write_submission
from xlarank.pipelines.check_submission import check_submission

LAYOUT_ID, TILE_ID = f"{LAYOUT}:net__a", f"{TILE}:dot__a"
GOOD = {LAYOUT_ID: list(range(24)), TILE_ID: [4, 3, 2, 1, 0]}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    write_tree(root, {LAYOUT: {"test": ["net__a"]}, TILE: {"test": ["dot__a"]}})
    return root


def write(path: Path, rows: Mapping[str, Sequence[int]]) -> Path:
    write_submission(path, rows)
    return path


def test_a_right_file_has_no_problems(tree: Path, tmp_path: Path) -> None:
    found = check_submission(write(tmp_path / "a.csv", GOOD), data_root=data_root(tree))
    assert (found.rows, found.against, found.problems) == (2, "2 test graphs", [])


def test_a_tile_may_list_more_than_the_five_that_count(tree: Path, tmp_path: Path) -> None:
    rows = {**GOOD, TILE_ID: list(range(24))}
    assert check_submission(write(tmp_path / "a.csv", rows), data_root=data_root(tree)).problems == []
    (problem,) = check_submission(
        write(tmp_path / "b.csv", {**GOOD, TILE_ID: [0, 1, 2, 24, 3]}), data_root=data_root(tree)
    ).problems
    assert problem == f"{TILE_ID} lists configuration 24; expected 0 to 23"


def test_all_problems_are_found_not_only_the_first(tree: Path, tmp_path: Path) -> None:
    rows = {LAYOUT_ID: [*range(23), 22], TILE_ID: [1, 2], "tile:cpu:other": [0, 1, 2, 3, 4]}
    found = check_submission(write(tmp_path / "a.csv", rows), data_root=data_root(tree))
    assert len(found.problems) == 3
    assert [problem.split(" ", 1)[0] for problem in found.problems] == [LAYOUT_ID, TILE_ID, "tile:cpu:other"]


def test_the_ids_of_a_sample_count_and_its_layout_rows_say_how_many(tmp_path: Path) -> None:
    sample = write(tmp_path / "sample.csv", GOOD)
    assert check_submission(write(tmp_path / "a.csv", GOOD), sample=sample).problems == []
    short = {**GOOD, LAYOUT_ID: list(range(23))}
    (problem,) = check_submission(write(tmp_path / "b.csv", short), sample=sample).problems
    assert problem == f"{LAYOUT_ID} lists 23 configurations; expected 24"
    (problem,) = check_submission(write(tmp_path / "c.csv", {TILE_ID: [0, 1, 2, 3, 4]}), sample=sample).problems
    assert f"lacks 1 id, such as {LAYOUT_ID}" in problem


def test_without_the_graphs_a_tile_row_needs_five_different_ones(tmp_path: Path) -> None:
    sample = write(tmp_path / "sample.csv", GOOD)
    for order, said in (([0, 1, 2, 3], "lists 4 conf"), ([0, 1, 2, 3, 3], "twice"), ([-1, 1, 2, 3, 4], "-1")):
        (problem,) = check_submission(write(tmp_path / "a.csv", {**GOOD, TILE_ID: order}), sample=sample).problems
        assert TILE_ID in problem and said in problem


def test_a_sample_is_right_by_itself_where_a_tile_has_fewer_than_five(tmp_path: Path) -> None:
    sample = write(tmp_path / "sample.csv", {**GOOD, TILE_ID: [2, 0, 1]})
    assert check_submission(sample, sample=sample).problems == []
    (problem,) = check_submission(write(tmp_path / "a.csv", {**GOOD, TILE_ID: [2, 0]}), sample=sample).problems
    assert problem == f"{TILE_ID} lists 2 configurations; expected 3"


def test_a_graph_that_cannot_be_read_is_named_and_its_row_checked_as_far_as_possible(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {TILE: {"test": ["dot__a", "dot__b"]}})
    (tmp_path / "tree" / "npz" / "tile" / "cpu" / "test" / "dot__b.npz").write_bytes(b"cut")
    rows = {TILE_ID: [0, 1, 2, 3, 4], f"{TILE}:dot__b": [0, 1, 2, 3, 99]}
    found = check_submission(write(tmp_path / "a.csv", rows), data_root=data_root(tmp_path / "tree"))
    assert found.problems == [] and len(found.unknown) == 1 and "dot__b" in next(iter(found.unknown))


def test_a_sample_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SubmissionError, match=r"none\.csv cannot be read"):
        check_submission(write(tmp_path / "a.csv", GOOD), sample=tmp_path / "none.csv")
