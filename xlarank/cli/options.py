"""Options of several commands, and the data root and built workspace that they name."""

from __future__ import annotations

import fnmatch
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from typer import CallbackParam, Option

from xlarank.cli import console
from xlarank.cli.console import list_lines, list_reasons, say, show_rows, write_json
from xlarank.data.errors import WorkspaceError, XlarankError, reasons
from xlarank.data.files import output_target, require_replaceable
from xlarank.data.workspace import DEFAULT_ROOT, Workspace

if TYPE_CHECKING:
    from xlarank.data.collection import DataRoot

#: Why a graph cannot be ranked.
UNRANKABLE: Final = "one distinct configuration, or equal runtimes"
#: Parameters that name a file to write.
WRITTEN: Final = ("out", "csv", "json_file")


def _json(param: CallbackParam, path: Path | None) -> Path | None:
    if path == console.STDOUT:
        console.current_run.json_on_stdout = True
        return path
    return out_file(param, path)


def out_file(param: CallbackParam, path: Path | None) -> Path | None:
    """Return the path; raises now, rather than after hours of work, if it cannot be written."""
    if path == console.STDOUT:
        do = "standard output is for --json -"
        raise XlarankError(f"{param.opts[0]} is -", expected="the name of a file", do=do)
    if path is not None:
        require_replaceable(path)
    return path


def graph_out(param: CallbackParam, path: Path | None) -> Path | None:
    """Return the path of a graph file to write, which may replace another one."""
    if path is not None:
        output_target(path)
    return path


def require_separate_files(params: Iterable[Any], given: Mapping[str, Any]) -> None:
    """Raise `WorkspaceError` if an output of a command is one of its inputs or another output."""
    named: dict[str, str] = {}
    for param in sorted(params, key=lambda param: param.name in WRITTEN):  # inputs first
        is_written = param.name in WRITTEN
        value = given.get(param.name)
        for entry in value if isinstance(value, list | tuple) else [value]:
            if not isinstance(entry, str | Path) or entry == console.STDOUT:
                continue
            path = os.path.realpath(entry)
            if is_written and path in named:
                got = f"{param.opts[0]} {entry} is the same file as {named[path]}"
                raise WorkspaceError(got, expected="a file of its own", do="name another file")
            if is_written:
                named[path] = f"{param.opts[0]} {entry}"
                continue
            module = str(entry).partition(":")[0].replace(".", os.sep)  # of module:function
            for name in (path, os.path.realpath(f"{module}.py")):
                if os.path.isfile(name):
                    named[name] = f"{param.opts[0]} {entry}"


def recorded(param: CallbackParam, value: Any) -> Any:
    """Record an option, unless it has its default, for the next command."""
    values = value if isinstance(value, list | tuple) else [value]
    given = [shlex.quote(str(entry)) for entry in values if entry not in (None, WORK)]
    options = "".join(f" {param.opts[-1]} {entry}" for entry in given)
    console.current_run.words[str(param.name)] = options
    return value


RANKERS: Final = {
    "lambdarank": "trees with the lambdarank loss; fast, the default",
    "ranknet": "trees on sampled pairs; fast, often slightly better for layouts",
    "xgb-pairwise": "XGBoost on sampled pairs, independent of LightGBM",
    "time-trees": "trees that begin at an estimated time, of TPU layouts or of tiles",
    "ensemble": "rank average of lambdarank, ranknet and xgb-pairwise",
}
WORK = DEFAULT_ROOT
Root = Annotated[
    Path | None,
    Option(
        callback=recorded,
        help="TpuGraphs data. Default: XLARANK_DATA, Kaggle, ~/data/tpugraphs, the sample.",
    ),
]
Work = Annotated[Path, Option(callback=recorded, help="Folder of features, models and reports.")]
Collections = Annotated[
    list[str] | None,
    Option(
        "--collection",
        "-c",
        callback=recorded,
        metavar="NAME",
        help="layout:SOURCE:SEARCH, tile:SOURCE, pattern ('layout:*'); repeatable. Default: all.",
    ),
]
ModelOf = Annotated[
    str | None,
    Option("--collection", "-c", callback=recorded, help="Collection whose model ranks."),
]
RankedBy = Annotated[
    str | None,
    Option(
        callback=recorded,
        help="trained: the collection's model; shipped: the ranker that needs no training; or a "
        "collection with a model, or its folder. Default: the highest mean out of fold.",
    ),
]
ScoreFile = Annotated[
    Path | None,
    Option(help="Parquet or csv with graph, configuration, score, to use instead of a model."),
]
Select = Annotated[str, Option(help="Score to select by: mean, or robust: mean - std / 4.")]
Target = Annotated[
    str | None,
    Option(
        callback=recorded,
        help="Hardware: tpugraphs for files of the TpuGraphs dataset, or the chip: tpu-v3, tpu-v4, "
        "tpu-v5e, tpu-v6e, cpu, nvidia-... Default: as the file or the collection says.",
    ),
]
Model = Annotated[str, Option(callback=recorded, help="Ranker, listed below.")]
Json = Annotated[
    Path | None,
    Option("--json", callback=_json, help="Write JSON to this file; -: standard output."),
]
Out = Annotated[Path, Option(callback=out_file, help="File to write.")]
Seed = Annotated[int, Option(min=0, help="Seed of all random numbers.")]
Threads = Annotated[int, Option(min=-1, help="Threads for training; 0 or -1: all cores.")]
Rounds = Annotated[int, Option(min=1, help="Maximum number of boosting rounds; folds choose.")]


