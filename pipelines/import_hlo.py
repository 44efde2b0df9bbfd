"""Conversion of HLO files and TpuGraphs protobufs to graph files of a data root."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from xlarank.data.collection import Collection
from xlarank.data.errors import HloError, XlarankError, counted
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
#: Title and name of a program, function that encodes it, and its message.
_Part = tuple[str, str, Callable[[Message], Arrays], Message]


def import_hlo(
    files: Sequence[Path], out: Path, *, target: str | None = None, collection: str | None = None
) -> tuple[list[dict[str, Any]], list[str], dict[str, str]]:
    """Write a graph file below ``out`` for every program in ``files``. A folder stands for the
    files in it, of which those that hold no program, such as a compiler's other reports, are left
    out.

    A program may be there as text and as protobuf (``NAME.txt``, ``NAME.hlo.pb``): the latter is
    read. An HLO program gets one configuration, the compiler's default, without a runtime; a
    ``ModuleTuningData`` keeps its configurations and runtimes; a ``TuningData`` becomes a tile
    graph per kernel. ``collection`` is by default ``layout:own:default``, or ``tile:own`` for
    kernels. ``target`` is the hardware that programs are ranked for, by default as named by the
    collection. Graphs are of the split ``test``; existing files are overwritten.

    Returns records of written graphs, what was left out, and broken files or programs with the
    reason. Raises `xlarank.data.errors.CollectionError` for an invalid collection, `ParameterError`
    for an unknown target.
    """
    requested = Collection.parse(collection) if collection is not None else None
    if target is not None:
        require_hardware(target)
    folders = [path for path in files if path.is_dir()]
    in_folders = [
        path
        for folder in folders
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".")
    ]
    files = [path for path in files if path not in folders] + in_folders
    twins = _twins(files)
    root = out if out.name == "npz" else out / "npz"
    graphs: list[dict[str, Any]] = []
    left_out: list[str] = []
    broken: dict[str, str] = {}
    written: dict[Path, Path] = {}
    with steps_of("importing programs", len(files)) as step:
        for file in files:
            parts: list[_Part] = []
            try:
                if file in twins:
                    left_out.append(f"{file}: {twins[file].name} is the same program")
                else:
                    parts += _parts(file)
            except (XlarankError, MemoryError) as error:
                if file in in_folders and isinstance(error, NoProgramError):
                    left_out.append(f"{file}: holds no program")
                else:
                    broken[str(file)] = _reason(error, file)
            for title, stem, encode, message in parts:
                own = encode is unlabelled_arrays
                kind: Kind = "tile" if encode is tile_arrays else "layout"
                place = requested or Collection.parse(_DEFAULT[kind])
                path = root / Path(*place.parts) / "test" / f"{stem}.npz"
                if kind == "tile" and len(message.runs) < 2:
                    runs = counted(len(message.runs), "run")
                    left_out.append(f"{title}: nothing to choose between ({runs})")
                elif own and file in in_folders and optimised_cause(message):
                    left_out.append(f"{title}: a module after optimisation")
                elif place.kind != kind:
                    expected = f"a {place.kind} graph for {place}"
                    broken[title] = f"it is a {kind} graph; expected {expected}"
                elif path in written:
                    broken[title] = f"{path.name} was written from {written[path]} already"
                else:
                    try:
                        graphs.append(_write(path, place, target, file, encode, message))
                        written[path] = file
                    except (XlarankError, MemoryError) as error:
                        broken[title] = _reason(error, file)
            step(file.name)
    if folders and not (graphs or broken):
        raise HloError("the folder holds no program", expected="HLO files or TpuGraphs protobufs")
    return graphs, left_out, broken


def _parts(file: Path) -> Iterator[_Part]:
    """Yield the programs of a file."""
    message = read_program(file)
    stem = graph_name(file)
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
    """Return the texts of programs that are there as protobuf, too, by file."""
    binaries = {path.with_name(graph_name(path)): path for path in files if _is_protobuf(path)}
    twins = {}
    for path in files:
        binary = binaries.get(path.with_name(graph_name(path)))
        if binary and not _is_protobuf(path):
            twins[path] = binary
    return twins


def _is_protobuf(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(".pb")


def _reason(error: XlarankError | MemoryError, file: Path) -> str:
    return str(error).removeprefix(f"{file.name}: ") or "it does not fit into memory"
