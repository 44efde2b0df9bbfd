"""What an installed xlarank holds, and what the type checker sees."""

from __future__ import annotations

import tomllib
from pathlib import Path

import run

ROOT = Path(run.__file__).parent
ROOMS = ("data", "features", "models", "pipelines")


def test_every_folder_of_code_is_a_package_of_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.py")}
    folders |= {path.parent.relative_to(ROOT / "xlarank") for path in (ROOT / "xlarank").rglob("*.py")}
    expected = {".".join(("xlarank", *folder.parts)) for folder in folders}
    assert sorted(listed) == sorted(expected)


def test_the_type_checker_sees_every_file_of_the_surface() -> None:
    own = {path.name for path in (ROOT / "xlarank").iterdir() if path.suffix == ".py"}
    links = {path.name for path in (ROOT / ".typing" / "xlarank").iterdir()}
    assert links == {*own, *ROOMS, "cli", "py.typed"}
    for path in (ROOT / ".typing" / "xlarank").iterdir():
        assert path.is_symlink() and path.exists(), f"{path.name} is a copy, or leads nowhere"
