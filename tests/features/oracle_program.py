"""Columns of a program the slow and obvious way: plain loops over nodes, edges, tensors and dimensions, and
networkx.

Every column is written from its meaning. Nothing of the code under test is used, apart from the tables of
element types and classes of opcodes, and what has tests by hand: which operand is which, and what a dot sums over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import ceil, log, log2, prod
from statistics import fmean, pstdev

import networkx as nx
import numpy as np

from xlarank.data.schema import ELEMENT_BYTES, NODE_COLUMN, OPCODES
from xlarank.features.program.opcode_classes import OPCODE_CLASSES as CLASSES
from xlarank.features.program.opcode_classes import opcode_class
from xlarank.features.program.program_context import ProgramContext
from xlarank.features.program.slots import slot_tensors, split_sizes

LANES, SUBLANES = 128, 8
#: Rows of smaller tiles, for tensors of few rows.
SMALL_TILES = (2, 4)
#: Elements in a word of four bytes; what has no size counts as one byte, and wide elements as a word.
PACKING = {0: 4, 1: 4, 2: 2, 4: 1, 8: 1, 16: 1}
#: What only names or bundles what is there.
FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")


@dataclass(frozen=True)
class Tensor:
    """The output of one node: sizes, default minor-to-major order, type of an element."""

    dims: tuple[int, ...]
    default: tuple[int, ...]
    element: str

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.element]

    @property
    def elements(self) -> int:
        return prod(self.dims)

    @property
    def bytes(self) -> int:
        return self.elements * self.element_bytes

    @property
    def rank(self) -> int:
        return len(self.dims)

    def complete(self, given: Sequence[int]) -> tuple[int, ...]:
        """The dimensions named, then the others as in the default."""
        return (*given, *(dimension for dimension in self.default if dimension not in given))

    def waste(self, layout: Sequence[int]) -> float:
        """Padded over true size, minus 1; a size of 0 is not padded."""
        over = 1.0
        for dimension, multiple in zip(layout, (LANES, SUBLANES), strict=False):
            over *= _padded(self.dims[dimension], multiple)
        return over - 1

    def packed(self, layout: Sequence[int]) -> float:
        """The same with narrow elements packed into words and smaller tiles for few rows."""
        if not layout:
            return 0.0
        packing, minor = PACKING[self.element_bytes], self.dims[layout[0]]
        rows = self.dims[layout[1]] if self.rank > 1 else ceil(minor / LANES)
        tile = next((packing * small for small in SMALL_TILES if rows <= packing * small), packing * SUBLANES)
        if self.rank > 1:
            return _padded(minor, LANES) * _padded(rows, tile) - 1
        if rows <= 1:
            tile = 1
        return ceil(rows / tile) * tile * LANES / minor - 1 if minor else 0.0

    def violates(self, layout: Sequence[int]) -> bool:
        return self.rank > 0 and max(self.dims) > self.dims[layout[0]]

    def misses_lanes(self, layout: Sequence[int]) -> bool:
        return self.rank > 0 and self.dims[layout[0]] % LANES != 0

    def misses_sublanes(self, layout: Sequence[int]) -> bool:
        return self.rank > 1 and self.dims[layout[1]] % SUBLANES != 0

    def distance(self, layout: Sequence[int]) -> float:
        """Share of pairs of dimensions ordered unlike the default."""
        pairs = list(combinations(range(self.rank), 2))
        place, usual = list(layout).index, list(self.default).index
        unlike = sum((place(a) < place(b)) != (usual(a) < usual(b)) for a, b in pairs)
        return unlike / len(pairs) if pairs else 0.0

    def contiguity(self, layout: Sequence[int]) -> float:
        """log(elements of a run) / log(elements) of the runs that a copy from the default moves whole."""
        elements = prod(max(1, size) for size in self.dims)
        if tuple(layout) == self.default or elements == 1:
            return 1.0
        run = 1
        for mine, usual in zip(layout, self.default, strict=True):
            if mine != usual:
                break
            run *= max(1, self.dims[mine])
        return log(run) / log(elements)


def _padded(size: int, multiple: int) -> float:
    """The size rounded up to a multiple, over the size."""
    return ceil(size / multiple) * multiple / size if size else 1.0


def tensor_of(row: np.ndarray) -> Tensor:
    """What a row of ``node_feat`` says."""
    dims = [int(row[NODE_COLUMN[f"shape_dimensions_{i}"]]) for i in range(6)]
    default = [int(row[NODE_COLUMN[f"layout_minor_to_major_{i}"]]) for i in range(6)]
    rank = max((i + 1 for i in range(6) if dims[i] > 0), default=0)
    if any(default):
        rank = max(rank, max(default) + 1)
    layout = tuple(default[:rank])
    if sorted(layout) != list(range(rank)):
        layout = tuple(reversed(range(rank)))
    types = [name for name in ELEMENT_BYTES if row[NODE_COLUMN[f"shape_element_type_is_{name}"]] == 1]
    return Tensor(tuple(dims[:rank]), layout, types[0] if types else "invalid_type")


@dataclass(frozen=True)
class Choice:
    """What one slot of one node is laid out as in one configuration."""

    tensor: Tensor
    given: tuple[int, ...]

    @property
    def layout(self) -> tuple[int, ...]:
        return self.tensor.complete(self.given)

    @property
    def changed(self) -> bool:
        return self.layout != self.tensor.default


class Program:
    """A graph file's nodes, one by one."""

    def __init__(self, arrays: Mapping[str, np.ndarray], context: ProgramContext) -> None:
        self.feat = arrays["node_feat"]
        self.nodes = range(len(self.feat))
        self.edges = [(int(consumer), int(operand)) for consumer, operand in arrays["edge_index"]]
        self.opcodes = [OPCODES[int(opcode)] for opcode in arrays["node_opcode"]]
        self.classes = [CLASSES[number] for number in opcode_class(arrays["node_opcode"])]
        self.tensors = [tensor_of(row) for row in self.feat]
        #: Output, input (or left operand) and kernel (or right operand) of each node by the shapes, -1 for none.
        self.operands_by_shape = slot_tensors(context, np.arange(len(self.feat))).tolist()
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
        logs = {"nodes": nodes, "edges": len(self.edges), "depth": depth, "bytes": self.bytes}
        return {
            **{f"size__{what}__log": log2(1 + size) for what, size in logs.items()},
            "size__depth__ratio": depth / nodes,
            "size__width__max": widest / nodes,
            "size__roots__share": sum(self.entry(node, "is_root") > 0 for node in self.nodes) / nodes,
            "size__bytes__max": max(tensor.bytes for tensor in self.tensors) / max(1, self.bytes),
            "size__rank__mean": sum(tensor.rank for tensor in self.tensors) / nodes,
            "size__narrow__share": self.share_of_bytes(
                [node for node in self.nodes if self.tensors[node].element_bytes <= 2]
            ),
        }

    def _shares(self) -> dict[str, float]:
        """By class, opcode and element type."""
        columns: dict[str, float] = {}
        opcodes = [opcode for opcode in OPCODES if opcode not in ("trace", "tuple-select")]
        elements = [tensor.element for tensor in self.tensors]
        for block, kinds, of in (
            ("size", CLASSES, self.classes),
            ("opcodes", opcodes, self.opcodes),
            ("elements", ELEMENT_BYTES, elements),
        ):
            for kind in kinds:
                own, stem = [node for node in self.nodes if of[node] == kind], f"{block}__{kind.replace('-', '_')}"
                columns[f"{stem}_bytes__share"] = self.share_of_bytes(own)
                if block != "size":
                    columns[f"{stem}__share"] = len(own) / len(self.nodes)
                if block == "opcodes":
                    columns[f"{stem}__log"] = log2(1 + len(own))
        return columns

    def _degrees(self) -> dict[str, float]:
        columns: dict[str, float] = {}
        operands, consumers = (
            [[edge[side] for edge in self.edges].count(n) for n in self.nodes] for side in (0, 1)
        )
        both = [a + b for a, b in zip(operands, consumers, strict=True)]
        for direction, degrees in (("in", operands), ("out", consumers), ("total", both)):
            found = {"mean": fmean(degrees), "std": pstdev(degrees), "max": max(degrees)}
            found |= {f"q{percent}": float(np.percentile(degrees, percent)) for percent in (25, 50, 75, 90, 99)}
            columns |= {f"degrees__{direction}__{how}": value for how, value in found.items()}
        return columns

    def _work(self) -> dict[str, float]:
        flops = [self.flops(node) for node in self.nodes]
        whole, parts = max(1.0, sum(flops)), ("convolution", "dot", "reduce")
        columns = {
            "work__flops__log": log2(1 + sum(flops)),
            "work__largest_flops__share": max(flops) / whole,
            "work__intensity__log": log2(1 + sum(flops) / max(1, self.bytes)),
        }
        for part in (*parts, "other"):
            kinds = [name if name in parts else "other" for name in self.classes]
            own = sum(work for work, kind in zip(flops, kinds, strict=True) if kind == part)
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
        if kind == "dot":
            return 2 * written * self.contracted_by_dot(node)
        kernel = self.operands_by_shape[node][2]
        dims = self.tensors[kernel].dims if kernel >= 0 else (1,) * 6
        features = [*dims, *[0] * 6][self.entry(node, "convolution_dim_numbers_kernel_output_feature_dim")]
        return 2 * written * prod(dims) / max(1, features)

    def contracted_by_dot(self, node: int) -> float:
        """Elements that a dot sums over."""
        shapes = (self.tensors[side].dims if side >= 0 else () for side in self.operands_by_shape[node])
        return split_sizes(*shapes)[2]


LOOPS = ("elementwise", "reshape", "transpose", "slice", "broadcast")
EXPENSIVE = {*("exponential", "tanh", "log", "logistic", "power", "rsqrt", "sqrt", "divide")}


def fused_away(program: Program, node: int) -> bool:
    """Whether the node's output is never stored."""
    consumers, opcodes = set(program.operands.predecessors(node)), program.opcodes
    if program.entry(node, "is_root") or not consumers:
        return False
    if not all(program.classes[n] in LOOPS and opcodes[n] != "constant" for n in (node, *consumers)):
        return False  # not loops over elements one by one; a constant has none to go over
    expensive = opcodes[node] in EXPENSIVE
    if expensive and any(opcodes[consumer] == "broadcast" for consumer in consumers):
        return False
    elements = prod(program.tensors[node].dims)
    sizes = [prod(program.tensors[operand].dims) for operand in program.operands.successors(node)]
    cheap = not expensive and sum(size > 1 and 2 * size >= elements for size in sizes) <= 1
    return len(consumers) == 1 or cheap
