"""Columns, nodes and layouts in words: pages of columns, and the physical cause behind each column."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.graph import Graph, Kind, tensor_ranks
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, NODE_COLUMN, NODE_COLUMNS, OPCODES
from xlarank.features.block import Block, Cause, Scope, Tier
from xlarank.features.candidates import placed_columns
from xlarank.features.catalogue import BLOCKS, INSTANCE_BLOCKS, blocks_of, loaded_blocks


def cause_of(column: str) -> Cause:
    """Return the cause behind a column of rows or instances; a rank has the cause of the ranked column.

    >>> cause_of("padding__output_waste__mean").value, cause_of("rank__change_nodes_set__share").value
    ('padding to hardware tiles', 'fusion barriers')
    """
    return _causes(loaded_blocks()).get(placed_columns().get(column, column), Cause.PROGRAM)


@cache
def _causes(user_blocks: tuple[Block, ...]) -> dict[str, Cause]:
    declared = {
        name: getattr(meaning, "cause", None) or block.cause
        for block in (*BLOCKS, *INSTANCE_BLOCKS, *user_blocks)
        for name, meaning in block.columns.items()
    }
    return declared | {"known__siblings__ranks": Cause.SIBLINGS}  # a column that rankers add


def column_meanings() -> dict[str, str]:
    """Return the meaning of every column; a name that both kinds of graphs have means the same in both."""
    blocks = (*INSTANCE_BLOCKS, *BLOCKS, *loaded_blocks())
    return {name: meaning for block in blocks for name, meaning in block.columns.items()}


_ELEMENT = "shape_element_type_is_"


@dataclass(frozen=True)
class NodeText:
    """Opcode and shape of a node, such as ``dot f32[8,32]``."""

    opcode: str
    shape: str

    def __str__(self) -> str:
        return f"{self.opcode} {self.shape}"


def describe_node(graph: Graph, node: int) -> NodeText:
    """Return opcode and output shape of a node."""
    row = graph.node_feat[node]
    dims = ",".join(str(int(size)) for size in _of_rank(graph, node, "shape_dimensions_0"))
    elements = [name.removeprefix(_ELEMENT) for name in NODE_COLUMNS if name.startswith(_ELEMENT)]
    element = next((name for name in elements if row[NODE_COLUMN[_ELEMENT + name]] > 0), "?")
    return NodeText(OPCODES[int(graph.opcode[node])], f"{element}[{dims}]")


def layout_text(row: NDArray[np.integer[Any]]) -> str:
    """Return the slots that a row of ``node_config_feat`` ``(18,)`` sets, minor-to-major.

    >>> layout_text(np.array([1, 0, -1, -1, -1, -1, *[-1] * 12]))
    'output {1,0}'
    """
    slots = zip(LAYOUT_SLOTS, row.reshape(len(LAYOUT_SLOTS), MAX_RANK), strict=True)
    return ", ".join(f"{slot} {_braced(layout)}" for slot, layout in slots if (layout >= 0).any()) or "default"


def default_layout_text(graph: Graph, node: int) -> str:
    """Return the compiler's own layout of a node's output, minor-to-major."""
    return _braced(_of_rank(graph, node, "layout_minor_to_major_0"))


def _of_rank(graph: Graph, node: int, column: str) -> NDArray[Any]:
    rank, start = int(tensor_ranks(graph.node_feat[node : node + 1])[0]), NODE_COLUMN[column]
    return graph.node_feat[node, start : start + rank]


def _braced(layout: NDArray[Any]) -> str:
    return "{" + ",".join(str(int(dimension)) for dimension in layout if dimension >= 0) + "}"


_INTRODUCTION: Final = """
Columns (features) are called `block__what__how`. *Graph* columns are constant within a graph, *configuration*
columns differ between its configurations. The *fast* tier is the cheap set; *full* adds the rest. *Transductive*
columns are computed from all candidates of the graph, without labels; `build-features --no-candidates` leaves
them out.
"""
_INSTANCES: Final = """# Instances of layout graphs

Columns of instances: one row for each distinct (node, layouts) entry, and for each pair of entries connected by
a tensor. The ranker `sum-pooled` adds up the scores of the instances. -1 means that a column does not apply.
"""


def pages() -> dict[str, str]:
    """Return the pages of columns as Markdown: layouts, tiles and instances."""
    instances = _INSTANCES + "".join(map(_section, INSTANCE_BLOCKS))
    return {"layout": _columns("layout"), "tile": _columns("tile"), "instances": instances}


def _columns(kind: Kind) -> str:
    blocks = blocks_of(kind)
    width = {scope: sum(len(b.columns) for b in blocks if b.scope is scope) for scope in Scope}
    fast = sum(len(b.columns) for b in blocks_of(kind, Tier.FAST))
    counts = f"{width[Scope.GRAPH]} graph columns + {width[Scope.CONFIG]} configuration columns "
    counts += f"= {sum(width.values())} in the full tier, {fast} in the fast tier.\n"
    return f"# Columns of {kind} graphs\n{_INTRODUCTION}\n{counts}" + "".join(map(_section, blocks))


def _section(block: Block) -> str:
    tier = [] if block.scope is Scope.INSTANCE else [block.tier.value]
    traits = [block.scope.value, *tier, *(["transductive"] if block.transductive else [])]
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in block.columns.items())
    title = f"{type(block).__name__} ({', '.join(traits)})"
    return f"\n## {title}\n\n{inspect.cleandoc(block.__doc__ or '')}\n\n| column | meaning |\n|---|---|\n{rows}"
