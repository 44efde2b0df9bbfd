"""Evaluation of trained models or score files on a labelled split."""

from __future__ import annotations

import json
from collections.abc import Callable, Set
from functools import partial
from pathlib import Path

import numpy as np

from xlarank.data.collection import SPLITS, Collection, Names
from xlarank.data.errors import CollectionError, XlarankError, counted, naming, reasons
from xlarank.data.families import program_family
from xlarank.data.files import read_text
from xlarank.data.workspace import DEFAULT_ROOT, Workspace, WorkspaceLike
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest, read_manifest
from xlarank.models.arrays import Floats, Indices
from xlarank.models.model import Model
from xlarank.pipelines.ranking.model_choice import Choice, ModelFrom, choose_for_collection
from xlarank.pipelines.support.baselines import Rankings
from xlarank.pipelines.support.evaluation import Evaluation, add_metrics, graphs_to_score
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.score_files import Scores, ScoresLike
from xlarank.pipelines.support.workspaces import labelled_collections, leaving_out


def evaluate(
    workspace: WorkspaceLike = DEFAULT_ROOT,
    *,
    split: str = "valid",
    collection: Names = (),
    official_indices: str | Path | None = None,
    model_from: ModelFrom | None = None,
    scores: ScoresLike | None = None,
) -> Evaluation:
    """Evaluate what ranks each collection, or ``scores`` instead, on a labelled split.

    The trained model of a collection is scored beside it, if it does not rank itself.
    ``model_from`` is as in `xlarank.rank`, ``scores`` as in `xlarank.submit`, and
    ``official_indices`` is a folder of ``<source>_<search>.json`` files of layout configurations,
    ``{graph: [configuration]}``.

    Raises `CollectionError` if nothing could be evaluated; that or `ModelError` if ``model_from``
    has no model or a named collection fails; `XlarankError` for an unknown split, and for the
    train split, which the collections' own models were trained on.

    Examples:
        >>> import tempfile, xlarank
        >>> work = tempfile.mkdtemp()
        >>> built = xlarank.build_features(xlarank.SAMPLE, work, collection="tile:cpu")
        >>> board = xlarank.evaluate(work).to_polars()  # without a model, a formula ranks
        >>> board["ranker"][0], board["graphs"][0]
        ('estimated time', 12)
    """
    given = Scores.read(scores, split)
    if split not in SPLITS:
        raise XlarankError(f"{split!r} is not a split", expected=", ".join(SPLITS))
    if given is not None and model_from is not None:
        raise XlarankError("both `scores` and `model_from` are given", expected="one of them")
    if split == "train" and given is None and model_from is None:
        got = "the models were trained on the train split"
        raise XlarankError(got, do="run cross-validate for scores out of fold")
    if official_indices is not None and not Path(official_indices).is_dir():
        expected = "a folder of <source>_<search>.json files"
        raise XlarankError(f"{official_indices} is no folder", expected=expected)
    work = Workspace.of(workspace)
    evaluation = Evaluation(split)
    chosen = labelled_collections(work, collection)
    if official_indices is not None and all(each.kind == "tile" for each in chosen):
        raise CollectionError("`official_indices` are for layouts", expected="a layout collection")
    if given is not None:
        graphs = {}
        for each in chosen:
            manifest = read_manifest(work, each, split)
            graphs[str(each)] = [*manifest.graphs] if manifest else []
        given.require_known_graphs(graphs, split)
    with steps_of(f"evaluating on {split}", len(chosen)) as step:
        for each in chosen:
            step(str(each))
            with leaving_out(each, collection, evaluation.left_out):
                evaluation.rankings[str(each)] = _evaluate(
                    work, each, evaluation, model_from, given, official_indices
                )
    if not evaluation.rankings:
        why = "; ".join(reasons(evaluation.left_out))
        raise CollectionError(f"nothing could be evaluated on {split}: {why}")
    return evaluation


