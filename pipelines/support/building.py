"""Jobs that build the rows of graph files, on this machine or on a worker of a Dask cluster."""

from __future__ import annotations

import gc
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from xlarank.data import errors
from xlarank.data.collection import Collection, GraphFile
from xlarank.data.errors import ClusterError, FeatureStoreError, WorkspaceError, XlarankError
from xlarank.data.graph import GraphCounts, graph_size, read_graph
from xlarank.data.workspace import Workspace, require_safe_name
from xlarank.features import store
from xlarank.features.assembly import assemble
from xlarank.features.rows import GraphRows, Recipe, Source, sample_rows
from xlarank.features.store import StoredGraph
from xlarank.pipelines.support.processes import SAME_CODE

#: Maximum numbers of configurations and graphs per part; a larger graph is a part of its own. Large
#: parts save the fixed cost of a column per file, small ones limit what an interruption loses.
_PART_CONFIGS = 4096
_PART_GRAPHS = 32


@dataclass(frozen=True)
class BuildOutcome:
    """Result of one graph file.

    Attributes:
        source: identity of the client's file; None if ``broken``.
        stored: entry in the manifest; None without rows.
        kept: whether the rows were already stored and current.
        broken: reason why rows cannot be built; else empty.
    """

    source: Source | None = None
    stored: StoredGraph | None = None
    kept: bool = False
    broken: str = ""


#: Outcomes of the files of a job, by name.
BuildOutcomes: TypeAlias = dict[str, BuildOutcome]
#: Outcomes of a job, and the contents of files by path in the workspace that the client still has
#: to write.
Built: TypeAlias = tuple[BuildOutcomes, dict[Path, bytes]]


@dataclass(frozen=True)
class PartJob:
    """Graph files of a split whose rows share a stored file; ``sizes`` are of readable ones."""

    files: tuple[GraphFile, ...]
    part: int
    workspace: Workspace
    recipe: Recipe
    sizes: tuple[GraphCounts, ...] = ()

    @property
    def collection(self) -> Collection:
        return self.files[0].collection

    @property
    def split(self) -> str:
        return self.files[0].split

    @property
    def size(self) -> int:
        """Total bytes of the files; unreadable files count as 0."""
        return sum(map(_bytes, self.files))

    @property
    def rows(self) -> Path:
        """File of the rows."""
        return self.workspace.rows(self.collection, self.split, self.part)

    def stored(self) -> tuple[BuildOutcomes, bool]:
        """Return the outcomes known before building, and whether nothing is to build or remove."""
        stored: dict[str, StoredGraph] = {}
        with suppress(WorkspaceError):  # bad name: `_stored_graph` reports each file as broken
            stored = store.stored_graphs(self.rows, self.recipe)
        outcomes: BuildOutcomes = {}
        for file in self.files:
            outcomes[file.name] = self._stored_graph(file, stored.get(file.name))
        complete = all(outcome.kept or outcome.broken for outcome in outcomes.values())
        return outcomes, complete and stored.keys() <= outcomes.keys()

    def _stored_graph(self, file: GraphFile, stored: StoredGraph | None) -> BuildOutcome:
        try:
            require_safe_name(file.name)
            self.workspace.features(self.collection, self.split)
            source = Source.of(file.path)
            if stored is None or stored.source != source:
                return BuildOutcome(source)
            return BuildOutcome(source, replace(stored, part=self.part), kept=True)
        except Exception as error:
            return BuildOutcome(broken=why_broken([file], error))

    def build(self, outcomes: BuildOutcomes) -> Built:
        """Compute missing or outdated rows and write them with the stored ones."""
        stored: dict[str, tuple[GraphRows, Source]] = {}
        if any(outcome.kept for outcome in outcomes.values()):
            with suppress(FeatureStoreError):  # workers of a cluster cannot read the workspace
                stored = store.read_rows(self.rows, self.recipe)
        built = {**outcomes}
        entries = dict[str, StoredGraph]()
        graphs = list[GraphRows]()
        for file in self.files:
            source = outcomes[file.name].source
            kept = outcomes[file.name].kept and file.name in stored
            if source is None:
                continue
            try:
                rows = stored[file.name][0] if kept else self._build_graph(file)
                entries[file.name] = StoredGraph.of(rows, self.part, source)
                built[file.name] = BuildOutcome(source, entries[file.name], kept)
                graphs.append(rows)
            except Exception as error:
                built[file.name] = BuildOutcome(broken=why_broken([file], error))
        if graphs:
            place = (str(self.collection), self.split)
            store.write_rows(self.rows, graphs, self.recipe, entries, place)
        return built, {}

    def _build_graph(self, file: GraphFile) -> GraphRows:
        """Compute the rows of a graph, sampled as in the recipe."""
        if self.collection.kind == "layout":
            gc.collect()  # the previous graph's context, up to a gigabyte, is in reference cycles
        graph = read_graph(file.path, self.collection.kind)
        return sample_rows(assemble(graph, self.recipe.settings), self.recipe)


