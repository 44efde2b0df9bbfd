"""Write the Kaggle submission for every test graph that a model can rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xlarank.data.collection import Collection, discover
from xlarank.data.errors import CollectionError, DataRootError, GraphFileError
from xlarank.data.graph import graph_size
from xlarank.data.root import find_data_root
from xlarank.data.submission import complete_submission, submission_id, wanted_count
from xlarank.data.wording import reasons
from xlarank.data.workspace import Workspace
from xlarank.features.store import each_graph, read_manifest, stored_roots
from xlarank.models.validation.metrics import order_of, top_of
from xlarank.pipelines.ranking.model_choice import (
    model_for_collection,
    models_named,
    require_stored_rows,
    stored_rows,
)
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.workspace_collections import chosen_collections, each_collection


@dataclass
class Submission:
    """What was written to ``out``.

    Attributes:
        rows: collection -> test graphs ranked.
        models: collection -> whose model ranked them, by `xlarank.pipelines.ranking.model_choice`.
        left_out: collection -> why no model ranked its test graphs; they are in the default order.
        broken: test graphs without features, ``collection graph`` -> why; they stand in the file in the default
            order where at least the number of their configurations can be read.
        origin: id -> "ranked", "kept" or "default", by `xlarank.data.submission.complete_submission`.
    """

    out: Path
    rows: dict[str, int] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)

    def covers(self, collection: str) -> bool:
        """Whether graphs of the collection stand in the file."""
        return any(row.startswith(f"{collection}:") for row in self.origin)

    def unranked(self) -> dict[str, int]:
        """How many rows are "kept" and of the "default" order; those that are 0 are left out."""
        counts = {origin: list(self.origin.values()).count(origin) for origin in ("kept", "default")}
        return {origin: count for origin, count in counts.items() if count}


def submit(
    workspace: Workspace,
    out: Path,
    *,
    collections: Sequence[str] = (),
    split: str = "test",
    cover: Mapping[str, int] | None = None,
    model_from: str | None = None,
    keep: bool = False,
    progress: Progress | None = None,
) -> Submission:
    """Rank every graph of the test split of each collection that a model is found for.

    The file covers every test graph that the chosen collections have, in the workspace or in the data root that it
    was built from: what no model ranks stands in the order of its file. It is checked (every id once, every
    configuration index exactly once or the 5 best) before it is moved into place.

    Args:
        cover: id -> number of configurations, of further graphs that must stand in it.
        model_from: the collection whose model ranks those of its kind that have none of their own.
        keep: whether rows that no model ranks stay what they are in the file now in place, where they are right.

    Raises `CollectionError` when there is nothing to rank, where ``model_from`` has no model, or for a named
    collection without test graphs; `ModelError` for a named collection without a model that fits.
    """
    report = Submission(out)
    rows: dict[str, list[int]] = {}
    configs: dict[str, int] = {}
    chosen = chosen_collections(workspace, collections)
    if model_from is not None:
        models_named(workspace, [model_from])
    with steps_of(progress, "ranking test graphs", len(chosen)) as step:

        def work(collection: Collection) -> None:
            _rank_collection(workspace, collection, split, model_from, report, rows, configs)

        each_collection(chosen, work, report.left_out, named=bool(collections), step=step)
    if not rows and not cover:
        raise CollectionError("there is nothing to submit: " + "; ".join(reasons(report.left_out | report.broken)))
    others = {} if cover is not None else _test_graphs(workspace, chosen, split, report, everything=not collections)
    report.origin = complete_submission(out, rows, {**(cover or {}), **others, **configs}, keep=keep)
    return report


def _test_graphs(
    workspace: Workspace, chosen: Sequence[Collection], split: str, report: Submission, *, everything: bool
) -> dict[str, int]:
    """Id -> configurations of the graphs to cover, ranked or not."""
    found: dict[str, int] = {}
    for collection in chosen:
        manifest = read_manifest(workspace, collection, split)
        for name, about in (manifest.graphs if manifest else {}).items():
            found[submission_id(collection, name)] = int(about["configs"])
    for root in sorted(stored_roots(workspace)):
        try:
            files = discover(find_data_root(Path(root)).npz)
        except DataRootError:  # gone, or moved: the workspace is all there is
            continue
        for file in files:
            row_id = submission_id(file.collection, file.name)
            if file.split != split or row_id in found or not (everything or file.collection in chosen):
                continue
            if file.collection not in chosen:
                report.left_out.setdefault(str(file.collection), "its features were not built")
            try:
                found[row_id] = graph_size(file.path, file.collection.kind).configs
            except GraphFileError as error:
                report.broken.setdefault(f"{file.collection} {file.name}", str(error))
    return found


def _rank_collection(
    workspace: Workspace,
    collection: Collection,
    split: str,
    model_from: str | None,
    report: Submission,
    rows: dict[str, list[int]],
    configs: dict[str, int],
) -> None:
    manifest = read_manifest(workspace, collection, split)
    if manifest is None or not (manifest.graphs or manifest.broken):
        raise CollectionError(f"{collection} has no {split} graphs in {workspace.root}")
    model = model_for_collection(workspace, collection, model_from=model_from)
    require_stored_rows(model, manifest)
    report.broken |= {f"{collection} {name}": why for name, why in manifest.broken.items()}
    for graph in each_graph(workspace, collection, split, manifest):
        score = model.score(stored_rows(model, graph)).mean[graph.group]
        row_id = submission_id(collection, graph.name)
        wanted = wanted_count(row_id, len(graph.ids))
        # the order of a layout graph keeps identical configurations side by side; 5 tries should all differ
        order = top_of(wanted, score, graph.group) if collection.kind == "tile" else order_of(score)
        rows[row_id] = [int(config) for config in graph.ids[order]]
        configs[row_id] = len(graph.ids)
    report.rows[str(collection)] = len(manifest.graphs)
    report.models[str(collection)] = model.name
