"""Padding, the dimensions along lanes and sublanes, and the estimated time of layouts."""

from __future__ import annotations

from itertools import pairwise
from math import log2
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Cause, Column, block, layout_block
from xlarank.features.layout import regions
from xlarank.features.layout.aggregation import Batch, BatchFunction, max_nodes, shares, sum_nodes
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.regions import CLASS_ROLES, POSITIONS, ROLE_NAMES
from xlarank.features.layout.time_model import KINDS, PEAK_FLOPS, TimeModel
from xlarank.features.program.program_context import COARSE_CLASSES
from xlarank.features.program.tensors import Floats

#: Columns whose sum is log2 of the estimated time; two float32 columns keep more digits than one.
FASTEST: Final = "work__fastest_time__log"
OVER_FASTEST: Final = "time__over_fastest__log"
#: Columns of estimated times and their changes.
TIMES: Final = (
    *(OVER_FASTEST, "time__over_default__log", "time__node_change__ratio"),
    *(f"time__{kind}_change__ratio" for kind in KINDS),
)
#: Minimum time in nanoseconds, which keeps logarithms finite.
_SHORTEST: Final = 1e-3

_WASTE: Final = {
    "waste__mean": "sum of the waste of {}, over the number of configurable nodes",
    "waste__max": "largest waste of {}",
    "waste_bytes__ratio": "bytes of padding over true bytes of all {}",
    "waste_change__mean": "waste of {} minus the default's, over the number of configurable nodes",
    "waste_change_bytes__ratio": "bytes of padding beyond the default's over true bytes of all {}",
}
_MISFITS = {
    "largest": "largest dimension is not minor-most",
    "lanes": "minor-most size is no multiple of the lanes (128)",
    "sublanes": "second minor-most size is no multiple of the sublanes (8)",
}
_SUMMED: Final = {
    "excess": "bytes that regions of set outputs are padded beyond the layout that pads least",
    "own_excess": "bytes that set outputs are padded beyond the layout that pads least",
    "padded": "bytes that regions of set outputs take in tiles",
    "set": "true bytes of set outputs",
}
_STORED: Final = "over the bytes of all tensors that a fusing compiler stores"
_ROLE_COLUMNS: Final = [
    (kind, position, slot, role)
    for kind, roles in CLASS_ROLES.items()
    for position in POSITIONS
    for slot in LAYOUT_SLOTS[: 2 if kind == "reshape" else 3]
    for role in roles
]
#: Half-open bins of minor-most sizes; the tile has 8 x 128 elements.
_BINS: Final = tuple(pairwise((1, 2, 8, 32, 128, 512, np.inf)))


@layout_block(
    cause=Cause.PADDING,
    columns={
        f"padding__{slot}_{name}": text.format(f"{slot} tensors of configurable nodes")
        for slot in LAYOUT_SLOTS
        for name, text in _WASTE.items()
    },
)
def padding(context: LayoutContext) -> BatchFunction:
    """Padding waste: padded size / true size - 1.

    TPU arrays live in tiles of 8 sublanes x 128 lanes; a layout decides which two dimensions, the
    minor-most ones, are rounded up.
    """
    wastes = []
    parts: list[tuple[NDArray[Any], float]] = []
    nodes = context.configurable_nodes
    for rows in context.slots.values():
        waste = rows.now["padding"]
        extra = waste - rows.default["padding"]
        wastes.append(waste)
        for values in (waste, extra):
            parts += [(values, nodes), (values * rows.bytes, rows.total_bytes)]
    summed = shares(parts)
    largest = max_nodes(wastes)

    def finalize(batch: Batch) -> Floats:
        sums = summed(batch).reshape(len(batch), -1, 4)
        maxima = largest(batch)[:, :, None]
        columns = np.concatenate([sums[:, :, :1], maxima, sums[:, :, 1:]], axis=2)
        return columns.reshape(len(batch), -1)

    return finalize


@layout_block(
    cause=Cause.VIOLATION,
    columns={
        f"violation__{slot}_{name}{suffix}__share": f"share of {nodes.format(slot)} {what}"
        for slot in LAYOUT_SLOTS
        for name, what in _MISFITS.items()
        for suffix, nodes in (
            ("", "configurable nodes whose {}'s"),
            ("_bytes", "the bytes of {}s whose"),
            ("_change", "configurable nodes, minus the share by default, whose {}'s"),
        )
    },
)
def violation(context: LayoutContext) -> BatchFunction:
    """Shares of configurable nodes (or of bytes) whose layout wastes lanes or sublanes.

    The share of nodes with ``largest`` lifted the ordered pair accuracy of Harvard's model from 0.6
    to 0.75 (2023).
    """
    parts: list[tuple[NDArray[Any], float]] = []
    nodes = context.configurable_nodes
    for rows in context.slots.values():
        for name in _MISFITS:
            now = rows.now[name]
            change = now.astype(float) - rows.default[name]
            parts += [(now, nodes), (now * rows.bytes, rows.total_bytes), (change, nodes)]
    return shares(parts)


