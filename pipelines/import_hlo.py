"""Conversion of HLO files and TpuGraphs protobufs to graph files of a data root."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Final

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, HloError, XlarankError, counted
from xlarank.data.graph import Kind
from xlarank.data.hardware import TPUGRAPHS, require_hardware
from xlarank.data.hlo.encoding import Arrays, kernel_name, layout_arrays, tile_arrays, unexpressed
from xlarank.data.hlo.messages import Message, ModuleTuningData, TuningData
from xlarank.data.hlo.reading import (
    NoProgramError,
    graph_name,
    module_of,
    optimised_cause,
    program_notes,
    read_program,
    unlabelled_arrays,
)
from xlarank.data.writing import write_graph
from xlarank.pipelines.support.progress import steps_of

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
    files: Sequence[Path], out: Path, *, target: str | None = None, collection: str | None = None
) -> ImportReport:
    """Write a graph file below ``out`` for every program in ``files``; broken files are listed in
    the report. A folder stands for the files in it, of which those that hold no program, such as a
    compiler's other reports, are left out.

    A program may be there as text and as protobuf (``NAME.txt``, ``NAME.hlo.pb``): the latter is
    read. An HLO program gets one configuration, the compiler's default, without a runtime; a
    ``ModuleTuningData`` keeps its configurations and runtimes; a ``TuningData`` becomes a tile
    graph per kernel. ``collection`` is by default ``layout:own:default``, or ``tile:own`` for
    kernels. ``target`` is the hardware that programs are ranked for, by default as named by the
    collection. Graphs are of the split ``test``; existing files are overwritten.

    Raises `xlarank.data.errors.CollectionError` for an invalid collection, `ParameterError` for an
    unknown target.
    """
    requested = Collection.parse(collection) if collection is not None else None
    if requested is not None and not all(map(_is_plain, requested.parts)):
        got = f"{collection!r} would leave {out}"
        raise CollectionError(got, expected="plain names between the colons")
    if target is not None:
        require_hardware(target)
    folders = [path for path in files if path.is_dir()]
    in_folders = list(chain.from_iterable(map(_members, folders)))
    files = [path for path in files if not path.is_dir()] + in_folders
    twins = _twins(files)
    root = out if out.name == "npz" else out / "npz"
    report = ImportReport()
    written: dict[Path, Path] = {}
    with steps_of("importing programs", len(files)) as step:
        for file in files:
            if file in twins:
                report.left_out.append(f"{file}: {twins[file].name} is the same program")
                step(file.name)
                continue
            parts = []
            in_folder = file in in_folders
            with _recording_errors(report, str(file), file, in_folder=in_folder):
                parts = list(_parts(file, graph_name(file)))
            for title, stem, encode, message in parts:
                kind: Kind = "tile" if encode is tile_arrays else "layout"
                if kind == "tile" and len(message.runs) < 2:
                    runs = counted(len(message.runs), "run")
                    report.left_out.append(f"{title}: nothing to choose between ({runs})")
                    continue
                if in_folder and encode is unlabelled_arrays and optimised_cause(message):
                    report.left_out.append(f"{title}: a module after optimisation")
                    continue
                place = requested or Collection.parse(_DEFAULT[kind])
                path = root / Path(*place.parts) / "test" / f"{stem}.npz"
                with _recording_errors(report, title, file):
                    if place.kind != kind:
                        got = f"it is a {kind} graph"
                        raise HloError(got, expected=f"a {place.kind} graph for {place}")
                    if path in written:
                        got = f"{path.name} was written from {written[path]} already"
                        raise HloError(got, do="pass other names")
                    report.graphs.append(_write(path, place, target, file, encode, message))
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
    target: str | None,
    source: Path,
    encode: Callable[[Message], Arrays],
    message: Message,
) -> dict[str, Any]:
    """Write a program's graph file; return its record: ``notes`` name what was not expressed."""
    start = time.perf_counter()
    arrays = encode(message)
    # a program of one's own is for the hardware of its collection; tuning data is the dataset's
    hardware = target or collection.hardware if encode is unlabelled_arrays else TPUGRAPHS
    notes = program_notes if encode is unlabelled_arrays else unexpressed
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
        "notes": notes(module_of(message)),
    }


def _twins(files: Sequence[Path]) -> dict[Path, Path]:
    """Return the texts of programs that are there in another form, preferably protobuf, by file."""
    kept: dict[Path, Path] = {}
    twins = {}
    for path in sorted(files, key=lambda path: not _is_protobuf(path)):
        first = kept.setdefault(path.with_name(graph_name(path)), path)
        if first != path and not _is_protobuf(path):
            twins[path] = first
    return twins


def _is_protobuf(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".pb")


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
