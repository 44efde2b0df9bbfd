"""One graph and the model that ranks it."""

from __future__ import annotations

from pathlib import Path

from xlarank.data.collection import Collection, choose
from xlarank.data.errors import ModelError
from xlarank.data.graph import Graph, graph_kind
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows
from xlarank.models.pretrained import columns_by_name, pretrained_model
from xlarank.models.trained import TrainedModel, model_of
from xlarank.pipelines.support.workspace_collections import trained_collections


def model_for_graph(
    workspace: Workspace, graph: Graph, path: Path | None = None, *, collection: str | None = None
) -> TrainedModel:
    """The model of the workspace to rank a graph with.

    Without ``collection`` it is the one of the collection whose folder the file at ``path`` lies in, or the only
    one of the graph's kind. A workspace without any for layouts falls back on the one that comes with xlarank.
    Raises `ModelError` where the model is missing or not clear.
    """
    kind = graph_kind(graph)
    trained = trained_collections(workspace)
    fitting = [each for each in trained if each.kind == kind]
    if collection is None and not fitting and kind == "layout":
        return pretrained_model()
    if not trained or (collection is None and not fitting):
        raise ModelError(f"there is no trained {kind} model in {workspace.root}", do="run train first")
    if collection is not None:
        (chosen,) = choose([collection], trained, where=f"the models of {workspace.root}")
    else:
        chosen = _at_home(path, fitting) or _only(graph.name if path is None else path.name, fitting)
    return model_of(workspace, chosen)


def rows_for_model(graph: Graph, model: TrainedModel) -> GraphRows:
    """All rows of a graph, made as those that the model learned from.

    Raises `ModelError` for a graph of another kind, and if the code that made those rows is gone. A shipped model
    takes the rows of today's code as long as its columns are among them.
    """
    if graph_kind(graph) != model.card.kind:
        raise ModelError(
            f"{graph.name} is a {graph_kind(graph)} graph",
            expected=f"a {model.card.kind} graph for {model.card.collection}",
        )
    if model.shipped:
        return columns_by_name(assemble(graph, FeatureSettings()), model.card.columns)
    settings = model.card.recipe.settings()
    model.require_rows(settings.columns(model.card.kind), settings.code_hash(model.card.kind))
    return assemble(graph, settings)


def _at_home(path: Path | None, fitting: list[Collection]) -> Collection | None:
    """The collection whose folder a file lies in."""
    parts = path.resolve().parts if path is not None else ()
    for collection in fitting:
        tail = collection.parts
        if any(parts[i : i + len(tail)] == tail for i in range(len(parts))):
            return collection
    return None


def _only(name: str, fitting: list[Collection]) -> Collection:
    if len(fitting) > 1:
        raise ModelError(
            f"{name} could be ranked by {len(fitting)} models",
            expected=", ".join(map(str, fitting)),
            do="pass --collection",
        )
    return fitting[0]