def _role_columns(position: str) -> dict[str, Column]:
    tiles = f"bytes in tiles of regions of set outputs whose {POSITIONS[position]} dimension"
    columns = {
        f"outputs__{side}_{position}_{name}": f"{tiles} is {name} to a node that {verb} the region"
        for name in ROLE_NAMES
        for side, verb in (("made", "makes"), ("read", "reads"))
    }
    removed = "a reduction that reads the region removes"
    columns[f"outputs__read_{position}_reduced"] = f"{tiles} {removed}"
    ratios = columns.items()
    return {f"{name}__ratio": Column(f"{text}, {_STORED}", Cause.MINOR) for name, text in ratios}


@layout_block(
    cause=Cause.PADDING,
    columns={
        **{
            f"outputs__{nodes}_{what}__ratio": f"{text} ({nodes} nodes), {_STORED}"
            for what, text in _SUMMED.items()
            for nodes in ("all", *CLASS_ROLES)
        },
        "outputs__excess__max": f"largest excess of the region of a set output, {_STORED}",
        "outputs__padded__max": f"most bytes in tiles of the region of a set output, {_STORED}",
        "outputs__waste__max": "largest waste (padded over true bytes, minus 1) of a set output",
        **_role_columns("minor"),
        **_role_columns("second"),
    },
)
def outputs(context: LayoutContext) -> BatchFunction:
    """Padding and dimension roles of regions (`xlarank.features.layout.regions`) that are set.

    Unset outputs contribute 0; a region counts once per set output. On TPUs the layouts of outputs
    dominate: eight of them explain the runtimes of the real AlexNet file, while layouts of operands
    explain nothing.
    """
    nodes = context.graph.configurable
    row_node = context.table.node
    output = context.slots["output"]
    is_set = output.is_set[context.row_type]
    # bytes in tiles over true bytes, and bytes over those that a fusing compiler stores
    tiled = 1 + output.now["packed"][context.row_type]
    default = 1 + output.default["packed"][context.row_type]
    tensors = context.dims[nodes], context.rank[nodes], context.element_bytes[nodes]
    best = regions.least_waste(*tensors)[row_node]
    least = np.minimum(default, 1 + best)
    stored = max(1.0, float(context.bytes[~context.fused].sum()))
    own_bytes = context.bytes[nodes[row_node]]
    node_region = regions.node_regions(context)
    region = node_region[nodes[row_node]]
    region_bytes = np.bincount(node_region, np.where(context.fused, 0.0, context.bytes))[region]
    region_bytes = np.maximum(region_bytes, own_bytes) / stored
    own_bytes = own_bytes / stored
    padded = is_set * tiled * region_bytes
    excess = is_set * (tiled - least) * region_bytes
    summed = (excess, is_set * (tiled - least) * own_bytes, padded, is_set * own_bytes)
    kind = context.coarse_class[row_node]
    members = [kind >= 0, *(kind == number for number in range(len(CLASS_ROLES)))]
    tables = [values * subset for values in summed for subset in members]
    made, read = regions.roles_in_regions(context, node_region)
    reduced = regions.reduced_in_regions(context, node_region)
    by_role = []
    for position in range(len(POSITIONS)):
        dimension = output.layout[context.row_type, position]
        present = padded * (dimension >= 0)
        for role in range(len(ROLE_NAMES)):
            by_role += [present * table[region, role, dimension] for table in (made, read)]
        by_role.append(present * reduced[region, dimension])
    requests = [
        sum_nodes(tables, per_row=True),
        max_nodes([excess, padded, is_set * (tiled - 1)], per_row=True),
        sum_nodes(by_role, per_row=True),
    ]
    return lambda batch: np.concatenate([request(batch) for request in requests], axis=1)


