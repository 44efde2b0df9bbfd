"""Collections with rows or models in a workspace, all of one data root."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
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
    asked: Sequence[str],
    step: Callable[[str], None] = lambda name: None,
) -> dict[str, Result]:
    """Results of ``work`` by collection; ``left_out`` gets why others have none, unless ``asked`` names them."""
    results: dict[str, Result] = {}
    for collection in collections:
        try:
            results[str(collection)] = work(collection)
        except (CollectionError, ModelError) as error:
            if str(collection) in asked:
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
        weight = 0.0 if given else 1.0
        with suppress(ValueError):
            weight = float(text)
        if not 0 < weight <= MOST_WEIGHT:
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
    of each collection have the stored names and sizes. With ``replace`` rows, studies, models, predictions and
    results of the other root's collections are removed instead.
    """
    paths = {(file.collection, file.split, file.name): file.path for file in files}
    for collection in stored_collections(workspace):
        other, known, stored = "", 0, 0
        for split in SPLITS:
            manifest = None
            with suppress(FeatureStoreError):  # building makes it anew
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
            raise WorkspaceError(
                f"the workspace {workspace.root} holds {collection} of {other}, not of {data_root.path}",
                expected="one data root a workspace",
                do="pass another --workspace; or build-features --replace, which drops what is there of it",
            )
        # the manifests last: where this is interrupted, they still name the other root
        workspace.results().unlink(missing_ok=True)  # of the other root, as all of the workspace was
        predictions = workspace.predictions(collection, "any").parent
        folders = [workspace.model(collection), workspace.study(collection), predictions]
        for folder in [*folders, *(workspace.features(collection, split) for split in SPLITS)]:
            shutil.rmtree(folder, ignore_errors=True)
