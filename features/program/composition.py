"""Composition of a program: operations, element types, sizes and work."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from xlarank.data.schema import ELEMENT_BYTES, OPCODES, RETIRED_OPCODES
from xlarank.features.block import block
from xlarank.features.program.program_context import OPCODE_CLASSES, ProgramContext
from xlarank.features.program.slots import node_flops
from xlarank.features.program.tensors import Floats

_CURRENT = [number for number in range(len(OPCODES)) if number not in RETIRED_OPCODES]
_QUANTILES: Final = (0.25, 0.5, 0.75, 0.9, 0.99)
_STATISTICS: Final = {how: f"{how} over nodes" for how in ("mean", "std", "max")} | {
    f"q{100 * q:g}": f"{100 * q:g} % quantile" for q in _QUANTILES
}
_NEIGHBOURS: Final = {"in": "operands", "out": "consumers", "total": "operands and consumers"}
_CLASSES: Final = ("convolution", "dot", "reduce")
_PARTS: Final = (*_CLASSES, "other")


def _opcode_columns(suffix: str, meaning: str) -> dict[str, str]:
    names = [OPCODES[number] for number in _CURRENT]
    return {f"opcodes__{name.replace('-', '_')}{suffix}": meaning.format(name) for name in names}


@block(scope="graph", columns=_opcode_columns("__share", "share of nodes that are {}"))
def opcode_histogram(context: ProgramContext) -> Floats:
    """Share of nodes with each opcode: count(opcode) / nodes; no unit, sums to 1."""
    counts = np.bincount(context.graph.opcode, minlength=len(OPCODES))
    return counts[_CURRENT] / context.graph.nodes


@block(
    scope="graph",
    columns={
        **_opcode_columns("__log", "number of {} nodes, log2(1 + x)"),
        **_opcode_columns("_bytes__share", "share of bytes that {} nodes write"),
    },
)
def opcode_sizes(context: ProgramContext) -> Floats:
    """Number of nodes with each opcode, log2(1 + count), and their share of all output bytes."""
    opcode = context.graph.opcode
    counts = np.bincount(opcode, minlength=len(OPCODES))[_CURRENT]
    written = np.bincount(opcode, context.bytes, len(OPCODES))[_CURRENT]
    return np.concatenate([np.log2(1.0 + counts), written / max(context.bytes.sum(), 1.0)])


@block(
    scope="graph",
    columns={
        f"elements__{name}{suffix}__share": f"share of {what} of type {name}"
        for suffix, what in (("", "nodes with elements"), ("_bytes", "the output bytes"))
        for name in ELEMENT_BYTES
    },
)
def element_types(context: ProgramContext) -> Floats:
    """Shares of nodes and of output bytes by element type; both sum to 1 or are 0."""
    nodes = np.bincount(context.element_type, minlength=len(ELEMENT_BYTES))
    written = np.bincount(context.element_type, context.bytes, len(ELEMENT_BYTES))
    total = max(context.bytes.sum(), 1.0)
    return np.concatenate([nodes / context.graph.nodes, written / total])


@block(
    scope="graph",
    columns={
        "size__nodes__log": "number of nodes",
        "size__edges__log": "number of edges",
        "size__depth__log": "edges on the longest path",
        "size__depth__ratio": "edges on the longest path over the number of nodes",
        "size__width__max": "nodes on the widest level over the number of nodes",
        "size__roots__share": "share of nodes that are the root of a computation",
        "size__bytes__log": "bytes of all outputs",
        "size__bytes__max": "bytes of the largest output over bytes of all outputs",
        "size__rank__mean": "mean rank of the outputs",
        "size__narrow__share": "share of the output bytes in elements of at most two bytes",
        **{
            f"size__{name}_bytes__share": f"share of bytes that {name} nodes write"
            for name in OPCODE_CLASSES
        },
    },
)
def graph_size(context: ProgramContext) -> Floats:
    """Size, depth and output bytes by opcode class; logarithms are log2(1 + x)."""
    nodes = context.graph.nodes
    edges = len(context.graph.edges)
    depth = int(context.level.max())
    total = context.bytes.sum()
    narrow = context.bytes[context.element_bytes <= 2].sum()
    sizes = [np.log2(1 + nodes), np.log2(1 + edges), np.log2(1 + depth), depth / nodes]
    sizes += [np.bincount(context.level).max() / nodes, (context.column("is_root") > 0).mean()]
    sizes += [np.log2(1 + total), context.bytes.max() / max(total, 1.0), context.rank.mean()]
    by_class = np.bincount(context.opcode_class, context.bytes, minlength=len(OPCODE_CLASSES))
    return np.array([*sizes, narrow / max(total, 1.0), *(by_class / max(total, 1.0))])


@block(
    scope="graph",
    columns={
        f"degrees__{direction}__{how}": f"{statistic} of the number of {neighbours}"
        for direction, neighbours in _NEIGHBOURS.items()
        for how, statistic in _STATISTICS.items()
    },
)
def node_degrees(context: ProgramContext) -> Floats:
    """Statistics over nodes of the in-degree (operands), out-degree (consumers) and total degree.

    Quantiles are interpolated linearly (numpy's default); std divides by the number of nodes.
    """
    nodes = context.graph.nodes
    operands, consumers = (np.bincount(ends, minlength=nodes) for ends in context.graph.edges.T)
    values: list[float] = []
    for degrees in (operands, consumers, operands + consumers):
        values += [degrees.mean(), degrees.std(), degrees.max()]
        values += [*np.quantile(degrees, _QUANTILES)]
    return np.array(values)


@block(
    scope="graph",
    columns={
        "work__flops__log": "operations of all nodes",
        **{f"work__{part}_flops__log": f"operations of {part} nodes" for part in _PARTS},
        **{f"work__{part}_flops__share": f"share of operations in {part} nodes" for part in _PARTS},
        "work__largest_flops__share": "share of operations in the most expensive node",
        "work__intensity__log": "operations over output bytes",
    },
)
def work(context: ProgramContext) -> Floats:
    """Floating-point operations by class of opcode, and per byte; logarithms are log2(1 + x).

    Operations are estimated by `xlarank.features.program.slots.node_flops`.
    """
    flops = context.shared(node_flops)
    total = max(1.0, flops.sum())
    members = [context.opcode_class == OPCODE_CLASSES.index(part) for part in _CLASSES]
    parts = [flops[subset].sum() for subset in (*members, ~np.any(members, axis=0))]
    intensity = flops.sum() / max(1.0, context.bytes.sum())
    logs = np.log2(1 + np.array([flops.sum(), *parts]))
    shares = [part / total for part in (*parts, flops.max())]
    return np.array([*logs, *shares, np.log2(1 + intensity)])


@block(
    kinds=("layout",),
    scope="graph",
    columns={
        "computations__all__log": "number of computations, log2(1 + x)",
        "computations__largest__share": "share of nodes in the largest computation",
        "computations__size__log": "mean number of nodes of a computation, log2(1 + x)",
        "computations__size__std": "standard deviation of the sizes, over the number of nodes",
    },
)
def computations(context: Any) -> Floats:
    """Sizes of the computations in `node_splits`, which joins small ones to larger ones."""
    nodes = context.graph.nodes
    # Splits may include 0 and ``nodes``.
    sizes = np.diff(np.unique([0, *context.graph.splits, nodes]))
    count = np.log2(1 + len(sizes))
    size = np.log2(1 + sizes.mean())
    return np.array([count, sizes.max() / nodes, size, sizes.std() / nodes])
