"""Columns of a program, from their meanings: plain loops and networkx, no code under test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, takewhile
from math import ceil, log, log2, prod, sqrt
from statistics import pstdev

import networkx as nx
import numpy as np

from xlarank.data.schema import NODE_COLUMN, OPCODES

Sizes = Sequence[int]

LANES = 128
SUBLANES = 8
#: Rows of smaller tiles, for tensors of few rows.
SMALL_TILES = (2, 4)
#: Elements in a word of four bytes; what has no size counts as one byte, and wide elements as a
#: word.
PACKING = {0: 4, 1: 4, 2: 2, 4: 1, 8: 1, 16: 1}
_TYPES = {0: "invalid_type tuple opaque_type token", 1: "pred s8 u8", 2: "s16 u16 f16 bf16"}
_TYPES |= {4: "s32 u32 f32", 8: "s64 u64 f64 c64", 16: "c128"}
#: Bytes of an element by type.
BYTES = {name: size for size, names in _TYPES.items() for name in names.split()}
#: The opcodes that occur in the tests, the sample and a few real files; any other one is a
#: KeyError: add it.
_MEMBERS = {
    "convolution": "convolution",
    "dot": "dot",
    "reshape": "reshape bitcast bitcast-convert",
    "transpose": "transpose copy reverse",
    "reduce": "reduce reduce-window select-and-scatter sort",
    "broadcast": "broadcast iota constant rng rng-bit-generator",
    "slice": "slice dynamic-slice dynamic-update-slice concatenate pad gather scatter",
    "elementwise": (
        "add multiply subtract divide maximum minimum tanh exponential select compare convert "
        "negate log rsqrt sqrt and or not xor power abs clamp logistic count-leading-zeros "
        "shift-left shift-right-arithmetic shift-right-logical"
    ),
    "other": "parameter tuple get-tuple-element fusion all-reduce call custom-call while "
    "conditional after-all infeed outfeed collective-permute",
}
CLASSES = tuple(_MEMBERS)
CLASS_OF = {opcode: name for name, opcodes in _MEMBERS.items() for opcode in opcodes.split()}
#: Opcodes that only name or bundle tensors.
FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")


@dataclass(frozen=True)
class Tensor:
    """The output of one node: sizes, default minor-to-major order, type of an element."""

    dims: tuple[int, ...]
    default: tuple[int, ...]
    element: str

    @property
    def element_bytes(self) -> int:
        return BYTES[self.element]

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
        tiled = zip(layout, (LANES, SUBLANES), strict=False)
        return prod(_padded(self.dims[dimension], multiple) for dimension, multiple in tiled) - 1

    def packed(self, layout: Sequence[int]) -> float:
        """`waste` with narrow elements packed into words and smaller tiles for few rows."""
        if not layout:
            return 0.0
        packing = PACKING[self.element_bytes]
        minor = self.dims[layout[0]]
        rows = self.dims[layout[1]] if self.rank > 1 else ceil(minor / LANES)
        small = [packing * few for few in SMALL_TILES if rows <= packing * few]
        tile = min(small, default=packing * SUBLANES)
        if self.rank > 1:
            return _padded(minor, LANES) * _padded(rows, tile) - 1
        if rows <= 1:
            tile = 1
        return ceil(rows / tile) * tile * LANES / minor - 1 if minor else 0.0

    def misfits(self, layout: Sequence[int]) -> dict[str, bool]:
        """Whether the largest dimension is not minor-most, and the two minor-most misfit a tile."""
        minor, second, *_ = (*(self.dims[dimension] for dimension in layout), 0, 0)
        largest = max(self.dims, default=0)
        return {
            "largest": largest > minor,
            "lanes": minor % LANES != 0,
            "sublanes": second % SUBLANES != 0,
        }

    def distance(self, layout: Sequence[int]) -> float:
        """Share of pairs of dimensions ordered unlike the default."""
        pairs = list(combinations(range(self.rank), 2))
        place = list(layout).index
        usual = list(self.default).index
        unlike = sum((place(a) < place(b)) != (usual(a) < usual(b)) for a, b in pairs)
        return unlike / len(pairs) if pairs else 0.0

    def contiguity(self, layout: Sequence[int]) -> float:
        """log(run) / log(elements) of the runs that a copy from the default moves whole."""
        elements = prod(max(1, size) for size in self.dims)
        if tuple(layout) == self.default or elements == 1:
            return 1.0
        same = takewhile(lambda pair: pair[0] == pair[1], zip(layout, self.default, strict=True))
        return log(prod(max(1, self.dims[dimension]) for dimension, _ in same)) / log(elements)


def _padded(size: int, multiple: int) -> float:
    """The size rounded up to a multiple, over the size."""
    return ceil(size / multiple) * multiple / size if size else 1.0


def tensor_of(row: np.ndarray) -> Tensor:
    dims = [int(row[NODE_COLUMN[f"shape_dimensions_{i}"]]) for i in range(6)]
    default = [int(row[NODE_COLUMN[f"layout_minor_to_major_{i}"]]) for i in range(6)]
    rank = max((i + 1 for i in range(6) if dims[i] > 0), default=0)
    if any(default):
        rank = max(rank, max(default) + 1)
    layout = tuple(default[:rank])
    if sorted(layout) != list(range(rank)):
        layout = tuple(reversed(range(rank)))
    types = [name for name in BYTES if row[NODE_COLUMN[f"shape_element_type_is_{name}"]] == 1]
    return Tensor(tuple(dims[:rank]), layout, types[0] if types else "invalid_type")


@dataclass(frozen=True)
class Choice:
    """Layout of one slot of one node in one configuration."""

    tensor: Tensor
    given: tuple[int, ...]

    @property
    def layout(self) -> tuple[int, ...]:
        return self.tensor.complete(self.given)

    @property
    def changed(self) -> bool:
        return self.layout != self.tensor.default


def dot_split(out: Sizes, left: Sizes, right: Sizes) -> tuple[int, int, float]:
    """Batch and row dimensions of the output, and the size summed over.

    Every choice of contracted dimensions of the left operand is tried.
    """
    splits = []
    for count in range(len(left) + 1):
        batch = len(left) + len(right) - len(out) - 2 * count
        rows = len(left) - batch - count
        if not 0 <= batch <= len(out) or rows < 0 or len(right) < batch + count:
            continue
        for contracted in combinations(range(len(left)), count):
            summed = [left[dimension] for dimension in contracted]
            own = [size for dimension, size in enumerate(left) if dimension not in contracted]
            others = [*out[:batch], *out[batch + rows :], *summed]
            if sorted(own) == sorted(out[: batch + rows]) and sorted(others) == sorted(right):
                splits.append((batch, rows, float(prod(summed)), count))
                break
    leads = left[:1] == right[:1] == out[:1]
    # preferably one that contracts, then one with a batch that leads all three shapes, then one
    # without a batch
    splits = [split for split in splits if split[3] > 0] or splits
    splits = [split for split in splits if split[0] > 0 and leads] or splits
    splits = [split for split in splits if not split[0]] or splits
    if splits:
        return max(splits)[:3]
    rows = len(left) - max(0, len(left) + len(right) - len(out)) // 2
    return 0, min(max(rows, 0), len(out)), sqrt(prod(left) * prod(right) / max(1, prod(out)))


def dot_roles(out: Sizes, left: Sizes, right: Sizes) -> list[list[str]]:
    """Roles of the output's, left and right dimensions.

    Each size of the output takes the operand's first dimension that has it and no role yet; rows of
    the right one are taken from the last backwards.
    """
    batch, rows, _ = dot_split(out, left, right)
    roles = [["batch"] * batch + ["rows"] * rows + ["contracted"] * (len(out) - batch - rows)]
    end = batch + rows
    for operand, own, step in ((left, out[batch:end], 1), (right, out[end:], -1)):
        of_operand = ["contracted"] * len(operand)
        for role, sizes, order in (("batch", out[:batch], 1), ("rows", own, step)):
            for size in sizes[::order]:
                alike = [d for d in range(len(operand)) if operand[d] == size]
                free = [d for d in alike if of_operand[d] == "contracted"]
                if size > 0 and free:
                    of_operand[free[::order][0]] = role
        roles.append(of_operand)
    return roles


def reshape_roles(out: Sizes, given: Sizes) -> tuple[list[str], list[str]]:
    """Roles of both sides' dimensions: the shapes are walked to where their products meet."""
    shapes = [out, given]
    roles = [["kept"] * len(out), ["kept"] * len(given)]
    left = [[d for d, size in enumerate(shape) if size > 1 and prod(shape) > 0] for shape in shapes]
    while any(left):
        group: list[list[int]] = [[], []]
        reached = [1, 1]
        while any(left) and (reached[0] != reached[1] or not any(group)):
            behind = int(reached[1] < reached[0])
            side = behind if left[behind] else 1 - behind  # the products never meet
            group[side].append(left[side].pop(0))
            reached[side] *= shapes[side][group[side][-1]]
        sizes = len(group[0]), len(group[1])
        for side, dimension in ((s, d) for s in (0, 1) for d in group[s] if sizes != (1, 1)):
            roles[side][dimension] = "split" if sizes[0] > sizes[1] else "merged"
    return roles[0], roles[1]


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
        return int(self.feat[node, NODE_COLUMN[column]])

    @cached_property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)

    def share_of_bytes(self, chosen: Sequence[int]) -> float:
        return sum(self.tensors[node].bytes for node in chosen) / max(1, self.bytes)

    def graph_columns(self) -> dict[str, float]:
        return {**self._sizes(), **self._shares(), **self._degrees(), **self._work()}

    def _sizes(self) -> dict[str, float]:
        # Levels from the parameters up: the longest path down to a node without operands.
        level = dict.fromkeys(self.nodes, 0)
        for node in reversed(list(nx.topological_sort(self.operands))):
            below = [level[operand] for operand in self.operands.successors(node)]
            level[node] = max(below, default=-1) + 1
        nodes = len(self.nodes)
        depth = nx.dag_longest_path_length(self.operands)
        widest = max(sum(level[node] == stage for node in self.nodes) for stage in range(depth + 1))
        narrow = [node for node in self.nodes if self.tensors[node].element_bytes <= 2]
        roots = sum(self.entry(node, "is_root") > 0 for node in self.nodes)
        logs = {"nodes": nodes, "edges": len(self.edges), "depth": depth, "bytes": self.bytes}
        return {
            **{f"size__{what}__log": log2(1 + size) for what, size in logs.items()},
            "size__depth__ratio": depth / nodes,
            "size__width__max": widest / nodes,
            "size__roots__share": roots / nodes,
            "size__bytes__max": max(tensor.bytes for tensor in self.tensors) / max(1, self.bytes),
            "size__rank__mean": sum(tensor.rank for tensor in self.tensors) / nodes,
            "size__narrow__share": self.share_of_bytes(narrow),
        }

    def _shares(self) -> dict[str, float]:
        columns: dict[str, float] = {}
        opcodes = [opcode for opcode in OPCODES if opcode not in ("trace", "tuple-select")]
        blocks = {"size": (CLASSES, self.classes), "opcodes": (opcodes, self.opcodes)}
        blocks["elements"] = (BYTES, [tensor.element for tensor in self.tensors])
        for block, (kinds, of) in blocks.items():
            for kind in kinds:
                nodes = [n for n in self.nodes if of[n] == kind]
                stem = f"{block}__{kind.replace('-', '_')}"
                columns[f"{stem}_bytes__share"] = self.share_of_bytes(nodes)
                if block != "size":
                    columns[f"{stem}__share"] = len(nodes) / len(self.nodes)
                if block == "opcodes":
                    columns[f"{stem}__log"] = log2(1 + len(nodes))
        return columns

    def _degrees(self) -> dict[str, float]:
        columns: dict[str, float] = {}
        operands, consumers = (
            [[edge[side] for edge in self.edges].count(n) for n in self.nodes] for side in (0, 1)
        )
        both = [a + b for a, b in zip(operands, consumers, strict=True)]
        for direction, degrees in (("in", operands), ("out", consumers), ("total", both)):
            values = {f"q{at}": _quantile(degrees, at / 100) for at in (25, 50, 75, 90, 99)}
            values |= {"std": pstdev(degrees), "max": max(degrees)}
            values["mean"] = sum(degrees) / len(degrees)
            columns |= {f"degrees__{direction}__{how}": value for how, value in values.items()}
        return columns

    def _work(self) -> dict[str, float]:
        flops = [self.flops(node) for node in self.nodes]
        whole = max(1.0, sum(flops))
        parts = ("convolution", "dot", "reduce")
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
        tensor = self.tensors[node]
        opcode = self.opcodes[node]
        kind = self.classes[node]
        written = 0 if opcode in FREE or tensor.element_bytes == 0 else tensor.elements
        if kind == "reduce":
            read = [self.tensors[operand].elements for operand in self.operands[node]]
            return max([written, *read])
        if kind not in ("convolution", "dot"):
            return written
        left, right = self.operand_dims(node)
        if kind == "dot":
            return 2 * written * dot_split(tensor.dims, left, right)[2]
        features = self.entry(node, "convolution_dim_numbers_kernel_output_feature_dim")
        return 2 * written * prod(right) / max(1, (six(right) if right else [1] * 6)[features])

    def two_operands(self, node: int) -> tuple[int | None, int | None]:
        """Image and kernel of a convolution, left and right of a dot, as the shapes tell."""
        operands = [operand for consumer, operand in self.edges if consumer == node]
        operands = sorted(operands, key=lambda operand: self.tensors[operand].rank == 0)[:2]
        if len(operands) < 2:
            only = operands[0] if operands else None
            return only, only if self.classes[node] == "dot" else None
        fits = self._kernel_fits if self.opcodes[node] == "convolution" else self._dot_fits
        first, second = operands
        swapped = fits(node, second, first) > fits(node, first, second)
        return (second, first) if swapped else (first, second)

    def operand_dims(self, node: int) -> list[tuple[int, ...]]:
        operands = self.two_operands(node)
        return [() if operand is None else self.tensors[operand].dims for operand in operands]

    def _kernel_fits(self, node: int, _: int, kernel: int) -> float:
        """A kernel has the window's size and the output's features in the named dimensions."""
        stem = "convolution_dim_numbers"
        out = six(self.tensors[node].dims)
        dims = six(self.tensors[kernel].dims)
        for i in range(min(4, self.tensors[node].rank - 2)):
            size = dims[self.entry(node, f"{stem}_kernel_spatial_dims_{i}")]
            if size != self.entry(node, f"window_size_{i}"):
                return 0
        features = dims[self.entry(node, f"{stem}_kernel_output_feature_dim")]
        return features == out[self.entry(node, f"{stem}_output_feature_dim")]

    def _dot_fits(self, node: int, left: int, right: int) -> float:
        """The right operand has the output's last size, the left one its first and last but one."""
        dims = self.tensors[node].dims
        (ours, theirs) = (six(self.tensors[side].dims) for side in (left, right))
        leading = {dims[0], dims[max(0, len(dims) - 2)]} if dims else set()
        return bool(dims) and (dims[-1] in theirs) + (leading <= {*ours})


