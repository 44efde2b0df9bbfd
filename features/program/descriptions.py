"""Nodes and layouts in words, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Graph, tensor_ranks
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, NODE_COLUMN, NODE_COLUMNS, OPCODES

_ELEMENT = "shape_element_type_is_"


@dataclass(frozen=True)
class NodeText:
    """A node for people.

    Attributes:
        opcode: HLO name.
        shape: element type and dimensions, such as ``f32[8,32,32,3]``.
    """

    opcode: str
    shape: str

    def __str__(self) -> str:
        return f"{self.opcode} {self.shape}"


def describe_node(graph: Graph, node: int) -> NodeText:
    """Opcode and output shape of a node as numbered in the graph."""
    row = graph.node_feat[node]
    rank = int(tensor_ranks(graph.node_feat[node : node + 1])[0])
    at = NODE_COLUMN["shape_dimensions_0"]
    dims = ",".join(str(int(size)) for size in row[at : at + rank])
    elements = [name.removeprefix(_ELEMENT) for name in NODE_COLUMNS if name.startswith(_ELEMENT)]
    given = [name for name in elements if row[NODE_COLUMN[_ELEMENT + name]] > 0]
    return NodeText(OPCODES[int(graph.opcode[node])], f"{given[0] if given else '?'}[{dims}]")


def layout_text(row: NDArray[np.integer[Any]]) -> str:
    """A row of ``node_config_feat`` ``(18,)``: the slots that are set, minor-to-major.

    >>> layout_text(np.array([1, 0, -1, -1, -1, -1, *[-1] * 12]))
    'output {1,0}'
    """
    parts = []
    for number, slot in enumerate(LAYOUT_SLOTS):
        entries = [str(int(d)) for d in row[MAX_RANK * number : MAX_RANK * (number + 1)] if d >= 0]
        if entries:
            parts.append(f"{slot} {{{','.join(entries)}}}")
    return ", ".join(parts) or "default"


def default_layout_text(graph: Graph, node: int) -> str:
    """The compiler's own layout of a node's output, minor-to-major."""
    rank = int(tensor_ranks(graph.node_feat[node : node + 1])[0])
    at = NODE_COLUMN["layout_minor_to_major_0"]
    return "{" + ",".join(str(int(d)) for d in graph.node_feat[node, at : at + rank]) + "}"
