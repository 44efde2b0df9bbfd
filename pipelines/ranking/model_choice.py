"""The model that ranks a graph or a collection, and the rows that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from xlarank.data.collection import Collection, choose
from xlarank.data.errors import ModelError, WorkspaceError
from xlarank.data.graph import Graph, Kind, TileGraph, graph_kind
from xlarank.data.schema import MAX_RANK, TILE_COLUMNS
from xlarank.data.workspace import DEFAULT_ROOT, Workspace
from xlarank.features.assemble import assemble
from xlarank.features.rows import GraphRows
from xlarank.features.targets import TPU, target_of
from xlarank.models.trained import TrainedModel, model_of, pretrained_model
from xlarank.pipelines.support.workspace_collections import trained_collections

#: The shipped ranker, where the collection of a model is named.
SHIPPED: Final = "shipped"
_FIRST: Final = TILE_COLUMNS.index("input_bounds_0")
_INPUT_BOUNDS: Final = slice(_FIRST, _FIRST + MAX_RANK)


def model_for_graph(
    workspace: Workspace, graph: Graph, path: Path | None = None, *, collection: str | None = None
) -> TrainedModel:
    """Return the model of ``collection``, or choose one by the rule of `model_for_collection`.

    A graph's own collection is the one in whose folder its file at ``path`` lies. Raises `WorkspaceError` for a
    workspace that does not exist, unless it is the default one, and `ModelError` for a model that is missing or not
    clear.
    """
    if not workspace.root.is_dir() and workspace.root != DEFAULT_ROOT:
        raise WorkspaceError(
            f"the workspace {workspace.root} does not exist", do="check the path, or run train first"
        )
    if collection is not None:
        return model_of(workspace, model_named(workspace, collection))
    parts = () if path is None else path.resolve().parts
    below = {parts[i:j] for i in range(len(parts)) for j in range(i, len(parts))}
    own = next((each for each in trained_collections(workspace) if each.parts in below), None)
    # where nothing says otherwise a tile is a TPU's: a vector tile, which has input bounds, is a CPU's
    shipped = not isinstance(graph, TileGraph) or not graph.config_feat[:, _INPUT_BOUNDS].any()
    return _choose(workspace, graph_kind(graph), path.name if path else graph.name, own, shipped=shipped)


def model_for_collection(
    workspace: Workspace, collection: Collection, *, model_from: str | None = None
) -> TrainedModel:
    """Return the first of these that there is:

    1. the collection's own model;
    2. that of the collection ``model_from``, if it is of the same kind; the shipped ranker for "shipped";
    3. the only model of the kind in the workspace;
    4. the shipped ranker of the kind, but for tiles of CPUs.

    Raises `ModelError` where there is none, or several are left to choose from for tiles of CPUs.
    """
    other = None if model_from in (None, SHIPPED) else model_named(workspace, model_from)
    shipped = collection.kind == "layout" or target_of(collection) is TPU
    fitting = _models_of(workspace, collection.kind)
    if shipped and not {collection, other} & {*fitting} and (len(fitting) > 1 or model_from == SHIPPED):
        return pretrained_model(collection.kind)
    return _choose(workspace, collection.kind, str(collection), collection, other, shipped=shipped)


def _choose(
    workspace: Workspace,
    kind: Kind,
    name: str,
    own: Collection | None,
    other: Collection | None = None,
    *,
    shipped: bool,
) -> TrainedModel:
    fitting = _models_of(workspace, kind)
    for preferred in (own, other):
        if preferred in fitting:
            return model_of(workspace, preferred)
    if len(fitting) > 1:
        raise ModelError(
            f"{name} could be ranked by {len(fitting)} models",
            expected=", ".join(map(str, fitting)),
            do="pass --collection to rank or explain, --model-from to submit",
        )
    if not fitting and not shipped:
        raise ModelError(
            f"there is no trained tile model in {workspace.root}, and the shipped one is for TPUs",
            do="run train first",
        )
    return model_of(workspace, fitting[0]) if fitting else pretrained_model(kind)


def _models_of(workspace: Workspace, kind: Kind) -> list[Collection]:
    return [each for each in trained_collections(workspace) if each.kind == kind]


def models_named(workspace: Workspace, names: Sequence[str]) -> list[Collection]:
    """Return all or these collections with models; raises `ModelError` and `CollectionError`."""
    trained = trained_collections(workspace)
    if not trained:
        raise ModelError(f"there is no trained model in {workspace.root}", do="run train first")
    return choose(names, trained, where=f"the models of {workspace.root}")


def model_named(workspace: Workspace, name: str) -> Collection:
    """Return the collection of a model; raises `ModelError` and `CollectionError`, also for several."""
    chosen = models_named(workspace, [name])
    if len(chosen) > 1:
        raise ModelError(f"{name} matches {len(chosen)} models", expected="one of " + ", ".join(map(str, chosen)))
    return chosen[0]


def rows_for_model(graph: Graph, model: TrainedModel) -> GraphRows:
    """Compute the rows of a graph with the model's columns.

    Raises `ModelError` for a graph of another kind, and if today's code makes other rows than the model's.
    """
    if graph_kind(graph) != model.card.kind:
        raise ModelError(
            f"{graph.name} is a {graph_kind(graph)} graph",
            expected=f"a {model.card.kind} graph for {model.card.collection}",
        )
    model.require()
    return model.select(assemble(graph, model.card.recipe.settings, model.card.columns))
