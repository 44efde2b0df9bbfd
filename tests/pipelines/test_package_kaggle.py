"""The package for Kaggle, complete or absent and reproducible, and the notebook that uses it."""

import json
import os
import re
import subprocess
import sys
import zipfile

import pytest

from tests.pipelines.trees import LAYOUT, TILE, contents, write_tree
from xlarank.data.errors import ModelError, WorkspaceError, XlarankError
from xlarank.pipelines import package_kaggle as module
from xlarank.pipelines.package_kaggle import METADATA, ROOT, package_kaggle

SOURCE, NOTEBOOK = (ROOT / "kaggle" / f"xlarank_submission{suffix}" for suffix in (".py", ".ipynb"))


@pytest.fixture
def few_files(monkeypatch):
    """Only some of the files are packaged, which is faster."""
    files = "LICENSE kaggle/kernel-metadata.json features/store.py pyproject.toml run.py"
    monkeypatch.setattr(module, "_tracked", files.split)


@pytest.mark.slow
def test_a_package_holds_the_code_and_its_metadata(tmp_path):
    with pytest.raises(XlarankError, match="`owner` is 'a/b'"):
        package_kaggle(tmp_path / "package", owner="a/b")
    out = tmp_path / "new" / "package"
    content, models = package_kaggle(out, owner="ada")
    names = contents(out).keys()
    assert (content.keys(), models) == (names, [])
    assert {"run.py", "pyproject.toml", "LICENSE", "xlarank/pipelines/run_all.py"} <= names
    assert "xlarank/data/sample/npz/tile/cpu/test/swish__a.npz" in names
    excluded = ("tests/", "benchmarks/", "docs/", ".", "work/")
    assert not [name for name in names if name.startswith(excluded)]
    metadata = json.loads((out / METADATA).read_text())
    assert metadata["id"] == "ada/xlarank"
    assert 6 <= len(metadata["title"]) <= 50 and 20 <= len(metadata["subtitle"]) <= 80
    kernel = json.loads((out / "kaggle" / "kernel-metadata.json").read_text())
    expected = {"id": "ada/xlarank-submission", "dataset_sources": ["ada/xlarank"]}
    expected |= {"code_file": NOTEBOOK.name, "competition_sources": ["predict-ai-model-runtime"]}
    assert kernel.items() >= (expected | {"enable_internet": False, "enable_gpu": False}).items()


