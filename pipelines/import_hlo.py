"""Conversion of HLO files and TpuGraphs protobufs to graph files of a data root."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from xlarank.data.collection import Collection, choose_splits
from xlarank.data.errors import CollectionError, HloError, XlarankError, counted
from xlarank.data.graph import Kind
from xlarank.data.hardware import TPUGRAPHS
from xlarank.data.hlo.encoding import Arrays, kernel_name, layout_arrays, tile_arrays, unexpressed
from xlarank.data.hlo.messages import Message, ModuleTuningData, TuningData
from xlarank.data.hlo.reading import (
    NoProgramError,
    graph_name,
    module_of,
    read_program,
    unlabelled_arrays,
)
from xlarank.data.writing import write_graph
from xlarank.pipelines.support.progress import Progress, steps_of

_DEFAULT: Final[dict[Kind, str]] = {"layout": "layout:own:default", "tile": "tile:own"}


@dataclass
class ImportReport:
    """Records of written graphs, kernels left out as in the dataset, files of a folder left out,
    and broken files or programs with the reason.
    """

    graphs: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)


def import_hlo(
    files: Sequence[Path],
    out: Path,
    *,
    collection: str | None = None,
    split: str = "test",
    name: str | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Write a graph file below ``out`` for every program in ``files``; broken files are listed in
    the report. A folder stands for the files in it, of which those that hold no program, such as a
    compiler's other reports, are left out.

    An HLO program gets one configuration, the compiler's default, without a runtime; a
    ``ModuleTuningData`` keeps its configurations and runtimes; a ``TuningData`` becomes a tile
    graph per kernel. ``collection`` is by default ``layout:own:default``, or ``tile:own`` for
    kernels. ``name`` replaces the name of a single file. Existing graph files are overwritten.

    Raises `xlarank.data.errors.CollectionError` for an invalid collection or split, `HloError` for
    an invalid name.
    """
    requested = Collection.parse(collection) if collection is not None else None
    if requested is not None and not all(map(_is_plain, requested.parts)):
        got = f"{collection!r} would leave {out}"
        raise CollectionError(got, expected="plain names between the colons")
    choose_splits([split])
    if name is not None and (len(files) != 1 or not _is_plain(name)):
        got = f"the name {name!r} for {len(files)} files"
        raise HloError(got, expected="a plain name for a single file")
    folders = [path for path in files if path.is_dir()]
    in_folders = list(chain.from_iterable(map(_members, folders)))
    files = [path for path in files if not path.is_dir()] + in_folders
    root = out if out.name == "npz" else out / "npz"
    report = ImportReport()
    written: dict[Path, Path] = {}
    with steps_of(progress, "importing programs", len(files)) as step:
        for file in files:
            parts = []
            with _recording_errors(report, str(file), file, in_folder=file in in_folders):
                parts = list(_parts(file, name or graph_name(file)))
            for title, stem, encode, message in parts:
                kind: Kind = "tile" if encode is tile_arrays else "layout"
                if kind == "tile" and len(message.runs) < 2:
                    runs = counted(len(message.runs), "run")
                    report.left_out.append(f"{title}: nothing to choose between ({runs})")
                    continue
                target = requested or Collection.parse(_DEFAULT[kind])
                path = root / Path(*target.parts) / split / f"{stem}.npz"
                with _recording_errors(report, title, file):
                    if target.kind != kind:
                        got = f"it is a {kind} graph"
                        raise HloError(got, expected=f"a {target.kind} graph for {target}")
                    if path in written:
                        got = f"{path.name} was written from {written[path]} already"
                        raise HloError(got, do="pass other names")
                    report.graphs.append(_write(path, target, file, encode, message))
                    written[path] = file
            step(file.name)
    if folders and not (report.graphs or report.broken):
        raise HloError("the folder holds no program", expected="HLO files or TpuGraphs protobufs")
    return report


def _parts(
    file: Path, stem: str
) -> Iterator[tuple[str, str, Callable[[Message], Arrays], Message]]:
    """Yield the title, name, encoding function and message of each program of a file."""
    message = read_program(file)
    if isinstance(message, TuningData):
        for number, kernel in enumerate(message.modules):
            title = f"{file} kernel {number}"
            yield title, kernel_name(stem, kernel.fingerprint), tile_arrays, kernel
    else:
        is_tuning = isinstance(message, ModuleTuningData)
        yield str(file), stem, layout_arrays if is_tuning else unlabelled_arrays, message


def _write(
    path: Path,
    collection: Collection,
    source: Path,
    encode: Callable[[Message], Arrays],
    message: Message,
) -> dict[str, Any]:
    """Write a program's graph file; return its record: ``notes`` name what was not expressed."""
    start = time.perf_counter()
    arrays = encode(message)
    # a program of one's own is for the hardware of its collection; tuning data is the dataset's
    hardware = collection.hardware if encode is unlabelled_arrays else TPUGRAPHS
    graph = write_graph(path, target=hardware, **arrays)
    return {
        "source": str(source),
        "graph": graph.name,
        "collection": str(collection),
        "path": str(path),
        "nodes": graph.nodes,
        "edges": len(graph.edges),
        "configurable": len(arrays.get("node_config_ids", ())),
        "configs": graph.configs,
        "labelled": graph.labelled,
        "seconds": time.perf_counter() - start,
        "notes": unexpressed(module_of(message)),
    }


def _members(folder: Path) -> list[Path]:
    """Return the visible files of a folder; raises `HloError` if it cannot be read."""
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise HloError(f"{folder} cannot be read ({error.strerror})", do="check it") from error
    return list(filter(Path.is_file, paths))


@contextmanager
def _recording_errors(
    report: ImportReport, title: str, file: Path, *, in_folder: bool = False
) -> Iterator[None]:
    """Record the reason if a file, or one of its programs, cannot be read or written."""
    try:
        yield
    except (XlarankError, MemoryError) as error:
        reason = str(error).removeprefix(f"{file.name}: ") or "it does not fit into memory"
        if in_folder and isinstance(error, NoProgramError):
            report.left_out.append(f"{title}: holds no program")
        else:
            report.broken[title] = reason


def _is_plain(name: str) -> bool:
    return bool(name) and Path(name).name == name and not name.startswith(".")
