"""The workspace: the folder for everything xlarank writes, and its naming rules."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from xlarank.data.errors import WorkspaceError

if TYPE_CHECKING:  # slow import, not needed for --help
    from xlarank.data.collection import Collection

#: Default workspace of commands.
DEFAULT_ROOT: Final = Path("work")


@dataclass(frozen=True)
class Workspace:
    """Paths below the workspace folder.

    ``features/``, ``studies/`` and ``models/`` mirror the tree of collections.
    Every name is checked, so that a hostile file name cannot lead outside the workspace.
    """

    root: Path

    @classmethod
    def of(cls, folder: WorkspaceLike) -> Workspace:
        """Return the workspace in a folder, or the given one."""
        return folder if isinstance(folder, Workspace) else cls(Path(folder))

    def features(self, collection: Collection, split: str) -> Path:
        return self._below("features", *collection.parts, split)

    def rows(self, collection: Collection, split: str, part: int) -> Path:
        return self._below("features", *collection.parts, split, f"part-{part:04}.parquet")

    def study(self, collection: Collection) -> Path:
        return self._below("studies", *collection.parts)

    def model(self, collection: Collection) -> Path:
        return self._below("models", *collection.parts)

    def reports(self) -> Path:
        return self._below("reports")

    def require_writable(self) -> None:
        """Raise `WorkspaceError` unless the folder can be created and written to."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            if not os.access(self.root, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "permission denied")
        except OSError as error:
            got = f"the workspace {self.root} cannot be written ({error.strerror or error})"
            do = "pass another `workspace`, or change the permissions"
            raise WorkspaceError(got, expected="a folder that can be written to", do=do) from error

    def _below(self, *names: str) -> Path:
        for name in names:
            require_safe_name(name)
        return self.root.joinpath(*names)


WorkspaceLike: TypeAlias = str | Path | Workspace


def require_safe_name(name: str) -> None:
    """Raise `WorkspaceError` for a name that could lead outside the workspace."""
    if not name.isprintable() or name[:1] in ("", ".", " ") or {*name} & {"/", "\\"}:
        got = f"the name {name!r} cannot be used inside the workspace"
        expected = "printable characters, no slash, and no dot or space in front"
        raise WorkspaceError(got, expected=expected, do="rename the file or folder")
