"""One writer of models and manifests at a time, so that commands may run side by side in one workspace.

- Each file is replaced as a whole (`xlarank.data.files.atomic_write`), so readers take no lock.
- Commands hold the lock while they save or remove models, studies and manifests, not while they compute.
- Rows name the recipe and the file that they were made of, so rows of two builds that ran at once are refused
  instead of mixed. A model is not saved unless the manifests still list the rows that it was trained on.
- A model is a folder of boosters and the card that names it; a reader that finds boosters gone reads the new card.

The lock is `flock` on a file in the workspace; the kernel releases it when its holder ends, however that happens.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from xlarank.data.errors import WorkspaceError
from xlarank.data.files import regular_no_link
from xlarank.data.workspace import Workspace
from xlarank.pipelines.support.progress import Progress, steps_of

LOCK: Final = ".lock"
#: Errors of file systems without locks: there nobody waits, as on Windows.
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def workspace_lock(workspace: Workspace, progress: Progress) -> Iterator[None]:
    """Hold the workspace's lock, after waiting for its holder. Not reentrant; raises `WorkspaceError`."""
    workspace.require_writable()
    path = workspace.root / LOCK
    with ExitStack() as stack:
        try:
            while not _locked(stack.enter_context(open(path, "ab", opener=regular_no_link)), path, progress):
                pass
        except OSError as error:
            got, do = f"{path} cannot be locked ({error.strerror})", "remove it, or pass another `workspace`"
            raise WorkspaceError(got, expected="a regular file that can be written to", do=do) from error
        yield


def write_or_note(workspace: Workspace, progress: Progress, notes: list[str], write: Callable[[], None]) -> None:
    """Call ``write`` under the lock; if the workspace cannot be written, a note says why nothing is kept."""
    try:
        with workspace_lock(workspace, progress):
            write()
    except WorkspaceError as error:
        note = f"results and scores are not kept: {error.got}"
        if note not in notes:
            notes.append(note)


def _locked(file: IO[bytes], path: Path, progress: Progress) -> bool:
    """Wait for the lock; return False if the file was removed with its workspace meanwhile."""
    try:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with steps_of(progress, f"another process writes {path.parent}; waiting", 1):
                    fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    return False
