"""Files of a data tree that are not read: in folders of other names, depths or modes."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xlarank.data.collection import SPLITS

#: Folders between ``npz/`` and the files of a kind: kind, source, (search,) split.
_DEPTH: Final = {"layout": 4, "tile": 3}
_LEVELS: Final = {"layout": "layout/<source>/<search>/<split>/", "tile": "tile/<source>/<split>/"}
#: A tree of links may have no end.
_DEEPEST: Final = 8
_ALSO_CALLED: Final = {
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "training": "train",
    "testing": "test",
}


@dataclass(frozen=True)
class SkippedFile:
    """A file or folder that is not read; ``unreadable`` where it could not even be listed."""

    path: Path
    why: str
    unreadable: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def skipped_files(npz: Path) -> list[SkippedFile]:
    """Return what looks like graphs below ``layout/`` and ``tile/`` of an ``npz`` folder and is not read."""
    return [file for kind in _DEPTH if os.path.isdir(npz / kind) for file in _look(npz / kind, npz, kind)]


def _look(folder: Path, npz: Path, kind: str) -> Iterator[SkippedFile]:
    depth = len(folder.relative_to(npz).parts)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield SkippedFile(folder, f"cannot be read ({error.strerror or error})", unreadable=True)
        return
    visible = [entry for entry in entries if not entry.name.startswith(".")]
    files = [entry.name for entry in visible if not _is_dir(entry)]
    at_place = depth == _DEPTH[kind] and folder.name in SPLITS
    if not at_place and (count := sum(name.lower().endswith(".npz") for name in files)):
        yield SkippedFile(folder, f"{_files(count)} here {_why(folder, depth, kind)}")
    elif count := sum(name.lower().endswith(".npz") and not name.endswith(".npz") for name in files):
        yield SkippedFile(folder, f"{_files(count)} here not called .npz in small letters; rename")
    if depth < _DEEPEST:
        for entry in visible:
            if _is_dir(entry) and not entry.name.endswith(".npz"):
                yield from _look(Path(entry.path), npz, kind)


def _why(folder: Path, depth: int, kind: str) -> str:
    if depth != _DEPTH[kind]:
        few = "too few" if depth < _DEPTH[kind] else "too many"
        return f"not looked at: {few} folders between; expected {_LEVELS[kind]}*.npz"
    close = difflib.get_close_matches(folder.name.lower(), SPLITS, 1)
    meant = _ALSO_CALLED.get(folder.name.lower()) or (close[0] if close else "")
    hint = f"; rename the folder to {meant}" if meant else ""
    return f"not looked at: {folder.name} is not a split ({', '.join(SPLITS)}){hint}"


def _files(count: int) -> str:
    return f"{count} file{'s are' if count > 1 else ' is'}"


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
