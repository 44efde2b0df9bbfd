"""Reading of programs as graphs that can be ranked, and of the names of their nodes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from xlarank.data.config_table import ConfigTable
from xlarank.data.errors import HloError, naming
from xlarank.data.graph import Graph, LayoutGraph
from xlarank.data.hlo.encoding import Arrays, encode_program, unexpressed
from xlarank.data.hlo.messages import Message, instructions
from xlarank.data.hlo.parsing import module_of, read_program
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
    with naming(path.name):
        return module_graph(module_of(message), path)


def module_graph(module: Message, path: Path) -> LayoutGraph:
    """Return the graph of an ``HloModuleProto`` as `read_hlo` does, named after ``path``."""
    arrays = unlabelled_arrays(module)
    for note in unexpressed(module):
        warnings.warn(f"{path.name}: {note}", HloWarning, stacklevel=3)
    rows, nodes = arrays["node_config_feat"], arrays["node_config_ids"]
    return LayoutGraph(
        graph_name(path), arrays["node_feat"], arrays["node_opcode"].astype(np.int64), arrays["edge_index"],
        arrays["config_runtime"], arrays["node_splits"].reshape(-1), nodes,
        ConfigTable.from_blocks([rows], configs=1, nodes=len(nodes)),
    )  # fmt: skip


def unlabelled_arrays(module: Message) -> Arrays:
    """Return what `xlarank.data.writing.write_graph` takes: the compiler's default alone, without a runtime."""
    arrays = encode_program(module)
    shape = (1, len(arrays["node_config_ids"]), len(LAYOUT_COLUMNS))
    return arrays | {"node_config_feat": np.full(shape, -1, np.float32), "config_runtime": np.zeros(1, np.int64)}


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
    names = []
    with naming(path.name):
        module = [one for _, one in instructions(module_of(message))]
        if len(module) != graph.nodes:
            got = f"the module has {len(module):,} instructions, and {graph.name} {graph.nodes:,} nodes"
            raise HloError(got, expected=_SAME_MODULE)
        for node, (one, opcode) in enumerate(zip(module, graph.opcode.tolist(), strict=True)):
            if OPCODE.get(one.opcode, 0) != opcode:
                got = f"instruction {node} is a {_shown(one.opcode, _NAME)}, and node {node} of {graph.name} a"
                raise HloError(f"{got} {OPCODES[opcode]}", expected=_SAME_MODULE)
            names.append(NodeName(_shown(one.name, _NAME), _shown(one.metadata.op_name, _OP_NAME)))
    return tuple(names)


def _shown(text: str, most: int) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])
