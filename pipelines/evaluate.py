"""Judge trained models on a labelled split, or report their out-of-fold scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from data.collection import SPLITS, Collection
from data.errors import CollectionError, ModelError, XlarankError
from data.workspace import Workspace
from features.store import GraphRows, load_split, read_manifest
from models.bundle import CARD, TrainedModel, load_model
from models.metrics import judge, summarise
from pipelines.progress import Progress, Silent
from pipelines.training_sets import chosen_collections

FOLDS: Final = "folds"


@dataclass
class Evaluation:
    """Scores by collection.

    Attributes:
        report: ``{collection: {metric: {mean, std, graphs: {name: value}}}}``.
        left_out: collection (or ``collection graph``) -> why it has no score.
        notes: what a reader must know to trust a number.
    """

    split: str
    report: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def evaluate(
    workspace: Workspace,
    *,
    split: str = "valid",
    collections: Sequence[str] = (),
    official_indices: Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score the models of the chosen collections on a split, every configuration of every graph.

    ``split`` "folds" reports the out-of-fold scores that `train` kept: families never seen.
    ``official_indices`` is a folder of ``<source>_<search>.json`` files, ``{graph: [configuration]}``: layout
    graphs are judged on those configurations alone.

    Raises `CollectionError` when nothing could be judged; `XlarankError` for an unknown split.
    """
    if split not in (*SPLITS, FOLDS):
        raise XlarankError(f"{split!r} is not a split", expected=", ".join((*SPLITS, FOLDS)))
    progress = progress or Silent()
    found = Evaluation(split)
    chosen = chosen_collections(workspace, collections)
    progress.begin(f"evaluating on {split}", len(chosen))
    for collection in chosen:
        try:
            scores = _evaluate_one(workspace, collection, split, official_indices, found)
            if scores:
                found.report[str(collection)] = summarise(scores)
        except (CollectionError, ModelError) as error:
            if collections:
                progress.end()
                raise
            found.left_out[str(collection)] = str(error)
        progress.step(str(collection))
    progress.end()
    if not found.report:
        raise CollectionError(
            f"nothing could be evaluated on {split}: "
            + "; ".join(f"{name}: {why}" for name, why in found.left_out.items())
        )
    return found


def _evaluate_one(
    workspace: Workspace, collection: Collection, split: str, indices: Path | None, found: Evaluation
) -> dict[str, dict[str, float]]:
    if not (workspace.model(collection) / CARD).exists():
        raise ModelError(f"{collection} has no trained model", do="run train first")
    model = load_model(workspace.model(collection))
    if split == FOLDS:
        if not model.card.folds:
            raise CollectionError(f"{collection} was trained without folds (one program family)")
        return model.card.folds
    manifest = read_manifest(workspace, collection, split)
    if manifest is None:
        raise CollectionError(f"{collection} has no {split} split in {workspace.root}")
    model.require_rows_of(manifest)
    learned = {name for names in model.card.trained_on.values() for name in names}
    official = _official(indices, collection) if indices and collection.kind == "layout" else None
    scores: dict[str, dict[str, float]] = {}
    for graph in load_split(workspace, collection, split):
        where = f"{collection} {graph.name}"
        if not graph.labelled:
            found.left_out[where] = "its labels are withheld"
        elif not graph.rankable:
            found.left_out[where] = "all its configurations cost the same"
        elif official is not None and graph.name not in official:
            found.left_out[where] = "it has no official indices"
        else:
            scores[graph.name] = _judge(model, graph, official[graph.name] if official else None)
    seen = sorted(learned & set(scores))
    if seen and split != "train":
        found.notes.append(
            f"{collection}: the model was trained on {len(seen)} of the {len(scores)} graphs scored here"
        )
    if not scores:
        raise CollectionError(f"{collection} has no labelled, rankable graph in {split}")
    return scores


def _judge(model: TrainedModel, graph: GraphRows, configurations: list[int] | None) -> dict[str, float]:
    scores = model.predict(graph.matrix(), graph.columns, graph.instances)[graph.group]
    cost, group = graph.cost, graph.group
    if configurations is not None:
        if not configurations:
            raise CollectionError(f"the official indices list no configuration of {graph.name}")
        if not set(configurations) <= set(graph.ids.tolist()):
            raise CollectionError(
                f"the official indices of {graph.name} reach beyond its {len(graph.ids)} configurations",
                expected="the file that the indices were drawn from",
                do="leave --official-indices out",
            )
        picked = np.searchsorted(graph.ids, configurations)
        scores, cost, group = scores[picked], cost[picked], group[picked]
    return judge(model.card.kind, scores, cost, group)


def _official(folder: Path, collection: Collection) -> dict[str, list[int]]:
    path = folder / f"{'_'.join(collection.parts[1:])}.json"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): [int(i) for i in indices] for name, indices in value.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CollectionError(
            f"the official indices {path} cannot be read ({error})", expected='JSON {"graph": [indices]}'
        ) from error
