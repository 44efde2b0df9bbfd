"""Help is quick and names what there is."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import ROOT, environment, here
from xlarank.cli.app import commands
from xlarank.cli.guide import GUIDES
from xlarank.cli.guide import RANKERS as LINES
from xlarank.models.registry import RANKERS
from xlarank.pipelines.describe_columns import describe_columns

HEAVY = ("numpy", "lightgbm", "polars", "pyarrow", "pandas", "scipy", "optuna", "xgboost", "networkx", "sklearn")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no resource module")
def test_help_imports_nothing_heavy_and_is_quick(tmp_path: Path) -> None:
    import resource

    def one() -> tuple[float, subprocess.CompletedProcess[str]]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        words = [sys.executable, "-X", "importtime", str(ROOT / "run.py"), "--help"]
        done = subprocess.run(
            words, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=True
        )
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, done

    (first, done), (second, _) = one(), one()
    assert min(first, second) < 1.0, "seconds of processor time; the first may also compile"
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "typer" in imported, "the list of imports was understood"
    ours = ("xlarank.features", "xlarank.models", "xlarank.pipelines.")
    assert not {name for name in imported if name.split(".")[0] in HEAVY or name.startswith(ours)}
    assert [name for name in commands().commands if name not in done.stdout] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(commands().commands))
def test_help_has_examples_that_parse_and_no_types_of_python(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    shown = here(name, "--help").out
    assert not re.search(r"<(str|int|float|bool|list|Path)|<=|INTEGER|list\[|2147483647", shown), shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    command = commands().commands[name]
    for example in GUIDES[name].examples:
        assert f"python run.py {example}" in " ".join(shown.split())
        word, *words = shlex.split(example)
        assert word == name
        command.make_context(name, words)


def test_every_command_and_every_ranker_has_its_words() -> None:
    assert set(GUIDES) == set(commands().commands) and set(LINES) == set(RANKERS)
    shown = here("tune", "--help").out
    assert [name for name in RANKERS if name not in shown] == []
    patterns = [shlex.split(example)[1] for example in GUIDES["explain-feature"].examples]
    # one by its name, some by a pattern
    assert [len(describe_columns(pattern)) > 1 for pattern in patterns] == [False, True]


def test_options_of_one_name_mean_the_same() -> None:
    found: dict[str, set[object]] = {}
    for command in commands().commands.values():
        for part in command.params:
            if part.name in ("target", "seed", "threads", "workspace", "data_root"):
                found.setdefault(part.name, set()).add(part.help if part.name != "target" else part.default)
    assert {name: len(texts) for name, texts in found.items()} == dict.fromkeys(found, 1)
