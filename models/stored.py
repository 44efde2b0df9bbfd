"""Models by their place: in a workspace, or shipped with the package."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.features.layout.hardware import substitution_note
from xlarank.features.layout.relayout_blocks import TIME
from xlarank.features.rows import Recipe
from xlarank.features.settings import FeatureSettings
from xlarank.models.card import CARD, ModelCard
from xlarank.models.column_sum import ColumnSum
from xlarank.models.model import Model
from xlarank.models.training_data import TPU, target_of
from xlarank.models.validation.metrics import LAYOUTS_SET

#: Models for collections without one, made by ``python -m benchmarks.pretrain``.
SHIPPED_MODELS: Final = Path(__file__).parent / "shipped"
#: Nominal collection of the shipped layout model; it has no data.
SHIPPED_COLLECTION: Final = "layout:tpu:any"
#: Name of the ranker by `xlarank.features.layout.relayout_blocks.TIME` alone.
RELAYOUT_TIME: Final = "relayout time"


def model_of(workspace: Workspace, collection: Collection) -> Model:
    """Load the model of a collection, once per process unless its files change; raises `ModelError`
    if it is missing or of another collection.
    """
    folder = workspace.model(collection)
    if not (folder / CARD).exists():
        raise ModelError(f"{collection} has no trained model", do="run train first")
    model = _load(folder, _stamp(folder / CARD))
    owner = model.require_card().collection
    if owner != str(collection):
        move = f"pass `model_from={owner}` with that model in its own folder"
        do = f"run train for {collection}, or {move}"
        got = f"the model at {folder} is of {owner}"
        raise ModelError(got, expected=f"a model of {collection}", do=do)
    return model


@lru_cache(maxsize=4)
def _load(folder: Path, stamp: tuple[int, int] | None) -> Model:
    return Model.load(folder)


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes if a file is replaced; None without the file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


@cache
def pretrained_model(kind: Kind = "layout") -> Model:
    """Load the shipped model of a kind of graphs; raises `ModelError` if the installation lacks
    it.
    """
    return replace(Model.load(SHIPPED_MODELS / kind), shipped=True)


def relayout_model(collection: Collection) -> Model:
    """Return the ranker of layouts of hardware other than a measured TPU, which is not trained.

    It ranks by the estimated time of the copies that the compiler must insert.
    """
    settings = FeatureSettings().for_collection(collection)
    columns = [name for name in settings.columns("layout") if name in (LAYOUTS_SET, TIME)]
    card = ModelCard(
        collection=str(collection),
        model=RELAYOUT_TIME,
        params={},
        rounds=0,
        tuned=False,
        recipe=Recipe.of(settings, "layout"),
        columns=columns,
        trained_on={},
        folds={},
        target=target_of(collection).name,
    )
    choice = f"this is the {RELAYOUT_TIME} of {settings.hardware}, in which nothing is learned"
    if note := substitution_note(collection.parts[1]):
        choice += f"; {note}"
    rule = ColumnSum((TIME,))
    return Model(
        RELAYOUT_TIME, "layout", columns=columns, rule=rule, card=card, shipped=True, choice=choice
    )


def shipped_model(kind: Kind, collection: Collection | None = None) -> Model:
    """Return the ranker that needs no training: the shipped one, for layouts of other hardware than
    a measured TPU the time of their relayouts.

    There is none that suits tiles of CPUs: theirs are ranked as those of TPUs.
    """
    if kind == "tile" or collection is None or target_of(collection) is TPU:
        return pretrained_model(kind)
    return relayout_model(collection)


def trained_collections(workspace: Workspace) -> list[Collection]:
    """Return the collections with a model in the workspace, sorted."""
    root = workspace.root / "models"
    return sorted(
        Collection(path.relative_to(root).parts[:-1]) for path in root.glob(f"*/**/{CARD}")
    )
