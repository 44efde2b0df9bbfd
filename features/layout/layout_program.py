"""A program as layout assignment sees it: operands in order, and how operations hand layouts on.

Edges into called computations are left out: each computation's layouts are assigned separately.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODES
from xlarank.features.layout.hardware import Hardware
from xlarank.features.layout.layout_facts import LayoutFacts
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
from xlarank.features.program.slots import DOT_ROLES, dot_split, slot_roles, slot_tensors

#: Operations whose operands and output have one layout.
_KEEPING: Final = frozenset(
    "abs add all-reduce and atan2 bitcast-convert cbrt ceil cholesky clamp collective-permute compare complex "
    "concatenate convert cosine count-leading-zeros divide dynamic-slice dynamic-update-slice exponential "
    "exponential-minus-one fft floor imag is-finite log log-plus-one logistic map maximum minimum multiply negate "
    "not opt-barrier or pad popcnt power real reduce-precision reduce-window remainder reverse round-nearest-afz "
    "round-nearest-even rsqrt select select-and-scatter shift-left shift-right-arithmetic shift-right-logical sign "
    "sine slice sort sqrt stochastic-convert subtract tan tanh triangular-solve xor".split()
)
#: Operations whose first operand is the array, after which come scalars, indices or updates.
_ARRAY_FIRST: Final = frozenset(
    "reduce pad reduce-window gather dynamic-slice dynamic-update-slice scatter select-and-scatter sort".split()
)
_CONTRACTED: Final = DOT_ROLES.index("contracted")


class Passing(Enum):
    """How an operation hands a layout on between an operand and its output."""

    KEEPS = auto()
    PERMUTES = auto()
    RESHAPES = auto()
    REDUCES = auto()
    STOPS = auto()


class LayoutProgram:
    """The instructions of a graph.

    Attributes:
        opcode, dims, element_bytes: name, output shape and bytes of an element, by node.
        operands: nodes in operand order.
        passing: how each node hands layouts on.
        permutation, reduced: of transposes, and of reductions.
        preferred: layouts of parameters and results that the compiler chooses.
        roles: roles of the dimensions of output and operands of dots and convolutions, by node (`slot_roles`).
        split: numbers of batch and of row dimensions of dots, by node.
        flops: floating-point operations of dots, by node.
        results: nodes whose layouts the caller fixes.
    """

    def __init__(self, facts: LayoutFacts, hardware: Hardware) -> None:
        self.facts, self.hardware = facts, hardware
        nodes = facts.graph.nodes
        self.opcode = [OPCODES[number] for number in facts.graph.opcode]
        self.dims: list[Sizes] = [
            tuple(sizes[:rank])
            for sizes, rank in zip(facts.dims.tolist(), facts.rank.tolist(), strict=True)
        ]
        self.element_bytes = [int(size) for size in facts.element_bytes]
        self.preferred = [self._preferred(node) for node in range(nodes)]
        self.operands = self._operands()
        self.permutation: dict[int, Layout] = {}
        self.reduced: dict[int, frozenset[int]] = {}
        self.passing = [self._passing(node) for node in range(nodes)]
        self._dots()
        self.results = self._results()
        self.activations = self._activations()

    def _preferred(self, node: int) -> Layout:
        """Return the module's layout if it is not row-major, as then someone has chosen it; else the back end's."""
        hardware, dims = self.hardware, self.dims[node]
        layout = tuple(self.facts.default_layout[node, : len(dims)].tolist())
        if layout != row_major(len(dims)) or not hardware.backend.compacts:
            return layout
        return compact(
            dims, self.element_bytes[node], hardware.lanes, hardware.sublanes, hardware.word
        )

    def padded_bytes(self, node: int, layout: Layout) -> int:
        """Return the bytes of a node's output in the hardware's tiles."""
        hardware = self.hardware
        tile = hardware.lanes, hardware.sublanes, hardware.word
        return padded_bytes(layout, self.dims[node], self.element_bytes[node], *tile)

    def _operands(self) -> list[list[int]]:
        """Return the operands of each node; the dataset's edges are not in operand order."""
        graph = self.facts.graph
        splits = np.unique(np.concatenate([[0], graph.splits, [graph.nodes]]))
        computation = np.searchsorted(splits, np.arange(graph.nodes), side="right")
        operands: list[list[int]] = [[] for _ in self.dims]
        for consumer, operand in graph.edges.tolist():
            if computation[consumer] == computation[operand]:
                operands[consumer].append(operand)
        tensors = slot_tensors(self.facts, np.arange(graph.nodes))
        for node, inputs in enumerate(operands):
            if self.opcode[node] in ("dot", "convolution"):
                left, right = tensors[node, 1:].tolist()
                operands[node] = [
                    tensor for tensor in (left, right if right >= 0 else left) if tensor >= 0
                ]
            elif self.opcode[node] in _ARRAY_FIRST:
                inputs.sort(
                    key=lambda tensor, dims=self.dims[node]: (
                        -len(self.dims[tensor]),
                        self.dims[tensor] != dims,
                    )
                )  # type: ignore[misc]
        return operands

    def _passing(self, node: int) -> Passing:
        opcode, inputs = self.opcode[node], self.operands[node]
        if opcode in _KEEPING:
            return Passing.KEEPS
        if not inputs:
            return Passing.STOPS
        dims, source = self.dims[node], self.dims[inputs[0]]
        listed = tuple(self.facts.column("dimensions_0", MAX_RANK)[node].astype(int).tolist())
        if opcode == "transpose" and sorted(listed[: len(dims)]) == [*range(len(source))]:
            if tuple(source[dimension] for dimension in listed[: len(dims)]) == dims:
                self.permutation[node] = listed[: len(dims)]
                return Passing.PERMUTES
        if opcode in ("reshape", "bitcast"):
            return Passing.RESHAPES
        if opcode == "reduce" and len(source) > len(dims):
            removed = frozenset(listed[: len(source) - len(dims)])
            if len(removed) == len(source) - len(dims) and max(removed) < len(source):
                self.reduced[node] = removed
                return Passing.REDUCES
        return Passing.STOPS

    def _dots(self) -> None:
        """Set the roles of dimensions, and the splits and operations of dots."""
        facts = self.facts
        nodes = np.array(
            [node for node, opcode in enumerate(self.opcode) if opcode in ("dot", "convolution")],
            np.int64,
        )
        tensors = slot_tensors(facts, nodes)
        if len(nodes):
            tensors[:, 2] = np.where(tensors[:, 2] < 0, tensors[:, 1], tensors[:, 2])
        roles = slot_roles(facts, tensors)
        self.roles: dict[int, list[list[int]]] = dict(
            zip(nodes.tolist(), roles.tolist(), strict=True)
        )
        is_dot = np.array([self.opcode[node] == "dot" for node in nodes], bool)
        batch, rows, contracted = dot_split(facts, tensors[is_dot])
        dots = nodes[is_dot].tolist()
        self.split = dict(
            zip(dots, zip(batch.astype(int), rows.astype(int), strict=True), strict=True)
        )
        flops = np.rint(2 * contracted * facts.volume[nodes[is_dot]])
        self.flops = dict(zip(dots, flops.tolist(), strict=True))
        self._contract_squares(dots)

    def _contract_squares(self, dots: list[int]) -> None:
        """Choose the contracted dimension of square operands, which is not in the file.

        A matrix that two dots read (forward pass and gradient) is contracted along one dimension, then the other.
        """
        first: dict[int, int] = {}
        for node in dots:
            for slot, tensor in enumerate(self.operands[node], 1):
                if len(self.dims[tensor]) != 2:
                    continue
                roles = self.roles[node][slot]
                contracted = 0 if roles[0] == _CONTRACTED else 1
                if self.dims[tensor][0] == self.dims[tensor][1] and tensor in first:
                    contracted = 1 - first[tensor]
                    roles[contracted] = _CONTRACTED
                    roles[1 - contracted] = DOT_ROLES.index("rows")
                first.setdefault(tensor, contracted)

    def _activations(self) -> dict[int, int]:
        """Return the convolution that each activation is computed with, if nothing else reads it."""
        if not self.hardware.backend.fuses_activations:
            return {}
        readers: Counter[int] = Counter()
        for inputs in self.operands:
            readers.update(inputs)
        activations = {}
        for node, inputs in enumerate(self.operands):
            convolutions = [t for t in inputs if self.opcode[t] == "convolution" and readers[t] == 1]
            if self.opcode[node] == "maximum" and len(convolutions) == 1:
                activations[node] = convolutions[0]
        return activations

    def _results(self) -> list[int]:
        roots = np.flatnonzero(self.facts.column("is_root")).tolist()
        results = []
        for root in roots:
            results += self.operands[root] if self.opcode[root] == "tuple" else [root]
        return [node for node in dict.fromkeys(results) if self.dims[node]]

    def to_operand(self, node: int, layout: Layout) -> Layout | None:
        """Return the layout of the first operand of a node from which the output needs no move; None if unknown."""
        if node in self.permutation:
            return permuted(layout, self.permutation[node])
        if self.passing[node] is Passing.RESHAPES:
            source = self.dims[self.operands[node][0]]
            return reshaped(layout, self.dims[node], source) if len(source) > 1 else None
        return None

    def to_output(self, node: int, layout: Layout) -> Layout | None:
        """Return the layout of the output that a layout of the first operand leads to; None if unknown."""
        if node in self.permutation:
            return permuted(layout, inverse(self.permutation[node]))
        if self.passing[node] is Passing.RESHAPES:
            return reshaped(layout, self.dims[self.operands[node][0]], self.dims[node])
        if node in self.reduced:
            return without(layout, self.reduced[node])
        return None

    def keeps_order(self, node: int) -> bool:
        """Return whether a node hands layouts on before its neighbours do, as it never makes a copy."""
        opcode = self.opcode[node]
        if opcode != "reshape" or not self.operands[node]:
            return opcode in ("gather", "scatter", "transpose")
        source = self.dims[self.operands[node][0]]
        ones_only = [size for size in source if size != 1] == [
            size for size in self.dims[node] if size != 1
        ]
        return len(source) == 1 or ones_only


def roles_of(roles: list[int], rank: int, role: int) -> Layout:
    """Return the dimensions of one role, ascending."""
    return tuple(dimension for dimension in range(rank) if roles[dimension] == role)


def major_first(*groups: Layout) -> Layout:
    """Return the layout whose dimensions are those of the groups, major-most first."""
    return tuple(reversed([dimension for group in groups for dimension in group]))


def is_matrix(layout: Layout, groups: tuple[Layout, Layout, Layout]) -> bool:
    """Return whether groups (batch, rows, columns) are contiguous, in order, and the batch is not minor-most.

    Empty groups are ignored (XLA's ``MatrixLayout::For``).

    >>> is_matrix((1, 2, 0), ((0,), (1,), (2,))), is_matrix((0, 2, 1), ((0,), (1,), (2,)))
    (True, False)
    """
    present = [tuple(reversed(group)) for group in groups if group]
    rest = layout
    first = True
    while rest:
        group = next((group for group in present if rest[: len(group)] == group), None)
        if group is None or (first and groups[0] and group == tuple(reversed(groups[0]))):
            return False
        rest, first = rest[len(group) :], False
    return True


__all__ = ["LayoutProgram", "Passing", "is_matrix", "major_first", "roles_of", "row_major"]
