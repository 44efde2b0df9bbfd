"""A workspace holds what was made of one data root; rows of two would end in one submission."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from xlarank.data.collection import SPLITS, Collection, GraphFile
from xlarank.data.errors import FeatureStoreError, WorkspaceError
from xlarank.data.root import DataRoot
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest, stored_collections


def require_one_root(
    data_root: DataRoot, workspace: Workspace, files: Sequence[GraphFile], *, replace: bool = False
) -> None:
    """Raise `WorkspaceError` where the workspace holds rows of another data root.

    A root that was moved, or mended, is still the same one: most graphs of each collection have the names and sizes
    that the rows were made of.
    With ``replace`` what is stored, studied and trained of the other root's collections is removed instead.
    """
    sizes = {(file.collection, file.split, file.name): file.path for file in files}
    for collection in stored_collections(workspace):
        other = _other_root(data_root, workspace, collection, sizes)
        if other is None:
            continue
        if not replace:
            raise WorkspaceError(
                f"the workspace {workspace.root} holds {collection} of {other}, not of {data_root.path}",
                expected="one data root a workspace",
                do="pass another --workspace; or build-features --replace, which drops what is there of it",
            )
        # the manifests last: where this is interrupted, they still name the other root
        shutil.rmtree(workspace.model(collection), ignore_errors=True)
        shutil.rmtree(workspace.study(collection), ignore_errors=True)
        for split in SPLITS:
            shutil.rmtree(workspace.features(collection, split), ignore_errors=True)


def _other_root(
    data_root: DataRoot,
    workspace: Workspace,
    collection: Collection,
    files: dict[tuple[Collection, str, str], Path],
) -> str | None:
    """The root that a collection's rows are from, if it is not this one."""
    other, known, stored = None, 0, 0
    for split in SPLITS:
        try:
            manifest = read_manifest(workspace, collection, split)
        except FeatureStoreError:  # building makes it anew
            continue
        if manifest is None or manifest.data_root == str(data_root.path.resolve()):
            continue
        other = manifest.data_root
        for name, about in manifest.graphs.items():
            stored += 1
            path = files.get((collection, split, name))
            with suppress(OSError, KeyError, TypeError):
                known += path is not None and path.stat().st_size == about["source"]["size"]
    return other if 2 * known < stored else None
