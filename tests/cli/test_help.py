"""Help is quick and names what there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import ROOT, environment, here
from xlarank.cli.app import commands
from xlarank.models.registry import RANKERS

HEAVY = ("numpy", "lightgbm", "polars", "pyarrow", "pandas", "scipy", "optuna", "xgboost", "networkx", "sklearn")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no resource module")
def test_help_imports_nothing_heavy_and_is_quick(tmp_path: Path) -> None:
    import resource

    def one() -> tuple[float, str, str]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(
            [sys.executable, "-X", "importtime", str(ROOT / "run.py"), "--help"],
            cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=True,
        )  # fmt: skip
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, done.stdout, done.stderr

    (first, shown, times), (second, *_) = one(), one()
    assert min(first, second) < 1.0, "seconds of processor time; the first may also compile"
    imported = {line.rsplit("|", 1)[-1].strip() for line in times.splitlines() if "|" in line}
    assert "typer" in imported, "the list of imports was understood"
    assert not {name for name in imported if name.split(".")[0] in HEAVY}
    assert not {name for name in imported if name.startswith(("xlarank.features", "xlarank.models"))}
    assert not {name for name in imported if name.startswith("xlarank.pipelines.")}
    assert [name for name in commands().commands if name not in shown] == []


def test_help_names_every_ranker() -> None:
    shown = here("tune", "--help").out
    assert [name for name in RANKERS if name not in shown] == []
