"""How nodes are connected."""

from __future__ import annotations

from typing import Final

import numpy as np

from xlarank.features.block import Block, Scope
from xlarank.features.program.context import ProgramContext
from xlarank.features.program.tensors import Floats

_QUANTILES: Final = (0.25, 0.5, 0.75, 0.9, 0.99)
_DIRECTIONS: Final = {"in": "operands of a node", "out": "consumers of a node", "total": "neighbours"}


def _columns() -> dict[str, str]:
    columns = {}
    for direction, what in _DIRECTIONS.items():
        for how in ("mean", "std", "max"):
            columns[f"degrees__{direction}__{how}"] = f"{how} over nodes of the number of {what}"
        for q in _QUANTILES:
            columns[f"degrees__{direction}__q{100 * q:g}"] = f"{100 * q:g} % quantile of the number of {what}"
    return columns


class Degrees(Block):
    """Degree statistics over nodes: in (operands), out (consumers) and their sum; edges.

    Quantiles are interpolated linearly (numpy's default); std divides by the number of nodes.
    """

    kinds = ("layout", "tile")
    scope = Scope.GRAPH
    columns = _columns()

    def compute(self, context: ProgramContext) -> Floats:
        nodes, edges = context.graph.nodes, context.graph.edges
        operands = np.bincount(edges[:, 0], minlength=nodes)
        consumers = np.bincount(edges[:, 1], minlength=nodes)
        values: list[float] = []
        for degree in (operands, consumers, operands + consumers):
            values += [degree.mean(), degree.std(), degree.max(), *np.quantile(degree, _QUANTILES)]
        return np.array(values)