def part_jobs(files: Sequence[GraphFile], workspace: Workspace, recipe: Recipe) -> list[PartJob]:
    """Return the jobs of a split: parts of consecutive files, then one per unreadable file."""
    parts = list[list[GraphFile]]()
    broken = list[list[GraphFile]]()
    total = 0
    sizes: dict[GraphFile, GraphCounts] = {}
    for file in files:
        try:
            require_safe_name(file.name)
            workspace.features(file.collection, file.split)
            sizes[file] = size = graph_size(file.path, file.collection.kind)
        except (XlarankError, OSError):
            broken.append([file])
            continue
        configs = min(size.configs, recipe.max_configs or size.configs)
        total += configs
        if not parts or total > _PART_CONFIGS or len(parts[-1]) == _PART_GRAPHS:
            parts.append([])
            total = configs
        parts[-1].append(file)
    jobs = []
    for part, members in enumerate(parts + broken):
        counts = tuple(sizes[file] for file in members if file in sizes)
        jobs.append(PartJob(tuple(members), part, workspace, recipe, counts))
    return jobs


def _bytes(file: GraphFile) -> int:
    try:
        return file.path.stat().st_size
    except OSError:  # reading it will raise the error
        return 0


def why_broken(files: Sequence[GraphFile], error: Exception) -> str:
    """Return why files cannot be built; raises the error if they are not its cause."""
    names = ", ".join(file.path.name for file in files)
    match error:
        case ClusterError() | errors.OutputError() | errors.BlockError():
            raise error
        case XlarankError():
            return str(error)
        case OSError():
            return f"{names} cannot be read ({error.strerror or error})"
        case MemoryError():
            if len(files) == 1:
                return f"{names} does not fit into memory; run again with `jobs=1`"
            return f"{names} do not fit into memory together; run again with `jobs=1`"
        # matched by name, because Dask is optional
        case _ if type(error).__name__ == "KilledWorker":
            died = error.allowed_failures + 1  # type: ignore[attr-defined]
            got = f"{names}: {died} workers died while they built it"
            do = "start fewer of them on each machine"
            return str(XlarankError(got, expected="workers with enough memory", do=do))
        case _:
            raise error


def build_remotely(job: PartJob, outcomes: BuildOutcomes) -> Built:
    """Build a part without access to its workspace, and return the contents of its files.

    ``outcomes`` hold the client's `Source` of each file, because copies may have other dates.
    Raises `ClusterError` if the worker's feature code differs.
    """
    worker = f"the worker on {socket.gethostname()}"
    code_hash = job.recipe.settings.code_hash(job.collection.kind)
    if code_hash != job.recipe.code_hash:
        got = f"{worker} has the feature code {code_hash}"
        raise ClusterError(got, expected=job.recipe.code_hash, do=SAME_CODE)
    outcomes = {**outcomes}
    for file in job.files:
        source = outcomes[file.name].source
        if source is not None and _bytes(file) != source.size:
            got = f"{worker} sees no {file.path} of {source.size:,} bytes"
            expected = "the same data root under the same path on all machines"
            do = "share its file system, or copy it to the same place"
            reason = str(XlarankError(got, expected=expected, do=do))
            outcomes[file.name] = BuildOutcome(broken=reason)
    with tempfile.TemporaryDirectory(prefix="xlarank-") as folder:
        local_job = replace(job, workspace=Workspace(Path(folder)))
        built, _ = local_job.build(outcomes)
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        return built, {path.relative_to(folder): path.read_bytes() for path in paths}
