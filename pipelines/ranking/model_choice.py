"""Choice of the ranker of a graph or a collection by three rules.

1. Hardware comes first: ``target`` or ``collection``, else the collection whose folder holds the
   file, else the name in the file. Nothing about hardware is taken from the workspace.
2. Files of the TpuGraphs dataset and layouts set in a program are two worlds with formulas of their
   own (`xlarank.models.stored.formula`).
3. Of the trained model of the collection, the ranker that ships and the formula, the highest mean
   out of fold ranks. Without folds nothing speaks for trees, so the formula ranks.

``model_from`` overrides the third rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import numpy as np

from xlarank.data.collection import Collection, collection_of
from xlarank.data.errors import CollectionError, ModelError, ParameterError, counted
from xlarank.data.graph import Graph, GraphLike, Kind, as_graph
from xlarank.data.hardware import TPUGRAPHS, WORDS, require_hardware
from xlarank.data.workspace import Workspace
from xlarank.features.assembly import assemble
from xlarank.features.layout.hardware import substitution_note
from xlarank.features.rows import GraphRows
from xlarank.models.card import CARD
from xlarank.models.model import Model
from xlarank.models.stored import (
    SHIPPED_TREES,
    formula,
    model_of,
    shipped_model,
    shipped_trees,
    trained_collections,
)
from xlarank.models.validation.metrics import objective_value


class Fitted(Protocol):
    """Fitted ranker, such as a `GraphRanker`."""

    @property
    def fitted_model(self) -> Model: ...


#: Ranker: "trained", "shipped", a collection with a model, the folder of one, or a fitted ranker.
ModelFrom: TypeAlias = str | Path | Fitted
#: Values of ``model_from`` besides a collection and a folder: the ranker that needs no training,
#: and the model trained on the collection, even if the other scores higher.
SHIPPED: Final = "shipped"
TRAINED: Final = "trained"


@dataclass(frozen=True, eq=False)
class Choice:
    """The chosen ranker.

    Attributes:
        model: the ranker.
        reason: its name and why it ranks; follows the words "is ranked by".
        trained: the trained model of the collection, which need not rank; None without one.
    """

    model: Model
    reason: str
    trained: Model | None = None


def choose_for_graph(
    workspace: Workspace,
    source: GraphLike,
    *,
    target: str | None = None,
    collection: str | None = None,
    model_from: ModelFrom | None = None,
) -> tuple[Graph, Choice, str]:
    """Return a graph, read if ``source`` is a file, what ranks it, and its hardware.

    A trained model ranks only if it is of ``collection`` or, without one, of the collection whose
    folder holds the file; or if ``model_from`` names it.

    Raises `GraphFileError` for the file, `ParameterError` if neither an argument nor the file names
    the hardware, `CollectionError` for a bad collection, and `ModelError` if there is nothing to
    rank with.
    """
    graph = as_graph(source)
    if target is not None and collection is not None:
        do = "leave one of them out: the collection names its hardware"
        raise ParameterError("both `target` and `collection` are given", do=do)
    named: Collection | None = None
    if collection is not None:
        named = Collection.parse(collection)
        if named.kind != graph.kind:
            got = f"{named} is a collection of {named.kind} graphs"
            raise CollectionError(got, expected=f"one of {graph.kind} graphs")
    elif target is None and isinstance(source, str | Path):
        named = collection_of(Path(source))
        if named is not None and named.kind != graph.kind:
            named = None
    if target is not None:
        hardware = require_hardware(target)
    else:
        hardware = (named.hardware if named is not None else "") or graph.target
    if not hardware and named is None and model_from in (None, SHIPPED):
        do = "name it by `target`"
        raise ParameterError(f"{graph.name} does not say its hardware", expected=WORDS, do=do)
    return graph, _choose(workspace, graph.kind, named, hardware, model_from), hardware


def choose_for_collection(
    workspace: Workspace, collection: Collection, *, model_from: ModelFrom | None = None
) -> Choice:
    """Return what ranks a collection; raise `ModelError` if there is nothing to rank with."""
    return _choose(workspace, collection.kind, collection, collection.hardware, model_from)


def _choose(
    workspace: Workspace,
    kind: Kind,
    collection: Collection | None,
    hardware: str,
    model_from: ModelFrom | None,
) -> Choice:
    trained = None
    if collection is not None and collection in trained_collections(workspace):
        trained = model_of(workspace, collection)
    if model_from is None and trained is not None:
        return best_of(trained)
    if model_from in (None, SHIPPED):
        model = shipped_model(kind, hardware)
        reason = _shipped_reason(model, hardware)
        if collection is not None and trained is None and trained_collections(workspace):
            reason += "; no trained model"
    elif model_from == TRAINED:
        if trained is None:
            got = f"{collection or 'the file'} has no trained model in {workspace.root}"
            raise ModelError(got, do="run train first, or name the collection of a model")
        model = trained
        reason = f"{model.name}, its trained model"
    elif isinstance(model_from, str | Path):
        model = _named_model(workspace, str(model_from))
        reason = f"{model.name} of {model_from}"
    else:
        model = model_from.fitted_model
        reason = f"{model.name}, fitted on {model.require_card().collection}"
    if model.kind != kind:
        got = f"{model.title} ranks {model.kind} graphs"
        raise ModelError(got, expected=f"a model of {kind} graphs", do="pass another `model_from`")
    return Choice(model, reason, trained)


def best_of(trained: Model) -> Choice:
    """Return what ranks the collection of a trained model: the highest mean out of fold."""
    card = trained.require_card()
    kind = trained.kind
    estimate = formula(kind, card.target)
    if not card.folds:
        if estimate is None or not trained.members:
            return Choice(trained, f"{trained.name}, its trained model", trained)
        why = f"no families were held out to score {trained.name}"
        return Choice(estimate, f"{estimate.name}: {why}", trained)
    own = {graph: metrics["score"] for graph, metrics in card.folds.items()}
    values = {}
    for name, scores in {trained.name: own, **card.others}.items():
        if scores.keys() == own.keys():
            values[name] = float(objective_value(np.array([*scores.values()]), card.select))
    models = {trained.name: trained}
    if estimate is not None and estimate.name in values:
        models[estimate.name] = estimate
    if SHIPPED_TREES in values and {*shipped_trees().columns} <= {*trained.columns}:
        models[SHIPPED_TREES] = shipped_trees()
    best, *rest = sorted(models, key=lambda name: -values[name])
    graphs = counted(len(own), "graph")
    compared = "".join(f"; {name} {values[name]:.3f}" for name in rest)
    reason = f"{best}, {values[best]:.3f} out of fold on {graphs}{compared}"
    return Choice(models[best], reason, trained)


def _shipped_reason(model: Model, hardware: str) -> str:
    """Describe a ranker that needs no training."""
    if model.members:
        return f"{model.name}, taught by the TPU's compiler"
    if hardware == TPUGRAPHS and model.kind == "layout":
        return f"{model.name} of the matrix unit (TpuGraphs)"
    what = "of copies" if model.kind == "layout" else "of the loops"
    note = substitution_note(hardware)
    return f"{model.name} {what} on {hardware}" + (f"; {note}" if note else "")


def _named_model(workspace: Workspace, name: str) -> Model:
    """Load the model of a collection or in a folder; raises `ModelError` if there is none."""
    collections = {str(collection): collection for collection in trained_collections(workspace)}
    if name in collections:
        return model_of(workspace, collections[name])
    if (Path(name) / CARD).exists():
        return Model.load(Path(name))
    expected = ", ".join([TRAINED, SHIPPED, *collections, f"a folder with {CARD}"])
    raise ModelError(f"there is no model {name!r}", expected=expected, do="name one of these")


def rows_for_model(graph: Graph, model: Model, hardware: str = "") -> GraphRows:
    """Compute a graph's rows for a model; raises `ModelError` if they differ from its own.

    Copies are priced for ``hardware``, by default the model's.
    """
    card = model.require_card()
    if graph.kind != card.kind:
        got = f"{graph.name} is a {graph.kind} graph"
        raise ModelError(got, expected=f"a {card.kind} graph for {card.collection}")
    model.require()
    return model.select(assemble(graph, hardware or card.recipe.hardware, model.columns))
