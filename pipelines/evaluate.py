"""Score trained models on a labelled split."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from xlarank.data.collection import SPLITS, Collection
from xlarank.data.errors import CollectionError, ModelError, XlarankError, reasons
from xlarank.data.files import read_text
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest, read_manifest
from xlarank.models.trained import TrainedModel, model_of
from xlarank.models.validation.evaluation import GraphEvaluation, evaluate_graph
from xlarank.models.validation.metrics import summarise, summarise_speedups
from xlarank.pipelines.ranking.model_choice import model_named
from xlarank.pipelines.support.evaluation import (
    Evaluation,
    baselines_of,
    ceilings_of,
    column,
    graphs_to_score,
    of_unseen_families,
    verdict,
)
from xlarank.pipelines.support.progress import Progress, Silent, steps_of
from xlarank.pipelines.support.results import results_table, write_results
from xlarank.pipelines.support.score_files import (
    ScoreFiles,
    prediction_table,
    require_known_graphs,
    write_predictions,
)
from xlarank.pipelines.support.workspace_collections import chosen_collections, skip_unless_named
from xlarank.pipelines.support.workspace_lock import write_or_note


def evaluate(
    workspace: Workspace,
    *,
    split: str = "valid",
    collections: Sequence[str] = (),
    official_indices: Path | None = None,
    model_from: str | None = None,
    scores: ScoreFiles | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score the models of the chosen collections on a split, every configuration of every graph.

    ``official_indices`` is a folder of ``<source>_<search>.json`` files, ``{graph: [configuration]}``: layout
    graphs are scored on those configurations only.
    ``model_from`` names the collection whose model scores all chosen ones instead of their own. ``scores`` are
    evaluated in place of those of models. The scores of a collection's own model are written into
    ``predictions/``; if the workspace cannot be written, a note says so.

    Raises `CollectionError` when nothing could be scored; `ModelError` where ``model_from`` has no model, and for
    a collection asked for by name that the model cannot score (another kind, other columns); `XlarankError` for
    an unknown split.
    """
    if split not in SPLITS:
        raise XlarankError(f"{split!r} is not a split", expected=", ".join(SPLITS))
    borrowed = None if model_from is None else model_of(workspace, model_named(workspace, model_from))
    evaluation = Evaluation(split)
    chosen = chosen_collections(workspace, collections)
    if scores is not None:
        require_known_graphs(scores, workspace, chosen, split)
    files: dict[Collection, Path] = {}
    if official_indices is not None:
        files = {
            one: official_indices / f"{'_'.join(one.parts[1:])}.json" for one in chosen if one.kind == "layout"
        }
        if not any(path.is_file() for path in files.values()):
            raise CollectionError(
                f"the official indices folder {official_indices} has no file of any chosen layout collection",
                expected=", ".join(path.name for path in files.values()) or "a layout collection",
                do="check --official-indices, or leave it out",
            )
    with steps_of(progress, f"evaluating on {split}", len(chosen)) as step:

        def work(collection: Collection) -> None:
            graphs = _evaluate_one(workspace, collection, evaluation, files.get(collection), borrowed, scores)
            report = evaluation.report[str(collection)] = _summary(graphs)
            if collection.kind == "layout":
                report["tau"]["ceiling"] = ceilings_of(graphs) or None
            evaluation.verdicts[str(collection)] = verdict(collection, graphs)
            if faster := {name: one.speedups for name, one in graphs.items() if one.speedups}:
                evaluation.speedups[str(collection)] = summarise_speedups(faster)

        for collection in chosen:
            with skip_unless_named(collection, collections, evaluation.left_out):
                work(collection)
            step(str(collection))
    write = partial(write_results, workspace, evaluation.results)
    write_or_note(workspace, progress or Silent(), evaluation.notes, write)
    if not evaluation.report:
        raise CollectionError(f"nothing could be evaluated on {split}: " + "; ".join(reasons(evaluation.left_out)))
    return evaluation


def _evaluate_one(
    workspace: Workspace,
    collection: Collection,
    evaluation: Evaluation,
    indices: Path | None,
    borrowed: TrainedModel | None,
    files: ScoreFiles | None,
) -> dict[str, GraphEvaluation]:
    split = evaluation.judged
    model = None if files is not None else borrowed or model_of(workspace, collection)
    manifest = read_manifest(workspace, collection, split)
    if manifest is None:
        raise CollectionError(f"{collection} has no {split} split in {workspace.root}")
    if model is not None:
        _require_scorable(model, collection, manifest)
    official = _official(indices) if indices else None
    scores: dict[str, GraphEvaluation] = {}
    left_out: dict[str, str] = {}
    predictions: list[pl.DataFrame] = []
    seconds: dict[str, float] = {}

    def refuse(name: str) -> str:
        return "" if official is None or name in official else "it has no official indices"

    for graph in graphs_to_score(workspace, collection, split, manifest, left_out, refuse):
        picked = _picked(graph, official[graph.name]) if official else None
        if model is not None:
            began = time.perf_counter()
            scored = model.score(graph)
            seconds[graph.name] = time.perf_counter() - began
            predictions.append(prediction_table(graph, dict(enumerate(scored.per_seed)), split))
            scores[graph.name] = evaluate_graph(collection, graph, scored.mean, picked, [*scored.per_seed])
        elif files is None or (blend := files.of(collection, graph)) is None:
            left_out[graph.name] = "it has no scores"
        else:
            scores[graph.name] = evaluate_graph(collection, graph, blend, picked)
    evaluation.left_out |= {f"{collection} {name}": why for name, why in left_out.items()}
    if not scores:
        raise CollectionError(f"{collection} has no labelled, rankable graph in {split}")
    if model is not None:
        evaluation.notes += _known_graphs(model, collection, split, scores)
        if model.card.collection == str(collection):
            write = partial(write_predictions, workspace, collection, model.card.model, predictions)
            write_or_note(workspace, Silent(), evaluation.notes, write)
    name = _ranker_name(model, files, collection)
    place = str(collection), f"{split}, official configurations" if official else split, None
    tuned = None if model is None else model.card.tuned
    table = results_table(
        {graph: one.metrics for graph, one in scores.items()}, name, place=place, tuned=tuned, seconds=seconds
    )
    evaluation.results += [table, *_seeds_and_rules(scores, name, place, tuned)]
    return scores