@layout_block(
    cause=Cause.MINOR,
    columns={
        f"roles__{kind}_{slot}_{role}_{position}{suffix}__share": (
            f"share of {nodes.format(kind=kind, slot=slot)}"
            f"{POSITIONS[position]} dimension is {role}"
        )
        for kind, position, slot, role in _ROLE_COLUMNS
        for suffix, nodes in (
            ("", "configurable {kind} nodes whose {slot}'s "),
            ("_bytes", "the {slot} bytes of configurable {kind} nodes whose {slot}'s "),
        )
    },
)
def dimension_roles(context: LayoutContext) -> BatchFunction:
    """Role of the minor-most and second minor-most dimensions of convolutions, dots and reshapes.

    Roles of a convolution are batch, feature or spatial (node columns 93-106); in its kernel,
    ``batch`` is the input feature and ``feature`` the output feature. Roles of a dot are batch,
    rows (free) or contracted; in its output, ``rows`` come from the left operand and ``contracted``
    stands for the right operand's rows. Dimensions of a reshape are kept, split or merged. See
    `xlarank.features.program.slots.slot_roles`.
    """
    parts: list[tuple[NDArray[Any], float]] = []
    for kind, position, slot, role in _ROLE_COLUMNS:
        rows = context.slots[slot]
        members = context.coarse_class == COARSE_CLASSES.index(kind)
        dimension = rows.layout[:, list(POSITIONS).index(position)]
        roles = context.roles[context.type_configurable, LAYOUT_SLOTS.index(slot), dimension]
        fits = members[context.type_configurable] & (dimension >= 0)
        fits &= roles == CLASS_ROLES[kind].index(role)
        parts.append((fits, max(1, members.sum())))
        parts.append((fits * rows.bytes, max(1.0, rows.node_bytes[members].sum())))
    return shares(parts)


@layout_block(
    cause=Cause.MINOR,
    columns={
        f"types__{slot}_minor_from{low}{suffix}__share": f"share of {what.format(slot)} {low} "
        + ("or more" if high == np.inf else f"to {high - 1}")
        for slot in LAYOUT_SLOTS
        for low, high in _BINS
        for suffix, what in (
            ("", "configurable nodes whose {}'s minor-most size is"),
            ("_bytes", "the {} bytes with a minor-most size of"),
        )
    },
)
def minor_sizes(context: LayoutContext) -> BatchFunction:
    """Minor-most sizes in bins, by nodes and by bytes: the sizes along the 128 lanes."""
    parts: list[tuple[NDArray[Any], float]] = []
    for rows in context.slots.values():
        for low, high in _BINS:
            fits = (rows.minor >= low) & (rows.minor < high)
            parts += [(fits, context.configurable_nodes), (fits * rows.bytes, rows.total_bytes)]
    return shares(parts)


@block(
    kinds=("layout",),
    scope="graph",
    columns={FASTEST: "sum of the configurable nodes' least estimated nanoseconds, log2"},
)
def fastest_time(context: LayoutContext) -> Floats:
    """Least time of a program's configurable nodes under layouts that need no copy."""
    return np.array([log2(max(float(context.shared(TimeModel).fastest_ns.sum()), _SHORTEST))])


@layout_block(
    cause=Cause.ESTIMATE,
    columns={
        OVER_FASTEST: "estimated time over the least without copies, log2",
        "time__over_default__log": "estimated time over the time of the compiler's default, log2",
        **{
            f"time__{kind}_change__ratio": f"change of the time of {nodes}, over the default's time"
            for kind, nodes in KINDS.items()
        },
        "time__node_change__ratio": "largest increase of a node's time, over the default's time",
        "time__idle__share": "share of the time beyond the unpadded work at the peak rate",
        "time__slower_nodes__log": "nodes slower than their least time by 0.1 % of the program's, "
        "log2(1 + x)",
    },
)
def estimated_time(context: LayoutContext) -> BatchFunction:
    """Time of the configurable nodes by `TimeModel`, relative to other times, and its parts.

    No parameter is learned. The logarithm of the time itself is `fastest_time` plus
    ``over_fastest``.
    """
    model = context.shared(TimeModel)
    node = context.type_configurable
    sums = (float(ns.sum()) for ns in (model.default_ns, model.fastest_ns))
    default, fastest = (max(ns, _SHORTEST) for ns in sums)
    change = (model.type_ns - model.default_ns[node]) / default
    is_slower = model.type_ns - model.fastest_ns[node] > 1e-3 * fastest
    by_kind = [change * (model.kind[node] == kind) for kind in range(len(KINDS))]
    summed = sum_nodes([model.type_ns, *by_kind, is_slower])
    largest = max_nodes([change])
    unpadded = float((1e9 * model.work / PEAK_FLOPS).sum())

    def finalize(batch: Batch) -> Floats:
        total, *changes, slower = summed(batch).T
        idle_ns = total - unpadded
        total = np.maximum(total, _SHORTEST)
        idle = np.maximum(idle_ns / total, 0.0).round(12)
        # rounded, so that the order of summation does not break ties
        logs = (np.log2(total / reference).round(12) + 0.0 for reference in (fastest, default))
        others = [largest(batch)[:, 0], idle, np.log2(1 + slower)]
        return np.stack([*logs, *changes, *others], axis=1)

    return finalize