def _evaluate(
    workspace: Workspace,
    collection: Collection,
    evaluation: Evaluation,
    model_from: ModelFrom | None,
    scores: Scores | None,
    indices_folder: str | Path | None,
) -> Rankings:
    """Return the metrics of what ranks, of the trained model beside it and of rules."""
    split = evaluation.graphs
    manifest = read_manifest(workspace, collection, split)
    do = "" if scores is not None else "run cross-validate for scores out of fold"
    if manifest is None:
        raise CollectionError(f"{collection} has no {split} split in {workspace.root}", do=do)
    models: dict[str, Model] = {}
    scorers: dict[str, Callable[[GraphRows], Floats | None]] = {}
    if scores is not None:
        scorers[scores.name] = partial(scores.score, collection)
    else:
        choice = choose_for_collection(workspace, collection, model_from=model_from)
        evaluation.ranked_by[str(collection)] = choice.reason
        models[_name_of(choice, collection, manifest)] = choice.model
        if choice.trained is not None:
            models.setdefault(choice.trained.name, choice.trained)
        scorers |= {name: model.score for name, model in models.items()}
    known = {name: _training_graphs(model, collection, split) for name, model in models.items()}
    first = next(iter(scorers))
    official = None
    unlisted: set[str] = set()
    if indices_folder is not None and collection.kind == "layout":
        official = _official_indices(Path(indices_folder), collection)
        unlisted = manifest.graphs.keys() - official.keys()
    excluded = dict.fromkeys(unlisted, "it has no official indices")
    excluded |= dict.fromkeys(known.get(first, ()), "the model was trained on it")
    rankings = Rankings()
    left_out = dict[str, str]()
    for graph in graphs_to_score(workspace, collection, split, manifest, left_out, excluded):
        picked = slice(None) if official is None else _picked(graph, official[graph.name])
        for name, score in scorers.items():
            if graph.name in known.get(name, ()):
                continue
            scored = score(graph)
            if scored is None:
                left_out[graph.name] = "it has no scores"
            else:
                add_metrics(rankings, collection, graph, name, scored, picked)
    evaluation.left_out |= {f"{collection} {graph}": reason for graph, reason in left_out.items()}
    if not rankings:
        why = "; ".join(reasons(left_out)) or "it is empty"
        raise CollectionError(f"{collection} has no graph to score in {split} ({why})", do=do)
    for name, model in models.items():
        evaluation.notes += _overlap_notes(model, collection, rankings.get(name, {}).keys())
    return rankings


def _name_of(choice: Choice, collection: Collection, manifest: Manifest) -> str:
    """Return the name of a model in results; raise `ModelError` if it does not fit the rows."""
    model = choice.model
    source = model.require_card().collection
    with naming(f"the model of {source} cannot score {collection}"):
        model.require(manifest)
    is_own = model.shipped or model is choice.trained
    return model.name if is_own else f"{model.name} of {source}"


def _training_graphs(model: Model, collection: Collection, split: str) -> set[str]:
    """Return the graphs whose scores prove nothing, because the model was trained on them.

    On valid and test, graphs of another collection may have the same names.
    """
    card = model.require_card()
    is_own = card.collection == str(collection)
    if is_own or split == "train":
        return card.known_graphs
    return {*card.also_from.get(str(collection), ())}


def _overlap_notes(model: Model, collection: Collection, graphs: Set[str]) -> list[str]:
    """Return a note if graphs, or others of their families, were trained on."""
    names = model.require_card().known_graphs
    families = {program_family(name) for name in names}
    related = sum(program_family(name) in families for name in graphs)
    if model.rule is not None or not related:  # nothing was learned, or from nothing like these
        return []
    known = f"{len(names & graphs)} of these {counted(len(graphs), 'program')} (by name)"
    families_known = f"and on the families of {related}"
    return [f"{collection}: {model.title} was trained on {known} {families_known}"]


def _official_indices(folder: Path, collection: Collection) -> dict[str, list[int]]:
    path = folder / f"{'_'.join(collection.parts[1:])}.json"
    try:
        value = json.loads(read_text(path))
        return {str(name): [int(i) for i in indices] for name, indices in value.items()}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        got = f"the official indices {path} cannot be read ({error})"
        raise CollectionError(got, expected='JSON {"graph": [indices]}') from error


def _picked(graph: GraphRows, configurations: list[int]) -> Indices:
    """Return positions; raises `CollectionError` if one is unknown or none was measured."""
    if not np.isin(configurations, graph.ids).all():
        count = counted(len(graph.ids), "configuration")
        raise CollectionError(f"the official indices of {graph.name} reach beyond its {count}")
    picked = np.searchsorted(graph.ids, configurations)
    if not np.isfinite(graph.cost[picked]).any():
        raise CollectionError(f"none of the official configurations of {graph.name} was measured")
    return picked
