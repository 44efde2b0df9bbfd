"""Writing files so that they are either whole or absent."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from xlarank.data.errors import WorkspaceError

_PARTIAL: Final = ".partial-"
#: Seconds after which nobody can still be writing a file.
_ABANDONED: Final = 24 * 3600.0


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; move it into place when the block ends without an error.

    Raises `WorkspaceError` when the folder cannot be made or written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_PARTIAL, suffix=path.suffix)
    except OSError as error:
        raise WorkspaceError(
            f"cannot write {path} ({error.strerror or error})",
            expected="a folder that can be written to",
            do="pass another --workspace (or --out), or change the permissions",
        ) from error
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        # mkstemp makes private files; a result is as readable as any other new file.
        umask = os.umask(0)
        os.umask(umask)
        partial.chmod(0o666 & ~umask)
        partial.replace(path)
    except OSError as error:
        if error.filename is not None and str(error.filename) not in (str(partial), str(path)):
            raise  # another file of the block is at fault, its name says which
        raise WorkspaceError(
            f"cannot write {path} ({error.strerror or error})",
            expected="enough space and a place that can be written to",
            do="free some space or pass another --workspace (or --out)",
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, whole or not at all."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def sweep_partial(folder: Path) -> list[Path]:
    """Remove what killed processes left half written below ``folder`` more than a day ago; what was removed.

    Younger ones may be at work still. What cannot be removed stays: it is in nobody's way.
    """
    removed = []
    for path in sorted(folder.rglob(f"{_PARTIAL}*")):
        with suppress(OSError):
            if path.is_file() and time.time() - path.lstat().st_mtime > _ABANDONED:
                path.unlink()
                removed.append(path)
    return removed
