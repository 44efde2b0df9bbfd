"""Collections with rows or models in a workspace, all of one data root."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from xlarank.data.collection import SPLITS, Collection, GraphFile, choose
from xlarank.data.errors import CollectionError, FeatureStoreError, ModelError, WorkspaceError
from xlarank.data.root import DataRoot
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest, stored_collections
from xlarank.models.trained import CARD

#: The largest weight of another collection.
MOST_WEIGHT: Final = 1000.0

Result = TypeVar("Result")


def chosen_collections(workspace: Workspace, asked: Sequence[str]) -> list[Collection]:
    """Collections with stored features; raises `CollectionError` for others."""
    return choose(asked, stored_collections(workspace), where=f"the workspace {workspace.root}")


def each_collection(
    collections: Iterable[Collection],
    work: Callable[[Collection], Result],
    left_out: dict[str, str],
    *,
    named: bool,
    step: Callable[[str], None] = lambda name: None,
) -> dict[str, Result]:
    """Results of ``work`` by collection; ``left_out`` gets why others have none, unless they were ``named``."""
    results: dict[str, Result] = {}
    for collection in collections:
        try:
            results[str(collection)] = work(collection)
        except (CollectionError, ModelError) as error:
            if named:
                raise
            left_out[str(collection)] = str(error)
        step(str(collection))
    return results


def weighted_collections(asked: Sequence[str]) -> dict[str, float]:
    """Name -> weight of ``NAME`` (weight 1) or ``NAME=WEIGHT``; raises `CollectionError` for what is no weight.

    >>> weighted_collections(["layout:cpu:random", "layout:tpu-estimate:random=0.3"])
    {'layout:cpu:random': 1.0, 'layout:tpu-estimate:random': 0.3}
    """
    weights: dict[str, float] = {}
    for entry in asked:
        name, given, text = entry.partition("=")
        try:
            weight = float(text) if given else 1.0
        except ValueError:
            weight = math.nan
        if not 0 < weight <= MOST_WEIGHT:  # what is no number is not
            raise CollectionError(
                f"the weight of {name} is {text!r}",
                expected=f"a number above 0, at most {MOST_WEIGHT:g}",
                do=f"write {name}=0.5, or leave the collection out",
            )
        if weights.setdefault(name, weight) != weight:
            both = f"{weights[name]:g} and {weight:g}"
            raise CollectionError(f"{name} is given two weights, {both}", do="name it once")
    return weights


def trained_collections(workspace: Workspace) -> list[Collection]:
    """Collections that have a model in the workspace, sorted."""
    root = workspace.root / "models"
    return sorted(Collection(path.relative_to(root).parts[:-1]) for path in root.glob(f"*/**/{CARD}"))


def require_one_root(
    data_root: DataRoot, workspace: Workspace, files: Sequence[GraphFile], *, replace: bool = False
) -> None:
    """Raise `WorkspaceError` where the workspace holds rows of another data root.

    Rows of two roots would end in one submission. A root that was moved or mended counts as the same: most graphs
    of each collection have the stored names and sizes. With ``replace`` rows, studies and models of the other
    root's collections are removed instead.
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
    """Return the root of a collection's rows, None where it is this one."""
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