def moved_to_front(arguments: Sequence[str]) -> list[str]:
    """Move the options of all commands in front of the command.

    >>> moved_to_front(["train", "--quiet", "--seeds", "3"])
    ['--quiet', 'train', '--seeds', '3']
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    front = [word for word in arguments[:end] if word in ("--quiet", "--verbose")]
    return front + [word for word in arguments[:end] if word not in front] + [*arguments[end:]]


def data_root_of(path: Path | None, workspace: Workspace | None = None) -> DataRoot:
    """Find the data root and print it: the named one, else that of the workspace, if any."""
    from xlarank.data.collection import SAMPLE, find_data_root
    from xlarank.features.store import stored_roots

    stored = stored_roots(workspace) if workspace is not None and path is None else set()
    root = find_data_root(min(stored) if stored else path)
    if workspace is not None and stored:
        root = replace(root, why=f"of the workspace {workspace.root}")
    say(f"data: {root.path} ({root.why})", "yellow" if root.path == SAMPLE else "dim")
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
    splits: Sequence[str] = (),
) -> Workspace:
    """Return the workspace, after building features that it lacks or whose files have changed.

    If it has none of the data root, all collections are built unless some are named. Stored
    features keep the settings they were built with. ``splits`` (default: all) are looked at.
    """
    from xlarank.features.store import stored_collections, stored_roots

    work = Workspace(workspace)
    stored = stored_roots(work)
    available = list(map(str, stored_collections(work)))
    missing = [name for name in collections or () if not fnmatch.filter(available, name)]
    if missing or not stored or data_root is not None:
        root = data_root_of(data_root, work)
        if missing or str(root.path.resolve()) not in stored:
            named = missing or list(collections or ())
            names = ", ".join(named) or "all collections"
            say(f"building features of {names} of {root.path}, which {workspace} lacks")
            console.current_run.broken = build(root, work, collection=named)
    build_changed(work, collections, splits)
    return work


def build_changed(
    workspace: Workspace, collections: Sequence[str] | None = None, splits: Sequence[str] = ()
) -> None:
    """Build rows again whose graph files have changed, with their stored settings."""
    from xlarank.data.collection import choose_splits, find_data_root
    from xlarank.features.store import changed_files, read_manifests, stored_collections

    for collection in stored_collections(workspace):
        patterns = collections or [str(collection)]
        if not any(fnmatch.fnmatch(str(collection), pattern) for pattern in patterns):
            continue
        manifests = read_manifests(workspace, collection, choose_splits(splits))
        for split, manifest in manifests.items():
            if changes := changed_files(collection, split, manifest):
                files = f"their files ({'; '.join(reasons(changes))})"
                older = f"the {split} rows of {collection} are older than {files}"
                list_lines("note", [f"{older}; building them again"])
                console.current_run.broken |= build(
                    find_data_root(manifest.data_root),
                    workspace,
                    collection=str(collection),
                    split=split,
                    max_configs=manifest.recipe.max_configs,
                )


def build(
    root: DataRoot, workspace: Workspace, json_file: Path | None = None, **settings: Any
) -> dict[str, str]:
    """Build features with settings of `build_features`; return broken files with their reasons."""
    from xlarank.pipelines.build_features import build_features as run

    report = run(root, workspace, **settings)
    show_rows(
        {
            "collection": part["collection"],
            "split": part["split"],
            ">graphs": part["graphs"],
            ">built": part["built"],
            ">kept": part["kept"],
            ">configurations kept": f"{part['configs']:,}",
            ">distinct rows": f"{part['rows']:,}",
            ">broken": len(part["broken"]),
        }
        for part in report.splits
    )
    say(f"{report.seconds:.1f} s in all")
    for part in report.splits:
        title = f"cannot be ranked ({part['collection']} {part['split']})"
        list_reasons(title, dict.fromkeys(part["unrankable"], UNRANKABLE))
    list_lines("no file in the data root any more, rows removed", report.removed)
    write_json(json_file, report)
    return report.broken | warn_of_skipped_files(root)
