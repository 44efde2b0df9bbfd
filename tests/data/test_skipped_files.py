"""Graphs that nobody looks at are told of, with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xlarank.data.skipped_files import skipped_files


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            "layout/xla/random/validation/a.npz",
            "1 file is here not looked at: validation is not a split (train, valid,",
        ),
        ("layout/xla/random/validation/a.npz", "rename the folder to valid"),
        ("layout/xla/random/Train/a.npz", "rename the folder to train"),
        ("layout/xla/random/odd/a.npz", "odd is not a split (train, valid, test)"),
        ("layout/xla/train/a.npz", "too few folders between; expected layout/<source>/<search>/<split>/*.npz"),
        ("tile/xla/random/train/a.npz", "too many folders between; expected tile/<source>/<split>/*.npz"),
        ("tile/a.npz", "too few folders"),
        ("tile/xla/train/a.NPZ", "1 file is here not called .npz in small letters"),
        ("tile/xla/train/deeper/a.npz", "too many folders"),
    ],
)
def test_a_graph_in_another_place_is_told_of(tmp_path: Path, place: str, said: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.touch()
    (found,) = skipped_files(tmp_path)
    assert said in str(found) and found.path == path.parent and not found.unreadable


@pytest.mark.parametrize(
    "place",
    ["layout/xla/random/train/a.npz", "tile/xla/test/a.npz", "tile/xla/train/.hidden.npz", "tile/xla/notes.txt",
     "elsewhere/a.npz", "tile/.cache/a.npz"],
)  # fmt: skip
def test_what_is_read_or_no_graph_is_not(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).touch()
    assert skipped_files(tmp_path) == []


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
