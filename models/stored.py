"""Models in a workspace, and those without training: shipped trees, formulas, simple counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.data.hardware import WORDS
from xlarank.data.workspace import Workspace
from xlarank.features.catalogue import all_columns
from xlarank.features.rows import Recipe
from xlarank.models.card import CARD, ModelCard
from xlarank.models.column_sum import ColumnSum
from xlarank.models.model import RULE, Model
from xlarank.models.training_data import DATASET, TPU, target_of
from xlarank.models.validation.metrics import LAYOUTS_SET

#: Models for collections without one, made by ``python -m benchmarks.pretrain``.
SHIPPED_MODELS: Final = Path(__file__).parent / "shipped"
#: Names of the rankers that need no training.
ESTIMATED_TIME: Final = "estimated time"
SHIPPED_TREES: Final = "shipped trees"


def model_of(workspace: Workspace, collection: Collection) -> Model:
    """Load the model of a collection; raises `ModelError` if it is missing or of another one."""
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
def shipped_trees() -> Model:
    """Load the shipped trees of tiles of TPUs; raises `ModelError` if it is not installed."""
    return replace(Model.load(SHIPPED_MODELS / "tile"), name=SHIPPED_TREES, shipped=True)


@cache
def formula(kind: Kind, hardware: str) -> Model | None:
    """Return the ranker by the estimated time on hardware; None without an estimate."""
    estimate = target_of(hardware).estimate.get(kind)
    if estimate is None:
        return None
    columns = [name for name in all_columns(kind) if name in (LAYOUTS_SET, *estimate)]
    nominal = f"layout:{hardware}:any" if kind == "layout" else f"tile:{hardware}"
    card = ModelCard(collection=nominal, recipe=Recipe.of(kind, hardware), target=hardware)
    rule = ColumnSum(estimate)
    return Model(ESTIMATED_TIME, kind, columns=columns, rule=rule, card=card, shipped=True)


def shipped_model(kind: Kind, hardware: str) -> Model:
    """Return the ranker that needs no training: trees for tiles of TPUs, else the estimated time.

    Raises `ModelError` for hardware that is not named.
    """
    if kind == "tile" and target_of(hardware) in (DATASET, TPU):
        return shipped_trees()
    if (model := formula(kind, hardware)) is not None:
        return model
    if hardware:
        raise ModelError(f"no ranker of {kind}s for {hardware} is shipped", do="run train first")
    got = f"nothing ranks {kind}s of hardware that is not named"
    do = "run train, or name the source after its hardware, such as cpu-mine or tpu-v4-mine"
    raise ModelError(got, expected=WORDS, do=do)


def trained_collections(workspace: Workspace) -> list[Collection]:
    """Return the collections with a model in the workspace, sorted."""
    root = workspace.root / "models"
    return sorted(
        Collection(path.relative_to(root).parts[:-1]) for path in root.glob(f"*/**/{CARD}")
    )


_OUTPUT_VOLUME: Final = "bounds__output_volume__log"
_KERNEL_VOLUME: Final = "bounds__kernel_volume__log"
#: Rules by kind of graphs: single columns that rank layouts best in measured or estimated
#: collections, smaller is faster; volumes of tiles, larger is faster.
_RULES: Final[dict[Kind, dict[str, ColumnSum]]] = {
    "layout": {
        "fewest layouts set": ColumnSum((LAYOUTS_SET,)),
        "padded bytes of set outputs": ColumnSum(("outputs__all_padded__ratio",)),
        "bytes of changed layouts": ColumnSum(("change__all_bytes__ratio",)),
        "bytes of disagreeing layouts": ColumnSum(("disagreement__mismatch_1hop_bytes__share",)),
    },
    "tile": {
        "largest output tile": ColumnSum((_OUTPUT_VOLUME,), -1.0),
        "largest tile": ColumnSum((_OUTPUT_VOLUME, _KERNEL_VOLUME), -1.0),
    },
}


def rules_of(kind: Kind, columns: Sequence[str]) -> list[Model]:
    """Return the rules whose columns the rows have."""
    models = []
    for name, rule in _RULES[kind].items():
        if {*rule.columns} <= {*columns}:
            models.append(Model(f"{RULE}{name}", kind, columns=[*columns], rule=rule))
    return models
