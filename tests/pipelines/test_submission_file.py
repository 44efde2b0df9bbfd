"""Submission files: what is written, that malformed variants are refused, and the command that checks one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipelines import trees
from xlarank.data.errors import SubmissionError
from xlarank.data.submission import (
    check_submission,
    complete_submission,
    read_submission,
    wanted_count,
    write_submission,
)
from xlarank.pipelines import submit as command

LAYOUT, TILE, SMALL = "layout:xla:random:abc", "tile:xla:def", "tile:xla:small"
CONFIGS = {LAYOUT: 4, TILE: 9, SMALL: 3}
GOOD = f"ID,TopConfigs\n{LAYOUT},3;1;0;2\n{TILE},8;0;3;1;7\n{SMALL},2;0;1\n"


def check(path: Path, text: str | bytes) -> None:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    check_submission(path, CONFIGS)


def test_the_file_is_what_kaggle_asks_for(tmp_path: Path) -> None:
    rows = {LAYOUT: [3, 1, 0, 2], TILE: [8, 0, 3, 1, 7], SMALL: [2, 0, 1]}
    write_submission(tmp_path / "out.csv", rows)
    assert (tmp_path / "out.csv").read_bytes() == GOOD.encode()
    header, *lines = GOOD.splitlines()
    check(tmp_path / "windows.csv", "\r\n".join([header, *reversed(lines)]))
    assert [wanted_count(row_id, count) for row_id in (LAYOUT, TILE) for count in (3, 5, 7)] == [3, 5, 7, 3, 5, 5]
    check_submission(tmp_path / "out.csv", CONFIGS)


def test_a_graph_may_be_called_anything_a_file_may(tmp_path: Path) -> None:
    """And have 100,040 configurations, beyond the limit of the csv module; byte-order marks do not matter."""
    ids = [f"tile:xla:{name}" for name in ('a,b "c" d', '"', "\r", "\n", "\t", ";", "ü✓", "=1+1", " ")]
    write_submission(tmp_path / "out.csv", {row_id: [1, 0] for row_id in ids})
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "out.csv").read_bytes())
    for name in ("out.csv", "marked.csv"):
        check_submission(tmp_path / name, dict.fromkeys(ids, 2))
    write_submission(tmp_path / "out.csv", {LAYOUT: range(100_040)})
    check_submission(tmp_path / "out.csv", {LAYOUT: 100_040})


@given(st.data())
def test_what_is_written_is_accepted(next_path: object, data: st.DataObject) -> None:
    ids = [f"{kind}:{name}" for kind in ("layout:x:y", "tile:x") for name in "abc"]
    configs = data.draw(st.dictionaries(st.sampled_from(ids), st.integers(1, 12), min_size=1))
    rows = {
        row_id: data.draw(st.permutations(range(count)))[: wanted_count(row_id, count)]
        for row_id, count in configs.items()
    }
    path = next_path()  # type: ignore[operator]
    write_submission(path, rows)
    check_submission(path, configs)
    victim = data.draw(st.sampled_from(sorted(rows)))
    write_submission(path, {**rows, victim: rows[victim][:-1]})
    with pytest.raises(SubmissionError):
        check_submission(path, configs)


#: Text of a file -> the message that refuses it.
MALFORMED = [
    ("", "starts with nothing"),
    (GOOD.split("\n", 1)[1], "starts with layout"),
    (GOOD.replace("ID,", "id,"), "starts with id,TopConfigs"),
    (GOOD.replace("TopConfigs", "TopConfigs,More"), "starts with ID"),
    (GOOD.replace(f"{SMALL},2;0;1\n", ""), rf"lacks 1 id, such as {SMALL}"),
    ("ID,TopConfigs\n", rf"lacks 3 ids, such as {LAYOUT}"),
    (GOOD + f"{SMALL},2;0;1\n", f"{SMALL} is listed twice"),
    (GOOD + "tile:xla:zzz,1\n", "tile:xla:zzz .*is not a test graph"),
    (GOOD.replace(";2\n", "\n"), f"{LAYOUT} lists 3 configurations; expected 4"),
    (GOOD.replace("8;0;3;1;7", "8;0;3;1"), f"{TILE} lists 4 config"),
    (GOOD.replace("3;1;0;2", "3;1;0;0"), f"{LAYOUT} lists a configuration twice"),
    (GOOD.replace("3;1;0;2", "4;1;0;2"), f"{LAYOUT} lists configuration 4; .* 0 to 3"),
    (GOOD.replace("3;1;0;2", "3;1;0;-2"), f"{LAYOUT} lists configuration -2"),
    (GOOD.replace("3;1;0;2", ""), f"{LAYOUT} lists ''"),
    *(
        (GOOD.replace("3;1;0;2", wrong), "configuration numbers joined by ;")
        for wrong in ("3;1;0;2;", "3 1 0 2", "3.0;1;0;2", "a;b;c;d", "3;1;0_0;2", "3; 1;0;2", "3;+1;0;2", "3;1;0;٢",
                      '"3;1;0;2')
    ),
    (GOOD.replace("3;1;0;2", "3,1,0,2"), "line 2 .* has 5 fields; expected 2"),
    (GOOD + "\n", "line 5 .* has 0 fields"),
    (GOOD.encode("utf-16"), "cannot be read|starts with"),
    (b"\xff\xfe\x00ID", "cannot be read"),
]  # fmt: skip


def test_malformed_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SubmissionError, match="cannot be read"):
        check_submission(tmp_path / "absent.csv", CONFIGS)
    for text, said in MALFORMED:
        with pytest.raises(SubmissionError, match=said):
            check(tmp_path / "out.csv", text)


def test_a_file_is_completed_from_what_is_there(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    for damage in (None, "", "no submission\n", GOOD.replace("3;1;0;2", "3;1;0;3"), "\x00"):
        if damage is not None:
            path.write_text(damage)
        assert complete_submission(path, {}, CONFIGS)[LAYOUT] == "default"
    assert read_submission(path) == {LAYOUT: [0, 1, 2, 3], TILE: [0, 1, 2, 3, 4], SMALL: [0, 1, 2]}
    assert complete_submission(path, {LAYOUT: [3, 2, 1, 0]}, CONFIGS)[LAYOUT] == "ranked"
    origin = complete_submission(path, {TILE: [8, 7, 6, 5, 4]}, CONFIGS)
    assert origin == {LAYOUT: "kept", TILE: "ranked", SMALL: "kept"}
    assert read_submission(path)[LAYOUT] == [3, 2, 1, 0]


# The command: against the test graphs or a sample submission.

NET, DOT = f"{trees.LAYOUT}:net__a", f"{trees.TILE}:dot__a"
RIGHT = {NET: list(range(24)), DOT: [4, 3, 2, 1, 0]}


def write(path: Path, rows: Mapping[str, Sequence[int]]) -> Path:
    write_submission(path, rows)
    return path


def test_against_the_test_graphs(tmp_path: Path) -> None:
    """A tile may list more than the five that count; all problems are found, not only the first."""
    root = trees.write_tree(
        tmp_path / "tree", {trees.LAYOUT: {"test": ["net__a"]}, trees.TILE: {"test": ["dot__a"]}}
    )
    other = "tile:cpu:other"
    for rows, expected in (
        (RIGHT, []),
        ({**RIGHT, DOT: range(24)}, []),
        ({**RIGHT, DOT: [0, 1, 2, 24, 3]}, [f"{DOT} lists configuration 24; expected 0 to 23"]),
        ({NET: [*range(23), 22], DOT: [1, 2], other: [0, 1, 2, 3, 4]}, [NET, DOT, other]),
    ):
        checked = command.check_submission(write(tmp_path / "a.csv", rows), data_root=root)
        assert (checked.rows, checked.against, checked.unknown) == (2, "2 test graphs", {})
        assert len(checked.problems) == len(expected)
        assert all(problem.startswith(one) for problem, one in zip(checked.problems, expected, strict=True))

    trees.graph_path(tmp_path / "tree", trees.TILE, "test", "dot__b").write_bytes(b"cut")
    rows = {**RIGHT, f"{trees.TILE}:dot__b": [0, 1, 2, 3, 99]}
    checked = command.check_submission(write(tmp_path / "a.csv", rows), data_root=root)
    assert checked.problems == [] and list(checked.unknown) == [f"{trees.TILE}:dot__b"], "as far as possible"


def test_against_a_sample(tmp_path: Path) -> None:
    """Its ids count; layouts list as many as it does, tiles five different ones or as many as it does."""
    sample, few = write(tmp_path / "sample.csv", RIGHT), write(tmp_path / "few.csv", {**RIGHT, DOT: [2, 0, 1]})
    for rows, against, said in (
        (RIGHT, sample, ""),
        ({**RIGHT, DOT: [2, 0, 1]}, few, ""),
        ({**RIGHT, NET: range(23)}, sample, f"{NET} lists 23 configurations; expected 24"),
        ({DOT: [0, 1, 2, 3, 4]}, sample, f"lacks 1 id, such as {NET}"),
        ({**RIGHT, DOT: [0, 1, 2, 3]}, sample, f"{DOT} lists 4 conf"),
        ({**RIGHT, DOT: [0, 1, 2, 3, 3]}, sample, "twice"),
        ({**RIGHT, DOT: [-1, 1, 2, 3, 4]}, sample, "-1"),
        ({**RIGHT, DOT: [2, 0]}, few, f"{DOT} lists 2 configurations; expected 3"),
    ):
        problems = command.check_submission(write(tmp_path / "a.csv", rows), sample=against).problems
        assert len(problems) == bool(said) and said in "".join(problems)
    with pytest.raises(SubmissionError, match=r"none\.csv cannot be read"):
        command.check_submission(sample, sample=tmp_path / "none.csv")
