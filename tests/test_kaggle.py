"""The notebook for Kaggle: equal to its source, and run from a wheel in folders like Kaggle's."""

import csv
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import run
import xlarank

ROOT = Path(run.__file__).parent
SOURCE, NOTEBOOK = (ROOT / "kaggle" / f"xlarank_submission{suffix}" for suffix in (".py", ".ipynb"))
#: Some graphs of the sample, by collection and split.
GRAPHS = {
    "layout/cpu/random": {
        "train": ["mixer__b", "mixer__c", "dlrm__a", "dlrm__b"],
        "valid": ["mlp__a"],
        "test": ["gru__a"],
    },
    "tile/cpu": {
        "train": ["bmm__a", "bmm__b", "maxpool__a", "reduce_mid__a"],
        "valid": ["bmm_tb__a"],
        "test": ["swish__a"],
    },
}


def code_cells():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_is_short_and_public():
    cells = ["".join(cell["source"]) for cell in code_cells()]
    lines = [line for cell in cells for line in cell.splitlines() if line.strip()]
    assert len(cells) <= 14 and len(lines) <= 110
    imported = {line.split()[1].split(".")[0] for line in lines if re.match("import|from", line)}
    assert imported == {"pathlib", "shutil", "matplotlib", "numpy", "pandas", "polars", "xlarank"}
    assert {name for line in lines for name in re.findall(r"xlarank\.(\w+)\(", line)} <= {
        *xlarank.__all__
    }
    assert "environ" not in "".join(lines)


def test_outputs_are_saved_without_folders_of_the_machine():
    cells = code_cells()
    assert all(cell["outputs"] for cell in cells[1:]), "kaggle/README.md says how to save outputs"
    text = json.dumps([cell["outputs"] for cell in cells])
    assert "image/png" in text and "problems=[]" in text
    assert "/tmp" not in text and '"output_type": "error"' not in text


@pytest.mark.slow
def test_the_notebook_is_its_source():
    jupytext = pytest.importorskip("jupytext", reason="the notebook is compared with its source")
    kept, made = (
        [(cell.cell_type, cell.source) for cell in jupytext.read(path).cells]
        for path in (NOTEBOOK, SOURCE)
    )
    assert kept == made, "run: jupytext --to ipynb --update kaggle/xlarank_submission.py"


def execute(place, working, code, **settings):
    """Run the cells with other paths, without what Kaggle lacks; return what they print."""
    names = {"WORK": place / working / "xlarank", "INPUT": place / "input"}
    names |= {"EARLIER": place / "none", "OTHER": place / "none"} | settings
    first = ["import sys", "from pathlib import Path"]
    lacking = ("rich", "typer", "google.protobuf", "optuna", "jax")
    first += [f"sys.modules[{name!r}] = None" for name in lacking]
    first += [f"sys.path.insert(0, {str(code)!r})"]
    first += [f"{name} = Path({str(path)!r})" for name, path in names.items()]
    first += ["COLLECTION = 'layout:cpu:random'", "MAX_CONFIGS = {'layout:*': 20, 'tile:*': 20}"]
    first += ["RETRAIN = False", "import matplotlib", "matplotlib.use('agg')"]
    cells = ["".join(cell["source"]) for cell in code_cells()[1:]]
    script = place / f"{working}.py"
    # several processes start this file again
    body = "\n".join([*first, *cells])
    script.write_text(f"if __name__ == '__main__':\n    exec({body!r}, globals())\n")
    pipes = {"capture_output": True, "text": True}
    done = subprocess.run([sys.executable, script], cwd=place, timeout=600, **pipes)
    assert done.returncode == 0, done.stderr
    return done.stdout


def submitted(folder):
    with (folder / "submission.csv").open(encoding="utf-8") as stream:
        return dict(csv.reader(stream))


@pytest.mark.slow
def test_the_notebook_runs_from_a_wheel_resumes_and_blends(tmp_path):
    for collection, splits in GRAPHS.items():
        for split, graphs in splits.items():
            folder = tmp_path / "input/competition/npz_all/npz" / collection / split
            folder.mkdir(parents=True)
            for graph in graphs:
                shutil.copy(xlarank.SAMPLE / "npz" / collection / split / f"{graph}.npz", folder)
    clone = tmp_path / "clone"  # a build leaves files in it
    ignored = shutil.ignore_patterns(".*", "work", "build", "tests", "*.egg-info")
    shutil.copytree(ROOT, clone, symlinks=True, ignore=ignored)
    pip = [sys.executable, "-m", "pip"]
    wheels = tmp_path / "input/xlarank"
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "--wheel-dir", wheels, clone], check=True)
    (wheel,) = wheels.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    packages = ("data", "features", "models", "pipelines", "xlarank/cli")
    sources = [path.relative_to(ROOT) for name in packages for path in (ROOT / name).rglob("*.py")]
    expected = {f"xlarank/{str(path).removeprefix('xlarank/')}" for path in sources}
    expected |= {"xlarank/data/sample/npz/tile/cpu/test/swish__a.npz", "xlarank/py.typed"}
    assert expected <= {*names}
    assert any(name.startswith("xlarank/models/shipped/") for name in names)
    outside = ("tests/", "benchmarks/", "data/", "run.py")
    assert not [name for name in names if name.startswith(outside)]
    code = tmp_path / "code"
    install = [*pip, "install", "-q", "--no-index", "--no-deps", "--target", code, wheel]
    subprocess.run(install, check=True)

    out = execute(tmp_path, "first", code)
    assert "training layout:cpu:random: " in out and "gain " in out
    assert "none is not attached: nothing is blended" in out
    assert "Checked(rows=2, problems=[])" in out
    ours = submitted(tmp_path / "first")

    # the second run goes on from the first, and blends with a submission: here, the same one
    earlier = tmp_path / "first/xlarank"
    other = tmp_path / "first/submission.csv"
    out = execute(tmp_path, "again", code, EARLIER=earlier, OTHER=other)
    assert "training" not in out and f"blended with {other}" in out and "problems=[]" in out
    assert submitted(tmp_path / "again") == ours
