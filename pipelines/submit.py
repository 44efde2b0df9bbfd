"""Writing and checking of Kaggle submissions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from xlarank.data.collection import (
    Collection,
    DataRootLike,
    GraphFile,
    Names,
    choose,
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
from xlarank.data.graph import config_count, read_graph
from xlarank.data.submission import (
    TILE_TOP,
    complete_submission,
    submission_id,
    submission_problems,
)
from xlarank.data.workspace import DEFAULT_ROOT, Workspace, WorkspaceLike
from xlarank.features.assembly import assemble
from xlarank.features.rows import GraphRows
from xlarank.features.store import (
    Manifest,
    each_graph,
    read_manifest,
    stored_collections,
    stored_roots,
)
from xlarank.models.validation.metrics import order_of, top_of
from xlarank.pipelines.ranking.model_choice import (
    Choice,
    ModelFrom,
    choose_for_collection,
    rows_for_model,
)
from xlarank.pipelines.support.progress import Step, steps_of
from xlarank.pipelines.support.score_files import Scores, ScoresLike
from xlarank.pipelines.support.tables import Table
from xlarank.pipelines.support.workspaces import leaving_out, require_one_root

if TYPE_CHECKING:  # imported when a table is requested
    import polars as pl


@dataclass(repr=False)
class Submission(Table):
    """A written submission.

    Attributes:
        rows: collection -> number of ranked test graphs.
        left_out: collection -> reason why no model ranked its test graphs.
        broken: ``collection graph`` -> reason why its file cannot be used.
        ranked: id -> whether the graph was ranked, rather than left in the order of its file.
        ranked_by: collection -> what ranks, and why; or the file of scores.
    """

    out: Path
    rows: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    ranked: dict[str, bool] = field(default_factory=dict)
    ranked_by: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        unranked = f", {self.unranked} in the order of their files" if self.unranked else ""
        return f"<Submission {self.out}: {counted(len(self.ranked), 'graph')}{unranked}>"

    def to_polars(self) -> pl.DataFrame:
        """Return a frame with a row for each ranked collection."""
        import polars as pl

        rows = [(name, graphs, self.ranked_by[name]) for name, graphs in self.rows.items()]
        return pl.DataFrame(rows, ["collection", "graphs", "ranked_by"], orient="row")

    def covers(self, collection: str) -> bool:
        """Return whether the file has graphs of the collection."""
        return any(row.startswith(f"{collection}:") for row in self.ranked)

    @property
    def unranked(self) -> int:
        """Number of rows in the order of their files, because nothing ranked them."""
        return sum(not is_ranked for is_ranked in self.ranked.values())


def submit(
    out: str | Path = "submission.csv",
    workspace: WorkspaceLike = DEFAULT_ROOT,
    *,
    data_root: DataRootLike | None = None,
    collection: Names = (),
    model_from: ModelFrom | None = None,
    scores: ScoresLike | None = None,
) -> Submission:
    """Write and check a Kaggle submission of the test graphs of a data root.

    Nothing has to be built or trained before. The file covers every test graph of the collections
    in the workspace and its data root; without a stored row, only the columns that their ranker
    reads are computed. Graphs that nothing ranks are in the order of their files. The file is
    checked before it is moved into place.

    Args:
        data_root: default: that of the workspace.
        model_from: as in `xlarank.rank`.
        scores: frame or file with the columns ``graph``, ``configuration`` and ``score``, lower is
            faster, and optionally ``collection`` and ``split``, for any of the graphs; the others
            are ranked as by `xlarank.rank`.

    Raises `CollectionError` if there is nothing to rank, if ``model_from`` has no model, or for a
    named collection without test graphs; `ModelError` for one without a model that fits;
    `XlarankError` for scores that do not fit.

    Examples:
        >>> import tempfile, xlarank
        >>> from pathlib import Path
        >>> work = Path(tempfile.mkdtemp())
        >>> out = work / "submission.csv"
        >>> submission = xlarank.submit(out, work, data_root=xlarank.SAMPLE, collection="tile:cpu")
        >>> submission.rows, submission.unranked
        ({'tile:cpu': 15}, 0)
        >>> xlarank.check_submission(out, data_root=xlarank.SAMPLE, collection="tile:cpu").problems
        []
    """
    report = Submission(Path(out))
    work = Workspace.of(workspace)
    given = Scores.read(scores, "test")
    orders: dict[str, list[int]] = {}
    configs: dict[str, int] = {}
    tests = _test_graphs(work, data_root, collection)
    names = {}
    for each, (manifest, files) in tests.items():
        stored = manifest.graphs if manifest is not None else {}
        names[str(each)] = [*stored, *(file.name for file in files)]
    if given is not None:
        given.require_known_graphs(names, "test")
    with steps_of("ranking test graphs", sum(map(len, names.values()))) as step:
        for each, (manifest, files) in tests.items():
            with leaving_out(each, collection, report.left_out):
                configs |= _counts(each, manifest, files, report)
                choice = _choice(work, each, manifest, model_from, given, report)
                stored_graphs = each_graph(work, each, "test", manifest)
                graphs = chain(stored_graphs, _computed_rows(each, files, choice, report))
                orders |= _ranked(each, graphs, choice, given, report, step)
    if not orders:
        why = "; ".join(reasons(report.left_out | report.broken))
        raise CollectionError(f"there is nothing to submit: {why}")
    if given is not None and given.name not in " and ".join(report.ranked_by.values()):
        raise CollectionError(f"{given.name} has no scores of test graphs")
    report.ranked = complete_submission(report.out, orders, configs)
    return report


def _test_graphs(
    workspace: Workspace, data_root: DataRootLike | None, names: Names
) -> dict[Collection, tuple[Manifest | None, list[GraphFile]]]:
    """Return the stored test graphs of collections, and the files of others."""
    files: list[GraphFile] = []
    stored = stored_collections(workspace)
    if data_root is not None:
        root = find_data_root(data_root)
        files = discover(root.npz)
        require_one_root(root, workspace, files)
    elif not stored:
        files = discover(find_data_root().npz)
    else:
        for path in sorted(stored_roots(workspace)):
            with suppress(DataRootError):  # removed or moved: cover the graphs of the workspace
                files += discover(find_data_root(path).npz)
    tests = {}
    for collection in choose(names, [*stored, *(file.collection for file in files)]):
        manifest = read_manifest(workspace, collection, "test")
        known = set() if manifest is None else manifest.graphs.keys()
        unbuilt = {}
        for file in files:
            if (file.collection, file.split) == (collection, "test") and file.name not in known:
                unbuilt[file.name] = file
        tests[collection] = manifest, [*unbuilt.values()]
    return tests


def _counts(
    collection: Collection,
    manifest: Manifest | None,
    files: Sequence[GraphFile],
    report: Submission,
) -> dict[str, int]:
    """Return the number of configurations of each test graph by id; record broken files."""
    counts = {}
    broken = dict[str, str]()
    if manifest is not None:
        broken |= manifest.broken
        for name, graph in manifest.graphs.items():
            counts[submission_id(collection, name)] = graph.configs
    for file in files:
        broken.pop(file.name, None)  # a name that the workspace refuses may be in a submission
        try:
            row_id = submission_id(collection, file.name)
            row_id.encode()
            counts[row_id] = config_count(file.path, collection.kind)
        except UnicodeEncodeError:
            broken[file.name] = f"the name {file.name!r} is not valid UTF-8"
        except GraphFileError as error:
            broken[file.name] = str(error)
    if not (counts or broken):
        raise CollectionError(f"{collection} has no test graphs")
    report.broken |= {f"{collection} {name}": reason for name, reason in broken.items()}
    return counts


def _choice(
    workspace: Workspace,
    collection: Collection,
    manifest: Manifest | None,
    model_from: ModelFrom | None,
    scores: Scores | None,
    report: Submission,
) -> Choice | None:
    """Return what ranks a collection; None if nothing but ``scores`` does. Raises `ModelError`."""
    try:
        choice = choose_for_collection(workspace, collection, model_from=model_from)
        choice.model.require(manifest)
        return choice
    except ModelError as error:
        if scores is None:
            raise
        report.left_out[str(collection)] = f"its scores have no such graph, and {error}"
        return None


def _computed_rows(
    collection: Collection, files: Sequence[GraphFile], choice: Choice | None, report: Submission
) -> Iterator[GraphRows]:
    """Yield the columns that the ranker reads of graphs without stored rows."""
    for file in files:
        name = f"{collection} {file.name}"
        if name in report.broken:
            continue
        try:
            graph = read_graph(file.path, collection.kind)
        except GraphFileError as error:
            report.broken[name] = str(error)
            continue
        if choice is None:
            yield assemble(graph, only=())
        else:
            yield rows_for_model(graph, choice.model, collection.hardware)


def _ranked(
    collection: Collection,
    graphs: Iterable[GraphRows],
    choice: Choice | None,
    scores: Scores | None,
    report: Submission,
    step: Step,
) -> dict[str, list[int]]:
    """Return the order of each scored graph by id; record what ranks in ``report``."""
    orders = dict[str, list[int]]()
    rankers: dict[str, None] = {}
    unscored = False
    for graph in graphs:
        step(f"{collection} {graph.name}")
        scored = None if scores is None else scores.score(collection, graph)
        ranker = "" if scores is None else scores.name
        if scored is None and choice is not None:
            scored = choice.model.score(graph)
            ranker = choice.reason
        if scored is None:
            unscored = True
            continue
        rankers[ranker] = None
        score = scored[graph.group]
        best = order_of(score)
        if collection.kind == "tile":
            best = top_of(TILE_TOP, score, graph.group)
        orders[submission_id(collection, graph.name)] = graph.ids[best].tolist()
    if not unscored:
        report.left_out.pop(str(collection), None)
    report.rows[str(collection)] = len(orders)
    report.ranked_by[str(collection)] = " and ".join(rankers)
    return orders


@dataclass(frozen=True)
class Checked:
    """Problems of a submission.

    Attributes:
        rows: number of the test graphs that it is checked against.
    """

    rows: int
    problems: list[str]


def check_submission(
    file: str | Path, *, data_root: DataRootLike | None = None, collection: Names = ()
) -> Checked:
    """Return all problems of a submission.

    Its ids must be the ids of the test graphs of the data root, by default chosen as in
    `xlarank.build_features`, in all or the named collections. A layout row lists every
    configuration once; a tile row at least 5 different ones, of which the first 5 count (all if the
    graph has fewer). A graph whose file cannot be read is a problem, too.
    """
    root = find_data_root(data_root)
    configs: dict[str, int | None] = {}
    unreadable = []
    for graph in graph_files(root.npz, collection, where=str(root.path)):
        if graph.split == "test":
            row_id = submission_id(graph.collection, graph.name)
            configs[row_id] = None
            try:
                configs[row_id] = config_count(graph.path, graph.collection.kind)
            except GraphFileError as error:
                unreadable.append(f"{row_id} cannot be checked: {error}")
    problems = [*submission_problems(Path(file), configs), *unreadable]
    return Checked(len(configs), problems)
