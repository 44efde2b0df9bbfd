"""Columns of a program the slow and obvious way: plain loops over nodes and edges, and networkx.

Nothing of the code under test is used. Every column is written from its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import log2, prod

import networkx as nx
import numpy as np

from tests.features.oracle_roles import contracted_size
from tests.features.oracle_tensor import ELEMENT_TYPES, tensor_of
from xlarank.data.schema import NODE_COLUMN, OPCODES

#: The opcodes that occur in the tests, the sample and a few real files; any other one is a KeyError: add it.
CLASS_OF = {
    "convolution": "convolution",
    "dot": "dot",
    **dict.fromkeys(("reshape", "bitcast", "bitcast-convert"), "reshape"),
    **dict.fromkeys(("transpose", "copy", "reverse"), "transpose"),
    **dict.fromkeys(("reduce", "reduce-window", "select-and-scatter", "sort"), "reduce"),
    **dict.fromkeys(("broadcast", "iota", "constant", "rng", "rng-bit-generator"), "broadcast"),
    **dict.fromkeys(("slice", "dynamic-slice", "dynamic-update-slice", "concatenate"), "slice"),
    **dict.fromkeys(("pad", "gather", "scatter"), "slice"),
    **dict.fromkeys(("add", "multiply", "subtract", "divide", "maximum", "minimum"), "elementwise"),
    **dict.fromkeys(("tanh", "exponential", "select", "compare", "convert", "negate"), "elementwise"),
    **dict.fromkeys(("log", "rsqrt", "sqrt", "and", "or", "not", "xor", "power", "abs"), "elementwise"),
    **dict.fromkeys(("clamp", "logistic", "count-leading-zeros", "shift-left"), "elementwise"),
    **dict.fromkeys(("shift-right-arithmetic", "shift-right-logical"), "elementwise"),
    **dict.fromkeys(("parameter", "tuple", "get-tuple-element", "fusion", "all-reduce", "call"), "other"),
    **dict.fromkeys(("custom-call", "while", "conditional", "after-all", "infeed", "outfeed"), "other"),
    **dict.fromkeys(("collective-permute",), "other"),
}
CLASSES = (*("convolution", "dot", "reshape", "transpose", "reduce", "broadcast", "slice", "elementwise", "other"),)
#: What only names or bundles what is there.
FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")


class Program:
    """A graph file's nodes, one by one."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.feat = arrays["node_feat"]
        self.nodes = range(len(self.feat))
        self.edges = [(int(consumer), int(operand)) for consumer, operand in arrays["edge_index"]]
        self.opcodes = [OPCODES[int(opcode)] for opcode in arrays["node_opcode"]]
        self.classes = [CLASS_OF[opcode] for opcode in self.opcodes]
        self.tensors = [tensor_of(row) for row in self.feat]
        self.operands: nx.DiGraph = nx.DiGraph()
        self.operands.add_nodes_from(self.nodes)
        self.operands.add_edges_from(self.edges)
        self.neighbours = self.operands.to_undirected()

    def entry(self, node: int, column: str) -> int:
        """One column of ``node_feat``."""
        return int(self.feat[node, NODE_COLUMN[column]])

    def around(self, node: int, hop: int) -> list[int]:
        """Nodes exactly ``hop`` edges away, in either direction."""
        near = nx.single_source_shortest_path_length(self.neighbours, node, cutoff=hop)
        return [other for other, distance in near.items() if distance == hop]

    @cached_property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)

    def share_of_bytes(self, chosen: Sequence[int]) -> float:
        return sum(self.tensors[node].bytes for node in chosen) / max(1, self.bytes)

    def graph_columns(self) -> dict[str, float]:
        """Columns of any kind of graph."""
        return {**self._sizes(), **self._shares(), **self._degrees(), **self._work()}

    def _sizes(self) -> dict[str, float]:
        # Levels from the parameters up: the longest path down to a node without operands.
        level = dict.fromkeys(self.nodes, 0)
        for node in reversed(list(nx.topological_sort(self.operands))):
            level[node] = max((level[operand] + 1 for operand in self.operands.successors(node)), default=0)
        nodes, depth = len(self.nodes), nx.dag_longest_path_length(self.operands)
        widest = max(sum(level[node] == stage for node in self.nodes) for stage in range(depth + 1))
        return {
            "size__nodes__log": log2(1 + nodes),
            "size__edges__log": log2(1 + len(self.edges)),
            "size__depth__log": log2(1 + depth),
            "size__depth__ratio": depth / nodes,
            "size__width__max": widest / nodes,
            "size__roots__share": sum(self.entry(node, "is_root") > 0 for node in self.nodes) / nodes,
            "size__bytes__log": log2(1 + self.bytes),
            "size__bytes__max": max(tensor.bytes for tensor in self.tensors) / max(1, self.bytes),
            "size__rank__mean": sum(tensor.rank for tensor in self.tensors) / nodes,
            "size__narrow__share": self.share_of_bytes(
                [node for node in self.nodes if self.tensors[node].element_bytes <= 2]
            ),
        }

    def _shares(self) -> dict[str, float]:
        """By class, opcode and element type."""
        columns: dict[str, float] = {}
        nodes = len(self.nodes)
        for name in CLASSES:
            own = [node for node in self.nodes if self.classes[node] == name]
            columns[f"size__{name}_bytes__share"] = self.share_of_bytes(own)
        for opcode in OPCODES:
            if opcode not in ("trace", "tuple-select"):
                own = [node for node in self.nodes if self.opcodes[node] == opcode]
                stem = f"opcodes__{opcode.replace('-', '_')}"
                columns[f"{stem}__share"] = len(own) / nodes
                columns[f"{stem}__log"] = log2(1 + len(own))
                columns[f"{stem}_bytes__share"] = self.share_of_bytes(own)
        for name in ELEMENT_TYPES:
            own = [node for node in self.nodes if self.tensors[node].element == name]
            columns[f"elements__{name}__share"] = len(own) / nodes
            columns[f"elements__{name}_bytes__share"] = self.share_of_bytes(own)
        return columns

    def _degrees(self) -> dict[str, float]:
        columns: dict[str, float] = {}
        operands = [sum(consumer == node for consumer, _ in self.edges) for node in self.nodes]
        consumers = [sum(operand == node for _, operand in self.edges) for node in self.nodes]
        both = [a + b for a, b in zip(operands, consumers, strict=True)]
        for direction, degrees in (("in", operands), ("out", consumers), ("total", both)):
            mean = sum(degrees) / len(degrees)
            columns[f"degrees__{direction}__mean"] = mean
            columns[f"degrees__{direction}__std"] = deviation(degrees)
            columns[f"degrees__{direction}__max"] = max(degrees)
            for percent in (25, 50, 75, 90, 99):
                columns[f"degrees__{direction}__q{percent}"] = _quantile(degrees, percent / 100)
        return columns

    # Work -------------------------------------------------------------------------------------------------

    def _work(self) -> dict[str, float]:
        flops = [self.flops(node) for node in self.nodes]
        whole = max(1.0, sum(flops))
        columns = {
            "work__flops__log": log2(1 + sum(flops)),
            "work__largest_flops__share": max(flops) / whole,
            "work__intensity__log": log2(1 + sum(flops) / max(1, self.bytes)),
        }
        parts = ("convolution", "dot", "reduce")
        for part in (*parts, "other"):
            mine = [name == part if part in parts else name not in parts for name in self.classes]
            own = sum(work for work, counts in zip(flops, mine, strict=True) if counts)
            columns[f"work__{part}_flops__log"] = log2(1 + own)
            columns[f"work__{part}_flops__share"] = own / whole
        return columns

    def flops(self, node: int) -> float:
        """Operations of one node."""
        tensor, opcode, kind = self.tensors[node], self.opcodes[node], self.classes[node]
        written = 0 if opcode in FREE or tensor.element_bytes == 0 else tensor.elements
        if kind == "reduce":
            return max([written, *(self.tensors[operand].elements for operand in self.operands[node])])
        if kind not in ("convolution", "dot"):
            return written
        left, right = (self.tensors[side].dims if side is not None else () for side in self.two_operands(node))
        if kind == "dot":
            return 2 * written * contracted_size(tensor.dims, left, right)
        features = self.entry(node, "convolution_dim_numbers_kernel_output_feature_dim")
        return 2 * written * prod(right) / max(1, (_six(right) if right else [1] * 6)[features])

    def two_operands(self, node: int) -> tuple[int | None, int | None]:
        """Image and kernel of a convolution, left and right of a dot, as the shapes tell."""
        operands = [operand for consumer, operand in self.edges if consumer == node]
        operands = sorted(operands, key=lambda operand: self.tensors[operand].rank == 0)[:2]
        if len(operands) < 2:
            only = operands[0] if operands else None
            return only, only if self.classes[node] == "dot" else None
        fits = self._kernel_fits if self.opcodes[node] == "convolution" else self._dot_fits
        first, second = operands
        return (second, first) if fits(node, second, first) > fits(node, first, second) else (first, second)

    def _kernel_fits(self, node: int, _: int, kernel: int) -> float:
        """A convolution's kernel has the window's size and the output's features in the named dimensions."""
        stem, out = "convolution_dim_numbers", _six(self.tensors[node].dims)
        dims = _six(self.tensors[kernel].dims)
        for i in range(min(4, self.tensors[node].rank - 2)):
            if dims[self.entry(node, f"{stem}_kernel_spatial_dims_{i}")] != self.entry(node, f"window_size_{i}"):
                return 0
        features = dims[self.entry(node, f"{stem}_kernel_output_feature_dim")]
        return features == out[self.entry(node, f"{stem}_output_feature_dim")]

    def _dot_fits(self, node: int, left: int, right: int) -> float:
        """The right operand has the output's last size, the left one its first and the last but one."""
        dims, (ours, theirs) = self.tensors[node].dims, (_six(self.tensors[side].dims) for side in (left, right))
        if not dims:
            return 0
        return (dims[-1] in theirs) + (dims[0] in ours and dims[max(0, len(dims) - 2)] in ours)


