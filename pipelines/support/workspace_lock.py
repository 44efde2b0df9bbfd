"""One writer of models and manifests at a time, so that commands may run side by side in one workspace.

- Each file is replaced as a whole (`xlarank.data.files.atomic_write`), so readers take no lock.
- `build-features` holds the lock while it removes rows of another data root and while it writes its manifests;
  commands that learn, or copy models, while they save. Nobody holds it while features or trees are computed.
- Rows name the recipe and the file that they were made of. Readers compare them with the manifest, so rows of two
  builds that ran at once are refused instead of mixed.
- A model is not saved unless the manifests still list the rows that it was trained on.
- A model is a folder of boosters and the card that names it. Writing the card makes the model current; the folders
  of earlier models are removed under the lock. A reader that finds boosters gone reads the new card.

The lock is `flock` on a file in the workspace; the kernel releases it when its holder ends, however that happens.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from xlarank.data.errors import WorkspaceError
from xlarank.data.files import regular_no_link
from xlarank.data.workspace import Workspace
from xlarank.pipelines.support.progress import Progress

LOCK: Final = ".lock"
#: What file systems without locks answer: there nobody waits, as on Windows.
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def workspace_lock(workspace: Workspace, progress: Progress) -> Iterator[None]:
    """Hold the workspace's lock, after waiting for its holder. Not reentrant; raises `WorkspaceError`."""
    workspace.require_writable()
    path = workspace.root / LOCK
    try:
        handle = _locked(path, progress)
    except OSError as error:
        raise WorkspaceError(
            f"{path} cannot be locked ({error.strerror})",
            expected="a regular file that can be written to",
            do="remove it, or pass another --workspace",
        ) from error
    try:
        yield
    finally:
        os.close(handle)


def _locked(path: Path, progress: Progress) -> int:
    """A handle that holds the lock of the file at ``path``."""
    while True:
        handle = regular_no_link(str(path), os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0))
        try:
            _wait(handle, path, progress)
            mine = os.fstat(handle)
            with suppress(FileNotFoundError):  # removed with the workspace while this process waited
                if os.path.samestat(mine, os.stat(path)):
                    if mine.st_nlink == 1:  # else it may be a file of somebody's under another name
                        os.ftruncate(handle, 0)
                        os.pwrite(handle, b"%d\n" % os.getpid(), 0)
                    return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _wait(handle: int, path: Path, progress: Progress) -> None:
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
        progress.begin(f"another process (pid {holder}) writes {path.parent}; waiting", 1)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        finally:
            progress.end()
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
