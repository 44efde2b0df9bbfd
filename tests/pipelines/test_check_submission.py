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


def test_a_graph_that_cannot_be_read_is_named_and_its_row_checked_as_far_as_possible(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {TILE: {"test": ["dot__a", "dot__b"]}})
    (tmp_path / "tree" / "npz" / "tile" / "cpu" / "test" / "dot__b.npz").write_bytes(b"cut")
    rows = {TILE_ID: [0, 1, 2, 3, 4], f"{TILE}:dot__b": [0, 1, 2, 3, 99]}
    found = check_submission(write(tmp_path / "a.csv", rows), data_root=data_root(tmp_path / "tree"))
    assert found.problems == [] and len(found.unknown) == 1 and "dot__b" in next(iter(found.unknown))


def test_against_the_test_graphs(tree: Path, tmp_path: Path) -> None:
    """A tile may list more than the five that count; all problems are found, not only the first."""
    for rows, expected in (
        (GOOD, []),
        ({**GOOD, TILE_ID: range(24)}, []),
        ({**GOOD, TILE_ID: [0, 1, 2, 24, 3]}, [f"{TILE_ID} lists configuration 24; expected 0 to 23"]),
    ):
        checked = check_submission(write(tmp_path / "a.csv", rows), data_root=data_root(tree))
        assert (checked.rows, checked.against, checked.problems) == (2, "2 test graphs", expected)
    rows = {LAYOUT_ID: [*range(23), 22], TILE_ID: [1, 2], "tile:cpu:other": [0, 1, 2, 3, 4]}
    problems = check_submission(write(tmp_path / "a.csv", rows), data_root=data_root(tree)).problems
    assert [problem.split(" ", 1)[0] for problem in problems] == [LAYOUT_ID, TILE_ID, "tile:cpu:other"]


def test_against_a_sample(tmp_path: Path) -> None:
    """Its ids count; layouts list as many as it does, tiles five different ones or as many as it does."""
    sample, few = write(tmp_path / "sample.csv", GOOD), write(tmp_path / "few.csv", {**GOOD, TILE_ID: [2, 0, 1]})
    for rows, against, said in (
        (GOOD, sample, ""),
        ({**GOOD, TILE_ID: [2, 0, 1]}, few, ""),
        ({**GOOD, LAYOUT_ID: range(23)}, sample, f"{LAYOUT_ID} lists 23 configurations; expected 24"),
        ({TILE_ID: [0, 1, 2, 3, 4]}, sample, f"lacks 1 id, such as {LAYOUT_ID}"),
        ({**GOOD, TILE_ID: [0, 1, 2, 3]}, sample, f"{TILE_ID} lists 4 conf"),
        ({**GOOD, TILE_ID: [0, 1, 2, 3, 3]}, sample, "twice"),
        ({**GOOD, TILE_ID: [-1, 1, 2, 3, 4]}, sample, "-1"),
        ({**GOOD, TILE_ID: [2, 0]}, few, f"{TILE_ID} lists 2 configurations; expected 3"),
    ):
        problems = check_submission(write(tmp_path / "a.csv", rows), sample=against).problems
        assert len(problems) == bool(said) and said in "".join(problems)
    with pytest.raises(SubmissionError, match=r"none\.csv cannot be read"):
        check_submission(sample, sample=tmp_path / "none.csv")
