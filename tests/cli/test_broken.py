"""Many broken files are told of in few lines, each name once."""

from __future__ import annotations

import pytest
import typer

from xlarank.cli import console
from xlarank.cli.console import finish


def told(broken: dict[str, str], capsys: pytest.CaptureFixture[str], *, verbose: bool = False) -> list[str]:
    console.configure(verbose=verbose)
    with pytest.raises(typer.Exit) as left:
        finish(broken)
    assert left.value.exit_code == 1
    console.configure()
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("why", ["net__a.npz: it has a cycle", "net__a.npz it has a cycle"])
def test_a_name_is_printed_once(capsys, why) -> None:
    assert told({"tile:cpu train net__a": why}, capsys) == [
        "error: tile:cpu train net__a: it has a cycle",
        "error: 1 broken file; the others were dealt with",
    ]


def test_files_broken_alike_are_told_of_together(capsys) -> None:
    broken = {f"tile:cpu train net__{i}": f"net__{i}.npz: no zip" for i in range(191)}
    assert told(broken, capsys) == [
        "error: 191 files, such as tile:cpu train net__0, tile:cpu train net__1, tile:cpu train net__2: no zip",
        "error: 191 broken files; the others were dealt with",
    ]
    assert len(told(broken, capsys, verbose=True)) == 192


def test_a_long_list_is_cut_and_says_so(capsys) -> None:
    lines = told({f"tile:cpu train net__{i}": f"reason {i}" for i in range(60)}, capsys)
    assert len(lines) == 22 and lines[20] == "error: and 40 more; --verbose names all of them"


def test_nothing_broken_is_no_error(capsys) -> None:
    finish({})
    assert capsys.readouterr().err == ""
