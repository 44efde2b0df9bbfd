"""Collections of a workspace, all from one data root, and the lock of concurrent commands.

- Files are replaced atomically (`xlarank.data.files.atomic_write`), so readers take no lock.
- Commands hold the lock while they save or remove files, not while they compute.
- Stored rows record their recipe and source file, so rows of concurrent builds are refused, not
  mixed. A model is saved only if the manifests still list its training rows.
- A model's card names its folder of members; a reader whose members are gone reads the new card.

The lock is `flock` on a file in the workspace; the kernel releases it when its holder ends.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from xlarank.data.collection import SPLITS, Collection, DataRoot, GraphFile, Names, choose, listed
from xlarank.data.errors import CollectionError, FeatureStoreError, ModelError, WorkspaceError
from xlarank.data.files import regular_only
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest, read_manifests, stored_collections
from xlarank.pipelines.support.progress import steps_of

LOCK: Final = ".lock"
#: Errors of file systems without locks; there, as on Windows, locking is skipped.
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


def chosen_collections(workspace: Workspace, names: Names) -> list[Collection]:
    """Return the named collections, or all; raises `CollectionError` for one without features."""
    return choose(names, stored_collections(workspace), where=f"the workspace {workspace.root}")


def labelled_collections(workspace: Workspace, names: Names) -> list[Collection]:
    """Return the named collections, by default those that `has_labels`, or all if none has."""
    chosen = chosen_collections(workspace, names)
    if names:
        return chosen
    return [collection for collection in chosen if has_labels(workspace, collection)] or chosen


def has_labels(workspace: Workspace, collection: Collection) -> bool:
    """Return whether a collection has a graph to train on or to evaluate."""
    for manifest in read_manifests(workspace, collection).values():
        if any(graph.labelled and graph.rankable for graph in manifest.graphs.values()):
            return True
    return False


@contextmanager
def leaving_out(collection: Collection, named: Names, left_out: dict[str, str]) -> Iterator[None]:
    """Record a `CollectionError` or `ModelError` of the block, or raise it if ``named``."""
    try:
        yield
    except (CollectionError, ModelError) as error:
        if str(collection) in listed(named):
            raise
        left_out[str(collection)] = str(error)


def require_one_root(data_root: DataRoot, workspace: Workspace, files: Sequence[GraphFile]) -> None:
    """Raise `WorkspaceError` if the workspace has rows of another data root.

    A moved or repaired root counts as the same if at least half of the stored graphs of each
    collection still have their names and sizes.
    """
    paths = {(file.collection, file.split, file.name): file.path for file in files}
    for collection in stored_collections(workspace):
        other_root = ""
        unchanged = 0
        stored = 0
        for split in SPLITS:
            manifest = None
            with suppress(FeatureStoreError):  # damaged: build-features writes it again
                manifest = read_manifest(workspace, collection, split)
            if manifest is None or manifest.data_root == str(data_root.path.resolve()):
                continue
            other_root = manifest.data_root
            for name, graph in manifest.graphs.items():
                stored += 1
                with suppress(OSError, KeyError):
                    unchanged += paths[collection, split, name].stat().st_size == graph.source.size
        if 2 * unchanged < stored:
            raise WorkspaceError(
                f"the workspace {workspace.root} holds {collection} of {other_root}",
                expected=f"features of {data_root.path} alone",
                do="pass another `workspace`, or remove this one",
            )


@contextmanager
def workspace_lock(workspace: Workspace) -> Iterator[None]:
    """Wait for the workspace's lock and hold it. Not reentrant; raises `WorkspaceError`."""
    workspace.require_writable()
    path = workspace.root / LOCK
    with ExitStack() as stack:
        try:
            file = stack.enter_context(open(path, "ab", opener=regular_only))
            _wait_for_lock(file, path)
        except OSError as error:
            got = f"{path} cannot be locked ({error.strerror})"
            expected = "a regular file that can be written to"
            do = "remove it, or pass another `workspace`"
            raise WorkspaceError(got, expected=expected, do=do) from error
        yield


def _wait_for_lock(file: IO[bytes], path: Path) -> None:
    try:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with steps_of(f"another process writes {path.parent}; waiting", 1):
                    fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
