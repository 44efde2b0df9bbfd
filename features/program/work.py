"""How much a program computes, and how it is divided into computations."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.data.graph import LayoutGraph
from xlarank.features.block import Block, Scope
from xlarank.features.program.context import ProgramContext
from xlarank.features.program.opcode_classes import OPCODE_CLASSES
from xlarank.features.program.tensors import Floats

_PARTS: Final = ("convolution", "dot", "reduce")


class Work(Block):
    """Floating-point operations by what does them, and per byte; logarithms are log2(1 + x).

    See `xlarank.features.program.context.ProgramContext.flops` for the estimate. Bytes are those of all outputs.
    """

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    columns = {
        "work__flops__log": "operations of all nodes",
        **{f"work__{part}_flops__log": f"operations of {part} nodes" for part in (*_PARTS, "other")},
        **{f"work__{part}_flops__share": f"operations of {part} nodes over all" for part in (*_PARTS, "other")},
        "work__largest_flops__share": "operations of the most expensive node over all",
        "work__intensity__log": "operations over bytes",
    }

    def compute(self, context: ProgramContext) -> Floats:
        flops, total = context.flops, max(1.0, context.flops.sum())
        mine = [context.opcode_class == OPCODE_CLASSES.index(part) for part in _PARTS]
        parts = [flops[chosen].sum() for chosen in (*mine, ~np.any(mine, axis=0))]
        intensity = flops.sum() / max(1.0, context.bytes.sum())
        logs = np.log2(1 + np.array([flops.sum(), *parts]))
        return np.array([*logs, *(part / total for part in parts), flops.max() / total, np.log2(1 + intensity)])


class Computations(Block):
    """Sizes of the computations (a while body, a reducer, ...) that `node_splits` divides a program into."""

    kinds = ("layout",)
    scope = Scope.GRAPH
    columns = {
        "computations__all__log": "number of computations, log2(1 + x)",
        "computations__largest__share": "nodes of the largest computation over all nodes",
        "computations__size__log": "mean number of nodes of a computation, log2(1 + x)",
        "computations__size__std": "standard deviation of the sizes over all nodes",
    }

    def compute(self, context: ProgramContext) -> Floats:
        graph = context.graph
        assert isinstance(graph, LayoutGraph)
        ends = np.unique(np.concatenate([[0], graph.splits, [graph.nodes]]))  # with or without the outer ends
        sizes = np.diff(ends)
        return np.array(
            [
                np.log2(1 + len(sizes)),
                sizes.max() / graph.nodes,
                np.log2(1 + sizes.mean()),
                sizes.std() / graph.nodes,
            ]
        )
