"""Models by their place: in a workspace, or shipped with the package."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.models.card import CARD
from xlarank.models.model import Model

#: Models for collections without one, made by ``python -m benchmarks.pretrain``.
SHIPPED_MODELS: Final = Path(__file__).parent / "shipped"
#: Nominal collection of the shipped layout model; it has no data.
SHIPPED_COLLECTION: Final = "layout:tpu:any"


def model_of(workspace: Workspace, collection: Collection) -> Model:
    """Load the model of a collection; raises `ModelError` if it is missing or of another
    collection.
    """
    folder = workspace.model(collection)
    if not (folder / CARD).exists():
        raise ModelError(f"{collection} has no trained model", do="run train first")
    model = Model.load(folder)
    owner = model.require_card().collection
    if owner != str(collection):
        move = f"pass `model_from={owner}` with that model in its own folder"
        do = f"run train for {collection}, or {move}"
        got = f"the model at {folder} is of {owner}"
        raise ModelError(got, expected=f"a model of {collection}", do=do)
    return model


@cache
def pretrained_model(kind: Kind = "layout") -> Model:
    """Load the shipped model of a kind of graphs; raises `ModelError` if the installation lacks
    it.
    """
    return replace(Model.load(SHIPPED_MODELS / kind), shipped=True)


def trained_collections(workspace: Workspace) -> list[Collection]:
    """Return the collections with a model in the workspace, sorted."""
    root = workspace.root / "models"
    return sorted(
        Collection(path.relative_to(root).parts[:-1]) for path in root.glob(f"*/**/{CARD}")
    )
