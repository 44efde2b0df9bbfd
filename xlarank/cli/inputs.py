"""Data root and workspace of a command; features are built where there are none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from xlarank.cli import record
from xlarank.cli.console import finish, list_lines, progress_bars, say, show_rows, write_json

if TYPE_CHECKING:  # heavy; imported where a command needs them, so that --help stays quick
    from xlarank.data.root import DataRoot
    from xlarank.data.workspace import Workspace
    from xlarank.pipelines.build_features import BuildRequest


def data_root_of(named: Path | None) -> DataRoot:
    from xlarank.data.root import find_data_root

    root = find_data_root(named)
    say(f"data: {root.path} ({root.why})", "dim")
    return root


def warn_of_skipped_files(root: DataRoot) -> dict[str, str]:
    """Print the files that are skipped; return those that cannot be read, with the reason."""
    from xlarank.data.collection import skipped_files

    found = skipped_files(root.npz)
    list_lines("skipped", [str(one) for one in found if not one.unreadable])
    return {str(one.path): one.why for one in found if one.unreadable}


def workspace_at(path: Path) -> Workspace:
    from xlarank.data.workspace import Workspace

    record.run.workspace = path
    return Workspace(path)


def require_models(data_root: Path | None, workspace: Path) -> None:
    """Raise `ModelError` for a workspace that holds nothing, before anything is built into it."""
    from xlarank.data.errors import ModelError
    from xlarank.data.root import find_data_root
    from xlarank.features.store import stored_collections
    from xlarank.pipelines.support.workspace_collections import trained_collections

    if data_root is not None:
        find_data_root(data_root)  # the error that is nearest
    place = workspace_at(workspace)
    if workspace.exists() and not workspace.is_dir():
        place.require_writable()
    if not trained_collections(place) and not stored_collections(place):
        what = "holds no trained model" if workspace.is_dir() else "does not exist"
        raise ModelError(f"the workspace {workspace} {what}", do="run train first, or check --workspace")


def built_workspace(data_root: Path | None, workspace: Path) -> Workspace:
    """Return the workspace, after building features if it has none, or none of the data root that is named.

    Stored features keep the settings they were built with.
    """
    from xlarank.data.root import SAMPLE
    from xlarank.features.store import stored_roots

    place = workspace_at(workspace)
    stored = stored_roots(place)
    if data_root is not None or not stored:
        root = data_root_of(data_root)
        if str(root.path.resolve()) not in stored:
            why = "has no features" if not stored else "has none of this data root"
            say(f"the workspace {workspace} {why}: building those of all collections of {root.path} first")
            if data_root is None and root.path == SAMPLE:
                list_lines("note", ["no data root was given: these results are for the embedded sample"])
            build(root, place)
    return place


def build(
    root: DataRoot, workspace: Workspace, request: BuildRequest | None = None, json_file: Path | None = None
) -> None:
    """Build features and print the result."""
    from xlarank.pipelines.build_features import build_features as run

    with progress_bars() as progress:
        report = run(root, workspace, request, progress=progress)
    heads = ("collection", "split", ">graphs", ">built", ">kept", ">configurations", ">rows", ">broken")
    show_rows(heads, (
        (part.collection, part.split, str(part.graphs), str(part.built), str(part.kept), f"{part.configs:,}",
         f"{part.rows:,}", str(len(part.broken)))
        for part in report.splits
    ))  # fmt: skip
    for kind, (constant, varying) in report.columns.items():
        say(f"{kind}: {constant} columns per graph + {varying} per configuration; {report.seconds:.1f} s in all")
    for part in report.splits:
        list_lines(f"cannot be ranked ({part.collection} {part.split}), kept for prediction", part.unrankable)
    write_json(json_file, report)
    finish(report.broken | warn_of_skipped_files(root))
