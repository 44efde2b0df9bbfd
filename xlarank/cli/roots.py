"""The data root and the workspace that options name; features that a workspace lacks are built."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xlarank.cli.console import (
    finish,
    list_lines,
    list_reasons,
    progress,
    say,
    show_rows,
    write_json,
)
from xlarank.cli.options import workspace_at
from xlarank.data.workspace import Workspace

if TYPE_CHECKING:
    from xlarank.data.collection import DataRoot
    from xlarank.pipelines.build_features import BuildRequest
    from xlarank.pipelines.support.results import ScoreFiles

#: Why a graph cannot be ranked, with and without runtimes.
UNRANKABLE: Final = "one distinct configuration, or equal runtimes"
_SAME: Final = "one distinct configuration"


def data_root_of(path: Path | None, why: str = "") -> DataRoot:
    """Find the data root and print it; ``why`` replaces the reason of the choice."""
    from xlarank.data.collection import find_data_root

    root = find_data_root(path)
    root = replace(root, why=why or root.why)
    say(f"data: {root.path} ({root.why})", "dim")
    return root


def warn_of_skipped_files(root: DataRoot) -> dict[str, str]:
    """Print the folders with skipped files; return those that cannot be listed, with the reason."""
    from xlarank.data.collection import skipped_files

    skipped, unreadable = skipped_files(root.npz)
    list_lines("skipped", [f"{path}: {reason}" for path, reason in skipped.items()])
    return {str(path): reason for path, reason in unreadable.items()}


def built_workspace(
    data_root: Path | None,
    workspace: Path,
    collections: Sequence[str] | None = None,
    *,
    trained: bool = False,
) -> Workspace:
    """Return the workspace, after building features of the named collections that it lacks.

    If it has none of the data root, all collections are built unless some are named. Stored
    features keep the settings they were built with. With ``trained``, a workspace without features
    and models raises `ModelError`. Raises `CollectionError` for a collection that is in neither the
    workspace nor a data root.
    """
    from xlarank.data.collection import SAMPLE
    from xlarank.data.errors import CollectionError, ModelError
    from xlarank.features.store import stored_collections, stored_roots
    from xlarank.models.stored import trained_collections
    from xlarank.pipelines.build_features import BuildRequest

    work = workspace_at(workspace)
    stored = stored_roots(work)
    available = list(map(str, stored_collections(work)))
    missing = []
    for name in collections or ():
        if name not in available and not fnmatch.filter(available, name):
            missing.append(name)
    if data_root is None and stored and not missing:
        return work
    source = Path(next(iter(stored))) if data_root is None and stored else data_root
    if data_root is None and source is not None and not source.exists():
        got = f"the workspace {workspace} has no features of {', '.join(missing)}"
        got += f", and its data root {source} does not exist any more"
        do = "check --collection, or pass the data root of those collections by --data-root"
        raise CollectionError(got, expected=f"one of {', '.join(available)}", do=do)
    root = data_root_of(source, "" if source == data_root else f"of the workspace {workspace}")
    if trained and not stored and not trained_collections(work):
        problem = "does not exist"
        if workspace.exists():
            work.require_writable()
            problem = "holds no trained model"
        do = "run train first, or check --workspace"
        raise ModelError(f"the workspace {workspace} {problem}", do=do)
    if str(root.path.resolve()) not in stored or missing:
        named = ", ".join(missing or collections or ()) or "all collections"
        lacking = f"has no features of {named} of {root.path}"
        say(f"the workspace {workspace} {lacking}: building them first")
        if data_root is None and root.path == SAMPLE:
            note = "no data root was given: these results are for the embedded sample"
            list_lines("note", [note])
        build(root, work, BuildRequest(collections=tuple(missing or collections or ())))
    return work


def substitutions(collections: Iterable[str]) -> list[str]:
    """Return a note for each unknown GPU that collections are named after."""
    from xlarank.features.layout.hardware import substitution_note

    sources = dict.fromkeys(name.split(":")[1] for name in collections)
    return [note for source in sources if (note := substitution_note(source))]


def read_scores(
    paths: Sequence[Path] | None, weights: Sequence[float] | None, split: str
) -> ScoreFiles | None:
    """Read the scores given by ``--scores`` and ``--weights``, if any."""
    from xlarank.pipelines.support.results import ScoreFiles

    return ScoreFiles.read(paths or (), split, weights or ()) if paths or weights else None


def build(
    root: DataRoot, workspace: Workspace, request: BuildRequest, json_file: Path | None = None
) -> None:
    """Build features and print the result."""
    from xlarank.pipelines.build_features import build_features as run

    report = run(root, workspace, request, progress=progress, on_plan=lambda plan: say(plan, "dim"))
    show_rows(
        {
            "collection": part.collection,
            "split": part.split,
            ">graphs": part.graphs,
            ">built": part.built,
            ">kept": part.kept,
            ">configurations kept": f"{part.configs:,}",
            ">distinct rows": f"{part.rows:,}",
            ">broken": len(part.broken),
        }
        for part in report.splits
    )
    for kind, (constant, varying) in report.columns.items():
        columns = f"{constant} columns per graph + {varying} per configuration"
        say(f"{kind}: {columns}; {report.seconds:.1f} s in all")
    list_lines("note", substitutions(part.collection for part in report.splits))
    for part in report.splits:
        title = f"cannot be ranked, kept for prediction ({part.collection} {part.split})"
        reason = _SAME if part.split == "test" else UNRANKABLE
        list_reasons(title, dict.fromkeys(part.unrankable, reason))
    list_lines("no file in the data root any more, rows removed", report.removed)
    write_json(json_file, report)
    finish(report.broken | warn_of_skipped_files(root))
