"""A trained model and a graph in memory: which model, and its scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import Collection, choose
from xlarank.data.errors import ModelError
from xlarank.data.graph import Graph, Kind
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest
from xlarank.models.trained import TrainedModel, load_model
from xlarank.pipelines.support.workspace_collections import trained_collections


def model_for(workspace: Workspace, path: Path, kind: Kind, collection: str | None = None) -> TrainedModel:
    """The model of the workspace that ranks a file.

    Without ``collection`` it is that of the collection whose folder the file lies in, or the only one of its kind.
    Raises `ModelError` where it is missing, not clear, or of the other kind.
    """
    model = load_model(workspace.model(_choose(workspace, path, kind, collection)))
    require_kind(model, path, kind)
    return model


def require_kind(model: TrainedModel, path: Path, kind: Kind) -> None:
    """Raises `ModelError` when the model ranks graphs of the other kind."""
    if model.card.kind != kind:
        raise ModelError(
            f"{path.name} is a {kind} graph", expected=f"a {model.card.kind} graph for {model.card.collection}"
        )


def require_columns(model: TrainedModel, kind: Kind) -> None:
    """Raises `ModelError` when the columns that would be computed now are not those of the model."""
    settings = model.card.recipe.settings()
    current = Manifest(
        recipe=replace(model.card.recipe, code_hash=settings.code_hash(kind)),
        data_root="",
        graph_columns=settings.graph_columns(kind),
        config_columns=settings.config_columns(kind),
    )
    model.require_rows_of(current)


def score_graph(graph: Graph, model: TrainedModel) -> tuple[NDArray[np.float64], GraphRows]:
    """``(configs,)`` scores, lower is faster, and the rows that were scored."""
    rows = assemble(graph, model.card.recipe.settings())
    return model.predict(rows.matrix(), rows.columns, rows.instances)[rows.group], rows


def _choose(workspace: Workspace, path: Path, kind: Kind, asked: str | None) -> Collection:
    trained = trained_collections(workspace)
    if not trained:
        raise ModelError(f"there is no trained {kind} model in {workspace.root}", do="run train first")
    if asked is not None:
        return choose([asked], trained, where=f"the models of {workspace.root}")[0]
    candidates = [collection for collection in trained if collection.kind == kind]
    if not candidates:
        raise ModelError(f"there is no trained {kind} model in {workspace.root}", do="run train first")
    parts = path.resolve().parts
    for collection in candidates:
        tail = (*collection.parts,)
        if any(parts[i : i + len(tail)] == tail for i in range(len(parts))):
            return collection
    if len(candidates) > 1:
        names = ", ".join(str(collection) for collection in candidates)
        raise ModelError(
            f"{path.name} could be ranked by {len(candidates)} models", expected=names, do="pass --collection"
        )
    return candidates[0]
