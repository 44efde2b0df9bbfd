"""Help is quick and names what there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import ROOT, here, shell
from xlarank.models.registry import RANKERS

pytestmark = pytest.mark.slow

ROOMS = ("features", "models", "pipelines")
HEAVY = ("numpy", "lightgbm", "polars", "pyarrow", "pandas", "scipy", "optuna", "xgboost", "networkx", "sklearn")


def test_help_imports_nothing_heavy(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(ROOT / "run.py"), "--help"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    imported = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "typer" in imported, "the list of imports was understood"
    assert not {name for name in imported if name.split(".")[0] in HEAVY}
    assert not {name for name in imported if name.startswith(tuple(f"xlarank.{room}." for room in ROOMS))}
    for verb in (
        "info",
        "build-features",
        "tune",
        "train",
        "evaluate",
        "submit",
        "rank",
        "import-hlo",
        "propose",
        "demo",
    ):
        assert verb in done.stdout


@pytest.mark.parametrize("verb", ["tune", "train"])
def test_help_names_every_ranker(verb: str) -> None:
    shown = here(verb, "--help").out
    assert [name for name in RANKERS if name not in shown] == []


@pytest.mark.skipif(sys.platform == "win32", reason="no resource module")
@pytest.mark.parametrize("words", [["--help"], ["tune", "--help"]], ids=" ".join)
def test_help_is_quick(tmp_path: Path, words: list[str]) -> None:
    import resource

    def one() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        assert shell(*words, cwd=tmp_path, home=tmp_path).code == 0
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    assert min(one(), one()) < 1.0, "seconds of processor time; the first may also compile"
