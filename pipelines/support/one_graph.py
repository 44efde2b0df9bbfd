"""One graph file and the model that ranks it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from xlarank.data.collection import Collection, choose
from xlarank.data.errors import ModelError
from xlarank.data.graph import Graph, Kind, LayoutGraph
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest
from xlarank.models.trained import TrainedModel, model_of
from xlarank.pipelines.support.workspace_collections import trained_collections


def graph_kind(graph: Graph) -> Kind:
    return "layout" if isinstance(graph, LayoutGraph) else "tile"


def model_of_file(
    workspace: Workspace,
    path: Path,
    kind: Kind,
    *,
    collection: str | None = None,
    model: TrainedModel | None = None,
) -> TrainedModel:
    """The model to rank a file of this kind: ``model``, or one of the workspace.

    Without ``collection`` it is the one of the collection whose folder the file lies in, or the only one of its
    kind. Raises `ModelError` where the model is missing, not clear or for graphs of another kind.
    """
    if model is None:
        model = model_of(workspace, _choose_model(workspace, path, kind, collection))
    if model.card.kind != kind:
        raise ModelError(
            f"{path.name} is a {kind} graph", expected=f"a {model.card.kind} graph for {model.card.collection}"
        )
    return model


def rows_for_model(graph: Graph, model: TrainedModel) -> GraphRows:
    """All rows of a graph, made as those that the model learned from; raises `ModelError` if that code is gone."""
    settings, kind = model.card.recipe.settings(), graph_kind(graph)
    current = Manifest(
        recipe=replace(model.card.recipe, code_hash=settings.code_hash(kind)),
        data_root="",
        graph_columns=settings.graph_columns(kind),
        config_columns=settings.config_columns(kind),
    )
    model.require_rows_of(current)
    return assemble(graph, settings)


def _choose_model(workspace: Workspace, path: Path, kind: Kind, asked: str | None) -> Collection:
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
