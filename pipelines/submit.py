"""Writing and checking of Kaggle submissions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from xlarank.data import submission
from xlarank.data.collection import (
    Collection,
    DataRoot,
    GraphFile,
    discover,
    find_data_root,
    graph_files,
)
from xlarank.data.errors import (
    CollectionError,
    DataRootError,
    GraphFileError,
    ModelError,
    counted,
    reasons,
)
from xlarank.data.graph import graph_size
from xlarank.data.submission import TILE_TOP, complete_submission, submission_id
from xlarank.data.workspace import Workspace
from xlarank.features.store import Manifest, each_graph, read_manifest, stored_roots
from xlarank.models.model import Model
from xlarank.models.validation.metrics import order_of, top_of
from xlarank.pipelines.ranking.model_choice import choose_for_collection
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.score_files import Scores
from xlarank.pipelines.support.workspaces import chosen_collections, each_collection


@dataclass
class Submission:
    """A written submission.

    Attributes:
        rows: collection -> number of ranked test graphs.
        models: collection -> name of the model, of the score files, or of both.
        left_out: collection -> reason why no model ranked its test graphs.
        broken: ``collection graph`` -> reason why its file cannot be used.
        origin: id -> "ranked", "kept" or "default".
        ranked_by: collection -> what ranks, and why.
    """

    out: Path
    rows: dict[str, int] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    ranked_by: dict[str, str] = field(default_factory=dict)

    def covers(self, collection: str) -> bool:
        """Return whether the file has graphs of the collection."""
        return any(row.startswith(f"{collection}:") for row in self.origin)

    def unranked(self) -> dict[str, int]:
        """Count rows that were kept and those of the default order; counts of 0 are left out."""
        counts = Counter(self.origin.values())
        return {origin: counts[origin] for origin in ("kept", "default") if counts[origin]}


def submit(
    workspace: Workspace,
    out: Path,
    *,
    collections: Sequence[str] = (),
    cover: Mapping[str, int] | None = None,
    model_from: str | None = None,
    keep: bool = False,
    scores: Scores | None = None,
    progress: Progress | None = None,
) -> Submission:
    """Write a submission that ranks the test graphs of each collection by its model or ``scores``.

    The submission covers every test graph of the collections (default: all) in the workspace or its
    data root; without ``keep``, graphs that no model ranks are in the order of their files. It is
    checked (each id once; each configuration once, for tiles the 5 best) before it is moved into
    place.

    Args:
        cover: id -> number of configurations, for the graphs to cover instead of those of the data
            root.
        model_from: "trained" or "shipped" (`xlarank.pipelines.ranking.model_choice`), or a
            collection with a model, or the folder of one, that ranks all collections of its kind.
        keep: whether to keep the valid rows of an existing file for graphs that no model ranks.
        scores: scores to rank by; graphs without scores are ranked by models, unless ``keep``.

    Raises `CollectionError` if there is nothing to rank, if ``model_from`` has no model, or for a
    named collection without test graphs; `ModelError` for one without a model that fits.
    """
    report = Submission(out)
    ranked: dict[str, list[int]] = {}
    configs = dict(cover or {})
    chosen = chosen_collections(workspace, collections)
    if scores is not None:
        scores.require_known_graphs(workspace, chosen, "test")

    with steps_of(progress, "ranking test graphs", len(chosen)) as step:

        def run(collection: Collection) -> dict[str, list[int]]:
            step(str(collection))
            only_scores = keep and scores is not None
            return _rank_collection(
                workspace, collection, model_from, scores, only_scores, configs, report
            )

        for orders in each_collection(chosen, collections, report.left_out, run).values():
            ranked |= orders
    if not ranked and not cover:
        why = "; ".join(reasons(report.left_out | report.broken))
        raise CollectionError(f"there is nothing to submit: {why}")
    if scores is not None and not any(scores.name in names for names in report.models.values()):
        raise CollectionError(f"{scores.name} has no scores of test graphs")
    if cover is None:
        _add_unbuilt(configs, workspace, chosen, report, not collections)
    report.origin = complete_submission(out, ranked, configs, keep=keep)
    return report


def _rank_collection(
    workspace: Workspace,
    collection: Collection,
    model_from: str | None,
    scores: Scores | None,
    only_scores: bool,
    configs: dict[str, int],
    report: Submission,
) -> dict[str, list[int]]:
    """Return the order of each scored test graph by id; update ``configs`` and ``report``."""
    manifest = read_manifest(workspace, collection, "test")
    if manifest is None or not (manifest.graphs or manifest.broken):
        raise CollectionError(f"{collection} has no test graphs in {workspace.root}")
    configs |= _stored_counts(collection, manifest)
    report.broken |= {f"{collection} {name}": reason for name, reason in manifest.broken.items()}
    model: Model | None = None
    reason = "its scores have no such graph"
    try:
        if not only_scores:
            choice = choose_for_collection(workspace, collection, model_from=model_from)
            model = choice.model
            model.require(manifest)
    except ModelError as error:
        if scores is None:
            raise
        model = None
        reason = f"{reason}, and {error}"
    orders = dict[str, list[int]]()
    by_file = 0
    for graph in each_graph(workspace, collection, "test", manifest):
        scored = None if scores is None else scores.score(collection, graph)
        by_file += scored is not None
        if scored is None and model is not None:
            scored = model.scores_by_seed(graph)
        if scored is not None:
            score = scored.mean(axis=0)[graph.group]
            best = order_of(score)
            if collection.kind == "tile":
                best = top_of(TILE_TOP, score, graph.group)
            orders[submission_id(collection, graph.name)] = graph.ids[best].tolist()
    report.rows[str(collection)] = len(orders)
    if len(orders) < len(manifest.graphs):
        report.left_out[str(collection)] = reason
    rankers = []
    if scores is not None and by_file:
        rankers.append(scores.name)
    if model is not None and by_file < len(orders):
        rankers.append(model.name)
        report.ranked_by[str(collection)] = choice.reason
    report.models[str(collection)] = " and ".join(rankers)
    return orders


def _stored_counts(collection: Collection, manifest: Manifest) -> dict[str, int]:
    graphs = manifest.graphs.items()
    return {submission_id(collection, name): graph.configs for name, graph in graphs}


def _add_unbuilt(
    configs: dict[str, int],
    workspace: Workspace,
    chosen: Sequence[Collection],
    report: Submission,
    every: bool,
) -> None:
    """Add test graphs of the data roots without stored rows, of ``every`` or chosen ones."""
    files: list[GraphFile] = []
    for root in sorted(stored_roots(workspace)):
        with suppress(DataRootError):  # removed or moved: cover only the graphs of the workspace
            files += discover(find_data_root(Path(root)).npz)
    unbuilt = "its features were not built; run build-features"
    for file in files:
        row_id = submission_id(file.collection, file.name)
        if file.split == "test" and row_id not in configs and (every or file.collection in chosen):
            if file.collection not in chosen:
                report.left_out.setdefault(str(file.collection), unbuilt)
            try:
                configs[row_id] = graph_size(file.path, file.collection.kind).configs
            except GraphFileError as error:
                report.broken.setdefault(f"{file.collection} {file.name}", str(error))


@dataclass(frozen=True)
class Checked:
    """Number and description (``against``) of the expected rows of a submission, and its problems.

    Attributes:
        unknown: id -> why the number of configurations of a test graph cannot be read.
    """

    rows: int
    against: str
    problems: list[str]
    unknown: dict[str, str]


def check_submission(
    path: Path,
    *,
    sample: Path | None = None,
    data_root: DataRoot | None = None,
    workspace: Workspace | None = None,
    collections: Sequence[str] = (),
) -> Checked:
    """Return all problems of a submission.

    Its ids must be those of the ``sample``, else those of the test graphs of the ``data_root``, or
    without one of the ``workspace``, in all or the named collections. A layout row lists every
    configuration once; a tile row at least 5 different ones, of which the first 5 count (all if the
    graph has fewer). The number of configurations is that of the data root or the workspace, never
    of the sample: Kaggle's lists 1000 configurations for every layout and 5 for every tile graph. A
    graph in neither is checked as far as possible: a layout row lists no fewer than its sample row.
    """
    configs: dict[str, int | None] = {}
    unknown: dict[str, str] = {}
    fewest: dict[str, int] = {}
    if data_root is not None:
        for file in graph_files(data_root.npz, collections, where=str(data_root.path)):
            if file.split == "test":
                row_id = submission_id(file.collection, file.name)
                configs[row_id] = None
                try:
                    configs[row_id] = graph_size(file.path, file.collection.kind).configs
                except GraphFileError as error:
                    unknown[row_id] = str(error)
    elif workspace is not None:
        for collection in chosen_collections(workspace, collections):
            if manifest := read_manifest(workspace, collection, "test"):
                configs |= _stored_counts(collection, manifest)
    against = counted(len(configs), "test graph")
    if sample is not None:
        listed = submission.read_submission(sample)
        against = f"{counted(len(listed), 'id')} of {sample}"
        configs = {row_id: configs.get(row_id) for row_id in listed}
        reasons_of = unknown
        unknown = {}
        for row_id, order in listed.items():
            if configs[row_id] is None:
                unknown[row_id] = reasons_of.get(row_id, "not in the data; pass `data_root`")
            if row_id.startswith("layout:"):
                fewest[row_id] = len(order)
    problems = list(map(str, submission.submission_problems(path, configs, fewest=fewest)))
    return Checked(len(configs), against, problems, unknown)
