"""Names of a graph's nodes, from the module that it was made of; graph files hold numbers only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xlarank.data.errors import HloError
from xlarank.data.graph import Graph
from xlarank.data.hlo.parsing import module_of, naming, read_program
from xlarank.data.hlo.structure import check_structure
from xlarank.data.schema import OPCODE, OPCODES

#: Longer names are cut: they are the file's, and somebody has to read them.
_NAME, _OP_NAME = 80, 200
_SAME_MODULE: Final = "the module that the graph was made from"


@dataclass(frozen=True)
class NodeName:
    """A node's names.

    Attributes:
        name: of the instruction, such as ``dot.22``.
        op_name: where it comes from in the framework's program, such as ``jit(f)/dot_general``; may be empty.
    """

    name: str
    op_name: str


def node_names(path: Path | str, graph: Graph) -> tuple[NodeName, ...]:
    """``(nodes,)`` names by the module in a file that `xlarank.data.hlo.reading.read_hlo` takes.

    Nodes are numbered through the computations in the module's order, so their number and every opcode must agree.
    Raises `HloError` naming the file where they do not, or where it holds no module.
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
        found = []
        for node, _, instruction in structure.instructions():
            known = OPCODE.get(instruction.opcode, 0)
            if known != graph.opcode[node]:
                raise HloError(
                    f"instruction {node} is a {instruction.opcode}, and node {node} of {graph.name} "
                    f"a {OPCODES[int(graph.opcode[node])]}",
                    expected=_SAME_MODULE,
                )
            found.append(NodeName(_shown(instruction.name, _NAME), _shown(instruction.metadata.op_name, _OP_NAME)))
    return tuple(found)


def _shown(text: str, most: int) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:most])
