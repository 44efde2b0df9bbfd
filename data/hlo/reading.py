"""Reading of programs as graphs that can be ranked, and of the names of their nodes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import ConfigTable
from xlarank.data.errors import HloError
from xlarank.data.graph import Graph, LayoutGraph
from xlarank.data.hlo.encoding import ProgramArrays, encode_module
from xlarank.data.hlo.parsing import module_of, naming, read_program
from xlarank.data.hlo.structure import check_structure
from xlarank.data.hlo.tuning import program_arrays
from xlarank.data.schema import LAYOUT_COLUMNS, OPCODE, OPCODES

#: Longer names are cut.
_NAME, _OP_NAME = 80, 200
_SAME_MODULE: Final = "the module that the graph was made from"


class HloWarning(UserWarning):
    """Part of a program cannot be expressed in the dataset's format; the rest was read."""


@dataclass(frozen=True)
class NodeName:
    """A node's names.

    Attributes:
        name: of the instruction, such as ``dot.22``.
        op_name: where it comes from in the framework's program, such as ``jit(f)/dot_general``; may be empty.
    """

    name: str
    op_name: str


def read_hlo(path: Path | str) -> LayoutGraph:
    """Read a program: an HLO binary or text, or the program of TpuGraphs' tuning data.

    The graph has the dataset's columns and one configuration: the compiler's default for every configurable node
    (a row of -1). Its runtime is 0, unknown. Configurable is every convolution, dot and reshape outside the
    bodies of fusions. Warns (`HloWarning`) about what the format cannot hold, such as opcodes that it does not
    know. Raises `xlarank.data.errors.HloError` naming the file.
    """
    path = Path(path)
    message = read_program(path)
    with naming(path):
        program = encode_module(module_of(message))
    for note in program.notes:
        warnings.warn(f"{path.name}: {note}", HloWarning, stacklevel=2)
    rows = default_configuration(len(program.node_config_ids))
    table = ConfigTable.from_blocks([rows], configs=1, nodes=len(program.node_config_ids))
    return LayoutGraph(
        graph_name(path),
        program.node_feat,
        program.node_opcode.astype(np.int64),
        program.edge_index,
        np.zeros(1, np.int64),
        program.node_splits.reshape(-1),
        program.node_config_ids,
        table,
    )


def unlabelled_arrays(program: ProgramArrays) -> dict[str, NDArray[Any]]:
    """Return what `xlarank.data.writing.write_graph` takes: the compiler's default alone, without a runtime."""
    arrays = program_arrays(program, "node_splits", "node_config_ids")
    arrays["node_config_feat"] = default_configuration(len(program.node_config_ids)).astype(np.float32)
    arrays["config_runtime"] = np.zeros(1, np.int64)
    return arrays


def default_configuration(nodes: int) -> NDArray[np.int8]:
    """Return ``(1, nodes, 18)`` of -1: every layout is left to the compiler."""
    return np.full((1, nodes, len(LAYOUT_COLUMNS)), -1, np.int8)


def graph_name(path: Path) -> str:
    """Return a file's name without the endings of compilers' dumps.

    >>> graph_name(Path("dump/module_0001.jit_f.before_optimizations.hlo.pb"))
    'module_0001.jit_f.before_optimizations'
    """
    name = path.name
    for ending in (".txt", ".pb", ".hlo"):
        name = name.removesuffix(ending)
    return name or path.name


def node_names(path: Path | str, graph: Graph) -> tuple[NodeName, ...]:
    """Return ``(nodes,)`` names of a graph's nodes, from the file of the module that it was made from.

    Raises `HloError` naming the file where the number of nodes or an opcode differs, or where it holds no module.
    """
    path = Path(path)
    message = read_program(path)
    with naming(path):
        structure = check_structure(module_of(message))
        if structure.nodes != graph.nodes:
            raise HloError(
                f"the module has {structure.nodes:,} instructions, and {graph.name} {graph.nodes:,} nodes",
                expected=_SAME_MODULE,
            )
        names = []
        for node, _, instruction in structure.instructions():
            known = OPCODE.get(instruction.opcode, 0)
            if known != graph.opcode[node]:
                raise HloError(
                    f"instruction {node} is a {instruction.opcode}, and node {node} of {graph.name} "
                    f"a {OPCODES[int(graph.opcode[node])]}",
                    expected=_SAME_MODULE,
                )
            names.append(NodeName(_shown(instruction.name, _NAME), _shown(instruction.metadata.op_name, _OP_NAME)))
    return tuple(names)


def _shown(text: str, most: int) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])
