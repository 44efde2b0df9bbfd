"""Changes from the compiler's default, by slot, opcode class and group of tied nodes.

Arrays of ``context.slots`` are ``(T,)``, one entry per type (equal operation, tensors and layouts);
arrays of ``context.table`` are ``(R,)``, one entry per distinct row of a node.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Cause, Column, layout_block
from xlarank.features.layout.aggregation import Batch, BatchFunction, shares, sum_nodes
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.regions import CLASS_ROLES
from xlarank.features.layout.tied_nodes import groups_of, tied_nodes
from xlarank.features.program.tensors import Floats

_SLOT_COLUMNS: Final = {
    "set__share": "share of configurable nodes whose {} layout is set",
    "changed__share": "share of configurable nodes whose full {} layout differs from the default",
    "changed_bytes__share": "share of the {} bytes laid out unlike the default",
    "distance__mean": "mean share of dimension pairs of the {} ordered unlike the default",
    "minor_changed__share": "share of configurable nodes whose minor-most {} dimension changed",
    "minor_changed_bytes__share": "share of the {} bytes whose minor-most dimension changed",
    "scattered_bytes__share": "{0} bytes times (1 - contiguity), over all {0} bytes; contiguity is "
    "log(run) / log(elements) of the runs that a copy from the default moves whole",
}
_GROUPS: Final = {
    "turned__share": "share of {} nodes with a turned output, mean over groups of tied nodes",
    "turned_bytes__share": "share of configurable nodes' bytes in turned outputs of {} nodes",
    "set_bytes__share": "share of configurable nodes' bytes in set outputs of {} nodes",
}


@layout_block(
    cause=Cause.CHANGE,
    columns={
        f"change__{slot}_{what}": Column(
            text.format(slot), Cause.FUSION if what == "set__share" else Cause.CHANGE
        )
        for slot in LAYOUT_SLOTS
        for what, text in _SLOT_COLUMNS.items()
    },
)
def slot_change(context: LayoutContext) -> BatchFunction:
    """Layouts set and changed per slot, over the number of configurable nodes or their bytes."""
    parts: list[tuple[NDArray[Any], float]] = []  # in the order of `_SLOT_COLUMNS`
    nodes = context.configurable_nodes
    for slot in context.slots.values():
        total = slot.total_bytes
        parts += [(slot.is_set, nodes)]
        parts += [(slot.changed, nodes), (slot.changed * slot.bytes, total)]
        parts += [(slot.distance, nodes)]
        parts += [(slot.minor_changed, nodes), (slot.minor_changed * slot.bytes, total)]
        parts += [((1 - slot.contiguity) * slot.bytes, total)]
    return shares(parts)


@layout_block(
    cause=Cause.CHANGE,
    columns={
        "change__nodes_set__share": Column("share of nodes with any layout set", Cause.FUSION),
        "change__nodes_changed__share": "share of nodes with any layout unlike the default",
        "change__nodes_changed__log": "number of nodes with any layout unlike the default",
        "change__slots_changed__log": "number of layouts unlike the default",
        "change__all_bytes__log": "bytes of all tensors laid out unlike the default",
        "change__all_bytes__ratio": "bytes of all slots unlike the default, over all output bytes",
    },
)
def node_change(context: LayoutContext) -> BatchFunction:
    """Configurable nodes with any layout set or changed, and changed bytes; log is log2(1 + x)."""
    slots = context.slots.values()
    any_set = np.any([slot.is_set for slot in slots], axis=0)
    changed = np.sum([slot.changed for slot in slots], axis=0)
    changed_bytes = np.sum([slot.changed * slot.bytes for slot in slots], axis=0)
    requested = sum_nodes([any_set, context.type_changed, changed, changed_bytes])
    nodes = context.configurable_nodes
    total = max(1.0, float(context.bytes.sum()))

    def finalize(batch: Batch) -> Floats:
        set_, nodes_changed, slots_changed, bytes_ = requested(batch).T
        logs = (np.log2(1 + counted) for counted in (nodes_changed, slots_changed, bytes_))
        return np.stack([set_ / nodes, nodes_changed / nodes, *logs, bytes_ / total], axis=1)

    return finalize


@layout_block(
    cause=Cause.MINOR,
    columns={
        "groups__set__share": "share of nodes with a set output, mean over groups of tied nodes",
        "groups__turned__share": "share of nodes with a turned output, mean over groups",
        "groups__turned_bytes__share": "share of configurable nodes' bytes in turned outputs",
        **{
            f"groups__{kind}_{what}": text.format(kind)
            for kind in CLASS_ROLES
            for what, text in _GROUPS.items()
        },
    },
)
def tied_groups(context: LayoutContext) -> BatchFunction:
    """Set outputs and turned outputs: means over groups of tied nodes, and shares of bytes.

    A set output is *turned* if its minor-most dimension is not the minor-most dimension of its
    group's first order (`TiedNode`): the order that pads least for a convolution or dot, row-major
    for a reshape. Means over groups do not grow with the size of the program, as sums over nodes
    do.
    """
    tied = tied_nodes(context)
    group = groups_of(tied)
    opcodes = np.array([node.signature[0] for node in tied])
    node = context.table.node
    minor = context.table.rows[:, 0]
    # minor-most dimension of each node's first order; -1 if none may be set
    first = np.array([node.orders[0][0] if node.orders[0] else -1 for node in tied], np.int64)
    is_set = minor >= 0
    turned = is_set & (minor != first[node])
    share = 1 / np.bincount(group)[group][node]  # sums to 1 within a group
    bytes_ = context.bytes[context.graph.configurable][node]
    groups = max(1, len(set(group)))
    total = context.slots["output"].total_bytes
    tables = [is_set * share, turned * share, turned * bytes_]
    over = [groups, groups, total]
    for opcode in CLASS_ROLES:
        members = (opcodes == opcode)[node]
        tables += [members * turned * share, members * turned * bytes_]
        tables.append(members * is_set * bytes_)
        over += [max(1, len(set(group[opcodes == opcode]))), total, total]
    return sum_nodes(tables, over=over, per_row=True)
