"""One graph file to its stored rows: what a worker does, wherever it runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from xlarank.data.collection import GraphFile
from xlarank.data.errors import XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.graph import read_graph
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings, Recipe, Source
from xlarank.features.rows import GraphRows
from xlarank.features.sampling import at_most
from xlarank.features.store import current_summary, instances_current, write_instances, write_rows

#: What became of one file: counts, the source and whether the rows were ``kept``; or ``{"broken": why}``.
Outcome = dict[str, Any]
#: Of a job that is sent away: the contents of the files to write, in their order, stand under this name.
_FILES = "files"


@dataclass(frozen=True)
class GraphJob:
    """One file and what to make of it.

    Attributes:
        workspace: where the rows belong.
        recipe, settings: how they are made.
    """

    file: GraphFile
    workspace: Workspace
    recipe: Recipe
    settings: FeatureSettings

    @property
    def place(self) -> str:
        """For people."""
        return f"{self.file.collection} {self.file.split} {self.file.name}"

    @property
    def size(self) -> int:
        """Bytes of the file; 0 where it cannot be read, of which whoever reads it says why."""
        try:
            return self.file.path.stat().st_size
        except OSError:
            return 0

    def targets(self, workspace: Workspace) -> tuple[Path, Path]:
        """Files of instances and, written last, of rows; raises `WorkspaceError` for a name that may not be."""
        place = self.file.collection, self.file.split, self.file.name
        return workspace.graph_instances(*place), workspace.graph_rows(*place)

    def kept(self) -> Outcome | None:
        """The outcome where whole and current rows are stored already; raises `XlarankError` and `OSError`."""
        beside, path = self.targets(self.workspace)
        source = Source.of(self.file.path)
        summary = current_summary(path, self.recipe, source)
        if summary is None:
            return None
        if self.file.collection.kind == "layout" and not instances_current(beside, self.recipe, source):
            return None
        return {**summary, "source": asdict(source), "kept": True}

    def write(self, rows: GraphRows, source: Source, workspace: Workspace) -> Outcome:
        """Store the rows that the recipe keeps of all rows of the graph."""
        beside, path = self.targets(workspace)
        rows = at_most(rows, self.recipe)
        if rows.instances is not None:
            write_instances(beside, rows.instances.value, self.recipe, source)
        write_rows(path, rows, self.recipe, source)
        return {**rows.summary(), "source": asdict(source), "kept": False}

    def rows(self) -> GraphRows:
        """All rows of the graph; raises `GraphFileError`."""
        return assemble(read_graph(self.file.path, self.file.collection.kind), self.settings)


def with_errors(job: GraphJob, make: Callable[[], Outcome]) -> Outcome:
    """Return what ``make`` gives, or why the file is broken: it must not stop the others."""
    try:
        return make()
    except XlarankError as error:
        return {"broken": str(error)}
    except OSError as error:
        return {"broken": f"{job.file.path.name} cannot be read ({error.strerror or error})"}
    except MemoryError:
        return {"broken": f"{job.file.path.name} does not fit into memory; run again with --jobs 1"}


def build_graph(job: GraphJob) -> Outcome:
    """Store the rows of one graph, unless they are there."""

    def make() -> Outcome:
        kept = job.kept()
        return kept or job.write(job.rows(), Source.of(job.file.path), job.workspace)

    return with_errors(job, make)


def build_remotely(job: GraphJob, source: Source) -> Outcome:
    """Build a graph where its workspace is out of reach; the outcome holds the files that `store_result` writes.

    ``source`` is the file as the client sees it: a copy on this machine may have another date.
    """

    def make() -> Outcome:
        _require_same(job, source)
        with tempfile.TemporaryDirectory(prefix="xlarank-") as folder:
            scratch = Workspace(Path(folder))
            outcome = job.write(job.rows(), source, scratch)
            return {
                **outcome,
                _FILES: [path.read_bytes() if path.exists() else None for path in job.targets(scratch)],
            }

    return with_errors(job, make)


def _require_same(job: GraphJob, source: Source) -> None:
    """Raise `XlarankError` unless this machine has the client's file and the client's feature code."""
    size = job.file.path.stat().st_size
    if size != source.size:
        raise XlarankError(
            f"{job.file.path} has {size:,} bytes where a worker runs",
            expected=f"{source.size:,}, as where build-features was called",
            do="give all machines the same data root",
        )
    code_hash = job.settings.code_hash(job.file.collection.kind)
    if code_hash != job.recipe.code_hash:
        raise XlarankError(
            f"a worker has the feature code {code_hash}",
            expected=f"{job.recipe.code_hash}, that of the command",
            do="install the same xlarank on all machines",
        )


def store_result(job: GraphJob, outcome: Outcome) -> Outcome:
    """Write what a worker sent and return the outcome without it."""
    if _FILES not in outcome:
        return outcome
    rest = {name: value for name, value in outcome.items() if name != _FILES}
    return with_errors(job, partial(_write_files, job, outcome[_FILES], rest))


def _write_files(job: GraphJob, files: list[bytes | None], rest: Outcome) -> Outcome:
    for path, content in zip(job.targets(job.workspace), files, strict=True):
        if content is not None:
            with atomic_write(path) as partial_path:
                partial_path.write_bytes(content)
    return rest
