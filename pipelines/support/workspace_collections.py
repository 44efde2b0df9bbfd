"""Collections with rows or models in a workspace; all come from one data root."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from xlarank.data.collection import SPLITS, Collection, DataRoot, GraphFile, choose
from xlarank.data.errors import CollectionError, FeatureStoreError, ModelError, WorkspaceError
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest, stored_collections
from xlarank.models.trained import CARD


def chosen_collections(workspace: Workspace, names: Sequence[str]) -> list[Collection]:
    """Return the named collections with stored features, or all; raises `CollectionError` for others."""
    return choose(names, stored_collections(workspace), where=f"the workspace {workspace.root}")


@contextmanager
def skip_unless_named(collection: Collection, named: Sequence[str], left_out: dict[str, str]) -> Iterator[None]:
    """Record in ``left_out`` why work on a collection failed; raise the error if the collection was named."""
    try:
        yield
    except (CollectionError, ModelError) as error:
        if str(collection) in named:
            raise
        left_out[str(collection)] = str(error)


def trained_collections(workspace: Workspace) -> list[Collection]:
    """Return the collections with a model in the workspace, sorted."""
    root = workspace.root / "models"
    return sorted(Collection(path.relative_to(root).parts[:-1]) for path in root.glob(f"*/**/{CARD}"))


def require_one_root(
    data_root: DataRoot, workspace: Workspace, files: Sequence[GraphFile], *, replace: bool = False
) -> None:
    """Raise `WorkspaceError` if the workspace holds rows of another data root; a submission would mix both.

    A moved or repaired root counts as the same if at least half of the stored graphs of each collection still have
    their names and sizes. With ``replace``, rows, studies, models, predictions and results of the other root's
    collections are removed instead.
    """
    paths = {(file.collection, file.split, file.name): file.path for file in files}
    for collection in stored_collections(workspace):
        other, known, stored = "", 0, 0
        for split in SPLITS:
            manifest = None
            with suppress(FeatureStoreError):  # rebuilt with the features
                manifest = read_manifest(workspace, collection, split)
            if manifest is None or manifest.data_root == str(data_root.path.resolve()):
                continue
            other = manifest.data_root
            for name, graph in manifest.graphs.items():
                stored += 1
                with suppress(OSError, KeyError):
                    known += paths[collection, split, name].stat().st_size == graph.source.size
        if 2 * known >= stored:
            continue
        if not replace:
            got = f"the workspace {workspace.root} holds {collection} of {other}, not of {data_root.path}"
            do = "pass another `workspace`, or build features with `replace`, which drops those rows"
            raise WorkspaceError(got, expected="one data root a workspace", do=do)
        workspace.results().unlink(missing_ok=True)
        # manifests last: after an interruption they still name the other root
        predictions = workspace.predictions(collection, "any").parent
        folders = [workspace.model(collection), workspace.study(collection), predictions]
        for folder in [*folders, *(workspace.features(collection, split) for split in SPLITS)]:
            shutil.rmtree(folder, ignore_errors=True)
