"""Choice of the model that ranks a graph or a collection, and the rows of a graph for a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from glob import has_magic
from pathlib import Path
from typing import Final

from xlarank.data.collection import Collection, choose, collection_of
from xlarank.data.errors import CollectionError, ModelError, WorkspaceError
from xlarank.data.graph import Graph, Kind, TileGraph
from xlarank.data.workspace import DEFAULT_ROOT, Workspace
from xlarank.features.assembly import assemble
from xlarank.features.rows import GraphRows
from xlarank.models.card import CARD
from xlarank.models.model import Model
from xlarank.models.stored import model_of, shipped_model, trained_collections
from xlarank.models.training_data import TPU, target_of
from xlarank.pipelines.ranking.winner import best_of

#: Names of the shipped ranker, and of the model trained on a collection whatever its score, in
#: place of a collection.
SHIPPED: Final = "shipped"
TRAINED: Final = "trained"


def model_for_graph(
    workspace: Workspace,
    graph: Graph,
    path: Path | None = None,
    *,
    collection: str | None = None,
    model_from: str | None = None,
) -> Model:
    """Return the best ranker of ``collection``, which is the shipped one if no model of its target
    is trained. Without ``collection``, return the best ranker of the first of these:

    1. the collection in whose folder the graph's file at ``path`` lies, if it has a model;
    2. the only model of the kind in the workspace (and the target, if the file's folders name a
       collection);
    3. if there is none, the shipped ranker of the kind, except for tiles of CPUs.

    The best ranker of a collection is that of `xlarank.pipelines.ranking.winner.best_of`, unless
    ``model_from`` is "trained" or "shipped"; the shipped ranker is that for the hardware of
    ``collection``, else of the file's folder. `Model.choice` says why it is not the trained model.

    Raises `WorkspaceError` if the workspace does not exist, unless it is the default one, and
    `ModelError` for another ``model_from``, if there is no model or if several are left to choose
    from.
    """
    if model_from not in (None, SHIPPED, TRAINED):
        got = f"`model_from` is {model_from!r}"
        do = "name the collection of another model with `collection`"
        raise ModelError(got, expected=f"{SHIPPED} or {TRAINED}", do=do)
    kind = graph.kind
    parts = () if path is None else path.resolve().parts
    named = None if path is None else collection_of(path)
    if named is not None and named.kind != kind:
        named = None
    if model_from == SHIPPED:
        return shipped_model(kind, named if collection is None else _of_kind(kind, collection))
    if not workspace.root.is_dir() and workspace.root != DEFAULT_ROOT:
        got = f"the workspace {workspace.root} does not exist"
        raise WorkspaceError(got, do="check the path, or run train first")
    if collection is not None:
        if _lacks_models(workspace, kind, collection):
            return shipped_model(kind, Collection.parse(collection))
        return _best(workspace, model_named(workspace, collection), model_from)
    folders = {parts[i:j] for i in range(len(parts)) for j in range(i, len(parts))}
    for candidate in trained_collections(workspace):
        if candidate.kind == kind and candidate.parts in folders:
            return _best(workspace, candidate, model_from)
    trained = _same_target(workspace, kind, named)
    # kernels of TPUs leave the bounds of their inputs at 0
    is_cpu_tile = isinstance(graph, TileGraph) and graph.bounds("input").any()
    if not trained and not is_cpu_tile and (named is None or _has_shipped(named)):
        return shipped_model(kind, named)
    return _only_model(workspace, trained, path.name if path else graph.name, model_from)


def _of_kind(kind: Kind, name: str) -> Collection:
    """Return the collection with this name; raises `CollectionError` if it is of another kind."""
    collection = Collection.parse(name)
    if collection.kind != kind:
        got = f"{name} is a collection of {collection.kind} graphs"
        raise CollectionError(got, expected=f"one of {kind} graphs")
    return collection


def _lacks_models(workspace: Workspace, kind: Kind, name: str) -> bool:
    """Return whether the shipped ranker is for the hardware of a collection and no trained model
    is; False for a pattern.
    """
    try:
        collection = Collection.parse(name)
    except CollectionError:
        return False
    if has_magic(name) or collection.kind != kind or not _has_shipped(collection):
        return False
    return not _same_target(workspace, kind, collection)


def model_for_collection(
    workspace: Workspace, collection: Collection, *, model_from: str | None = None
) -> Model:
    """Return the shipped ranker if ``model_from`` is "shipped" (tiles of CPUs have none), else the
    best ranker of the first of these:

    1. the collection's own model;
    2. that of the collection ``model_from``, if of the same kind;
    3. the only one of the kind and target in the workspace;
    4. the shipped ranker of the kind, except for tiles of CPUs.

    The best ranker of a collection is that of `xlarank.pipelines.ranking.winner.best_of`, unless
    ``model_from`` is "trained". Raises `ModelError` if there is none or if, for tiles of CPUs,
    several are left to choose from.
    """
    if model_from == SHIPPED and _has_shipped(collection):
        return shipped_model(collection.kind, collection)
    preferred = [collection]
    if model_from not in (None, SHIPPED, TRAINED):
        preferred.append(model_named(workspace, model_from))
    for candidate in preferred:
        if candidate.kind == collection.kind and candidate in trained_collections(workspace):
            return _best(workspace, candidate, model_from)
    trained = _same_target(workspace, collection.kind, collection)
    if _has_shipped(collection) and len(trained) != 1:
        return shipped_model(collection.kind, collection)
    return _only_model(workspace, trained, str(collection), model_from)


def _best(workspace: Workspace, collection: Collection, model_from: str | None) -> Model:
    """Return the best ranker for a collection, or the trained model if that was asked for."""
    model = model_of(workspace, collection)
    if model_from == TRAINED:
        return model
    chosen, why = best_of(model)
    return replace(chosen, choice=why)


def _same_target(
    workspace: Workspace, kind: Kind, collection: Collection | None
) -> list[Collection]:
    """Return the trained collections of a kind and of the target of ``collection``, if given."""
    trained = [candidate for candidate in trained_collections(workspace) if candidate.kind == kind]
    if collection is None:
        return trained
    return [candidate for candidate in trained if target_of(candidate) is target_of(collection)]


def _has_shipped(collection: Collection) -> bool:
    return collection.kind == "layout" or target_of(collection) is TPU


def _only_model(
    workspace: Workspace, trained: Sequence[Collection], name: str, model_from: str | None
) -> Model:
    """Return the only trained model, to rank ``name``; raise `ModelError` for none or several."""
    if not trained:
        got = (
            f"there is no trained tile model in {workspace.root} for CPUs, and the shipped "
            "one is for TPUs"
        )
        raise ModelError(got, do="run train first")
    if len(trained) > 1:
        got = f"{name} could be ranked by {len(trained)} models"
        do = "pass `collection` to rank or explain"
        raise ModelError(
            got, expected=", ".join(map(str, trained)), do=f"{do}, `model_from` to submit"
        )
    return _best(workspace, trained[0], model_from)


def models_named(workspace: Workspace, names: Sequence[str]) -> list[Collection]:
    """Return the trained collections with these names, or all; raises `ModelError` or
    `CollectionError`.
    """
    trained = trained_collections(workspace)
    if not trained:
        raise ModelError(f"there is no trained model in {workspace.root}", do="run train first")
    return choose(names, trained, where=f"the models of {workspace.root}")


def model_named(workspace: Workspace, name: str) -> Collection:
    """Return the only trained collection with this name; raises `ModelError` or
    `CollectionError`.
    """
    chosen = models_named(workspace, [name])
    if len(chosen) > 1:
        raise ModelError(
            f"{name} matches {len(chosen)} models", expected="one of " + ", ".join(map(str, chosen))
        )
    return chosen[0]


def find_model(
    name: str, workspace: Workspace, kind: Kind, for_collection: Collection | None = None
) -> tuple[Model, str]:
    """Load a model and return it with its source; raises `ModelError` if there is none.

    ``name`` is "shipped" for the shipped ranker of the kind and of ``for_collection``, a collection
    with a model, or the folder of a model.
    """
    if name == SHIPPED:
        return shipped_model(kind, for_collection), SHIPPED
    collections = {str(collection): collection for collection in trained_collections(workspace)}
    if name in collections:
        collection = collections[name]
        return model_of(workspace, collection), str(workspace.model(collection))
    if (Path(name) / CARD).exists():
        return Model.load(Path(name)), name
    expected = ", ".join([SHIPPED, f"a folder with {CARD}", *collections])
    raise ModelError(f"there is no model {name!r}", expected=expected, do="name one of these")


def rows_for_model(graph: Graph, model: Model) -> GraphRows:
    """Compute a graph's rows for a model; raises `ModelError` if the kind or the version of the
    code differs.
    """
    card = model.require_card()
    if graph.kind != card.kind:
        got = f"{graph.name} is a {graph.kind} graph"
        raise ModelError(got, expected=f"a {card.kind} graph for {card.collection}")
    model.require()
    return model.select(assemble(graph, card.recipe.settings, model.columns))
