"""Times of nodes: hypot(operations / peak, bytes / bandwidth); others than products move none."""

from collections.abc import Sequence
from itertools import permutations
from math import ceil, hypot, log2, prod

from tests.features.oracle_configs import Configuration, Configured
from tests.features.oracle_program import Tensor

FLOPS = 61.60384e12
BANDWIDTH = 450e9
KINDS = ("convolution", "kernel_gradient", "dot", "other")
ROLES = "output_batch output_feature input_batch input_feature kernel_output_feature".split()
ROLES.append("kernel_input_feature")


def up(size: float, tile: int) -> int:
    return ceil(size / tile) * tile


def rows(size: int) -> int:
    """Sublanes that so many rows take."""
    return 2 if size <= 2 else 4 if size <= 4 else up(size, 8)


def padding(tensor: Tensor, layout: Sequence[int], batch: int = -1, *, skip: bool = True) -> float:
    """Padded over true size: 128 lanes, 8 sublanes of words, but for a batch."""
    order = [*layout]
    while skip and len(order) > 1 and tensor.dims[order[0]] in (0, 1):
        order.pop(0)
    sizes = [max(1, tensor.dims[dimension]) for dimension in order[:2]]
    tiles = [128, 8 * max(1, 4 // max(1, tensor.element_bytes))]
    if order[1:2] == [batch]:
        tiles[1] = 1
    return prod(up(size, tile) / size for size, tile in zip(sizes, tiles, strict=False))


class NodeOracle:
    def __init__(self, graph: Configured, place: int) -> None:
        self.node = node = graph.configurable[place]
        self.tensor = graph.tensors[node]
        self.operands = [graph.slot(place, slot) for slot in (1, 2)]
        opcode = graph.opcodes[node]
        computes = opcode in ("convolution", "dot")
        self.work = graph.flops(node) if computes else float(self.tensor.elements)
        self.kind = opcode if opcode in KINDS else "other"
        if opcode == "convolution":
            numbers = [graph.entry(node, f"convolution_dim_numbers_{name}_dim") for name in ROLES]
            self.batch, self.feature, self.input_batch, self.input_feature = numbers[:4]
            self.to, self.of = numbers[4:]
            axes = range(self.tensor.rank - 2)
            window = prod(graph.entry(node, f"window_size_{axis}") for axis in axes)
            sizes = size_of(self.tensor, self.batch) * size_of(self.tensor, self.feature)
            if window > self.tensor.elements / sizes:
                self.kind = "kernel_gradient"

    def holds_contracted(self, dimension: int, minor: Sequence[int | None] | None) -> bool:
        """Whether an operand behind the output's dimension has the contracted one along its lanes.

        Both supply it if batch and feature are one dimension, which makes no sense.
        """
        sides = (
            (self.batch, 0, self.input_batch, self.input_feature),
            (self.feature, 1, self.to, self.of),
        )
        return any(self._in_lanes(*side, minor) for output, *side in sides if output == dimension)

    def _in_lanes(
        self, slot: int, supplied: int, contracted: int, minor: Sequence[int | None] | None
    ) -> bool:
        other = size_of(self.operands[slot], supplied)
        size = size_of(self.operands[0], self.input_feature)
        in_lanes = up(size, 128) * rows(other)
        across = up(other, 128) * rows(size)
        requested = minor is not None and minor[slot] == contracted
        return in_lanes < across or (in_lanes == across and requested)

    def time(self, layout: Sequence[int], minor: Sequence[int | None] | None = None) -> float:
        batch = self.batch if self.kind == "convolution" else -1
        whole = ratio = padding(self.tensor, layout, batch)
        if self.kind in ("convolution", "kernel_gradient"):
            size = size_of(self.operands[0], self.input_feature)
            first = layout[0] if layout else -1
            whole = ratio * (up(size, 8) / size if self.kind == "convolution" else 1)
            along = next((d for d in layout if self.tensor.dims[d] != 1), first)
            if None not in self.operands and self.holds_contracted(first, minor):
                whole = padding(self.tensor, layout, batch, skip=False) * up(size, 128) / size
            elif None not in self.operands and self.holds_contracted(along, minor):
                whole = ratio * up(size, 128) / size
        computing = self.work * whole / FLOPS
        if self.kind == "other":
            return 1e9 * computing
        read = sum(tensor.bytes for tensor in self.operands if tensor is not None)
        moved = self.tensor.bytes * ratio + read
        return 1e9 * hypot(computing, moved / BANDWIDTH)

    @property
    def default(self) -> float:
        minor = [side.default[0] if side and side.default else None for side in self.operands]
        return self.time(self.tensor.default, minor)

    @property
    def fastest(self) -> float:
        """Least time of all orders, of convolutions with batch and feature minor-most."""
        dims = self.tensor.dims
        rank = self.tensor.rank
        orders = [*permutations(range(rank))] if rank > 1 else []
        if self.kind in ("convolution", "kernel_gradient"):
            named = {self.batch, self.feature}
            line = sum(size != 1 for size in dims) <= 1
            orders = [order for order in orders if {*order[:2]} == named]
            orders = [order for order in orders if line or dims[order[0]] != 1]
        return min([self.default, *map(self.time, orders)])


def size_of(tensor: Tensor | None, dimension: int) -> int:
    """1 for no tensor, and for a dimension that it does not have."""
    return 1 if tensor is None or dimension >= tensor.rank else max(1, tensor.dims[dimension])


def time_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    nodes = [NodeOracle(graph, place) for place in graph.places]
    now = []
    for node, (choice, *operands) in zip(nodes, config.choices, strict=True):
        assert choice is not None
        minor = [slot.layout[0] if slot and slot.layout else None for slot in operands]
        now.append(node.time(choice.layout, minor))
    before = [node.default for node in nodes]
    least = [node.fastest for node in nodes]
    total, default, fastest = (max(1e-3, sum(times)) for times in (now, before, least))
    kinds = [node.kind for node in nodes]
    changes = [after - first for after, first in zip(now, before, strict=True)]
    useful = sum(1e9 * node.work / FLOPS for node in nodes)
    slower = sum(a - shortest > 1e-3 * fastest for a, shortest in zip(now, least, strict=True))
    changes_of = dict.fromkeys(KINDS, 0.0)
    for kind, change in zip(kinds, changes, strict=True):
        changes_of[kind] += change
    return {
        "time__over_fastest__log": log2(total / fastest),
        "time__over_default__log": log2(total / default),
        **{f"time__{kind}_change__ratio": changes_of[kind] / default for kind in KINDS},
        "time__node_change__ratio": max([0, *changes]) / default,
        "time__idle__share": max(0, (sum(now) - useful) / total),
        "time__slower_nodes__log": log2(1 + slower),
    }


def fastest_time(graph: Configured) -> float:
    return log2(max(1e-3, sum(NodeOracle(graph, place).fastest for place in graph.places)))
