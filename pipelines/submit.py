"""Write the Kaggle submission for every test graph that a model can rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.submission import complete_submission, submission_id, wanted_count
from xlarank.data.workspace import Workspace
from xlarank.features.store import each_graph, read_manifest
from xlarank.models.trained import CARD, load_model
from xlarank.models.validation.metrics import order_of, top_of
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.workspace_collections import chosen_collections


@dataclass
class Submission:
    """What was written.

    Attributes:
        out: the file.
        rows: collection -> test graphs ranked.
        left_out: collection -> why its test graphs are not in the file.
        broken: test graphs whose files could not be read, ``collection graph`` -> why.
        origin: id -> "ranked", "kept" or "default", by `xlarank.data.submission.complete_submission`.
    """

    out: Path
    rows: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)


def submit(
    workspace: Workspace,
    out: Path,
    *,
    collections: Sequence[str] = (),
    split: str = "test",
    cover: Mapping[str, int] | None = None,
    progress: Progress | None = None,
) -> Submission:
    """Rank every graph of the test split of each collection that has a trained model.

    The file is checked (every id once, every configuration index exactly once or the 5 best) before it is
    moved into place. ``cover``, id -> number of configurations, names graphs that must stand in it even if no
    model ranks them: these keep the row of the file now in place, or else the default order. Raises
    `CollectionError` when there is nothing to rank, or for a named collection that has no model or no test graphs.
    """
    progress = progress or Silent()
    report = Submission(out)
    rows: dict[str, list[int]] = {}
    configs: dict[str, int] = {}
    chosen = chosen_collections(workspace, collections)
    progress.begin("ranking test graphs", len(chosen))
    for collection in chosen:
        try:
            _rank_collection(workspace, collection, split, report, rows, configs)
        except (CollectionError, ModelError) as error:
            if collections:
                progress.end()
                raise
            report.left_out[str(collection)] = str(error)
        progress.step(str(collection))
    progress.end()
    if not rows and not cover:
        reasons = [f"{name}: {why}" for name, why in (report.left_out | report.broken).items()]
        raise CollectionError("there is nothing to submit: " + "; ".join(reasons))
    report.origin = complete_submission(out, rows, {**(cover or {}), **configs})
    return report


def _rank_collection(
    workspace: Workspace,
    collection: Collection,
    split: str,
    report: Submission,
    rows: dict[str, list[int]],
    configs: dict[str, int],
) -> None:
    manifest = read_manifest(workspace, collection, split)
    if manifest is None or not (manifest.graphs or manifest.broken):
        raise CollectionError(f"{collection} has no {split} graphs in {workspace.root}")
    if not (workspace.model(collection) / CARD).exists():
        raise ModelError(
            f"{collection} has {len(manifest.graphs)} {split} graphs but no trained model", do="run train first"
        )
    model = load_model(workspace.model(collection))
    model.require_rows_of(manifest)
    report.broken |= {f"{collection} {name}": why for name, why in manifest.broken.items()}
    for graph in each_graph(workspace, collection, split):
        score = model.predict(graph.matrix(), graph.columns, graph.instances)[graph.group]
        row_id = submission_id(collection, graph.name)
        wanted = wanted_count(row_id, len(graph.ids))
        # the order of a layout graph keeps identical configurations side by side; 5 tries should all differ
        order = top_of(wanted, score, graph.group) if collection.kind == "tile" else order_of(score)
        rows[row_id] = [int(config) for config in graph.ids[order]]
        configs[row_id] = len(graph.ids)
    report.rows[str(collection)] = len(manifest.graphs)
