"""Training on graphs in memory or in npz files, without a workspace."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from xlarank.data.errors import ArgumentError, ModelError, ParameterError
from xlarank.data.graph import Graph, GraphLike, as_graph, brief
from xlarank.data.hardware import WORDS, require_hardware
from xlarank.features.assembly import assemble
from xlarank.features.layout.hardware import copy_hardware, substitution_note
from xlarank.features.rows import Recipe
from xlarank.features.settings import FeatureSettings
from xlarank.models.card import ModelCard
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings, TrainingData, target_of

_GRAPHS: Final = "a list of graphs: LayoutGraph, TileGraph, or paths of npz files"


def fit_graphs(
    graphs: Sequence[GraphLike],
    ranker: str,
    params: Mapping[str, Any],
    features: FeatureSettings,
    settings: FitSettings,
    target: str | None = None,
) -> tuple[Model, dict[str, str]]:
    """Fit a ranker on measured graphs of one kind; return it with its card, and the reasons for
    graphs left out, by name.

    ``target`` is the hardware (`xlarank.data.hardware`), by default the graphs'. Raises
    `ModelError` for graphs of two kinds or for none to fit on, and `ParameterError` for graphs for
    no or several kinds of hardware without ``target``.
    """
    loaded = [as_graph(graph) for graph in graphs]
    kind, *other_kinds = {graph.kind for graph in loaded}
    if other_kinds:
        raise ModelError("the graphs are layout and tile graphs", expected="graphs of one kind")
    target = _hardware_of(loaded) if target is None else require_hardware(target)
    features = replace(features, hardware=copy_hardware(target) if kind == "layout" else None)
    rows = [assemble(graph, features) for graph in loaded]
    data = TrainingData.from_graphs(rows, target_of(target))
    model = Model.of(ranker, kind, params).fit(data, settings)
    card = ModelCard(
        collection=f"tile:{target}" if kind == "tile" else f"layout:{target}:own",
        model=ranker,
        params=dict(model.params),
        rounds=settings.rounds,
        tuned=False,
        recipe=Recipe.of(features, kind),
        columns=model.columns,
        trained_on={"train": data.names},
        folds={},
        target=target,
    )
    left_out = {}
    for graph in rows:
        if not graph.labelled:
            left_out[graph.name] = "it has no runtimes"
        elif not graph.rankable:
            left_out[graph.name] = "all its configurations cost the same"
    return replace(model, card=card), left_out


def graph_list(graphs: Iterable[GraphLike]) -> list[GraphLike]:
    """Return the graphs as a list; raises `ArgumentError` for anything but several graphs, and
    `ModelError` for none.
    """
    if isinstance(graphs, GraphLike):
        raise ArgumentError(f"{brief(graphs)} is one graph", expected=_GRAPHS, do="pass a list")
    if not isinstance(graphs, Iterable):
        raise ArgumentError(f"the graphs are {brief(graphs)}", expected=_GRAPHS)
    if not (listed := list(graphs)):
        raise ModelError("there are no graphs", expected=_GRAPHS)
    return listed


def _hardware_of(graphs: Iterable[Graph]) -> str:
    """Return the hardware that the graphs are for; raise `ParameterError` for none or several."""
    names = {graph.target for graph in graphs}
    if "" in names:
        unnamed = next(graph.name for graph in graphs if not graph.target)
        got = f"{unnamed} does not say its hardware"
        raise ParameterError(got, expected=WORDS, do="pass target=")
    if len(names) > 1:
        got = f"the graphs are for {', '.join(sorted(names))}"
        raise ParameterError(got, expected="graphs for one target", do="pass target=")
    (name,) = names
    if note := substitution_note(name):
        warnings.warn(note, stacklevel=4)
    return name
