"""Jobs that build the rows of graph files, on this machine or on a worker of a Dask cluster."""

from __future__ import annotations

import gc
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from xlarank.data.collection import Collection, GraphFile
from xlarank.data.errors import GraphFileError, XlarankError
from xlarank.data.graph import config_count, read_graph
from xlarank.data.workspace import Workspace, require_safe_name
from xlarank.features import store
from xlarank.features.assembly import assemble
from xlarank.features.catalogue import columns_version
from xlarank.features.rows import GraphRows, Recipe, Source, sample_rows
from xlarank.features.store import StoredGraph
from xlarank.pipelines.support.processes import SAME_CODE

#: Maximum numbers of configurations and graphs per part; a larger graph is a part of its own. Large
#: parts save the fixed cost of a column per file, small ones limit what an interruption loses.
_PART_CONFIGS = 4096
_PART_GRAPHS = 32


@dataclass
class PartJob:
    """Graph files of a split whose rows share a stored file.

    Attributes:
        sources: identities of the client's files, by name, as far as they can be read.
        stored: entries in the manifest, by name.
        broken: reasons why files have no rows, by name.
        kept: number of graphs whose rows were stored and current.
        content: content of the rows' file if the client still has to write it.
    """

    files: tuple[GraphFile, ...]
    part: int
    workspace: Workspace
    recipe: Recipe
    sources: dict[str, Source] = field(default_factory=dict)
    stored: dict[str, StoredGraph] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    kept: int = 0
    content: bytes = b""

    @property
    def collection(self) -> Collection:
        return self.files[0].collection

    @property
    def split(self) -> str:
        return self.files[0].split

    @property
    def size(self) -> int:
        """Total bytes of the readable files."""
        return sum(source.size for source in self.sources.values())

    @property
    def rows(self) -> Path:
        """File of the rows."""
        return self.workspace.rows(self.collection, self.split, self.part)

    def find_stored(self) -> bool:
        """Find stored rows; return whether they are of these files, and nothing is to be built."""
        sources = {name: self.sources[name] for name in self.sources.keys() - self.broken}
        stored = store.stored_graphs(self.rows, self.recipe) if sources else {}
        if {name: entry.source for name, entry in stored.items()} != sources:
            return False
        self.stored = stored
        self.kept = len(stored)
        return True

    def build(self) -> PartJob:
        """Compute and write the rows of all files, and return the job."""
        graphs: list[GraphRows] = []
        for file in self.files:
            if file.name in self.broken:
                continue
            if self.collection.kind == "layout":
                gc.collect()  # the context of a graph, up to a gigabyte, is in reference cycles
            try:
                graph = read_graph(file.path, self.collection.kind)
                rows = sample_rows(assemble(graph, self.recipe.hardware), self.recipe)
                self.stored[file.name] = StoredGraph.of(rows, self.part, self.sources[file.name])
                graphs.append(rows)
            except Exception as error:
                self.broken[file.name] = why_broken([file], error)
        if graphs:
            place = (str(self.collection), self.split)
            store.write_rows(self.rows, graphs, self.recipe, self.stored, place)
        return self

    def fail(self, error: Exception) -> None:
        """Record all files as broken; raises the error if they are not its cause."""
        reason = why_broken(self.files, error)
        self.broken = dict.fromkeys((file.name for file in self.files), reason)
        self.stored = {}


def part_jobs(files: Sequence[GraphFile], workspace: Workspace, recipe: Recipe) -> list[PartJob]:
    """Return the jobs of a split: parts of consecutive files, then one of unreadable files."""
    parts = list[list[GraphFile]]()
    sources: dict[str, Source] = {}
    broken: dict[GraphFile, str] = {}
    total = 0
    for file in files:
        try:
            sources[file.name] = Source.of(file.path)
            require_safe_name(file.name)
            workspace.features(file.collection, file.split)
            stored_configs = config_count(file.path, file.collection.kind)
        except XlarankError as error:
            broken[file] = str(error)
            continue
        except OSError as error:
            broken[file] = why_broken([file], error)
            continue
        configs = min(stored_configs, recipe.max_configs or stored_configs)
        total += configs
        if not parts or total > _PART_CONFIGS or len(parts[-1]) == _PART_GRAPHS:
            parts.append([])
            total = configs
        parts[-1].append(file)
    if broken:
        parts.append([*broken])
    jobs = []
    for number, members in enumerate(parts):
        known = {file.name: sources[file.name] for file in members if file.name in sources}
        reasons = {file.name: broken[file] for file in members if file in broken}
        jobs.append(PartJob(tuple(members), number, workspace, recipe, known, broken=reasons))
    return jobs


def why_broken(files: Sequence[GraphFile], error: Exception) -> str:
    """Return why files cannot be built; raises the error if they are not its cause."""
    names = ", ".join(file.path.name for file in files)
    match error:
        case GraphFileError():
            return str(error)
        case OSError():
            got = f"{names} cannot be read ({error.strerror or error})"
            do = "check the path and its permissions"
            return str(XlarankError(got, expected="a readable npz file", do=do))
        case MemoryError():
            return f"no memory for {names}; run again with `jobs=1`"
        # matched by name, because Dask is optional
        case _ if type(error).__name__ == "KilledWorker":
            died = error.allowed_failures + 1  # type: ignore[attr-defined]
            got = f"{names}: {died} workers died while they built it"
            do = "start fewer of them on each machine"
            return str(XlarankError(got, expected="workers with enough memory", do=do))
        case _:
            raise error


def build_remotely(job: PartJob) -> PartJob:
    """Build a part without access to its workspace, and return it with the content of its file.

    Raises `XlarankError` if the worker has another version of the columns.
    """
    worker = f"the worker on {socket.gethostname()}"
    version = columns_version(job.collection.kind)
    if version != job.recipe.columns_version:
        got = f"{worker} has version {version} of the columns"
        raise XlarankError(got, expected=job.recipe.columns_version, do=SAME_CODE)
    broken = {**job.broken}
    for file in job.files:
        source = job.sources[file.name]
        if not file.path.is_file() or file.path.stat().st_size != source.size:
            got = f"{worker} sees no {file.path} of {source.size:,} bytes"
            expected = "the same data root under the same path on all machines"
            do = "share its file system, or copy it to the same place"
            broken[file.name] = str(XlarankError(got, expected=expected, do=do))
    with tempfile.TemporaryDirectory(prefix="xlarank-") as folder:
        built = replace(job, workspace=Workspace(Path(folder)), broken=broken).build()
        content = built.rows.read_bytes() if built.stored else b""
        return replace(built, workspace=job.workspace, content=content)
