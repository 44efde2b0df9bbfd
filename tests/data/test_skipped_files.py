"""Files that are not read are named, with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xlarank.data.collection import skipped_files

WRONG = {
    "layout/xla/random/validation/a.npz": "validation is not a split (train, valid, test); rename the folder",
    "layout/xla/random/Train/a.npz": "rename the folder to train",
    "layout/xla/random/odd/a.npz": "odd is not a split (train, valid, test)",
    "layout/xla/train/a.npz": "too few folders between; expected layout/<source>/<search>/<split>/*.npz",
    "tile/xla/random/train/a.npz": "too many folders between; expected tile/<source>/<split>/*.npz",
    "tile/a.npz": "too few folders",
    "tile/xla/test/a.NPZ": "1 file is here not called .npz in small letters",
    "tile/xla/train/deeper/a.npz": "too many folders",
}
RIGHT = [f"layout/xla/random/train/{name}" for name in ("a.npz", ".hidden.npz", "notes.txt")]
RIGHT += ["tile/xla/valid/a.npz", "elsewhere/a.npz", "tile/.cache/a.npz"]


def test_graphs_in_other_places_are_named_and_nothing_else(tmp_path: Path) -> None:
    for place in (*WRONG, *RIGHT):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    skipped = {file.path: str(file) for file in skipped_files(tmp_path) if not file.unreadable}
    assert len(skipped) == len(WRONG)
    assert {place: why for place, why in WRONG.items() if why not in skipped[(tmp_path / place).parent]} == {}


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Permission bits do not bind root, so the system's answer is made up."""
    locked = tmp_path / "tile" / "xla" / "train"
    locked.mkdir(parents=True)
    scandir = os.scandir

    def refuses(path: Path):
        if Path(path) == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refuses)
    (found,) = skipped_files(tmp_path)
    assert found.unreadable and str(found) == f"{locked}: cannot be read (Permission denied)"


def test_links_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    (tmp_path / "tile" / "xla").mkdir(parents=True)
    (tmp_path / "tile" / "xla" / "again").symlink_to(tmp_path / "tile")
    assert skipped_files(tmp_path) == []
