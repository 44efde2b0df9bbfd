"""Judge trained models on a labelled split, or report their out-of-fold scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.collection import SPLITS, Collection, choose
from xlarank.data.errors import CollectionError, ModelError, XlarankError
from xlarank.data.family import program_family
from xlarank.data.ranges import thread_count
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest, each_graph, read_manifest
from xlarank.models.fit_settings import FitSettings
from xlarank.models.trained import CARD, ModelCard, TrainedModel, load_model
from xlarank.models.training_set import read_training_set
from xlarank.models.validation.curves import join_curves, validate_folds
from xlarank.models.validation.folds import graph_folds
from xlarank.models.validation.metrics import judge, summarise
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.workspace_collections import chosen_collections, trained_collections

FOLDS: Final = "folds"
#: What is held out together: the scores of families never seen that `train` kept, or scores of graphs whose
#: family was learned from.
HELD_OUT: Final = ("family", "graph")
#: Leave-graph-out up to this many graphs; more are dealt into as many folds.
_FOLDS: Final = 10


@dataclass
class Evaluation:
    """Scores by collection.

    Attributes:
        report: ``{collection: {metric: {mean, std, low, high, graphs: {name: value}}}}``, by
            `xlarank.models.validation.metrics.summarise`.
        left_out: collection (or ``collection graph``) -> why it has no score.
        notes: what a reader must know to trust a number.
        judged: what the scores are of, in words.
    """

    split: str
    judged: str
    report: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def evaluate(
    workspace: Workspace,
    *,
    split: str = "valid",
    collections: Sequence[str] = (),
    official_indices: Path | None = None,
    model_from: str | None = None,
    folds: str = "family",
    threads: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Score the models of the chosen collections on a split, every configuration of every graph.

    ``split`` "folds" reports out-of-fold scores. With ``folds`` "family" these are the ones that `train` kept,
    each graph by a model that never saw its family. With "graph" a graph is held out while others of its family
    stay: boosters with the model's parameters and rounds are fitted anew (nothing is written), on ``threads``
    threads, and the scores say how well variants of *known* programs are ranked, not new ones.
    ``official_indices`` is a folder of ``<source>_<search>.json`` files, ``{graph: [configuration]}``: layout
    graphs are judged on those configurations alone.
    ``model_from`` names the collection whose model scores all that are chosen, in place of their own.

    Raises `CollectionError` when nothing could be judged; `ModelError` where ``model_from`` has no model, and for
    a collection asked for by name that the model cannot score (another kind, other columns); `XlarankError` for
    an unknown split.
    """
    if split not in (*SPLITS, FOLDS):
        raise XlarankError(f"{split!r} is not a split", expected=", ".join((*SPLITS, FOLDS)))
    if model_from is not None and split == FOLDS:
        raise XlarankError(
            "folds are part of a model's own training, so --model-from has none for another collection",
            expected=f"one of {', '.join(SPLITS)}",
            do="pass another --split, or leave --model-from out",
        )
    if folds not in HELD_OUT:
        raise XlarankError(f"--folds is {folds!r}", expected=" or ".join(HELD_OUT))
    if folds != "family" and split != FOLDS:
        raise XlarankError(
            f"--folds {folds} with --split {split}", expected="--split folds", do="leave --folds out, or pass that"
        )
    threads = thread_count(threads)
    borrowed = _borrowed(workspace, model_from) if model_from is not None else None
    progress = progress or Silent()
    found = Evaluation(split, _judged(split, folds))
    chosen = chosen_collections(workspace, collections)
    progress.begin(f"evaluating on {split}", len(chosen))
    for collection in chosen:
        try:
            if split == FOLDS:
                scores = _out_of_fold(workspace, collection, folds, threads, found)
            else:
                scores = _evaluate_one(workspace, collection, split, official_indices, borrowed, found)
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


def _judged(split: str, folds: str) -> str:
    if split != FOLDS:
        return split
    return "out of fold, families never seen" if folds == "family" else "out of fold, families seen (same-family)"


