"""Commands for programs: import-hlo and propose."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import here
from tests.data.hlo.programs import matmul_module
from tests.data.hlo.test_reading import TEXT
from xlarank.data.hlo import reading


def test_programs_are_imported_and_get_configurations(tmp_path: Path) -> None:
    program, broken = tmp_path / "f.hlo.pb", tmp_path / "broken.pb"
    program.write_bytes(matmul_module().SerializeToString())
    broken.write_bytes(b"\x0a\xff")
    outcome = here("import-hlo", broken, program, "--out", tmp_path / "own", "--json", tmp_path / "report.json")
    assert outcome.code == 1
    assert f"wrote 1 graph below {tmp_path / 'own'}" in outcome.out
    named, summary = outcome.errors
    assert "broken.pb: the file is cut off" in named and "1 broken file" in summary
    report = json.loads((tmp_path / "report.json").read_text())
    assert [graph["graph"] for graph in report["graphs"]] == ["f"] and list(report["broken"]) == [str(broken)]
    assert Path(report["graphs"][0]["path"]).is_file()

    free = ["--tie", "none", "--json", tmp_path / "p.json"]
    outcome = here("propose", program, "--configs", 9, "--out", tmp_path / "p.npz", *free)
    assert "2 of 2 configurable nodes have a choice, in 2 groups of 3 to 7 rows each" in outcome.out
    assert outcome.code == 0 and "9 configurations (random)" in outcome.out
    assert json.loads((tmp_path / "p.json").read_text())["configs"] == 9
    for tie, count in (("none", 21), ("rule", 7)):
        words = ["--configs", 100, "--out", tmp_path / "q.npz", "--tie", tie]
        outcome = here("propose", tmp_path / "p.npz", *words)
        assert outcome.code == 0 and f"only {count} distinct configurations were found" in outcome.out


def test_text_without_a_parser_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading, "_PARSERS", ("jaxlib_that_is_not_there",))
    (tmp_path / "f.hlo").write_text(TEXT)
    outcome = here("import-hlo", tmp_path / "f.hlo", "--out", tmp_path / "own")
    assert outcome.code == 1 and "pip install 'xlarank[hlo]'" in outcome.errors[0]
