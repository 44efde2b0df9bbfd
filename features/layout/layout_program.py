"""A program as layout assignment sees it: operands in order, and how operations hand layouts on.

Edges into called computations are left out, as layouts of each computation are assigned apart.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODE, OPCODES
from xlarank.features.layout.hardware import Hardware
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.layout_mapping import (
    Layout,
    Sizes,
    compact,
    padded_bytes,
    permuted,
    renumbered,
    reshaped,
    row_major,
)
from xlarank.features.program.program_context import OPCODE_CLASSES
from xlarank.features.program.slots import node_flops, slot_roles, slot_tensors

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
#: Dimensions of a tensor by role, in the order of `DOT_ROLES` or `CONVOLUTION_ROLES`.
Groups = tuple[Layout, Layout, Layout]


class LayoutProgram:
    """The nodes of a graph; attributes are lists or dicts by node.

    Attributes:
        opcode, dims, element_bytes: name, output shape and bytes of an element.
        bytes: bytes of the output, without padding.
        operands: nodes in operand order.
        groups: batch, row and contracted dimensions of the output and the operands of a dot; of a
            convolution the batch, feature and spatial ones.
        flops: operations of a dot.
        readers: nodes that read a node's output, twice if as two operands.
        keeps: whether the operands and the output of a node have one layout.
        reshapes: nodes that reshape their operand.
        permutation, reduced: permutation of a transpose, dimensions that a reduction removes.
        kept: dimensions of a broadcast's output that are its operand's.
        elementwise: whether a node computes each element from the elements in the same position.
        preferred: the layout of the output if it is a parameter or a result.
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
        self.bytes = [int(size) for size in context.bytes]
        self.operands = self._operands()
        self.groups: dict[int, list[Groups]] = {}
        self.flops: dict[int, float] = {}
        self._describe_products()
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
        self.merged = self._merged()
        self.activations = self._activations() if hardware.fuses_activations else {}
        self.results = self._results()

    def _operands(self) -> list[list[int]]:
        """Return the operands of each node, arrays first if other operands differ from them."""
        graph = self.context.graph
        dims = self.dims
        splits = np.unique(np.concatenate([[0], graph.splits, [graph.nodes]]))
        computation = np.searchsorted(splits, np.arange(graph.nodes), side="right")
        operands: list[list[int]] = [[] for _ in dims]
        for consumer, operand in graph.edges.tolist():
            if computation[consumer] == computation[operand]:
                operands[consumer].append(operand)
        for node, inputs in enumerate(operands):
            if self.opcode[node] in _ARRAY_FIRST:
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
        """Set operands and groups of dots and convolutions, and the operations of dots.

        The dataset's edges are not in operand order.
        """
        context = self.context
        opcode = context.graph.opcode
        nodes = np.flatnonzero(np.isin(opcode, [OPCODE["convolution"], OPCODE["dot"]]))
        tensors = slot_tensors(context, nodes)
        tensors[:, 2] = np.where(tensors[:, 2] < 0, tensors[:, 1], tensors[:, 2])  # x * x: one edge
        roles = slot_roles(context, tensors).tolist()
        for node, (_, *inputs), slots in zip(nodes.tolist(), tensors.tolist(), roles, strict=True):
            self.operands[node] = [tensor for tensor in inputs if tensor >= 0]
            self.groups[node] = [_by_role(slot) for slot in slots]
        flops = np.rint(context.shared(node_flops))
        unknown = []
        for number, node in enumerate(np.flatnonzero(opcode == OPCODE["dot"]).tolist()):
            self.flops[node] = float(flops[node])
            if context.graph.dot_operands[number, 0] >= 0:
                self._take_numbers(node, number)
            else:
                unknown.append(node)
        self._contract_squares(unknown)

    def _take_numbers(self, node: int, number: int) -> None:
        """Set what is known of a dot from its dimension numbers, at ``number`` in the file."""
        graph = self.context.graph
        self.operands[node] = graph.dot_operands[number].tolist()
        contracted_size = 1
        groups = []
        sides = graph.dot_dimensions[number].reshape(2, 2, -1).transpose(1, 0, 2)
        for tensor, side in zip(self.operands[node], sides, strict=True):
            contracted, batch = (tuple(listed[listed >= 0].tolist()) for listed in side)
            dims = self.dims[tensor]
            rows = tuple(d for d in range(len(dims)) if d not in contracted + batch)
            groups.append((batch, rows, contracted))
            contracted_size = math.prod(dims[dimension] for dimension in contracted)
        batch, rows, _ = groups[0]
        output = tuple(range(len(self.dims[node])))
        split = len(batch), len(batch) + len(rows)
        of_output = output[: split[0]], output[split[0] : split[1]], output[split[1] :]
        self.groups[node] = [of_output, *groups]
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
                if len(dims) != 2:
                    continue
                contracted = 0 if 0 in self.groups[node][slot][2] else 1
                if dims[0] == dims[1] and tensor in first:
                    contracted = 1 - first[tensor]
                    self.groups[node][slot] = (), (1 - contracted,), (contracted,)
                first.setdefault(tensor, contracted)

    def _merged(self) -> dict[int, list[int]]:
        """Return the dots that are merged with each dot (XLA's ``DotMerger``)."""
        limit = self.hardware.merged_bytes
        groups: dict[tuple[int, int, Layout, Layout], list[int]] = {}
        for node in self.flops:
            _, (batch, _, left), (_, _, right) = self.groups[node]
            inputs = self.operands[node]
            size = sum(self.bytes[tensor] for tensor in (node, *inputs))
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
            return renumbered(layout, self.kept[node])
        return None

    def to_output(self, node: int, layout: Layout) -> Layout | None:
        """Return the layout of the output that this layout of the first operand implies, if any."""
        if node in self.permutation:
            return renumbered(layout, self.permutation[node])
        if node in self.reshapes:
            return reshaped(layout, self.dims[self.operands[node][0]], self.dims[node])
        if node in self.reduced and self.hardware.reduces_forward:
            return renumbered(layout, sorted({*layout} - self.reduced[node]))
        return None

    def propagates_first(self, node: int) -> bool:
        """Return whether a node hands layouts on before all others: it can be a bitcast."""
        opcode = self.opcode[node]
        if opcode != "reshape" or not self.operands[node]:
            return opcode in ("gather", "scatter", "transpose")
        source = self.dims[self.operands[node][0]]
        sizes, source_sizes = ([s for s in dims if s != 1] for dims in (self.dims[node], source))
        return len(source) == 1 or sizes == source_sizes


def _by_role(roles: list[int]) -> Groups:
    """Return the dimensions in each role, ascending."""
    first, second, third = (
        tuple(dimension for dimension, other in enumerate(roles) if other == role)
        for role in range(3)
    )
    return first, second, third
