"""A program as layout assignment sees it: operands in order, and how operations hand layouts on.

Edges into called computations are left out, as layouts of each computation are assigned apart.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODES
from xlarank.features.layout.hardware import Hardware
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.layout_mapping import (
    Layout,
    Sizes,
    compact,
    inverse,
    padded_bytes,
    permuted,
    reshaped,
    row_major,
    without,
)
from xlarank.features.program.program_context import OPCODE_CLASSES
from xlarank.features.program.slots import DOT_ROLES, dot_split, slot_roles, slot_tensors

#: Operations whose operands and output have one layout.
_KEEPING: Final = frozenset(
    "abs add all-reduce and atan2 bitcast-convert cbrt ceil cholesky clamp collective-permute "
    "compare complex concatenate convert cosine count-leading-zeros divide dynamic-slice "
    "dynamic-update-slice exponential exponential-minus-one fft floor imag is-finite log "
    "log-plus-one logistic map maximum minimum multiply negate not opt-barrier or pad popcnt power "
    "real reduce-precision reduce-window remainder reverse round-nearest-afz round-nearest-even "
    "rsqrt select select-and-scatter shift-left shift-right-arithmetic shift-right-logical sign "
    "sine slice sort sqrt stochastic-convert subtract tan tanh triangular-solve xor".split()
)
#: Operations whose first operand is an array, before scalars, indices or updates.
_ARRAY_FIRST: Final = frozenset(
    "reduce pad reduce-window gather dynamic-slice dynamic-update-slice scatter "
    "select-and-scatter sort".split()
)
RESHAPES: Final = frozenset({"reshape", "bitcast"})
_BATCH, _ROWS, _CONTRACTED = map(DOT_ROLES.index, ("batch", "rows", "contracted"))


class LayoutProgram:
    """The nodes of a graph; attributes are lists or dicts by node.

    Attributes:
        opcode, dims, element_bytes: name, output shape and bytes of an element.
        operands: nodes in operand order.
        dots: index into ``graph.dot_operands`` of the dots whose dimension numbers are known.
        readers: nodes that read a node's output, twice if as two operands.
        keeps: whether the operands and the output of a node have one layout.
        reshapes: nodes that reshape their operand.
        permutation, reduced: permutation of a transpose, dimensions that a reduction removes.
        kept: dimensions of a broadcast's output that are its operand's.
        elementwise: whether a node computes each element from the elements in the same position.
        preferred: the layout of the output if it is a parameter or a result.
        roles: roles of the dimensions of output and operands of a dot or convolution.
        groups: batch, row and contracted dimensions of each operand of a dot, in its order.
        split, flops: numbers of batch and row dimensions of a dot, and its operations.
        activations: the convolution that computes a node's activation, if the back end fuses it.
        merged: dots that read the same operand as a dot in the same way, and become one with it.
        results: nodes (no attribute of one) that the program returns.
    """

    def __init__(self, context: LayoutContext, hardware: Hardware) -> None:
        self.context = context
        self.hardware = hardware
        shapes = zip(context.dims.tolist(), context.rank.tolist(), strict=True)
        self.opcode = [OPCODES[number] for number in context.graph.opcode]
        self.dims: list[Sizes] = [tuple(sizes[:rank]) for sizes, rank in shapes]
        self.element_bytes = [int(size) for size in context.element_bytes]
        self.dots = self._known_dots()
        self.operands = self._operands()
        self.readers: list[list[int]] = [[] for _ in self.dims]
        for node, inputs in enumerate(self.operands):
            for tensor in inputs:
                self.readers[tensor].append(node)
        self.keeps = [opcode in _KEEPING for opcode in self.opcode]
        self.reshapes: set[int] = set()
        self.permutation: dict[int, Layout] = {}
        self.reduced: dict[int, frozenset[int]] = {}
        self.kept: dict[int, Layout] = {}
        self._describe_moves()
        is_elementwise = context.opcode_class == OPCODE_CLASSES.index("elementwise")
        self.elementwise: list[bool] = is_elementwise.tolist()
        self.preferred = [self._preferred(node) for node in range(context.graph.nodes)]
        self._describe_products()
        self.merged = self._merged()
        self.activations = self._activations() if hardware.fuses_activations else {}
        self.results = self._results()

    def _known_dots(self) -> dict[int, int]:
        known = self.context.graph.dot_operands[:, 0] >= 0
        nodes = [node for node, opcode in enumerate(self.opcode) if opcode == "dot"]
        return {node: index for index, node in enumerate(nodes) if known[index]}

    def _operands(self) -> list[list[int]]:
        """Return the operands of each node; the dataset's edges are not in operand order."""
        graph = self.context.graph
        dims = self.dims
        splits = np.unique(np.concatenate([[0], graph.splits, [graph.nodes]]))
        computation = np.searchsorted(splits, np.arange(graph.nodes), side="right")
        operands: list[list[int]] = [[] for _ in dims]
        for consumer, operand in graph.edges.tolist():
            if computation[consumer] == computation[operand]:
                operands[consumer].append(operand)
        tensors = slot_tensors(self.context, np.arange(graph.nodes))
        for node, inputs in enumerate(operands):
            if node in self.dots:
                operands[node] = graph.dot_operands[self.dots[node]].tolist()
            elif self.opcode[node] in ("dot", "convolution"):
                left, right = tensors[node, 1:].tolist()
                both = left, right if right >= 0 else left  # x * x has one edge
                operands[node] = [tensor for tensor in both if tensor >= 0]
            elif self.opcode[node] in _ARRAY_FIRST:
                unlike = {tensor: dims[tensor] != dims[node] for tensor in inputs}
                inputs.sort(key=lambda tensor: (-len(dims[tensor]), unlike[tensor]))
        return operands

    def _describe_moves(self) -> None:
        """Find the nodes that reshape, permute, broadcast or reduce their first operand."""
        listed = self.context.column("dimensions_0", MAX_RANK).astype(int).tolist()
        for node, opcode in enumerate(self.opcode):
            if not self.operands[node]:
                continue
            dims = self.dims[node]
            source = self.dims[self.operands[node][0]]
            if opcode in RESHAPES:
                self.reshapes.add(node)
            elif opcode == "transpose":
                permutation = tuple(listed[node][: len(dims)])
                is_permutation = sorted(permutation) == [*range(len(source))]
                if is_permutation and permuted(permutation, source) == dims:
                    self.permutation[node] = permutation
            elif opcode == "broadcast":
                kept = tuple(listed[node][: len(source)])
                if len({*kept}) == len(source) <= len(dims) and all(d < len(dims) for d in kept):
                    self.kept[node] = kept
            elif opcode == "reduce" and len(source) > len(dims):
                removed = frozenset(listed[node][: len(source) - len(dims)])
                if len(removed) == len(source) - len(dims) and max(removed) < len(source):
                    self.reduced[node] = removed

    def _preferred(self, node: int) -> Layout:
        """Return the module's layout if it is not row-major, as then someone has chosen it."""
        dims = self.dims[node]
        layout = tuple(self.context.default_layout[node, : len(dims)].tolist())
        if layout == row_major(len(dims)) and self.hardware.compacts:
            return compact(dims, self.element_bytes[node])
        return layout

    def _describe_products(self) -> None:
        """Set the roles of dots and convolutions, and the splits and operations of dots."""
        context = self.context
        is_product = [opcode in ("dot", "convolution") for opcode in self.opcode]
        nodes = np.flatnonzero(is_product)
        tensors = slot_tensors(context, nodes)
        tensors[:, 2] = np.where(tensors[:, 2] < 0, tensors[:, 1], tensors[:, 2])
        roles: list[list[list[int]]] = slot_roles(context, tensors).tolist()
        self.roles = dict(zip(nodes.tolist(), roles, strict=True))
        is_dot = np.array([self.opcode[node] == "dot" for node in nodes], bool)
        batch, rows, contracted = dot_split(context, tensors[is_dot])
        dots = nodes[is_dot].tolist()
        flops = np.rint(2 * contracted * context.volume[nodes[is_dot]])
        splits = zip(batch.astype(int), rows.astype(int), strict=True)
        self.split = dict(zip(dots, splits, strict=True))
        self.flops: dict[int, float] = dict(zip(dots, flops.tolist(), strict=True))
        self._contract_squares([node for node in dots if node not in self.dots])
        self.groups = {node: [self._groups(node, slot) for slot in (1, 2)] for node in dots}
        for node, index in self.dots.items():
            self._take_numbers(node, index)

    def _groups(self, node: int, slot: int) -> tuple[Layout, Layout, Layout]:
        """Return the batch, row and contracted dimensions of a dot's operand, ascending."""
        roles = self.roles[node][slot]
        batch, rows, contracted = (
            tuple(dimension for dimension, other in enumerate(roles) if other == role)
            for role in (_BATCH, _ROWS, _CONTRACTED)
        )
        return batch, rows, contracted

    def _take_numbers(self, node: int, index: int) -> None:
        """Set what is known of a dot from its dimension numbers."""
        numbers = self.context.graph.dot_dimensions[index].reshape(2, 2, -1)
        contracted_size = 1
        for side, tensor in enumerate(self.operands[node]):
            contracted, batch = (tuple(listed[listed >= 0].tolist()) for listed in numbers[:, side])
            dims = self.dims[tensor]
            both = contracted + batch
            rows = tuple(dimension for dimension in range(len(dims)) if dimension not in both)
            self.groups[node][side] = (batch, rows, contracted)
            roles = self.roles[node][side + 1]
            for role, group in enumerate(self.groups[node][side]):
                for dimension in group:
                    roles[dimension] = role
            contracted_size = math.prod(dims[dimension] for dimension in contracted)
        batch, rows, _ = self.groups[node][0]
        rank = len(self.dims[node])
        split = [len(batch), len(rows), rank - len(batch) - len(rows)]
        self.split[node] = (split[0], split[1])
        output_roles = [role for role, count in enumerate(split) for _ in range(count)]
        self.roles[node][0][:rank] = output_roles
        self.flops[node] = 2.0 * contracted_size * math.prod(self.dims[node])

    def _contract_squares(self, dots: list[int]) -> None:
        """Choose the contracted dimension of square operands, which is not in the file.

        A matrix that two dots read, such as a dot of the forward pass and its gradient, is
        contracted along one dimension and then along the other.
        """
        first: dict[int, int] = {}
        for node in dots:
            for slot, tensor in enumerate(self.operands[node], 1):
                dims = self.dims[tensor]
                roles = self.roles[node][slot]
                if len(dims) != 2:
                    continue
                contracted = 0 if roles[0] == _CONTRACTED else 1
                if dims[0] == dims[1] and tensor in first:
                    contracted = 1 - first[tensor]
                    roles[contracted], roles[1 - contracted] = _CONTRACTED, _ROWS
                first.setdefault(tensor, contracted)

    def _merged(self) -> dict[int, list[int]]:
        """Return the dots that are merged with each dot (XLA's ``DotMerger``)."""
        limit = self.hardware.merged_bytes
        groups: dict[tuple[int, int, Layout, Layout], list[int]] = {}
        for node, ((batch, _, left), (_, _, right)) in self.groups.items():
            inputs = self.operands[node]
            size = sum(self.bytes(tensor) for tensor in (node, *inputs))
            if len(self.dims[node]) == 2 and not batch and size <= limit:
                for number, tensor in enumerate(inputs):
                    groups.setdefault((number, tensor, left, right), []).append(node)
        merged: dict[int, list[int]] = {}
        for nodes in groups.values():
            for node in nodes:
                if len(nodes) > 1 and node not in merged:
                    merged[node] = [other for other in nodes if other != node]
        return merged

    def _activations(self) -> dict[int, int]:
        """Return the only convolution that each ``maximum`` reads, if nothing else reads it."""
        activations = {}
        for node, inputs in enumerate(self.operands):
            if self.opcode[node] == "maximum":
                own = [tensor for tensor in inputs if len(self.readers[tensor]) == 1]
                convolutions = [tensor for tensor in own if self.opcode[tensor] == "convolution"]
                if len(convolutions) == 1:
                    activations[node] = convolutions[0]
        return activations

    def _results(self) -> list[int]:
        results: dict[int, None] = {}
        for root in np.flatnonzero(self.context.column("is_root")).tolist():
            returned = self.operands[root] if self.opcode[root] == "tuple" else [root]
            results |= dict.fromkeys(node for node in returned if self.dims[node])
        return [*results]

    def bytes(self, node: int) -> int:
        """Return the bytes of a node's output, without padding."""
        return math.prod(self.dims[node]) * self.element_bytes[node]

    def padded_bytes(self, node: int, layout: Layout) -> int:
        """Return the bytes of a node's output in the hardware's tiles."""
        return padded_bytes(layout, self.dims[node], self.element_bytes[node])

    def to_operand(self, node: int, layout: Layout) -> Layout | None:
        """Return the layout of the first operand that this layout of the output implies, if any."""
        if node in self.permutation:
            return permuted(layout, self.permutation[node])
        if node in self.reshapes:
            source = self.dims[self.operands[node][0]]
            return reshaped(layout, self.dims[node], source) if len(source) > 1 else None
        if node in self.kept:
            kept = self.kept[node]
            return tuple(kept.index(dimension) for dimension in layout if dimension in kept)
        return None

    def to_output(self, node: int, layout: Layout) -> Layout | None:
        """Return the layout of the output that this layout of the first operand implies, if any."""
        if node in self.permutation:
            return permuted(layout, inverse(self.permutation[node]))
        if node in self.reshapes:
            return reshaped(layout, self.dims[self.operands[node][0]], self.dims[node])
        if node in self.reduced and self.hardware.reduces_forward:
            return without(layout, self.reduced[node])
        return None

    def propagates_first(self, node: int) -> bool:
        """Return whether a node hands layouts on before all others: it can be a bitcast."""
        opcode = self.opcode[node]
        if opcode != "reshape" or not self.operands[node]:
            return opcode in ("gather", "scatter", "transpose")
        source = self.dims[self.operands[node][0]]
        sizes, source_sizes = ([s for s in dims if s != 1] for dims in (self.dims[node], source))
        return len(source) == 1 or sizes == source_sizes