def test_a_package_replaces_a_package_but_nothing_else(tmp_path, few_files, monkeypatch):
    """A zip is the same each time and as the folder."""
    package = tmp_path / "package"
    for name in ("a.zip", "b.zip", "package"):
        package_kaggle(tmp_path / name)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert set(archive.namelist()) == contents(package).keys()
        assert archive.read("run.py") == (ROOT / "run.py").read_bytes()
    (package / "old.txt").write_text("")
    package_kaggle(package)
    assert not (package / "old.txt").exists()
    (tmp_path / "mine" / "thesis").mkdir(parents=True)
    (tmp_path / "mine" / METADATA).write_text("{}")  # another dataset
    with pytest.raises(WorkspaceError, match="is there already and is no package"):
        package_kaggle(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis").exists()
    assert len(list(tmp_path.iterdir())) == 4, "nothing half-written is left"
    monkeypatch.setattr(module.Path, "write_bytes", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        package_kaggle(package)
    assert (package / "run.py").exists(), "a failure leaves the older package"


def test_models_come_along_if_they_are_of_this_code(trained, tmp_path, few_files):
    _, models = package_kaggle(tmp_path / "package", models=trained)
    assert models == [LAYOUT, TILE]
    names = contents(tmp_path / "package").keys()
    assert "workspace/models/tile/cpu/model.json" in names
    assert not [name for name in names if name.startswith("workspace/features")]
    card = trained / "models/tile/cpu/model.json"
    other_code = '"code_hash": "0123456789abcdef"'
    card.write_text(re.sub('"code_hash": "[^"]*"', other_code, card.read_text()))
    other_code = "expected 0123456789abcdef, which the model of tile:cpu was trained on"
    for models, message in ((tmp_path, "no trained model"), (trained, other_code)):
        with pytest.raises(ModelError, match=message):
            package_kaggle(tmp_path / "other", models=models)
    assert not (tmp_path / "other").exists()


def test_links_are_not_followed(trained, tmp_path, monkeypatch):
    def refused(message, **options):
        with pytest.raises(WorkspaceError, match=message):
            package_kaggle(tmp_path / "package", **options)

    secret = tmp_path / "secret"
    best = trained / "studies" / "tile" / "cpu" / "best-lambdarank.json"
    secret.write_text("secret")
    best.parent.mkdir(parents=True)
    best.symlink_to(secret)
    refused(r"best-lambdarank\.json leads to .*secret; expected files", models=trained)
    best.unlink()
    (trained / "models").rename(tmp_path / "elsewhere")
    (trained / "models").symlink_to(tmp_path / "elsewhere")
    refused(r" leads to .*elsewhere", models=trained)
    inside = trained / "untracked"
    inside.write_text("secret")
    monkeypatch.setattr(module, "ROOT", trained)
    monkeypatch.setattr(module, "_tracked", lambda: ["run.py"])
    for target in (secret, inside):
        (trained / "run.py").unlink(missing_ok=True)
        (trained / "run.py").symlink_to(target)
        refused(r"run\.py leads to")
    assert not (tmp_path / "package").exists()


@pytest.mark.slow
def test_outside_a_clone_or_offline_there_is_no_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(XlarankError, match=r"pip cannot download .*typer.*leave `wheelhouse` out"):
        package_kaggle(tmp_path / "package", wheelhouse=True)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    with pytest.raises(XlarankError, match="expected a git clone of xlarank"):
        package_kaggle(tmp_path / "package")
    assert not (tmp_path / "package").exists()


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


def execute(place, working):
    """Run the source as a script: steps in processes of their own must not run it again."""
    folder = place / working
    folder.mkdir()
    settings = {"INPUT": place / "input", "WORKING": folder, "SEEDS": 1, "TRIALS": 2, "HOURS": 0.05}
    env = {**os.environ, "MPLBACKEND": "agg", "MPLCONFIGDIR": str(place), "OMP_NUM_THREADS": "1"}
    env |= {f"XLARANK_{name}": str(value) for name, value in settings.items()}
    command = [sys.executable, SOURCE]
    pipes = {"capture_output": True, "text": True}
    done = subprocess.run(command, cwd=folder, timeout=600, env=env, **pipes)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"code: {place / 'input' / 'xlarank'}") == 1, "once, in this process"
    return done.stdout


@pytest.mark.parametrize(
    ("missing", "code", "message"),
    [("1", 1, "pip install -e '.[kaggle]'"), ("0", 7, f"{ROOT} run.py package-kaggle")],
)
def test_the_rehearsal_takes_a_python_relative_to_where_it_is_started(
    tmp_path, missing, code, message
):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && exit "$MISSING"\necho "$PWD $*"\nexit 7\n')
    python.chmod(0o755)
    command = ["bash", str(ROOT / "kaggle" / "rehearse.sh"), "out"]
    env = {**os.environ, "PYTHON": "./python", "MISSING": missing}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == code and message in done.stdout + done.stderr


@pytest.mark.slow
def test_the_source_runs_from_a_package(tmp_path):
    train = ["conv__a", "conv__b", "dot__a", "dot__b"]
    splits = {"train": train, "valid": ["pool__a"], "test": ["sort__a"]}
    tree = {LAYOUT: {"test": ["omega__a"]}, TILE: splits}
    write_tree(tmp_path / "input" / "predict-ai-model-runtime" / "npz_all", tree)
    package_kaggle(tmp_path / "input" / "xlarank")
    out = execute(tmp_path, "working")
    assert "none attached, so they are trained" in out
    assert re.search(rf"tuning {TILE}.*: 2 of 2 in", out) and "TypeError" not in out
    assert "submission.csv: 2 rows, 0 problems" in out
    assert re.search(rf"{TILE} +(final model|rule: )", out)
    assert re.search(rf"{LAYOUT} +the shipped ranker", out)
    assert f"own.csv: 1 graphs of {TILE} ranked by LightGBM, 2 rows" in out
    rows = (tmp_path / "working" / "submission.csv").read_bytes()
    picture = (tmp_path / "working/xlarank/reports/first-tile-cpu.svg").read_text(encoding="utf-8")
    assert "pool__a" in picture and "rank by label" in picture
    package_kaggle(tmp_path / "input" / "xlarank", models=tmp_path / "working" / "xlarank")
    out = execute(tmp_path, "inference")
    assert re.search(rf"{TILE} +(attached model|rule: )", out)
    assert "training" not in out and "tuning" not in out
    assert (tmp_path / "inference" / "submission.csv").read_bytes() == rows
