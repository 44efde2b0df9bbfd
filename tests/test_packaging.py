"""Where the package is found, and what an installed xlarank holds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import run

ROOT = Path(run.__file__).parent
SUBPACKAGES = ("data", "features", "models", "pipelines")
CODE = [path.relative_to(ROOT) for name in SUBPACKAGES for path in (ROOT / name).rglob("*.py")]


def test_subpackages_are_relative_links_and_every_folder_of_code_is_a_package() -> None:
    assert [str((ROOT / "xlarank" / name).readlink()) for name in SUBPACKAGES] == [
        f"../{name}" for name in SUBPACKAGES
    ]
    assert [path for path in CODE if not (ROOT / path).with_name("__init__.py").is_file()] == []


@pytest.mark.slow
def test_it_is_imported_from_the_folder_that_contains_the_clone(tmp_path: Path) -> None:
    """A clone called xlarank looks like a package without files from there; the one that is installed must win."""
    (tmp_path / "xlarank").symlink_to(ROOT)
    code = "import sys; sys.path.append(sys.argv[1]); import xlarank.pipelines.rank; print(xlarank.__version__)"
    assert subprocess.check_output([sys.executable, "-c", code, str(ROOT)], cwd=tmp_path, env={}).strip()


@pytest.mark.slow
def test_a_wheel_holds_code_and_data_as_files(tmp_path: Path) -> None:
    clone = tmp_path / "clone"  # a build leaves files in it
    ignored = shutil.ignore_patterns(".*", "work", "build", "tests", "*.egg-info")
    shutil.copytree(ROOT, clone, symlinks=True, ignore=ignored)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(clone)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {f"xlarank/{path}" for path in CODE} | {
        f"xlarank/cli/{path.name}" for path in ROOT.glob("xlarank/cli/*.py")
    }
    assert expected | {"xlarank/data/sample/npz/tile/cpu/test/swish__a.npz", "xlarank/py.typed"} <= names
    assert any(name.startswith("xlarank/models/shipped/") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "data/", "run.py"))]
