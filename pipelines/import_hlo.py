"""Conversion of HLO files and TpuGraphs protobufs to graph files of a data root."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from xlarank.data.collection import Collection
from xlarank.data.errors import HloError, XlarankError, counted
from xlarank.data.graph import Kind
from xlarank.data.hardware import TPUGRAPHS, require_hardware
from xlarank.data.hlo.encoding import kernel_name, layout_arrays, tile_arrays, unexpressed
from xlarank.data.hlo.messages import HloModuleProto, Message, TuningData
from xlarank.data.hlo.reading import (
    NoProgramError,
    graph_name,
    optimised_cause,
    program_notes,
    read_program,
    unlabelled_arrays,
)
from xlarank.data.writing import write_graph
from xlarank.pipelines.support.progress import steps_of

_DEFAULT: Final[dict[Kind, str]] = {"layout": "layout:own:default", "tile": "tile:own"}


@dataclass(frozen=True)
class _Program:
    """A program in a file; ``title`` names it in messages, ``name`` is that of its graph."""

    title: str
    name: str
    kind: Kind
    message: Message

    @property
    def is_own(self) -> bool:
        """True for a program without tuning data."""
        return isinstance(self.message, HloModuleProto)

    def left_out(self, in_folder: bool) -> str:
        """Return the reason for writing no graph; empty if one is written."""
        if self.kind == "tile" and len(self.message.runs) < 2:
            return f"nothing to choose between ({counted(len(self.message.runs), 'run')})"
        optimised = in_folder and self.is_own and optimised_cause(self.message)
        return "a module after optimisation" if optimised else ""

    def write(self, path: Path, hardware: str) -> dict[str, Any]:
        """Write the graph file; return its record: ``notes`` name what was not expressed."""
        if self.is_own:
            arrays = unlabelled_arrays(self.message)
            notes = program_notes(self.message)
        else:
            encode = tile_arrays if self.kind == "tile" else layout_arrays
            arrays = encode(self.message)
            notes = unexpressed(self.message.module)
            hardware = TPUGRAPHS  # tuning data is the dataset's
        graph = write_graph(path, target=hardware, **arrays)
        return {
            "graph": graph.name,
            "path": str(path),
            "nodes": graph.nodes,
            "edges": len(graph.edges),
            "configurable": len(arrays.get("node_config_ids", ())),
            "configs": graph.configs,
            "labelled": graph.labelled,
            "notes": notes,
        }


def import_hlo(
    files: Sequence[Path], out: Path, *, target: str | None = None, collection: str | None = None
) -> tuple[list[dict[str, Any]], list[str], dict[str, str]]:
    """Write a graph file below ``out`` for every program in ``files``.

    A folder stands for the files in it that hold a program before optimisation. Of programs with
    one name, such as ``NAME.hlo.pb`` and ``NAME.txt``, the first is read. An HLO program gets one
    configuration, the compiler's default, without a runtime; a ``ModuleTuningData`` keeps its
    configurations and runtimes; a ``TuningData`` becomes a tile graph per kernel. ``collection`` is
    by default ``layout:own:default``, or ``tile:own`` for kernels. ``target`` is the hardware that
    programs are ranked for, by default as named by the collection. Graphs are of the split
    ``test``; existing files are overwritten.

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
    root = out if out.name == "npz" else out / "npz"
    graphs: list[dict[str, Any]] = []
    left_out: list[str] = []
    broken: dict[str, str] = {}
    firsts: dict[Path, Path] = {}
    written: dict[Path, Path] = {}
    with steps_of("importing programs", len(files)) as step:
        for file in files:
            programs: list[_Program] = []
            named = file.with_name(graph_name(file))
            first = firsts.get(named, file)
            try:
                if first == file:
                    programs += _programs(file)
                    firsts[named] = file
                else:
                    left_out.append(f"{file}: {first.name} has the same name and was read")
            except XlarankError as error:
                if file in in_folders and isinstance(error, NoProgramError):
                    left_out.append(f"{file}: holds no program")
                else:
                    broken[str(file)] = str(error).removeprefix(f"{file.name}: ")
            for program in programs:
                if reason := program.left_out(in_folder=file in in_folders):
                    left_out.append(f"{program.title}: {reason}")
                    continue
                place = requested or Collection.parse(_DEFAULT[program.kind])
                path = root / Path(*place.parts) / "test" / f"{program.name}.npz"
                try:
                    if place.kind != program.kind:
                        expected = f"a {place.kind} graph for {place}"
                        raise HloError(f"it is a {program.kind} graph", expected=expected)
                    if path in written:
                        raise HloError(f"{path.name} was written from {written[path]} already")
                    record = program.write(path, target or place.hardware)
                    graphs.append({"collection": str(place)} | record)
                    written[path] = file
                except XlarankError as error:
                    broken[program.title] = str(error).removeprefix(f"{file.name}: ")
            step(file.name)
    if folders and not (graphs or broken):
        raise HloError("the folder holds no program", expected="HLO files or TpuGraphs protobufs")
    return graphs, left_out, broken


def _programs(file: Path) -> Iterator[_Program]:
    """Yield the programs of a file."""
    message = read_program(file)
    stem = graph_name(file)
    if not isinstance(message, TuningData):
        yield _Program(str(file), stem, "layout", message)
        return
    for number, kernel in enumerate(message.modules):
        name = kernel_name(stem, kernel.fingerprint)
        yield _Program(f"{file} kernel {number}", name, "tile", kernel)
