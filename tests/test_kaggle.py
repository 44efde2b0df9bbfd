"""The notebook for Kaggle: equal to its source, and run from a wheel in folders like Kaggle's."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import run
from tests.pipelines.trees import LAYOUT, TILE, write_tree

ROOT = Path(run.__file__).parent
SOURCE, NOTEBOOK = (ROOT / "kaggle" / f"xlarank_submission{suffix}" for suffix in (".py", ".ipynb"))


@pytest.mark.slow
def test_the_notebook_is_its_source():
    jupytext = pytest.importorskip("jupytext", reason="the notebook is compared with its source")
    kept, made = (
        [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]
        for path in (NOTEBOOK, SOURCE)
    )
    assert kept == made, "run: jupytext --to ipynb --update kaggle/xlarank_submission.py"
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell.get("outputs") for cell in cells), "outputs are not kept in git"
    assert cells[1]["metadata"]["tags"] == ["parameters"]


def execute(place, working, **settings):
    """Run the source as a script and return what it prints."""
    folder = place / working
    folder.mkdir()
    settings |= {"INPUT": place / "input", "WORKING": folder, "SEEDS": 1}
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    env |= {f"XLARANK_{name}": str(value) for name, value in settings.items()}
    pipes = {"capture_output": True, "text": True}
    done = subprocess.run([sys.executable, SOURCE], cwd=folder, timeout=600, env=env, **pipes)
    assert done.returncode == 0, done.stderr
    return done.stdout


def require_code_and_data(names):
    """Check the names of the files of the wheel."""
    packages = ("data", "features", "models", "pipelines", "xlarank/cli")
    code = [path.relative_to(ROOT) for name in packages for path in (ROOT / name).rglob("*.py")]
    expected = {f"xlarank/{str(path).removeprefix('xlarank/')}" for path in code}
    expected |= {"xlarank/data/sample/npz/tile/cpu/test/swish__a.npz", "xlarank/py.typed"}
    assert expected <= {*names}
    assert any(name.startswith("xlarank/models/shipped/") for name in names)
    outside = ("tests/", "benchmarks/", "data/", "run.py")
    assert not [name for name in names if name.startswith(outside)]


@pytest.mark.slow
def test_the_source_runs_from_a_wheel_and_begins_with_a_workspace(tmp_path):
    train = ["conv__a", "conv__b", "dot__a", "dot__b"]
    splits = {"train": train, "valid": ["pool__a"], "test": ["sort__a"]}
    tree = {LAYOUT: {"test": ["omega__a"]}, TILE: splits}
    write_tree(tmp_path / "input" / "predict-ai-model-runtime" / "npz_all", tree)
    clone = tmp_path / "clone"  # a build leaves files in it
    ignored = shutil.ignore_patterns(".*", "work", "build", "tests", "*.egg-info")
    shutil.copytree(ROOT, clone, symlinks=True, ignore=ignored)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*wheel, tmp_path / "input" / "xlarank", clone], check=True)
    (wheel,) = tmp_path.glob("input/xlarank/*.whl")
    require_code_and_data(zipfile.ZipFile(wheel).namelist())
    out = execute(tmp_path, "working")
    assert f"to train: {LAYOUT}, {TILE}" in out and f"{TILE} is ranked by lambdarank, " in out
    assert f"{LAYOUT} is not trained: " in out and "submission.csv: 2 rows, 0 problems" in out
    rows = (tmp_path / "working" / "submission.csv").read_bytes()
    out = execute(tmp_path, "again", WORKSPACE=tmp_path / "working" / "xlarank")
    assert f"to train: {LAYOUT}\n" in out
    assert (tmp_path / "again" / "submission.csv").read_bytes() == rows
