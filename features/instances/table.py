"""From a layout graph to its instances."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.duplicates import group_codes
from xlarank.features.instances import nodes as instance_nodes
from xlarank.features.instances import pairs as instance_pairs
from xlarank.features.instances.instances import Instances
from xlarank.features.instances.nodes import ABSENT
from xlarank.features.instances.pairs import PairCombinations
from xlarank.features.layout.context import LayoutContext
from xlarank.features.program.tensors import Floats, log2p

_GRAPH: Final = {
    "graph__bytes__log2": "log2 of 1 + bytes of all outputs",
    "graph__nodes__log2": "log2 of 1 + nodes",
    "graph__configurable__log2": "log2 of 1 + configurable nodes",
}
#: Transductive: they look at the graph's candidates.
CANDIDATE_COLUMNS: Final = {
    "candidates__rarity__log2": "-log2 of the share of the candidates' nodes (pairs) like this that take this row "
    "(combination)",
    "candidates__behind__log2": "log2 of how much more often the most frequent row of the node is taken",
}
#: Every column of an instance with its meaning; -1 where it does not apply (node columns of pairs, pair columns
#: of nodes, slots without a tensor).
COLUMNS: Final[dict[str, str]] = {
    **_GRAPH,
    **instance_nodes.COLUMNS,
    **instance_pairs.COLUMNS,
    **CANDIDATE_COLUMNS,
}
GRAPH_COLUMNS: Final = tuple(_GRAPH)


def instance_table(context: LayoutContext, *, candidates: bool = True) -> Instances:
    """The instances of the distinct configurations of a graph; without ``candidates``, no transductive columns.

    Rows of nodes that have no other row, and combinations of pairs that have no other, are no instances.
    """
    table = context.table
    combinations = PairCombinations.of(context)
    taken, of_pairs = combinations.values(context)
    varying = np.flatnonzero((np.diff(table.start) > 1)[table.node])
    of_nodes = instance_nodes.node_values(context)[varying]
    values = np.full((len(varying) + len(taken), len(COLUMNS)), ABSENT, np.float32)
    nodes, pairs = len(instance_nodes.COLUMNS), len(instance_pairs.COLUMNS)
    at = len(_GRAPH)
    values[:, :at] = _graph_values(context)
    values[: len(varying), at : at + nodes] = of_nodes
    values[len(varying) :, at + nodes : at + nodes + pairs] = of_pairs
    rarity = np.concatenate([_row_rarity(context)[varying], _pair_rarity(combinations)[taken]])
    values[:, at + nodes + pairs :] = rarity
    columns = list(COLUMNS)
    if not candidates:
        columns = columns[: -len(CANDIDATE_COLUMNS)]
        values = values[:, : len(columns)]
    same = group_codes(np.ascontiguousarray(values).view(np.int32))
    row_instance, pair_instance = np.full(len(table.rows), -1), np.full(combinations.total, -1)
    row_instance[varying] = same.group[: len(varying)]
    pair_instance[taken] = same.group[len(varying) :]
    return Instances(
        columns=columns,
        values=values[same.first],
        codes=_own_codes(context),
        node=context.graph.configurable.astype(np.int32),
        opcode=context.graph.opcode[context.graph.configurable].astype(np.int16),
        first=table.start[:-1],
        rows=table.rows,
        row_instance=row_instance.astype(np.int32),
        request=context.requested.by_row(context).astype(np.int32),
        pairs=combinations.pairs.astype(np.int32),
        pair_first=combinations.first.astype(np.int32),
        pair_width=combinations.width.astype(np.int32),
        pair_instance=pair_instance.astype(np.int32),
    )


def _graph_values(context: LayoutContext) -> Floats:
    sizes = np.array([context.bytes.sum(), context.graph.nodes, len(context.graph.configurable)], np.float64)
    return log2p(sizes)


def _own_codes(context: LayoutContext) -> NDArray[np.unsignedinteger]:
    """``(configs, nodes)`` codes counted from each node's first row: small numbers."""
    table = context.table
    most = int(np.diff(table.start).max(initial=1)) - 1
    small = np.empty(table.codes.shape, np.min_scalar_type(most))
    step = max(1, (1 << 20) // max(1, table.nodes))
    for at in range(0, table.configs, step):
        small[at : at + step] = table.codes[at : at + step] - table.start[:-1]
    return small


def _row_rarity(context: LayoutContext) -> Floats:
    """``(R, 2)`` of `CANDIDATE_COLUMNS` for rows; rows that no distinct configuration takes count as one."""
    frequency = np.maximum(context.table.frequency, 1)
    most = np.zeros(context.table.nodes, np.int64)
    np.maximum.at(most, context.table.node, frequency)
    share = np.log2(max(1, context.table.configs) / frequency)
    return np.stack([share, np.log2(most[context.table.node] / frequency)], axis=1)


def _pair_rarity(combinations: PairCombinations) -> Floats:
    """``(combinations, 2)`` of `CANDIDATE_COLUMNS` for combinations, over equal pairs between equal nodes."""
    frequency = np.maximum(combinations.frequency, 1)
    starts = np.unique(combinations.first)
    group = np.searchsorted(starts, np.arange(combinations.total), side="right") - 1
    taken, most = np.zeros(len(starts)), np.zeros(len(starts))
    np.add.at(taken, group, combinations.frequency)
    np.maximum.at(most, group, frequency)
    share = np.log2(np.maximum(taken[group] / frequency, 1.0)) if len(starts) else np.zeros(0)
    behind = np.log2(most[group] / frequency) if len(starts) else np.zeros(0)
    return np.stack([share, behind], axis=1)
