"""Training on graphs in memory or in npz files, without a workspace."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from xlarank.data.collection import GPUS, collection_of
from xlarank.data.errors import ArgumentError, ModelError
from xlarank.data.graph import Graph, GraphLike, as_graph, brief
from xlarank.features.assembly import assemble
from xlarank.features.layout.hardware import HARDWARE, hardware_of, substitution_note
from xlarank.features.rows import Recipe
from xlarank.features.settings import FeatureSettings
from xlarank.models.card import ModelCard
from xlarank.models.model import Model
from xlarank.models.training_data import GPU, TARGETS, TPU, FitSettings, TrainingData, target_of

#: Names of targets; GPUs are named one by one.
TARGET_NAMES: Final = (
    *(name for name in TARGETS if name != GPU.name),
    *(name for name in HARDWARE if name.startswith(GPUS)),
)
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

    ``target`` is one of `TARGET_NAMES`, by default that of the files' folders. Raises `ModelError`
    for graphs of two kinds, for none to fit on, and for files of several targets without
    ``target``.
    """
    loaded = [as_graph(graph) for graph in graphs]
    kind, *other_kinds = {graph.kind for graph in loaded}
    if other_kinds:
        raise ModelError("the graphs are layout and tile graphs", expected="graphs of one kind")
    target = target or _target_of_folders(graphs)
    hardware = TARGETS.get(target, GPU)
    features = replace(features, hardware=hardware_of(target))
    rows = [assemble(graph, features) for graph in loaded]
    data = TrainingData.from_graphs(rows, hardware)
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
        target=hardware.name,
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


def _target_of_folders(graphs: Iterable[GraphLike]) -> str:
    """Return the target that the folders of the files name; "tpu" for graphs and other files."""
    names = set()
    for graph in graphs:
        if isinstance(graph, Graph) or (collection := collection_of(Path(graph))) is None:
            names.add(TPU.name)
            continue
        target = target_of(collection)
        names.add(collection.parts[1] if target is GPU else target.name)
        if note := substitution_note(collection.parts[1]):
            warnings.warn(note, stacklevel=4)
    if len(names) > 1:
        got = f"the graphs are of {', '.join(sorted(names))} by their folders"
        raise ModelError(got, expected="graphs of one target", do="pass target=")
    return names.pop()
