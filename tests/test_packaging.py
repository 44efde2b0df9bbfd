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


def test_subpackages_are_relative_links() -> None:
    for name in SUBPACKAGES:
        link = ROOT / "xlarank" / name
        assert link.is_symlink() and str(link.readlink()) == f"../{name}"
        assert link.resolve() == ROOT / name


def test_every_folder_of_code_is_a_package() -> None:
    folders = {path.parent for name in SUBPACKAGES for path in (ROOT / name).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.slow
def test_it_is_imported_from_the_folder_that_contains_the_clone(tmp_path: Path) -> None:
    """A clone called xlarank looks like a package without files from there; the one that is installed must win."""
    (tmp_path / "xlarank").symlink_to(ROOT)
    code = "import sys; sys.path.append(sys.argv[1]); import xlarank.pipelines.rank; print(xlarank.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT)], cwd=tmp_path, env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip()


@pytest.mark.slow
def test_a_wheel_holds_code_and_data_as_files(tmp_path: Path) -> None:
    clone = tmp_path / "clone"  # a build leaves files in it
    ignored = shutil.ignore_patterns(".*", "work", "build", "tests", "*.egg-info")
    shutil.copytree(ROOT, clone, symlinks=True, ignore=ignored)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(clone)],
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {f"xlarank/{path.relative_to(ROOT)}" for name in SUBPACKAGES for path in (ROOT / name).rglob("*.py")}
    expected |= {f"xlarank/{path.relative_to(ROOT / 'xlarank')}" for path in (ROOT / "xlarank").glob("cli/*.py")}
    assert expected <= names
    assert "xlarank/data/sample/npz/tile/cpu/test/swish__a.npz" in names and "xlarank/py.typed" in names
    assert any(name.startswith("xlarank/models/shipped/") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "data/", "run.py"))]
