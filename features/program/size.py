"""How large and deep a program is."""

from __future__ import annotations

import numpy as np

from xlarank.features.block import Block, Scope
from xlarank.features.program.context import ProgramContext
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats


class GraphSize(Block):
    """Size and depth of the graph; logarithms are log2(1 + x)."""

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    columns = {
        "size__nodes__log": "number of nodes",
        "size__edges__log": "number of edges",
        "size__depth__log": "edges on the longest path",
        "size__depth__ratio": "edges on the longest path over nodes",
        "size__width__max": "most nodes on one level over nodes",
        "size__roots__share": "share of nodes that are the root of a computation",
        "size__bytes__log": "bytes of all outputs",
        "size__bytes__max": "bytes of the largest output over bytes of all",
        "size__rank__mean": "mean rank of the outputs",
        "size__narrow__share": "share of the bytes in elements of at most two bytes",
    }

    def compute(self, context: ProgramContext) -> Floats:
        nodes = context.graph.nodes
        depth = int(context.level.max())
        total = context.bytes.sum()
        return np.array(
            [
                np.log2(1 + nodes),
                np.log2(1 + len(context.graph.edges)),
                np.log2(1 + depth),
                depth / nodes,
                np.bincount(context.level).max() / nodes,
                (context.column("is_root") > 0).mean(),
                np.log2(1 + total),
                context.bytes.max() / max(total, 1.0),
                context.rank.mean(),
                context.bytes[context.element_bytes <= 2].sum() / max(total, 1.0),
            ]
        )


class BytesByClass(Block):
    """Share of all output bytes that each opcode class writes; no unit, sums to 1."""

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    columns = {
        f"size__{name}_bytes__share": f"share of the bytes written by {name} nodes" for name in OPCODE_CLASSES
    }

    def compute(self, context: ProgramContext) -> Floats:
        by_class = np.bincount(context.opcode_class, context.bytes, minlength=len(OPCODE_CLASSES))
        return np.divide(by_class, max(context.bytes.sum(), 1.0))
