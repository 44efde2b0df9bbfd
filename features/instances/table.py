"""From a layout graph to its instances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlarank.data.duplicates import group_codes
from xlarank.data.topology import structure_hash
from xlarank.features.catalogue import instance_blocks
from xlarank.features.instances.context import InstanceContext
from xlarank.features.instances.graph_instances import Instances
from xlarank.features.layout.context import LayoutContext


def instance_table(context: LayoutContext, *, candidates: bool = True) -> Instances:
    """The instances of the distinct configurations of a graph; without ``candidates``, no transductive columns."""
    table, instances = context.table, InstanceContext(context)
    combinations = instances.combinations
    blocks = instance_blocks(candidates=candidates)
    columns = [name for block in blocks for name in block.columns]
    values = np.empty((len(instances), len(columns)), np.float32)
    at = 0
    for block in blocks:
        values[:, at : at + len(block.columns)] = block.compute(instances)
        at += len(block.columns)
    same = group_codes(values.view(np.int32))
    row_instance, pair_instance = np.full(len(table.rows), -1), np.full(combinations.total, -1)
    row_instance[instances.rows] = same.group[: len(instances.rows)]
    pair_instance[instances.taken] = same.group[len(instances.rows) :]
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
        structure=np.array([structure_hash(context.graph.opcode, context.graph.edges)], np.uint64),
        sizes=context.dims[context.graph.configurable].astype(np.int32),
    )


def _own_codes(context: LayoutContext) -> NDArray[np.unsignedinteger]:
    """``(configs, nodes)`` codes counted from each node's first row: small numbers."""
    table = context.table
    most = int(np.diff(table.start).max(initial=1)) - 1
    small = np.empty(table.codes.shape, np.min_scalar_type(most))
    step = max(1, (1 << 20) // max(1, table.nodes))
    for at in range(0, table.configs, step):
        small[at : at + step] = table.codes[at : at + step] - table.start[:-1]
    return small
