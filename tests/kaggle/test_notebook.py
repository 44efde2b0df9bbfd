"""The Kaggle notebook: in step with its source, and its source runs from a package without models and with them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import run
from tests.pipelines.trees import LAYOUT, TILE, write_tree
from xlarank.pipelines.package_kaggle import package_kaggle

ROOT = Path(run.__file__).parent
SOURCE, NOTEBOOK = (ROOT / "kaggle" / f"xlarank_submission{suffix}" for suffix in (".py", ".ipynb"))


@pytest.mark.slow
def test_the_notebook_is_its_source() -> None:
    jupytext = pytest.importorskip("jupytext", reason="the notebook is compared with its source by jupytext")
    made, kept = jupytext.read(SOURCE), jupytext.read(NOTEBOOK)
    assert [(cell.cell_type, cell.source) for cell in kept.cells] == [
        (cell.cell_type, cell.source) for cell in made.cells
    ], "run: jupytext --to ipynb --update kaggle/xlarank_submission.py"
    assert all(not cell.get("outputs") for cell in kept.cells), "outputs are not kept in git"
    assert kept.cells[1].metadata["tags"] == ["parameters"]


def test_the_notebook_asks_for_no_network_and_no_gpu() -> None:
    metadata = json.loads((ROOT / "kaggle" / "kernel-metadata.json").read_text())
    assert metadata["code_file"] == NOTEBOOK.name
    assert metadata["competition_sources"] == ["predict-ai-model-runtime"]
    assert (metadata["enable_internet"], metadata["enable_gpu"]) == (False, False)


def execute(place: Path, working: str, **parameters: object) -> str:
    """Run the source as a script: steps in processes of their own must not run it again."""
    (place / working).mkdir()
    given = {"INPUT": place / "input", "WORKING": place / working, "SEEDS": 1, "TRIALS": 0, **parameters}
    done = subprocess.run(
        [sys.executable, str(SOURCE)],
        cwd=place / working, capture_output=True, text=True, timeout=600,
        env={
            **os.environ, "MPLBACKEND": "agg", "MPLCONFIGDIR": str(place), "OMP_NUM_THREADS": "1",
            **{f"XLARANK_{name}": str(value) for name, value in given.items()},
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("code: ") == 1, "once, in this process"
    return done.stdout


@pytest.mark.slow
def test_the_source_runs_from_a_package(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the notebook draws with matplotlib")
    tree = {
        LAYOUT: {"test": ["omega__a"]},
        TILE: {"train": ["conv__a", "conv__b", "dot__a", "dot__b"], "valid": ["pool__a"], "test": ["sort__a"]},
    }
    write_tree(tmp_path / "input" / "predict-ai-model-runtime" / "npz_all", tree)
    package_kaggle(tmp_path / "input" / "xlarank")
    out = execute(tmp_path, "working", HOURS=0.05)
    assert "none attached, so they are trained" in out
    assert re.search(rf"{TILE} +final model", out) and re.search(rf"{LAYOUT} +default order", out)
    assert "submission.csv: 2 rows, 0 problems" in out
    rows = (tmp_path / "working" / "submission.csv").read_bytes()
    picture = (tmp_path / "working" / "xlarank" / "reports" / "first-tile-cpu.svg").read_text(encoding="utf-8")
    assert "pool__a" in picture and "rank by label" in picture

    package_kaggle(tmp_path / "input" / "xlarank", models=tmp_path / "working" / "xlarank")
    out = execute(tmp_path, "inference", HOURS=0.05)
    assert re.search(rf"{TILE} +attached model", out) and "training" not in out and "tuning" not in out
    assert (tmp_path / "inference" / "submission.csv").read_bytes() == rows
