"""Data root and workspace of a command; missing features are built."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from xlarank.cli import record
from xlarank.cli.console import finish, list_lines, list_reasons, progress_bars, say, show_rows, write_json
from xlarank.cli.options import kept

if TYPE_CHECKING:  # slow; imported inside functions, so that --help stays fast
    from xlarank.data.collection import DataRoot
    from xlarank.data.workspace import Workspace
    from xlarank.pipelines.build_features import BuildRequest
    from xlarank.pipelines.support.score_files import ScoreFiles


def _load_blocks(names: list[str] | None) -> list[str] | None:
    if names:
        from xlarank.features.catalogue import load_blocks

        load_blocks(*names)
    kept("blocks", "--blocks")(names)
    return names


#: Why a graph cannot be ranked.
UNRANKABLE = "one distinct configuration, or equal runtimes"
Blocks = Annotated[
    list[str] | None, Option(callback=_load_blocks, help="File with blocks, which is run; repeatable.")
]


def data_root_of(named: Path | None) -> DataRoot:
    from xlarank.data.collection import find_data_root

    root = find_data_root(named)
    say(f"data: {root.path} ({root.why})", "dim")
    return root


def warn_of_skipped_files(root: DataRoot) -> dict[str, str]:
    """Print the files that are skipped; return those that cannot be read, with the reason."""
    from xlarank.data.collection import skipped_files

    skipped, unreadable = skipped_files(root.npz)
    list_lines("skipped", [f"{path}: {why}" for path, why in skipped.items()])
    return {str(path): why for path, why in unreadable.items()}


def workspace_at(path: Path) -> Workspace:
    from xlarank.data.workspace import Workspace

    record.run.workspace = path
    return Workspace(path)


def built_workspace(
    data_root: Path | None, workspace: Path, collections: Sequence[str] | None = None, *, trained: bool = False
) -> Workspace:
    """Return the workspace, after building features of the collections that it lacks (none named: of all).

    Nothing is built beside features of the data root, unless a collection is named that they lack. Stored features
    keep the settings they were built with. With ``trained`` nothing is built into a workspace without a model:
    raises `ModelError`. Raises `CollectionError` for a collection that is in neither the workspace nor a data root.
    """
    from xlarank.data.collection import SAMPLE
    from xlarank.data.errors import CollectionError, ModelError
    from xlarank.features.store import stored_collections, stored_roots
    from xlarank.pipelines.build_features import BuildRequest
    from xlarank.pipelines.support.workspaces import trained_collections

    work = workspace_at(workspace)
    stored, available = stored_roots(work), list(map(str, stored_collections(work)))
    missing = [name for name in collections or () if name not in available and not fnmatch.filter(available, name)]
    if data_root is None and stored and not missing:
        return work
    source = data_root
    if source is None and stored:
        source = Path(next(iter(stored)))
        if not source.exists():
            raise CollectionError(
                f"the workspace {workspace} has no features of {', '.join(missing)}, and its data root {source} "
                "does not exist any more",
                expected=f"one of {', '.join(available)}",
                do="check --collection, or pass the data root of those collections by --data-root",
            )
    root = data_root_of(source)
    if trained and not stored and not trained_collections(work):
        if workspace.exists():
            work.require_writable()
        problem = "holds no trained model" if workspace.exists() else "does not exist"
        raise ModelError(f"the workspace {workspace} {problem}", do="run train first, or check --workspace")
    if str(root.path.resolve()) not in stored or missing:
        named = ", ".join(missing or collections or ()) or "all collections"
        say(f"the workspace {workspace} has no features of {named} of {root.path}: building them first")
        if data_root is None and root.path == SAMPLE:
            list_lines("note", ["no data root was given: these results are for the embedded sample"])
        build(root, work, BuildRequest(collections=tuple(missing or collections or ())))
    return work


def read_scores(paths: Sequence[Path] | None, weights: Sequence[float] | None, split: str) -> ScoreFiles | None:
    """Read the scores given by ``--scores`` and ``--weights``, if any."""
    from xlarank.pipelines.support.score_files import ScoreFiles

    return ScoreFiles.read(paths or (), split, weights or ()) if paths or weights else None


def build(
    root: DataRoot, workspace: Workspace, request: BuildRequest | None = None, json_file: Path | None = None
) -> None:
    """Build features and print the result."""
    from xlarank.pipelines.build_features import build_features as run

    with progress_bars() as progress:
        report = run(root, workspace, request, progress=progress, on_plan=lambda plan: say(plan, "dim"))
    heads = ("collection", "split", ">graphs", ">built", ">kept", ">configurations", ">rows", ">broken")
    show_rows(heads, (
        (part.collection, part.split, str(part.graphs), str(part.built), str(part.kept), f"{part.configs:,}",
         f"{part.rows:,}", str(len(part.broken)))
        for part in report.splits
    ))  # fmt: skip
    for kind, (constant, varying) in report.columns.items():
        say(f"{kind}: {constant} columns per graph + {varying} per configuration; {report.seconds:.1f} s in all")
    for part in report.splits:
        title = f"cannot be ranked, kept for prediction ({part.collection} {part.split})"
        list_reasons(title, dict.fromkeys(part.unrankable, UNRANKABLE))
    write_json(json_file, report)
    finish(report.broken | warn_of_skipped_files(root))
