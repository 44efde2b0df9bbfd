"""What surrounds the nodes that a configuration changes."""

from __future__ import annotations

from typing import Final

import numpy as np

from features.block import Block, Scope, Tier
from features.layout import LayoutContext
from features.opcode_classes import OPCODE_CLASSES
from features.pairs import HOPS
from features.tensors import Floats

_HEAVY: Final = ("convolution", "dot", "reduce", "transpose")


class ConfigurableNodes(Block):
    """Which nodes can be configured: their number, classes and reach."""

    kinds = ("layout",)
    scope = Scope.GRAPH
    columns = {
        "configurable__nodes__log": "number of configurable nodes, log2(1 + x)",
        "configurable__nodes__share": "share of nodes that are configurable",
        **{
            f"configurable__{name}__share": f"share of configurable nodes that are {name}"
            for name in OPCODE_CLASSES
        },
        **{
            f"configurable__within_{hop}hop__share": f"share of nodes within {hop} edges of a configurable one"
            for hop in range(1, HOPS + 1)
        },
    }

    def compute(self, context: LayoutContext) -> Floats:
        ids = context.graph.configurable
        classes = np.bincount(context.opcode_class[ids], minlength=len(OPCODE_CLASSES))
        within, reached = [], np.zeros(context.graph.nodes, bool)
        for shell in context.reach:
            reached[shell.indices] = True
            within.append(reached.mean())
        sizes = [np.log2(1 + len(ids)), len(ids) / context.graph.nodes]
        return np.array([*sizes, *(classes / context.configurable_nodes), *within[1:]])


class ChangedSurroundings(Block):
    """Bytes and heavy operations within h edges of changed nodes, over the same sum for all configurable ones.

    The h-hop sum of a node is a row of the h-th shell (sparse power of the adjacency) times the quantity.
    """

    kinds = ("layout",)
    tier = Tier.FULL
    columns = {
        f"neighbourhood__{what}_{hop}hop__share": f"{meaning} exactly {hop} edge(s) from changed nodes, over the "
        "same around all configurable nodes"
        for hop in (1, 2)
        for what, meaning in {
            "bytes": "output bytes",
            **{name: f"number of {name} nodes" for name in _HEAVY},
        }.items()
    }

    def compute(self, context: LayoutContext) -> Floats:
        quantities = np.stack(
            [context.bytes, *(context.opcode_class == OPCODE_CLASSES.index(name) for name in _HEAVY)], axis=1
        )
        around = np.concatenate([context.reach[hop] @ quantities for hop in (1, 2)], axis=1)
        table = context.row_changed[:, None] * around[context.table.node]
        return context.sum_rows(list(table.T), over=list(np.maximum(around.sum(axis=0), 1.0)))


class Boundary(Block):
    """Edges of the configurable neighbourhood between a changed and an unchanged node (the cut).

    With x = 1 for changed nodes and N the 0/1 matrix of configurable nodes h edges apart, the cut is
    sum N_uv (x_u - x_v)^2 / 2 and the inside is sum N_uv x_u x_v / 2; both over sum N_uv / 2.
    """

    kinds = ("layout",)
    tier = Tier.FULL
    columns = {
        f"neighbourhood__{what}_{hop}hop__share": f"share of configurable pairs {hop} edge(s) apart with {meaning}"
        for hop in (1, 2)
        for what, meaning in {"cut": "one of both changed", "inside": "both changed"}.items()
    }

    def compute(self, context: LayoutContext) -> Floats:
        ids, table = context.graph.configurable, context.table
        columns = np.zeros((table.configs, 4))
        step = max(1, (1 << 20) // context.configurable_nodes)
        for number, hop in enumerate((1, 2)):
            near = context.reach[hop][:, ids]
            pairs = max(1.0, float(near.sum()))
            degree = np.asarray(near.sum(axis=1)).reshape(-1)
            for at in range(0, table.configs, step):
                changed = context.row_changed[table.codes[at : at + step]].astype(np.float64)
                inside = ((changed @ near) * changed).sum(axis=1)
                columns[at : at + step, 2 * number] = 2 * (changed @ degree - inside) / pairs
                columns[at : at + step, 2 * number + 1] = inside / pairs
        return columns