def _out_of_fold(
    workspace: Workspace, collection: Collection, folds: str, threads: int, found: Evaluation
) -> dict[str, dict[str, float]]:
    card = _own(workspace, collection).card
    if folds == "graph":
        return _same_family(workspace, collection, card, threads, found)
    if not card.folds:
        raise CollectionError(f"{collection} was trained without folds (one program family)")
    return card.folds


def _same_family(
    workspace: Workspace, collection: Collection, card: ModelCard, threads: int, found: Evaluation
) -> dict[str, dict[str, float]]:
    """Scores of graphs by boosters that learned from others of their family, at the rounds of the model."""
    training = read_training_set(workspace, collection, list(card.trained_on))
    model = load_model(workspace.model(collection))
    model.require_rows_of(training.manifest)
    if training.splits != card.trained_on:
        raise ModelError(
            f"the rows of {collection} are of other graphs than its model was trained on", do="train again"
        )
    held = graph_folds(training.data.families, _FOLDS)
    if not held:
        raise CollectionError(
            f"no two of the {training.data.groups} graphs of {collection} are of one family",
            expected="a graph to hold out whose family stays",
            do="leave --folds out",
        )
    parts = validate_folds(training, held, model.rankers[0], FitSettings(card.rounds, threads=threads))
    scores = join_curves(list(parts)).at(-1)
    for name in training.data.names:
        if name not in scores:
            found.left_out[f"{collection} {name}"] = "no other graph is of its family"
    note = (
        f"{collection}: other graphs of each one's family were learned from, so this is no score for new programs"
    )
    if card.folds:
        apart = np.mean([card.folds[name]["score"] for name in scores])
        note += f" (these {len(scores)} graphs without their family: score {apart:.3f})"
    found.notes.append(note)
    return {name: scores[name] for name in training.data.names if name in scores}


def _borrowed(workspace: Workspace, name: str) -> TrainedModel:
    """The model of another collection."""
    trained = trained_collections(workspace)
    if not trained:
        raise ModelError(f"there is no trained model in {workspace.root}", do="run train first")
    (source,) = choose([name], trained, where=f"the models of {workspace.root}")
    return load_model(workspace.model(source))


def _own(workspace: Workspace, collection: Collection) -> TrainedModel:
    if not (workspace.model(collection) / CARD).exists():
        raise ModelError(f"{collection} has no trained model", do="run train first")
    return load_model(workspace.model(collection))


def _require_fit(model: TrainedModel, collection: Collection, manifest: Manifest) -> None:
    """Raise `ModelError` unless another collection's model can score these rows."""
    source = model.card.collection
    if model.card.kind != collection.kind:
        raise ModelError(
            f"the model of {source} ranks {model.card.kind} graphs, those of {collection} are "
            f"{collection.kind} graphs",
            expected=f"the model of a {collection.kind} collection",
            do="pass another --model-from",
        )
    try:
        model.require_rows_of(manifest)
    except ModelError as error:
        raise ModelError(
            f"the model of {source} cannot score {collection}: {error.got}", expected=error.expected, do=error.do
        ) from error


def _evaluate_one(
    workspace: Workspace,
    collection: Collection,
    split: str,
    indices: Path | None,
    borrowed: TrainedModel | None,
    found: Evaluation,
) -> dict[str, dict[str, float]]:
    model = borrowed or _own(workspace, collection)
    manifest = read_manifest(workspace, collection, split)
    if manifest is None:
        raise CollectionError(f"{collection} has no {split} split in {workspace.root}")
    foreign = model.card.collection != str(collection)
    if foreign:
        _require_fit(model, collection, manifest)
    else:
        model.require_rows_of(manifest)
    learned = {name for names in model.card.trained_on.values() for name in names}
    official = _official(indices, collection) if indices and collection.kind == "layout" else None
    scores: dict[str, dict[str, float]] = {}
    for graph in each_graph(workspace, collection, split):
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
    if foreign:
        families = {program_family(name) for name in learned}
        related = sum(program_family(name) in families for name in scores)
        found.notes.append(
            f"{collection}: scored by the model of {model.card.collection}, which learned from {len(seen)} of "
            f"these {len(scores)} programs (by name) and from the families of {related}"
        )
    elif seen and split != "train":
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
        if not np.isfinite(cost).any():
            raise CollectionError(f"none of the official configurations of {graph.name} was measured")
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
