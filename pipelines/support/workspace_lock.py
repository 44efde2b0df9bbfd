"""Lock for writing models and manifests, so that commands can run concurrently in one workspace.

- Files are replaced atomically (`xlarank.data.files.atomic_write`), so readers take no lock.
- Commands hold the lock while they save or remove models, studies and manifests, not while they compute.
- Rows name the recipe and file they were made from, so rows of concurrent builds are refused, not mixed. A model
  is saved only if the manifests still list its training rows.
- A model is a folder of boosters and the card that names it; a reader whose boosters are gone reads the new card.

The lock is `flock` on a file in the workspace; the kernel releases it when its holder exits or is killed.
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
#: Errors of file systems without locks; there, as on Windows, locking is skipped.
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def workspace_lock(workspace: Workspace, progress: Progress) -> Iterator[None]:
    """Wait for the workspace's lock and hold it. Not reentrant; raises `WorkspaceError`."""
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
    """Call ``write`` under the lock; if the workspace is not writable, add the reason to ``notes``."""
    try:
        with workspace_lock(workspace, progress):
            write()
    except WorkspaceError as error:
        note = f"results and scores are not kept: {error.got}"
        if note not in notes:
            notes.append(note)


def _locked(file: IO[bytes], path: Path, progress: Progress) -> bool:
    """Wait for the lock; return False if the file was removed or replaced meanwhile."""
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