def _six(dims: Sequence[int]) -> list[int]:
    return [*dims, *[0] * (6 - len(dims))]


def deviation(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return float((sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5)


def _quantile(values: Sequence[float], q: float) -> float:
    """Linear interpolation between the two nearest values in order."""
    ordered, place = sorted(values), q * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


# What a fusing compiler never stores -------------------------------------------------------------------------

EXPENSIVE = {*("exponential", "tanh", "log", "logistic", "power", "rsqrt", "sqrt", "divide")}


def _loop(program: Program, node: int) -> bool:
    """Whether the operation goes over elements one by one; a constant has none to go over."""
    classes = ("elementwise", "reshape", "transpose", "slice", "broadcast")
    return program.classes[node] in classes and program.opcodes[node] != "constant"


def fused_away(program: Program, node: int) -> bool:
    """Whether the node's output is never stored."""
    consumers = set(program.operands.predecessors(node))
    if program.entry(node, "is_root") or not consumers:
        return False
    if not all(_loop(program, other) for other in (node, *consumers)):
        return False
    expensive = program.opcodes[node] in EXPENSIVE
    if expensive and any(program.opcodes[consumer] == "broadcast" for consumer in consumers):
        return False
    if len(consumers) == 1:
        return True
    elements = prod(program.tensors[node].dims)
    sizes = [prod(program.tensors[operand].dims) for operand in program.operands.successors(node)]
    return not expensive and sum(size > 1 and 2 * size >= elements for size in sizes) <= 1