def _ranker_name(model: TrainedModel | None, files: ScoreFiles | None, collection: Collection) -> str:
    if model is None:
        return " and ".join(files.names) if files else ""
    source = model.card.collection
    return model.card.model if source == str(collection) else f"{model.card.model} of {source}"


def _seeds_and_rules(
    scores: dict[str, GraphEvaluation], ranker: str, place: tuple[str, str, None], tuned: bool | None
) -> Iterator[pl.DataFrame]:
    """Yield the results of each seed, if there are several, and of the rules."""
    seeds = len(next(iter(scores.values())).seeds)
    for seed in range(seeds if seeds > 1 else 0):
        metrics = {name: one.seeds[seed] for name, one in scores.items()}
        yield results_table(metrics, ranker, place=place, tuned=tuned, seed=seed)
    for rule in baselines_of(scores):
        metrics = {name: one.baselines[rule] for name, one in scores.items()}
        yield results_table(metrics, f"rule: {rule}", place=place)


def _require_scorable(model: TrainedModel, collection: Collection, manifest: Manifest) -> None:
    """Raise `ModelError` for graphs of another kind or other columns than the model's."""
    source = model.card.collection
    if model.card.kind != collection.kind:
        raise ModelError(
            f"the model of {source} ranks {model.card.kind} graphs, {collection} has {collection.kind} graphs",
            do="pass another --model-from",
        )
    try:
        model.require(manifest)
    except ModelError as error:
        got = f"the model of {source} cannot score {collection}: {error.got}"
        raise ModelError(got, expected=error.expected, do=error.do) from error


def _known_graphs(
    model: TrainedModel, collection: Collection, split: str, scores: dict[str, GraphEvaluation]
) -> list[str]:
    """Return what a reader must know of scored graphs that the model was trained on."""
    seen, source = len(model.card.known_graphs & scores.keys()), model.card.collection
    if source != str(collection):
        related = len(scores) - of_unseen_families(model, scores)
        return [
            f"{collection}: scored by the model of {source}, which was trained on {seen} of these {len(scores)} "
            f"programs (by name) and on the families of {related}"
        ]
    if seen and split != "train":
        return [f"{collection}: the model was trained on {seen} of the {len(scores)} graphs scored here"]
    return []


def _picked(graph: GraphRows, configurations: list[int]) -> NDArray[np.intp]:
    """Indices of official configurations; raises `CollectionError` where they are not of this graph."""
    if not set(configurations) <= set(graph.ids.tolist()):
        raise CollectionError(
            f"the official indices of {graph.name} reach beyond its {len(graph.ids)} configurations",
            expected="the file that the indices were drawn from",
            do="leave --official-indices out",
        )
    picked = np.searchsorted(graph.ids, configurations)
    if not np.isfinite(graph.cost[picked]).any():
        raise CollectionError(f"none of the official configurations of {graph.name} was measured")
    return picked


def _summary(scores: dict[str, GraphEvaluation]) -> dict[str, dict[str, Any]]:
    """`summarise`, and for each metric the means of the baselines and of counting repeats once.

    ``seeds_std`` is the standard deviation over seeds of the mean over graphs; None for one seed.
    """
    report: dict[str, dict[str, Any]] = summarise({name: one.metrics for name, one in scores.items()})
    for metric, about in report.items():
        about["baselines"] = {name: float(column(scores, metric, name).mean()) for name in baselines_of(scores)}
        seeds = np.array([[seed[metric] for seed in one.seeds] for one in scores.values()])
        about["seeds_std"] = float(seeds.mean(axis=0).std(ddof=1)) if seeds.shape[1] > 1 else None
        about["repeats_once"] = float(np.mean([one.once[metric] for one in scores.values()]))
    return report


def _official(path: Path) -> dict[str, list[int]]:
    try:
        value = json.loads(read_text(path))
        return {str(name): [int(i) for i in indices] for name, indices in value.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CollectionError(
            f"the official indices {path} cannot be read ({error})", expected='JSON {"graph": [indices]}'
        ) from error