def six(sizes: Sequence[float]) -> list[float]:
    return [*sizes, *[0] * (6 - len(sizes))]


def _quantile(values: Sequence[float], q: float) -> float:
    """Linear interpolation between the two nearest values in order."""
    ordered = sorted(values)
    position = q * (len(values) - 1)
    low = ordered[int(position)]
    high = ordered[ceil(position)]
    return low + position % 1 * (high - low)


LOOPS = ("elementwise", "reshape", "transpose", "slice", "broadcast")
EXPENSIVE = {"exponential", "tanh", "log", "logistic", "power", "rsqrt", "sqrt", "divide"}


def fused_away(program: Program, node: int) -> bool:
    """Whether the node's output is never stored."""
    consumers = set(program.operands.predecessors(node))
    opcodes = program.opcodes
    if program.entry(node, "is_root") or not consumers:
        return False
    for n in (node, *consumers):
        if program.classes[n] not in LOOPS or opcodes[n] == "constant":
            return False  # no loop over elements one by one; a constant has none to go over
    expensive = opcodes[node] in EXPENSIVE
    if expensive and any(opcodes[consumer] == "broadcast" for consumer in consumers):
        return False
    elements = prod(program.tensors[node].dims)
    sizes = [prod(program.tensors[operand].dims) for operand in program.operands.successors(node)]
    cheap = not expensive and sum(size > 1 and 2 * size >= elements for size in sizes) <= 1
    return len(consumers) == 1 or cheap
